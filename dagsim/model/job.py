"""Jobs, their tasks, the DAG of dependencies between the tasks, and the terms with which a job was
submitted to a batch system. These terms determine where the job may run and what it may share.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from math import inf, isfinite
from typing import Any, ClassVar, Literal, NamedTuple

from dagsim.errors import GraphError, ModelError
from dagsim.model.arithmetic import check_numbers, store_whole
from dagsim.model.constraints import parsed_constraint
from dagsim.model.decision import Placement
from dagsim.model.elastic import Elastic
from dagsim.text import count_of


@dataclass(frozen=True, slots=True)
class Request:
    """The properties that a job's submission requests in addition to resources.

    Raises:
        ModelError: The constraint cannot be read, or a number is below 1.
    """

    rare_keys: ClassVar[tuple[str, ...]] = ("partitions",)
    constraint: str = ""
    """Expression over node features, as in Slurm: ``skl``, ``a100|v100``, ``icl&!nvl``. Each node of
    the job must satisfy it. With ``[r1|r2]``, all nodes must satisfy the same part. A constraint may
    also count nodes, as in ``[skl*2&icl*2]``. In this case, the nodes of a gang must satisfy all
    counts together.
    """
    partitions: tuple[str, ...] = ()
    """All partitions in which the job may run, if there are several."""
    reservation: str = ""
    """Name of the reservation in which the job runs."""
    licences: tuple[tuple[str, int], ...] = ()
    """Licences that the job occupies while it runs, as pairs of a name and a number."""
    exclusive: bool = False
    """True if the job does not share its nodes with other jobs."""
    spread: bool | None = None
    """True if every instance needs a separate node, False if instances may share nodes, and None if
    this is unknown.
    """
    array: str = ""
    """Name of the job array to which the job belongs."""
    array_limit: int | None = None
    """Maximum number of tasks of the array that run at the same time."""
    after: tuple[str, ...] = ()
    """Ids of jobs and arrays that must end before the job becomes eligible to start. ``start:ID``
    only requires a job to start, and ``start:ID+600`` is met 600 s after its start.
    """
    after_one: bool = False
    """True if the job becomes eligible as soon as one of the conditions in ``after`` is met."""
    begin_s: float | None = None
    """Number of seconds after its arrival during which the job is not eligible to start."""
    level: str = ""
    """Level of the network's topology (``rack``, ``pod``; ``host`` for one node). Each gang in the
    job must be placed within one domain of this level.
    """
    level_required: bool = True
    """False if ``level`` is only a preference."""
    segment: int | None = None
    """Number of instances per segment into which the placement ``block`` splits a gang. Each segment
    is placed within one domain of the level (by default, the narrowest level). The whole gang may
    extend over several domains.
    """
    nodes: tuple[str, ...] = ()
    """Nodes that the job must use (``--nodelist``). Only ``slurm-multifactor`` respects this."""
    excluded: tuple[str, ...] = ()
    """Nodes that the job must not use."""
    exclusive_user: bool = False
    """True if the job shares its nodes only with jobs of the same user."""
    together: str = ""
    """Name that the components of a heterogeneous job have in common. They were submitted together
    and have to start together. Only ``slurm-multifactor`` respects this.
    """
    least_nodes: int | None = None
    """Smallest number of nodes that the job gets if its instances may share nodes (``-N2 -n 8``).
    Only ``slurm-multifactor`` respects this.
    """
    most_nodes: int | None = None
    """Largest number of nodes, under the same conditions."""

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.constraint:
            parsed_constraint(self.constraint)
        limits = [(name, getattr(self, name)) for name in ("array_limit", "segment", "least_nodes", "most_nodes")]
        for what, count in (*self.licences, *[(what, count) for what, count in limits if count is not None]):
            if not count >= 1:
                raise ModelError(f"request: {what} must be 1 or more, got {count!r}")
        if self.begin_s is not None and not 0 <= self.begin_s < inf:
            raise ModelError(f"request: begin_s must be a finite number, 0 or more, got {self.begin_s!r}")

    def __bool__(self) -> bool:
        return self != _NOTHING

    def over(self, default: Request) -> Request:
        """Return a copy of this request in which missing values come from ``default``. A level and
        its ``level_required`` always come from the same request.
        """
        own = {field.name: value for field in fields(Request) if (value := getattr(self, field.name)) != field.default}
        if "level" in own:
            own["level_required"] = self.level_required
        return replace(default, **own)


_NOTHING = Request()


class Condition(NamedTuple):
    """A condition on which a job depends: either another job must have ended, or a number of
    seconds must have passed since that job started.
    """

    id: str
    starts: bool = False
    delay_s: float = 0.0

    @classmethod
    def of(cls, text: str) -> Condition:
        """Parse an entry of ``Request.after``."""
        kind, colon, id = text.partition("start:")
        if kind or not colon:
            return cls(text)
        head, plus, delay = id.rpartition("+")
        return cls(head, True, float(delay)) if plus and delay.isdecimal() else cls(id, True)


def canonical_json(document: Any) -> str:
    """Return JSON text that is the same for all equal documents. ``Task.manifest`` and
    ``Node.manifest`` have this form.
    """
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


class Edge(NamedTuple):
    """A dependency between two tasks. ``child`` starts after ``parent`` ends, and reads ``bytes``
    bytes of the parent's output. ``parent`` and ``child`` are indices into ``tasks``.
    """

    parent: int
    child: int
    bytes: float = 0.0


_NONE: tuple[tuple[int, ...], ...] = ((),)


@dataclass(frozen=True, slots=True)
class TaskGraph:
    """Tasks and the edges between them, which are checked on creation.

    Raises:
        GraphError: There are no tasks, two tasks have the same name, an edge refers to a missing
            task or occurs twice, a task depends on itself, or there is a cycle (which the message
            lists).
    """

    tasks: tuple[Task, ...]
    edges: tuple[Edge, ...] = ()
    parents: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)
    children: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)
    order: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """A topological order of the tasks: parents come before their children. Of the tasks that
    become ready at the same time, those listed first come first."""

    def __post_init__(self) -> None:
        count = len(self.tasks)
        if count == 1 and not self.edges:  # most jobs in most traces take this branch, so keep it fast
            self._set(_NONE, _NONE, (0,))
            return
        if not count:
            raise GraphError("a job needs at least one task")
        self._set(*linked("task", [task.name for task in self.tasks], [edge[:2] for edge in self.edges]))
        for parent, child, size in self.edges:
            if not size >= 0:
                arrow = f"{self.tasks[parent].name!r} -> {self.tasks[child].name!r}"
                raise GraphError(f"edge {arrow}: bytes must be 0 or more, got {size!r}")

    @classmethod
    def of(cls, tasks: Iterable[Task], parents: Mapping[str, Iterable[str]]) -> TaskGraph:
        """Build a graph from the names of each task's parents, such as ``{"reduce": ["map-0",
        "map-1"]}``.

        Raises:
            GraphError: As for the class; also if a parent or child is not the name of a task.
        """
        listed = tuple(tasks)
        place = {task.name: index for index, task in enumerate(listed)}
        edges = []
        for child, names in parents.items():
            for parent in names:
                for name, role in ((child, "child"), (parent, "parent")):
                    if name not in place:
                        raise GraphError(f"{role} {name!r} of edge {parent!r} -> {child!r} is not a task in this job")
                edges.append(Edge(place[parent], place[child]))
        return cls(listed, tuple(edges))

    def upward_rank(self, seconds: Sequence[float]) -> list[float]:
        """Return, for each task, the length of the longest path from the start of the task to the
        end of the job. The path includes the task itself.

        ``seconds`` contains the duration of each task.
        """
        rank = list(seconds)
        children = self.children
        for index in reversed(self.order):
            longest = 0.0
            for child in children[index]:
                if rank[child] > longest:
                    longest = rank[child]
            rank[index] += longest
        return rank

    def critical_path(self, seconds: Sequence[float]) -> float:
        """Return the length of the longest path through the graph. ``seconds`` contains the
        duration of each task.
        """
        return max(self.upward_rank(seconds))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tasks, in the order of the tasks."""
        tasks = self.tasks
        return (tasks[0].name,) if len(tasks) == 1 else tuple([task.name for task in tasks])

    def depth(self) -> int:
        """Return the number of tasks on the longest path."""
        return int(self.critical_path([1.0] * len(self.tasks)))

    def _set(
        self, parents: tuple[tuple[int, ...], ...], children: tuple[tuple[int, ...], ...], order: tuple[int, ...]
    ) -> None:
        object.__setattr__(self, "parents", parents)
        object.__setattr__(self, "children", children)
        object.__setattr__(self, "order", order)


