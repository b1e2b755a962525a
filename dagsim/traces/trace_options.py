"""Options for reading a trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import inf
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from dagsim.errors import ConfigError
from dagsim.model import GPU_TYPES, gpu_type
from dagsim.model.gpu import canonical
from dagsim.traces.sites import named_gpus
from dagsim.workload.arrays import Labels

COMMON_OPTIONS = frozenset({"time_scale", "load", "start", "limit", "strict"})
"""Options that work with every format. Each of the other options works with the readers that list
it.
"""


_WORDS = {
    "tenant": ("user", "account", "partition"),
    "demand": ("allocated", "requested"),
    "arrival": ("ctime", "qtime"),
}


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """Options for reading a trace. With the defaults, the trace is read as recorded.

    Raises:
        ConfigError: A value is out of range. The message names the option, the value and the range.
    """

    gpus_per_task: float | None = None
    """For CPU-only traces, the number of GPUs that each task instance requests instead of its
    recorded demand.
    """
    reference_gpu: str | None = None
    """The GPU type on which work in seconds was measured. Seconds measured on another known type
    are converted by peak FP32 rates.
    """
    time_scale: float = 1.0
    """Factor by which the times between arrivals are multiplied. At 0.5, jobs arrive twice as
    fast.
    """
    load: float | None = None
    """Offered load to which the times of arrival are scaled. By default, the load stays as in the
    trace.
    """
    start: int = 0
    """Number of usable jobs to skip at the beginning."""
    limit: int | None = None
    """Maximum number of jobs to keep."""
    keep_partial: bool = False
    """True to keep the usable parts of jobs that did not finish completely."""
    strict: bool = False
    """True to stop with an error at the first row that would be dropped."""
    protocol: str | None = None
    """Name of a published evaluation. The trace is read according to the rules of this evaluation,
    if the format supports them.
    """
    processors: int | None = None
    """Number of processors of the machine, if this number is missing or wrong in the trace."""
    floor_s: float = 0.0
    """Minimum work of a task in seconds. Shorter tasks are extended to this duration."""
    timezone: str | None = None
    """IANA name of the time zone, such as ``Europe/Berlin``, for dates that do not give their time
    zone. Default: UTC.
    """
    tenant: str | None = None
    """Attribute that is used as a job's tenant: ``user``, ``account`` or ``partition``. Default:
    the account, or else the user.
    """
    demand: str | None = None
    """Which resources a job needs: the ones that it received (``allocated``, the default) or the
    ones that it requested (``requested``).
    """
    mig: bool = False
    """True to convert MIG slices to fractions of a GPU. Otherwise, jobs on slices are dropped."""
    shards: int | None = None
    """Number of shards per GPU, for jobs that request shards. Without it, such jobs are dropped."""
    gpu_names: str | None = None
    """The GPU type for which each of the site's own names stands, as in ``a100=A100-80,gpu7=T4``."""
    map: str | None = None
    """The column of the table from which each of dagsim's fields is read, as in
    ``arrival_s=submitted_at,gpus=n_gpu``. All other fields are read from the columns with their own
    names."""
    arrival: str | None = None
    """Time at which a PBS job arrives: when it was created (``ctime``, the default) or queued
    (``qtime``).
    """
    count_pull: bool = False
    """True to count the time between the binding and the start of a pod as work. During this time,
    the pod's image is pulled.
    """
    delimiter: str | None = None
    """Character that separates columns, if it is not the format's usual separator."""
    columns: str | None = None
    """Names of the columns, in order, for output from sacct without a header."""
    spread: bool = False
    """True if each row of a table gives the total resources of a job. These may be spread over
    nodes in any way, even as single GPUs or cores.
    """

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        gpus = self.gpus_per_task
        if gpus is not None and not (0 < gpus < inf and (gpus <= 1 or gpus == int(gpus))):
            raise ConfigError(f"gpus_per_task must be a fraction up to 1 or a whole number, got {gpus!r}")
        if self.reference_gpu is not None:
            gpu_type(self.reference_gpu)
        for name in ("time_scale", "load"):
            value = getattr(self, name)
            if value is not None and not 0 < value < inf:
                raise ConfigError(f"{name} must be positive, got {value!r}")
        for name, least in (("start", 0), ("limit", 1), ("processors", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"{name} must be {least} or more, got {value!r}")
        for name, allowed in _WORDS.items():
            if getattr(self, name) not in (None, *allowed):
                raise ConfigError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        if self.shards is not None and not 1 <= self.shards <= 1 << 16:
            raise ConfigError(f"shards must be a number from 1 to {1 << 16}, got {self.shards!r}")
        if self.delimiter is not None and len(self.delimiter) != 1:
            raise ConfigError(f"delimiter must be one character, got {self.delimiter!r}")
        self.zone()
        self.named_gpus()
        self.mapping()
        if not 0 <= self.floor_s < inf:
            raise ConfigError(f"floor_s must be 0 or more, got {self.floor_s!r}")

    def zone(self) -> ZoneInfo | None:
        """Return the time zone of the option ``timezone``, or None if it is not given.

        Raises:
            ConfigError: There is no time zone with that name.
        """
        if self.timezone is None:
            return None
        try:
            return ZoneInfo(self.timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ConfigError(f"timezone must be an IANA name such as Europe/Berlin, got {self.timezone!r}") from None

    def named_gpus(self) -> dict[str, str]:
        """Return the entries of ``gpu_names``, keyed by the site's names in lower case."""
        return named_gpus(self.gpu_names)

    def mapping(self) -> dict[str, str]:
        """Return the entries of ``map``, from dagsim's column names to the file's column names.

        Raises:
            ConfigError: A part is not a pair of names, or a name occurs twice.
        """
        pairs = [pair.partition("=") for pair in self.map.split(",")] if self.map else []
        names = {ours.strip(): theirs.strip() for ours, _, theirs in pairs}
        if len(names) < len(pairs) or not all(ours and theirs for ours, theirs in names.items()):
            raise ConfigError(f"map must be pairs like arrival_s=submitted_at, separated by commas, got {self.map!r}")
        return names

    def named_columns(self) -> tuple[str, ...]:
        """Return the entries of ``columns``."""
        return tuple([name.strip() for name in self.columns.split(",")]) if self.columns else ()

    def given(self) -> tuple[str, ...]:
        """Return the names of the options that differ from their defaults."""
        return tuple([field.name for field in fields(self) if getattr(self, field.name) != field.default])

    def tenants(self, user: Labels, account: Labels, partition: Labels) -> Labels:
        """Return the tenant of each job: the attribute that the option ``tenant`` names. By
        default, it is the job's account or, without one, its user.
        """
        if self.tenant is not None:
            return {"user": user, "account": account, "partition": partition}[self.tenant]
        nameless = np.array([not word for word in account.words])[account.place]
        place = np.where(nameless, user.place + np.int32(len(account.words)), account.place)
        return Labels(place, (*account.words, *user.words)).mapped(str)

    def cpu_demand(self, cpus: float, memory_gb: float) -> tuple[float, float, float]:
        """Return the GPUs, cores and memory of an instance in a trace without GPUs. If
        ``gpus_per_task`` is set, the instance needs that many GPUs and nothing else. Otherwise, it
        has its recorded demand.
        """
        return (0.0, cpus, memory_gb) if self.gpus_per_task is None else (self.gpus_per_task, 0.0, 0.0)

    def cpu_demand_text(self, own: str) -> str:
        """Return the rule that ``cpu_demand`` applies, in words. ``own`` describes the demand in
        the trace.
        """
        if self.gpus_per_task is None:
            return f"tasks need no GPU; an instance takes {own}"
        return f"an instance takes {self.gpus_per_task:g} GPUs of any type and nothing else (--read gpus_per_task=)"

    def on_reference(self, seconds: float, measured_on: str | None) -> float:
        """Convert seconds measured on the GPU type ``measured_on`` to seconds on ``reference_gpu``.
        The seconds are unchanged if either type is unknown.
        """
        measured = GPU_TYPES.get(canonical(measured_on or ""))
        if self.reference_gpu is None or measured is None:
            return seconds
        return seconds * measured.fp32_tflops / gpu_type(self.reference_gpu).fp32_tflops

    def all_on_reference(self, seconds: np.ndarray, measured_on: Sequence[str | None], place: np.ndarray) -> np.ndarray:
        """Convert n values in seconds, as ``on_reference`` does. Entry i was measured on
        ``measured_on[place[i]]``.
        """
        if self.reference_gpu is None:
            return seconds
        counted = seconds.copy()
        for kind in np.unique(place).tolist():
            counted[place == kind] = self.on_reference(seconds[place == kind], measured_on[kind])
        return counted
