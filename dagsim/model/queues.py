"""The queues of a production scheduler, which describe the users of a cluster with their quotas,
weights and limits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from math import inf, isfinite
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from dagsim.errors import ModelError, require
from dagsim.model.arithmetic import DAY_S
from dagsim.sections import Later

if TYPE_CHECKING:
    from dagsim.model.job import Job


@dataclass(frozen=True, slots=True)
class Caps:
    """Limits on the resources that running tasks use at the same time. None means no limit.

    Raises:
        ModelError: A limit is negative, or there is no such resource.
    """

    gpus: float | None = None
    """Number of GPUs."""
    cpus: float | None = None
    """Number of CPU cores."""
    memory_gb: float | None = None
    """Memory in GB."""
    jobs: int | None = None
    """Number of runs."""
    gpus_of: Mapping[str, float] = field(default_factory=dict)
    """Number of GPUs of each type."""
    nodes: int | None = None
    """Number of distinct nodes."""
    minutes: Mapping[str, float] = field(default_factory=dict)
    """Budgets of resource-minutes: ``gpus``, ``cpus``, ``memory_gb`` or ``nodes``, multiplied by
    minutes. A budget covers what has already been used plus what current runs could still use
    before they reach their time limits."""

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        amounts = {name: getattr(self, name) for name in ("gpus", "cpus", "memory_gb", "jobs", "nodes")}
        for name, value in (*amounts.items(), *self.gpus_of.items(), *self.minutes.items()):
            require(value is None or value >= 0, f"limits: {name} must be 0 or more", value, ModelError)
        _known("limits: minutes", self.minutes, ("gpus", "cpus", "memory_gb", "nodes"))

    def __bool__(self) -> bool:
        amounts = (self.gpus, self.cpus, self.memory_gb, self.jobs, self.nodes)
        return bool(self.gpus_of or self.minutes) or any(amount is not None for amount in amounts)


@dataclass(frozen=True, slots=True)
class JobCaps:
    """Limits on the resources of a single job. None means no limit. A job that requests more never
    starts.

    Raises:
        ModelError: A limit is negative, or there is no such resource.
    """

    gpus: float | None = None
    """Number of GPUs."""
    cpus: float | None = None
    """Number of CPU cores."""
    memory_gb: float | None = None
    """Memory in GB."""
    nodes: float | None = None
    """Number of nodes."""
    minutes: Mapping[str, float] = field(default_factory=dict)
    """Largest amounts of ``gpus``, ``cpus``, ``memory_gb`` or ``nodes``, multiplied by the job's
    time limit in minutes."""

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        for name, value in (*self.amounts().items(), *self.minutes.items()):
            require(value >= 0, f"job_limits: {name} must be 0 or more", value, ModelError)
        _known("job_limits: minutes", self.minutes, ("gpus", "cpus", "memory_gb", "nodes"))

    def __bool__(self) -> bool:
        return bool(self.amounts() or self.minutes)

    def amounts(self) -> dict[str, float]:
        """Return all limits on resources that have been set, except those on resource-minutes."""
        values = ((limit.name, getattr(self, limit.name)) for limit in fields(self) if limit.name != "minutes")
        return {name: value for name, value in values if value is not None}


@dataclass(frozen=True, slots=True)
class QueueNode:
    """An account, a queue or a group of queues. It includes all accounts or queues below it.

    Raises:
        ModelError: A name is missing, or a number is negative.
    """

    name: str
    """Name of the account or queue."""
    weight: float = 1.0
    """Number of shares that the queue has in comparison with its siblings."""
    priority: float = 0.0
    """Priority of the jobs in the queue."""
    users: Mapping[str, float] = field(default_factory=dict)
    """Number of shares that each user has (default: 1)."""
    user_priorities: Mapping[str, float] = field(default_factory=dict)
    """Priorities of individual users, where they differ from the queue's."""
    limits: Caps = field(default_factory=Caps)
    """Limits for the queue and everything below it, taken together."""
    user_limits: Caps = field(default_factory=Caps)
    """Limits for each user."""
    limits_of: Mapping[str, Caps] = field(default_factory=dict)
    """Limits for individual users, by user name."""
    job_limits: JobCaps = field(default_factory=JobCaps)
    """Limits for each job."""
    job_limits_of: Mapping[str, JobCaps] = field(default_factory=dict)
    """Limits for each job of individual users, by user name."""
    quota: Mapping[str, float] = field(default_factory=dict)
    """The queue's own quota of each resource. Resources are GPU types, or ``gpus``, ``cpus`` and ``memory_gb``."""
    borrow: Mapping[str, float] = field(default_factory=dict)
    """Largest amount of each resource that the queue may borrow from other queues' quotas.
    Resources that are not listed have no limit."""
    lend: Mapping[str, float] = field(default_factory=dict)
    """Largest amount of each resource that the queue may lend from its own quota. Resources that
    are not listed have no limit."""
    order: Literal["best-effort", "strict"] = "best-effort"
    """With ``strict``, a job that does not fit blocks later jobs."""
    reclaim: Literal["never", "lower-priority", "any"] = "never"
    """Which jobs in other queues may be stopped so that this queue gets back the quota that it has lent."""
    within: Literal["never", "lower-priority", "lower-or-newer-equal-priority"] = "never"
    """Which jobs in this queue may be stopped so that other jobs in the queue can start."""
    aliases: tuple[str, ...] = ()
    """Additional names under which jobs are submitted to the queue, each in the form ``queue`` or
    ``namespace/queue``."""
    children: tuple[QueueNode, ...] = ()
    """The accounts or queues below it."""

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if not self.name:
            raise ModelError("queues: every queue needs a name")
        _check(f"queue {self.name!r}", {"weight": self.weight})
        for part in ("users", "user_priorities", "quota", "borrow", "lend"):
            _check(f"queue {self.name!r}: {part}", getattr(self, part))
        for part in ("borrow", "lend") if not self.children else ():
            if unknown := [key for key in getattr(self, part) if key not in self.quota]:
                raise ModelError(f"queue {self.name!r}: {part} names {unknown[0]!r}, for which the queue has no quota")

    def walk(self, above: tuple[str, ...] = ()) -> Iterator[tuple[QueueNode, tuple[str, ...]]]:
        """Yield this queue and all queues below it, each with the names of the queues above it,
        nearest first.
        """
        yield self, above
        for child in self.children:
            yield from child.walk((self.name, *above))