class Links(NamedTuple):
    """The parents and children of each named item, given as indices, and a topological order of all
    items.
    """

    parents: tuple[tuple[int, ...], ...]
    children: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]
    """A topological order of the items, computed with Kahn's algorithm: parents come before their
    children. Of the items that become ready at the same time, those listed first come first."""


def linked(kind: str, names: Sequence[str], edges: Iterable[tuple[int, int]]) -> Links:
    """Link items of one ``kind`` by edges ``(parent, child)``.

    Raises:
        GraphError: A name occurs twice, an edge refers to a missing item or occurs twice, an item
            depends on itself, or there is a cycle, which the message lists.
    """
    count = len(names)
    if len(set(names)) != count:
        seen: set[str] = set()
        twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise GraphError(f"two {kind}s are called {twice!r}")
    parents: list[list[int]] = [[] for _ in names]
    children: list[list[int]] = [[] for _ in names]
    seen_edges: set[tuple[int, int]] = set()
    for parent, child in edges:
        if not (0 <= parent < count and 0 <= child < count):
            raise GraphError(f"edge {parent} -> {child} refers to a missing {kind}; number of {kind}s: {count}")
        if parent == child:
            raise GraphError(f"{kind} {names[child]!r} depends on itself")
        if (parent, child) in seen_edges:
            raise GraphError(f"edge {names[parent]!r} -> {names[child]!r} is given twice")
        seen_edges.add((parent, child))
        parents[child].append(parent)
        children[parent].append(child)
    missing = [len(places) for places in parents]
    order = [place for place, left in enumerate(missing) if not left]
    for place in order:
        for child in children[place]:
            missing[child] -= 1
            if not missing[child]:
                order.append(child)
    if len(order) < count:
        raise GraphError(f"the {kind}s depend on each other in a cycle: {_circle(names, parents, set(order))}")
    return Links(tuple(map(tuple, parents)), tuple(map(tuple, children)), tuple(order))


