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
"""Options that work with every format; each other option works with the readers that list it."""


_WORDS = {
    "tenant": ("user", "account", "partition"),
    "demand": ("allocated", "requested"),
    "arrival": ("ctime", "qtime"),
}


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """Options for reading a trace. With the defaults, the trace is read as recorded.

    Raises:
        ConfigError: A value is out of range. The message names option, value and range.
    """

    gpus_per_task: float | None = None
    """GPUs per task instance of a CPU-only trace; the instance then requests nothing else."""
    reference_gpu: str | None = None
    """The GPU type in whose seconds work is stated: seconds measured on another known type are
    converted by peak FP32 rates.
    """
    time_scale: float = 1.0
    """Factor on the times between arrivals: at 0.5, jobs arrive twice as fast."""
    load: float | None = None
    """Offered load to which arrivals are rescaled (by the replay, which knows the cluster)."""
    start: int = 0
    """Number of usable jobs to skip at the beginning."""
    limit: int | None = None
    """Maximum number of jobs to keep."""
    keep_partial: bool = False
    """Keep the usable parts of jobs that did not finish as a whole."""
    strict: bool = False
    """Raise an error at the first row that would be dropped."""
    protocol: str | None = None
    """Name of a published evaluation whose rules of reading are applied, if the format supports
    any.
    """
    processors: int | None = None
    """Processors of the machine, if the trace does not state them or states them wrongly."""
    floor_s: float = 0.0
    """Minimum work of a task in seconds; shorter tasks are raised to it."""
    timezone: str | None = None
    """IANA name of the time zone of dates without one (``Europe/Berlin``); default UTC."""
    tenant: str | None = None
    """Owner of a job: ``user``, ``account`` or ``partition``; by default the account, or else the
    user.
    """
    demand: str | None = None
    """Resources of a job: those it received (``allocated``, the default) or those it asked for
    (``requested``).
    """
    mig: bool = False
    """Convert MIG slices to shares of a GPU; otherwise jobs on slices are dropped."""
    shards: int | None = None
    """Number of shards per GPU, for jobs that request shards; otherwise such jobs are dropped."""
    gpu_names: str | None = None
    """GPU types for the site's names: ``a100=A100-80,gpu7=T4``."""
    map: str | None = None
    """Columns of a table by their names here: ``arrival_s=submitted_at,gpus=n_gpu``; other columns
    keep their names.
    """
    arrival: str | None = None
    """Arrival of a PBS job: its creation (``ctime``, the default) or its queueing (``qtime``)."""
    count_pull: bool = False
    """Count the time between binding and start of a pod, while its image is pulled, as work."""
    delimiter: str | None = None
    """Separator between columns, if it is not the usual one."""
    columns: str | None = None
    """Names of the columns of sacct's output without its header, in their order."""
    spread: bool = False
    """Rows of a table state totals of jobs that may be spread over nodes, a GPU or core at a time."""

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
        """Return the time zone of the option ``timezone``.

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
        """Return the entries of ``map``, from dagsim's column names to those of the file.

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
        """Return the options that differ from their defaults."""
        return tuple([field.name for field in fields(self) if getattr(self, field.name) != field.default])

    def tenants(self, user: Labels, account: Labels, partition: Labels) -> Labels:
        """Return the tenant of each job: the attribute that the option ``tenant`` names, or else the
        job's account, or else its user.
        """
        if self.tenant is not None:
            return {"user": user, "account": account, "partition": partition}[self.tenant]
        nameless = np.array([not word for word in account.words])[account.place]
        place = np.where(nameless, user.place + np.int32(len(account.words)), account.place)
        return Labels(place, (*account.words, *user.words)).mapped(str)

    def cpu_demand(self, cpus: float, memory_gb: float) -> tuple[float, float, float]:
        """Return the GPUs, cores and memory of an instance in a CPU-only trace: its recorded demand
        or, if ``gpus_per_task`` is set, only that many GPUs.
        """
        return (0.0, cpus, memory_gb) if self.gpus_per_task is None else (self.gpus_per_task, 0.0, 0.0)

    def cpu_demand_text(self, own: str) -> str:
        """Return the rule of ``cpu_demand`` in words. ``own`` describes the demand in the trace."""
        if self.gpus_per_task is None:
            return f"tasks need no GPU; an instance takes {own}"
        return f"an instance takes {self.gpus_per_task:g} GPUs of any type and nothing else (--read gpus_per_task=)"

    def on_reference(self, seconds: float, measured_on: str | None) -> float:
        """Convert seconds measured on the GPU type ``measured_on`` to seconds on ``reference_gpu``.
        They are unchanged if either type is unknown.
        """
        measured = GPU_TYPES.get(canonical(measured_on or ""))
        if self.reference_gpu is None or measured is None:
            return seconds
        return seconds * measured.fp32_tflops / gpu_type(self.reference_gpu).fp32_tflops

    def all_on_reference(self, seconds: np.ndarray, measured_on: Sequence[str | None], place: np.ndarray) -> np.ndarray:
        """Convert (n,) seconds like ``on_reference``. Entry i was measured on
        ``measured_on[place[i]]``.
        """
        if self.reference_gpu is None:
            return seconds
        counted = seconds.copy()
        for kind in np.unique(place).tolist():
            counted[place == kind] = self.on_reference(seconds[place == kind], measured_on[kind])
        return counted