@dataclass(frozen=True, slots=True)
class NodePartition:
    """A partition: a set of nodes with common rules.

    Raises:
        ModelError: A number is out of range, or a resource is unknown.
    """

    name: str
    """Name by which jobs request the partition."""
    nodes: tuple[str, ...] = ()
    """Names of nodes or node groups. If empty, the partition contains all nodes."""
    priority: float = 1.0
    """Priority factor of the partition."""
    tier: int = 1
    """Jobs in partitions with a higher tier are scheduled first."""
    max_time_s: float | None = None
    """Number of seconds after which a job is killed."""
    default_time_s: float | None = None
    """Time limit in seconds of jobs that do not give one."""
    exclusive: bool = False
    """True if jobs get whole nodes."""
    billing: Mapping[str, float] = field(default_factory=dict)
    """Weights with which ``gpus``, ``cpus`` and ``memory_gb`` count towards usage."""
    preempt: Literal["off", "requeue", "cancel", "suspend"] = "off"
    """What happens to a job in this partition when a job in a partition with a higher tier preempts
    it. With ``off``, it cannot be preempted in this way.
    """
    limits: Caps = field(default_factory=Caps)
    """Limits on the total resources of all running jobs in the partition."""
    qos: str = ""
    """Name of a QOS whose limits apply to all jobs in the partition, in addition to the limits of
    each job's own QOS.
    """
    job_limits: JobCaps = field(default_factory=JobCaps)
    """Limits for each job."""
    accounts: tuple[str, ...] = ()
    """Accounts whose jobs may run in the partition, including all accounts below them. If empty, all
    accounts except ``denied_accounts`` are allowed.
    """
    denied_accounts: tuple[str, ...] = ()
    """Accounts whose jobs may not run in the partition, if ``accounts`` is empty."""
    allowed_qos: tuple[str, ...] = ()
    """QOS with which jobs may run in the partition. If empty, all QOS except ``denied_qos`` are
    allowed.
    """
    denied_qos: tuple[str, ...] = ()
    """QOS with which jobs may not run in the partition, if ``allowed_qos`` is empty."""
    grace_s: float = 0.0
    """Seconds for which a job continues to run after it has been chosen for preemption."""
    spreads: bool = False
    """True if jobs are placed on the least loaded nodes first."""

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        times = {name: getattr(self, name) for name in ("max_time_s", "default_time_s", "grace_s")}
        set_times = {name: value for name, value in times.items() if value is not None}
        _check(f"partition {self.name!r}", {"priority": self.priority, **set_times})
        if self.max_time_s == 0:
            raise ModelError(f"partition {self.name!r}: max_time_s must be above 0")
        _check(f"partition {self.name!r}: billing", self.billing)
        _known(f"partition {self.name!r}: billing", self.billing)