def _circle(names: Sequence[str], parents: Sequence[Sequence[int]], free: set[int]) -> str:
    """Describe a cycle. ``free`` contains the items that are on no cycle and depend on none."""
    place = next(place for place in range(len(names)) if place not in free)
    walk: list[int] = []
    while place not in walk:
        walk.append(place)
        place = next(parent for parent in parents[place] if parent not in free)
    return " -> ".join(repr(names[step]) for step in [*walk[walk.index(place) :], place][::-1])


class Demand(NamedTuple):
    """The resources that one instance of a task uses while it runs. Tasks with equal demands are
    interchangeable on a node.
    """

    gpus: float = 1.0
    cpus: float = 0.0
    memory_gb: float = 0.0
    gpu_types: tuple[str, ...] | None = None


# The numbers 8 and 8.0 are equal. Without typed=True, a request for 8 could therefore return a
# cached 8.0, which files would then show.
@lru_cache(maxsize=65536, typed=True)
def _demand(gpus: float, cpus: float, memory_gb: float, gpu_types: tuple[str, ...] | None) -> Demand:
    """Create a demand after checking it. Equal demands are checked once and share one object."""
    if not (gpus >= 0 and isfinite(gpus) and (gpus <= 1 or gpus == int(gpus))):
        raise ModelError(f"gpus must be 0, a fraction up to 1 or a whole number, got {gpus!r}")
    if not (cpus >= 0 and isfinite(cpus)):
        raise ModelError(f"cpus must be 0 or more, got {cpus!r}")
    if not (memory_gb >= 0 and isfinite(memory_gb)):
        raise ModelError(f"memory_gb must be 0 or more, got {memory_gb!r}")
    if gpu_types is not None and not gpu_types:
        raise ModelError("gpu_types must name at least one GPU type, or be left out to allow any type")
    return Demand(gpus, cpus, memory_gb, gpu_types)


