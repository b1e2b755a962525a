"""The parameters of the policy that schedules like Slurm."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import inf
from typing import Any

from dagsim.errors import ConfigError
from dagsim.families.slurm.scheduler.priority_formulas import Weights
from dagsim.families.slurm.scheduler.slurm_priority import FairShareRule, PrioritySettings
from dagsim.model import QueueTree
from dagsim.model.arithmetic import DAY_S
from dagsim.registry import arguments_of

_CHOICES = {
    "order": ("multifactor", "basic"),
    "preempt": ("off", "partition_prio", "qos"),
    "kill": ("partition", "limit", "never"),
    "bf_ties": ("wait", "fit"),
    "gangs": ("packed", "distinct"),
    "place": ("first", "best"),
    "limits": ("safe", "used"),
}
_POSITIVE = ("sched_interval_s", "bf_interval_s", "queue_depth", "bf_resolution_s")
_NOT_NEGATIVE = (
    "requeue_delay_s", "over_time_s", "bf_window_s", "bf_window_linear_s", "bf_phase_s", "bf_cycle_s", "calc_phase_s",
    "sched_min_interval_s", "bf_max_job_test", "bf_max_job_user", "bf_max_job_assoc", "bf_max_job_part",
    "bf_max_job_array_resv",
)  # fmt: skip
_OF_PRIORITIES = (
    "max_age_s", "half_life_s", "calc_period_s", "damping", "favor_small", "relative_size", "max_tres", "accrue_always",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """The parameters of ``slurm-multifactor``, described in docs/reference/schedulers.md."""

    order: str = "multifactor"
    age: float = 1000.0
    fair_share: float = 100_000.0
    job_size: float = 1000.0
    partition: float = 10_000.0
    qos: float = 0.0
    assoc: float = 0.0
    tres_gpus: float = 0.0
    tres_cpus: float = 0.0
    tres_memory: float = 0.0
    algorithm: FairShareRule = "tree"
    damping: float = 1.0
    half_life_s: float = 14 * DAY_S
    max_age_s: float = 14 * DAY_S
    calc_period_s: float = 300.0
    calc_phase_s: float = 0.0
    favor_small: bool = False
    relative_size: bool = False
    max_tres: bool = False
    accrue_always: bool = False
    queue_depth: int = 100
    sched_interval_s: float = 60.0
    sched_min_interval_s: float = 0.0
    backfill: bool = True
    bf_interval_s: float = 30.0
    bf_phase_s: float = 0.0
    bf_cycle_s: float = 0.0
    bf_window_s: float = DAY_S
    bf_window_linear_s: float = 0.0
    bf_max_job_test: int = 100
    bf_max_job_user: int = 0
    bf_max_job_assoc: int = 0
    bf_max_job_part: int = 0
    bf_max_job_array_resv: int = 20
    bf_resolution_s: float = 60.0
    bf_ties: str = "wait"
    preempt: str = "off"
    requeue_delay_s: float = 121.0
    limits: str = "safe"
    kill: str = "partition"
    over_time_s: float = 0.0
    gangs: str = "packed"
    place: str = "first"

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ConfigError(
                    f"slurm-multifactor: {name} must be {' or '.join(choices)}, got {getattr(self, name)!r}"
                )
        for names, least, words in ((_POSITIVE, 5e-324, "above 0"), (_NOT_NEGATIVE, 0.0, "0 or more")):
            for name in names:
                if not least <= getattr(self, name) < inf:
                    raise ConfigError(f"slurm-multifactor: {name} must be {words}, got {getattr(self, name)!r}")

    def priorities(self) -> PrioritySettings:
        """Return the settings that determine priorities.

        Raises:
            ConfigError: A value is out of range.
        """
        tres = {"gpus": self.tres_gpus, "cpus": self.tres_cpus, "memory_gb": self.tres_memory}
        return PrioritySettings(
            Weights(self.age, self.assoc, self.fair_share, self.job_size, self.partition, self.qos, tres),
            fair_share=self.algorithm,
            **{name: getattr(self, name) for name in _OF_PRIORITIES},
        )

    def origin_s(self, clock_s: float = 0.0) -> float:
        """Return the time of the first priority calculation, which is at or before time 0. Later
        calculations are counted from this time. ``clock_s`` is the time on the site's clock at time
        0."""
        phase_s = self.moved(clock_s).calc_phase_s
        return phase_s - self.calc_period_s if phase_s else 0.0

    def moved(self, zero_s: float) -> SlurmSettings:
        """Return the settings on a clock that begins at ``zero_s`` on the site's clock. The first
        backfill cycle is not moved, because it is not a time on the site's clock: a simulation that
        begins later does not know when a cycle begins.
        """
        phase_s = (self.calc_phase_s - zero_s) % self.calc_period_s if self.calc_phase_s else 0.0
        return replace(self, calc_phase_s=phase_s, bf_phase_s=0.0)

    @property
    def backfill_period_s(self) -> float:
        """Return the time from the beginning of a backfill cycle to the beginning of the next one. Slurm
        counts ``bf_interval_s`` from the end of a cycle (last_backfill_time in backfill_agent).
        """
        return self.bf_interval_s + self.bf_cycle_s

    @property
    def distinct(self) -> bool:
        """True if each instance of a gang goes to a different node."""
        return self.gangs == "distinct"


def slurm_settings(queues: QueueTree) -> SlurmSettings:
    """Return the parameters that the site uses.

    Raises:
        UnknownName: There is no such parameter.
        ConfigError: A value has the wrong type or is out of range.
    """
    whole = {one.name for one in fields(SlurmSettings) if one.type == "int"}
    parameters: dict[str, object] = {
        name: int(value) if name in whole and isinstance(value, float) and value.is_integer() else value
        for name, value in queues.scheduler.items()
    }  # numbers in a configuration are floats
    settings: dict[str, Any] = arguments_of("queues.scheduler: policy", "slurm-multifactor", SlurmSettings, parameters)
    return SlurmSettings(**settings)