@dataclass(frozen=True, slots=True)
class Qos:
    """A quality of service. It has a priority, limits and a list of the QOS that it preempts. The
    limits apply in total, per user, per account and per job.

    Raises:
        ModelError: A number is out of range.
    """

    name: str
    """Name by which jobs request the QOS."""
    priority: float = 0.0
    """Priority factor of its jobs."""
    max_time_s: float | None = None
    """Time limit in seconds of the jobs with this QOS."""
    usage_factor: float = 1.0
    """Factor by which the usage of the jobs with this QOS is multiplied."""
    limits: Caps = field(default_factory=Caps)
    """Limits for all jobs with the QOS together."""
    user_limits: Caps = field(default_factory=Caps)
    """Limits for each user in the QOS."""
    account_limits: Caps = field(default_factory=Caps)
    """Limits for each account in the QOS."""
    preempts: tuple[str, ...] = ()
    """Names of the QOS whose jobs may be preempted by jobs with this QOS."""
    preempt: Literal["off", "requeue", "cancel", "suspend"] = "off"
    """What happens to a run of this QOS when it is preempted."""
    job_limits: JobCaps = field(default_factory=JobCaps)
    """Limits for each job."""
    grace_s: float = 0.0
    """Seconds for which a preempted run continues."""
    keeps_usage: bool = False
    """True if usage that counts against the budgets in ``limits`` does not decay."""

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        numbers = {"priority": self.priority, "usage_factor": self.usage_factor, "grace_s": self.grace_s}
        _check(f"qos {self.name!r}", numbers | ({} if self.max_time_s is None else {"max_time_s": self.max_time_s}))
        if self.max_time_s == 0:
            raise ModelError(f"qos {self.name!r}: max_time_s must be above 0")


REPEATED_S = 60 * DAY_S
"""Period in seconds over which a recurring reservation is repeated."""