@dataclass(frozen=True, slots=True)
class Task:
    """A vertex in a job's DAG. It consists of ``instances`` identical parts that can run in
    parallel, and each of them does ``work``.

    - ``work`` is the work of one instance in the unit of the runtime model: TFLOP, or seconds on
      the reference GPU.
    - ``speeds`` gives the task's own rate on each GPU type, in units of work per second. These
      rates override those of the runtime model.
    - ``gpus`` is the number of GPUs per instance: 0 (CPU only), a fraction of one GPU, or a whole
      number on one node.
    - A ``gang`` may span several nodes. Its instances start together, on one GPU type.
    - ``model`` and ``batch`` select a row of the throughput table.
    - ``estimate`` is the amount of work that the user requested, such as a batch system's time
      limit. Policies that may not see the true work see this value.
    - ``manifest`` is additional information about the task for a particular scheduler, in the
      scheduler's own format, as canonical JSON (``canonical_json``). For Kubernetes, it is a pod.
      The core does not read it.
    - If ``elastic`` is given, a policy may resize the gang within a range of instances. ``elastic``
      contains this range and a model of the task's progress. In this case, ``instances`` is the
      number that the user requested, and ``work`` refers to this number.

    Raises:
        ModelError: The work is negative or not finite, there are no instances, or a demand is
            invalid. Also raised if an elastic task is not a gang with one GPU per instance, or
            requests a number of instances outside its range.
    """

    name: str
    work: float
    instances: int = 1
    gang: bool = False
    gpus: float = 1.0
    cpus: float = 0.0
    memory_gb: float = 0.0
    gpu_types: tuple[str, ...] | None = None
    speeds: Mapping[str, float] | None = None
    model: str | None = None
    batch: int | None = None
    estimate: float | None = None
    elastic: Elastic | None = None
    manifest: str = ""
    demand: Demand = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            if not 0 <= self.work < inf:
                raise ModelError(f"work must be 0 or more, got {self.work!r}")
            # readers create millions of tasks, so the common case is checked first
            if type(self.instances) is not int:
                store_whole(self, "instances")
            if self.instances < 1:
                raise ModelError(f"instances must be at least 1, got {self.instances!r}")
            object.__setattr__(self, "demand", _demand(self.gpus, self.cpus, self.memory_gb, self.gpu_types))
            if self.elastic is not None:
                self._check_elastic(self.elastic)
        except ModelError as error:
            raise ModelError(f"task {self.name!r}: {error}") from None
        except TypeError:
            check_numbers(f"task {self.name!r}: ", self, ("work", "instances", "gpus", "cpus", "memory_gb"))
            raise

    def _check_elastic(self, elastic: Elastic) -> None:
        if not self.gang or self.gpus != 1:
            raise ModelError(
                f"an elastic task must be a gang of instances with one GPU each, got {self.gpus!r} GPUs per instance"
            )
        if not elastic.least <= self.instances <= elastic.most:
            raise ModelError(
                f"instances must be from {elastic.least} to {elastic.most}, the task's range, got {self.instances}"
            )


class InFlight(NamedTuple):
    """A run that started before the beginning of the simulation. It consists of instances of a task
    that started at ``since_s``.

    From then on, the instances do their task's work. They end when this work is done. If it would
    have been done before the beginning of the simulation, they end at the beginning. If ``until_s``
    is set, the run ended before the beginning: either its instances were done, or the run was
    ``stopped`` and its instances returned to the queue. A gang runs as a whole.
    """

    since_s: float
    placement: Placement
    task: int = 0
    """Index of the task in the job's graph."""
    until_s: float | None = None
    stopped: Literal["", "preempted", "failed"] = ""
    rows: tuple[int, int] = (-1, -1)
    """The numbers of the rows that contain the run's start and end, in the log from which the run
    was read. They determine the order of simultaneous events. They are -1 if unknown."""
    resumes: int = -1
    """If the instances belonged to an earlier run that was stopped, the number of the row with the
    start of that run. Otherwise, or if the row is unknown, -1."""


class Attempt(NamedTuple):
    """A recorded run of a job: its start, its end and its nodes. The job waited for this run from ``eligible_s`` on."""

    eligible_s: float
    start_s: float
    end_s: float
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """A DAG of tasks that arrives at ``arrival_s`` and is done when all its tasks are done.

    - ``priority`` is larger for more urgent jobs.
    - ``deadline_s`` is a point in time and not a duration.
    - ``weight`` is the cost of one second of waiting for this job.
    - ``observed_start_s``, ``observed_nodes`` and ``observed_gpu`` come from the log of a real
      cluster. They describe the first recorded attempt in that cluster: when it started, on which
      nodes and on which GPU type. If the number of instances on each node is known, a node is
      listed once per instance. The job may not start before ``eligible_s``, for example because of
      a dependency, a hold or a begin time. ``observed_attempts`` contains all attempts of a job
      that was requeued or suspended. It is empty if there was only one attempt, which lasted
      exactly as long as the job's work.
    - ``user``, ``account``, ``partition`` (a queue in a batch system) and ``qos`` are the values
      with which the job was submitted, if they are known. ``request`` contains the other terms of
      the submission. Metrics are grouped by ``tenant``.
    - ``in_flight`` contains those runs of the job that started before the beginning of the
      simulation. Tasks that were already done are either left out of the graph or have runs that
      have ended.

    Raises:
        ModelError: The arrival is negative; a deadline, an observation or a run in flight is before
            the arrival; the weight is not positive; or instances in flight do not belong to the
            job.
    """

    id: str
    graph: TaskGraph
    arrival_s: float = 0.0
    priority: float = 0.0
    tenant: str = ""
    deadline_s: float | None = None
    weight: float = 1.0
    observed_start_s: float | None = None
    eligible_s: float | None = None
    observed_nodes: tuple[str, ...] = ()
    user: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""
    in_flight: tuple[InFlight, ...] = ()
    request: Request | None = None
    observed_gpu: str = ""
    observed_attempts: tuple[Attempt, ...] = ()

    def __post_init__(self) -> None:
        try:
            self._check()
        except TypeError:
            times = ("arrival_s", "priority", "weight", "deadline_s", "observed_start_s", "eligible_s")
            check_numbers(f"job {self.id!r}: ", self, times)
            raise

    def _check(self) -> None:
        if not 0 <= self.arrival_s < inf:
            raise ModelError(f"job {self.id!r}: arrival_s must be 0 or more, got {self.arrival_s!r}")
        if self.deadline_s is not None and not self.deadline_s >= self.arrival_s:
            raise ModelError(
                f"job {self.id!r}: deadline_s {self.deadline_s!r} is before its arrival {self.arrival_s!r}"
            )
        if self.observed_start_s is not None or self.eligible_s is not None:
            self._check_observed()
        if self.in_flight:
            self._check_in_flight()
        if not 0 < self.weight < inf:
            raise ModelError(f"job {self.id!r}: weight must be positive, got {self.weight!r}")
        if not -inf <= self.priority <= inf:
            raise ModelError(f"job {self.id!r}: priority must be a number, got {self.priority!r}")

    @classmethod
    def single(cls, id: str, task: Task, arrival_s: float = 0.0, **rest: object) -> Job:
        """Build a job that consists of one task."""
        return cls(id, TaskGraph((task,)), arrival_s, **rest)  # type: ignore[arg-type]

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The job's tasks, in the order of its graph."""
        return self.graph.tasks

    def _check_observed(self) -> None:
        for name in ("observed_start_s", "eligible_s"):
            value = getattr(self, name)
            if value is not None and not self.arrival_s <= value < inf:
                raise ModelError(f"job {self.id!r}: {name} {value!r} is before its arrival {self.arrival_s!r}")

    def _check_in_flight(self) -> None:
        tasks, count = self.graph.tasks, [0] * len(self.graph.tasks)
        for run in self.in_flight:
            task = run.task
            if not self.arrival_s <= run.since_s < inf:
                before = f"which is before its arrival {self.arrival_s!r}"
                raise ModelError(f"job {self.id!r}: it has been running since {run.since_s!r} s, {before}")
            if not 0 <= task < len(tasks):
                raise ModelError(
                    f"job {self.id!r}: task {task!r} cannot be in flight, because the job has "
                    f"only {count_of(len(tasks), 'task')}"
                )
            if run.until_s is not None and not run.since_s <= run.until_s < inf:
                raise ModelError(
                    f"job {self.id!r}: a run that started at {run.since_s!r} s cannot end at {run.until_s!r} s"
                )
            instances = sum(share.instances for share in run.placement)
            count[task] += 0 if run.stopped else instances
            most, gang = tasks[task].instances, tasks[task].gang
            if instances < 1 or count[task] > most or (gang and instances != most):
                raise ModelError(
                    f"job {self.id!r}: {instances} instances of task {tasks[task].name!r} are in flight, "
                    f"but the task has only {most}"
                    + (", which start together" if gang else "" if instances else " and a run has at least one")
                )
        done = [0] * len(tasks)
        for run in self.in_flight:
            if run.until_s is not None and not run.stopped:
                done[run.task] += sum(share.instances for share in run.placement)
        for run in self.in_flight:
            for parent in self.graph.parents[run.task]:
                if done[parent] < tasks[parent].instances:
                    raise ModelError(
                        f"job {self.id!r}: task {run.task!r} cannot be in flight, because it waits for "
                        f"task {tasks[parent].name!r}, which is not done"
                    )