@dataclass(frozen=True, slots=True)
class NodeReservation:
    """A reservation: nodes that only jobs with access to the reservation may use from ``start_s``
    to ``end_s``.

    Times use the clock of the log: they are in seconds since 1970 if the log has dates. For
    generated jobs, they are in seconds since the beginning of the simulation. Any other job starts
    on these nodes only if its time limit ends before the reservation begins. Jobs request the
    reservation by name (``Request.reservation``).

    Raises:
        ModelError: It has no name or no nodes, ends before it begins, or repeats before it ends.
    """

    name: str
    """Name by which jobs request the reservation."""
    nodes: tuple[str, ...]
    """Names of the reserved nodes."""
    start_s: float
    """Time at which the reservation begins."""
    end_s: float
    """Time at which the reservation ends."""
    every_s: float | None = None
    """Interval in seconds at which the reservation repeats, for a total of 60 days."""
    known_s: float | None = None
    """Time at which the reservation was made. None means that policies know it from the beginning."""
    magnetic: bool = False
    """True if jobs of ``accounts`` and ``users`` may use the nodes without requesting the reservation."""
    accounts: tuple[str, ...] = ()
    """Accounts that may use a magnetic reservation."""
    users: tuple[str, ...] = ()
    """Users who may use a magnetic reservation."""

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if not self.name or not self.nodes:
            raise ModelError(f"reservation {self.name!r}: the reservation needs a name and nodes")
        if not 0 <= self.start_s < self.end_s:
            raise ModelError(
                f"reservation {self.name!r}: the reservation must end after it begins, got "
                f"{self.start_s!r} to {self.end_s!r}"
            )
        if self.every_s is not None and not self.end_s - self.start_s <= self.every_s < inf:
            raise ModelError(
                f"reservation {self.name!r}: every_s must not be shorter than the reservation, got {self.every_s!r}"
            )

    def times(self) -> list[tuple[float, float]]:
        """Return the start and the end of each period in which the nodes are reserved."""
        count = 1 if self.every_s is None else max(1, int(REPEATED_S // self.every_s))
        every_s = self.every_s or 0.0
        return [(self.start_s + number * every_s, self.end_s + number * every_s) for number in range(count)]


@dataclass(frozen=True, slots=True)
class NodeOutage:
    """An outage: nodes that were out of service from ``start_s`` to ``end_s`` (None means until the
    end of the simulation). Both times are on the same clock as the times of reservations. If the
    kind is ``drain``, the running tasks continue but no task starts on the nodes. If it is
    ``down``, the running tasks fail. Unlike a reservation, an outage is not known in advance.

    Raises:
        ModelError: It has no nodes, or ends before it begins.
    """

    nodes: tuple[str, ...]
    """Names of the nodes."""
    start_s: float
    """The time in seconds at which the outage begins, on the same clock as reservations."""
    end_s: float | None = None
    """The time in seconds at which it ends. ``None`` means at the end of the simulation."""
    kind: Literal["drain", "down"] = "drain"
    """With ``drain``, running tasks continue but no task starts on the nodes. With ``down``, running tasks fail."""

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if not self.nodes:
            raise ModelError("outage: no nodes are named")
        if not 0 <= self.start_s < (inf if self.end_s is None else self.end_s):
            raise ModelError(f"outage: the end must follow the beginning, got {self.start_s!r} to {self.end_s!r}")


@dataclass(frozen=True, slots=True)
class JobSuspension:
    """A period during which a job was suspended by an operator, on the same clock as reservations.
    During this time, the job's runs make no progress, and other jobs may use its CPUs. Like an
    outage, it is not known in advance.

    Raises:
        ModelError: It names no job, or ends before it begins.
    """

    job: str
    """Id of the job."""
    start_s: float
    """Time at which the job was suspended."""
    end_s: float
    """Time at which the job was resumed."""

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if not self.job:
            raise ModelError("suspension: no job is named")
        if not 0 <= self.start_s < self.end_s < inf:
            raise ModelError(f"suspension: the end must follow the beginning, got {self.start_s!r} to {self.end_s!r}")


UNLIMITED_S = 365 * DAY_S
"""Time limit in seconds assumed for a job that has no limit: a year."""

OVERDUE_S = 1.0
"""Remaining time in seconds assumed for a run that has exceeded its time limit."""


class TimeLimits(NamedTuple):
    """Two time limits in seconds: the one for jobs that do not give a limit (None if there is no
    default), and the longest one that a job may have.
    """

    default_s: float | None = None
    most_s: float = inf

    @property
    def unstated_s(self) -> float:
        """The time limit of a job that does not give one: the default, or else the longest limit,
        or else a year.
        """
        return min(UNLIMITED_S if self.default_s is None else self.default_s, self.most_s)


@dataclass(frozen=True, slots=True)
class QueueTree:
    """All queues of a site: the ``tree`` of accounts or cluster queues, the partitions, and the
    qualities of service (QOS). It also contains the reservations and outages of nodes, the
    suspensions of jobs, and the number of licences of each kind.

    Jobs that name no partition or QOS, or one that does not exist, are assigned to the first one.

    Raises:
        ModelError: Two parts have the same name, or a QOS preempts one that does not exist.
    """

    rare_keys: ClassVar[tuple[str, ...]] = ("partitions",)
    tree: tuple[QueueNode, ...] = ()
    """The accounts or cluster queues at the top level."""
    partitions: tuple[NodePartition, ...] = ()
    """The partitions of the site."""
    qos: tuple[Qos, ...] = ()
    """The qualities of service."""
    reservations: tuple[NodeReservation, ...] = ()
    """The reservations of nodes."""
    outages: tuple[NodeOutage, ...] = ()
    """Times at which nodes were out of service."""
    suspensions: tuple[JobSuspension, ...] = ()
    """Times at which jobs were suspended."""
    licences: Mapping[str, float] = field(default_factory=dict)
    """Number of licences of each kind."""
    scheduler: Mapping[str, bool | float | str] = field(default_factory=dict)
    """Parameters of the site's scheduler. They apply to the policy that represents this scheduler,
    unless the user gives the policy other parameters.
    """
    kueue: Annotated[Any, Later("queues.kueue")] | None = None
    """Kueue's objects, if the site's scheduler is Kueue. They replace ``tree``."""

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.kueue is not None and self.tree:
            raise ModelError("queues: kueue has its own tree of cohorts, so leave out either kueue or tree")
        _check("licences", self.licences)
        for part in self.partitions:
            if part.qos and part.qos not in [qos.name for qos in self.qos]:
                raise ModelError(f"partition {part.name!r}: there is no QOS {part.qos!r}")
        named = {"queue": [node.name for node, _ in self.walk()]}
        named |= {"partition": [partition.name for partition in self.partitions], "qos": [qos.name for qos in self.qos]}
        for kind, names in named.items():
            if twice := [name for name in names if names.count(name) > 1]:
                raise ModelError(f"queues: the {kind} {twice[0]!r} occurs twice")
        if "root" in named["queue"]:
            raise ModelError("queues: the name 'root' is reserved for the root of the tree")
        for qos in self.qos:
            if unknown := [name for name in qos.preempts if name not in named["qos"]]:
                names_of_qos = ", ".join(named["qos"])
                raise ModelError(
                    f"qos {qos.name!r} preempts {unknown[0]!r}, which does not exist; known: {names_of_qos}"
                )

    def walk(self) -> Iterator[tuple[QueueNode, tuple[str, ...]]]:
        """Yield every queue in the tree with the names of the queues above it, nearest first."""
        for node in self.tree:
            yield from node.walk()

    def names(self) -> dict[str, None]:
        """Return the names under which jobs are submitted, without namespaces: the names of
        accounts or queues and of everything above them.
        """
        names = [name for node, _ in self.walk() for name in (node.name, *node.aliases)]
        if self.kueue is not None:
            names += self.kueue.names()
        return {name.rpartition("/")[2]: None for name in names}

    def time_limits(self, job: Job) -> TimeLimits:
        """Return the time limits that a job's partitions and QOS set for it."""
        named = job.request.partitions if job.request is not None else ()
        own = [part for part in self.partitions if part.name in (named or (job.partition,))] or self.partitions[:1]
        part = max(own, key=lambda part: part.max_time_s or inf, default=NodePartition(""))
        qos = next((qos for qos in self.qos if qos.name == job.qos), None) or next(iter(self.qos), None)
        longest = [part.max_time_s, *[one.max_time_s for one in self.qos if one is qos or one.name == part.qos]]
        return TimeLimits(part.default_time_s, min([most_s for most_s in longest if most_s], default=inf))

    @property
    def has_quota(self) -> bool:
        """True if any queue has a quota."""
        return self.kueue is not None or any(node.quota for node, _ in self.walk())


def _check(where: str, numbers: Mapping[str, float]) -> None:
    for name, value in numbers.items():
        rule = f"{where}: {name} must be a finite number of 0 or more"
        require(value >= 0 and isfinite(value), rule, value, ModelError)


def _known(where: str, names: Mapping[str, float], allowed: tuple[str, ...] = ("gpus", "cpus", "memory_gb")) -> None:
    for name in names:
        if name not in allowed:
            raise ModelError(f"{where}: unknown key {name!r}; allowed: {', '.join(allowed)}")
