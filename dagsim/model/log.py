"""The log of a simulation and the rows in it, facts about the jobs, and the schedule, from which
all metrics are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import chain, pairwise, repeat
from math import isfinite
from pathlib import Path
from struct import Struct
from typing import IO, NamedTuple, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from dagsim.errors import RunFolderError
from dagsim.model.arithmetic import numbered
from dagsim.model.cluster import Cluster, PowerState

__all__ = [
    "NUMBERS",
    "ROW",
    "RUN_ENDS",
    "FactColumns",
    "JobFacts",
    "Kind",
    "LogRow",
    "Parents",
    "Record",
    "RejectReason",
    "Schedule",
    "ScheduleLog",
    "packed_row",
    "unpacked_row",
]


class Kind(IntEnum):
    """The kind of a row in the log. A run on several nodes (a gang) writes one row per node for
    each event.
    """

    ARRIVED = 0
    """A job arrived."""
    ADMITTED = 1
    """A job that needed admission was admitted."""
    REJECTED = 2
    """A job was rejected or killed; ``value`` is the ``RejectReason``."""
    STARTED = 3
    """A run started and took its GPUs, CPUs and memory. ``value`` is the number of GPUs held on
    this node, which is a fraction for a shared GPU."""
    COMPUTING = 4
    """A run finished its transfers or set-up and began to compute."""
    FINISHED = 5
    """A run finished its work and released its resources. ``value`` has the same meaning as in ``STARTED``."""
    PREEMPTED = 6
    """A run was stopped by a decision. ``value`` has the same meaning as in ``STARTED``."""
    FAILED = 7
    """A run was stopped by the failure of a node. ``value`` has the same meaning as in ``STARTED``."""
    COMPLETED = 8
    """The last task of a job finished."""
    DOWN = 9
    """A node went down."""
    UP = 10
    """A node came back."""
    RATE = 11
    """A run continues at another rate, which is ``value``. Until its first such row, a run has a rate of 1."""
    WRITTEN = 12
    """A run finished or cancelled writing its state to the network's storage. ``value`` is the
    amount, in GB, that was written from this node. A run starts writing when it is stopped, or when
    it is paused for a checkpoint (a ``RATE`` row of 0)."""
    ALLOCATED = 13
    """A run reserved resources on its nodes, at least one of which is still booting. It starts when
    all of them are up. ``value`` has the same meaning as in ``STARTED``."""
    RELEASED = 14
    """A run that had been allocated returned its resources before it started. ``value`` has the
    same meaning as in ``STARTED``."""
    POWER = 15
    """The power state of a node that is powered on demand changed. ``value`` is the new
    ``PowerState``. ``Node.on_demand`` determines the first state."""


RUN_ENDS = (Kind.FINISHED, Kind.PREEMPTED, Kind.FAILED)
"""The kinds of rows that end a run."""


class RejectReason(IntEnum):
    """The reason why a job was rejected."""

    TOO_LARGE = 1
    """A task requests more than the whole empty cluster has."""
    NO_SUCH_GPU = 2
    """A task allows only GPU types that the cluster does not have."""
    BY_POLICY = 3
    """The policy rejected the job."""
    NO_PLACE = 4
    """The job did not fit when it arrived, and was not allowed to wait."""
    TOO_SLOW = 5
    """The job would have taken longer than is acceptable."""
    TIME_LIMIT = 6
    """The job ran until its time limit and was killed."""
    CANCELLED = 7
    """The job was cancelled, because its scheduler does not requeue preempted jobs, or because the
    limits would never allow the job to run."""

    @property
    def words(self) -> str:
        """The reason in words."""
        return _REJECTED_BECAUSE[self]


_REJECTED_BECAUSE = {
    RejectReason.TOO_LARGE: "it requests more than all the nodes or licences that it may use",
    RejectReason.NO_SUCH_GPU: "the cluster has no GPU type that it may use",
    RejectReason.BY_POLICY: "the policy rejected it",
    RejectReason.NO_PLACE: "it did not fit, and it could not wait",
    RejectReason.TOO_SLOW: "it would have taken longer than is acceptable",
    RejectReason.TIME_LIMIT: "it was killed at its time limit",
    RejectReason.CANCELLED: "it was preempted without being requeued, or no limit or reservation would ever let it run",
}


class Record(NamedTuple):
    """One row in the log. Fields that a kind of row does not use have the value -1, except for
    ``instances`` and ``gpus``, which are 0.

    ``job`` counts arrivals from 0, ``task`` is an index into the job's graph, ``run`` counts starts
    from 0, and ``node`` is an index into the cluster. ``gpus`` is a bit mask of the GPUs that the
    run uses on this node, or 0 if the node has more than 62 GPUs.
    """

    kind: int
    time_s: float
    job: int = -1
    task: int = -1
    run: int = -1
    node: int = -1
    instances: int = 0
    gpus: int = 0
    value: float = 0.0
    """A number whose meaning depends on the kind (see ``Kind``)."""

    @property
    def held(self) -> float:
        """The GPUs that a run holds on the node. Only rows about a start or an end have them."""
        return self.value

    @property
    def rate(self) -> float:
        """The rate at which a run continues (``Kind.RATE``)."""
        return self.value

    @property
    def reason(self) -> RejectReason:
        """The reason of a rejection (``Kind.REJECTED``)."""
        return RejectReason(int(self.value))

    @property
    def power(self) -> PowerState:
        """The new power state of a node (``Kind.POWER``)."""
        return PowerState(int(self.value))


class JobFacts(NamedTuple):
    """The facts about a job that are kept after the job has ended. There is one object for each job
    that has arrived, in the order of ``Record.job``.
    """

    id: str
    arrival_s: float
    priority: float
    tenant: str
    deadline_s: float | None
    weight: float
    ideal_s: float
    """Length of the critical path with every task on its fastest allowed GPU type and no waiting: a lower bound."""
    ideal_gpu_s: float
    """Total GPU-seconds of all instances, each on its fastest allowed GPU type. CPU-only tasks count as 0."""
    gpus: float
    """Number of GPUs used by the job's largest task: instances times GPUs per instance."""
    tasks: tuple[str, ...]
    """Names of its tasks, by ``Record.task``."""
    parents: tuple[tuple[int, ...], ...] = ()
    """For each task, the tasks that must end before it starts. It is empty if the record does not contain them."""


ROW = np.dtype(
    [
        ("kind", "i1"),
        ("time_s", "f8"),
        ("job", "i4"),
        ("task", "i4"),
        ("run", "i8"),
        ("node", "i4"),
        ("instances", "i4"),
        ("gpus", "i8"),
        ("value", "f8"),
    ]
)
"""Type of a row, 49 bytes, with the fields of ``Record``."""

LogRow: TypeAlias = tuple[int, float, int, int, int, int, int, int, float]
"""One row as the kernel writes it: a tuple of the fields of ``Record``."""

_ROW = Struct("<bdiiqiiqd")
"""Layout of ``ROW`` for one row at a time."""

packed_row: Callable[[int, float, int, int, int, int, int, int, float], bytes] = _ROW.pack
"""Pack the fields of ``Record`` into the 49 bytes of a row.

The garbage collector does not visit bytes, and joining them gives the array. With tuples, a
simulation of 10,000 jobs spent 10% of its time on collections.
"""

unpacked_row: Callable[[bytes], LogRow] = _ROW.unpack
"""Unpack the fields of a row from its bytes."""

_CHUNK = 1 << 16
_OF_RUNS = (Kind.STARTED, Kind.COMPUTING, *RUN_ENDS, Kind.RATE, Kind.ALLOCATED, Kind.RELEASED)
"""Kinds of rows that name a task, a run and a node."""


NUMBERS = ("arrival_s", "priority", "deadline_s", "weight", "ideal_s", "ideal_gpu_s", "gpus")
"""Names of the facts that are numbers."""
_IDEAL = ("ideal_s", "ideal_gpu_s")

Parents: TypeAlias = tuple[tuple[int, ...], ...]

_BLOCK = 1024
"""Number of ``JobFacts`` that are created at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class FactColumns(Sequence[JobFacts]):
    """Facts about J jobs with n tasks in total, stored as columns. A slice is a list of facts.

    Raises:
        ValueError: The columns have different lengths.
    """

    ids: tuple[str, ...]
    arrival_s: NDArray[np.float64]  # shape (J,), like all other numeric columns
    priority: NDArray[np.float64]
    deadline_s: NDArray[np.float64]
    """NaN if the job has none."""
    weight: NDArray[np.float64]
    ideal_s: NDArray[np.float64]
    ideal_gpu_s: NDArray[np.float64]
    gpus: NDArray[np.float64]
    tenant: tuple[str, ...]
    first: np.ndarray  # shape (J + 1,), int64: index of the first task of each job
    name: np.ndarray  # shape (n,), int: for each task, the index of its name in ``names``
    names: tuple[str, ...]
    graph: np.ndarray  # shape (J,), int: for each job, the index of its graph in ``graphs``
    graphs: tuple[Parents, ...]
    """Distinct ``JobFacts.parents``, in order of first appearance in the jobs, like ``names``."""

    def __post_init__(self) -> None:
        jobs = len(self.ids)
        numbers = [getattr(self, name) for name in NUMBERS]
        if any(len(column) != jobs for column in (*numbers, self.tenant, self.graph)):
            raise ValueError("the columns of jobs have different lengths")
        if len(self.first) != jobs + 1 or self.first[-1] != len(self.name) or (np.diff(self.first) < 0).any():
            raise ValueError("some tasks do not belong to any job")
        for places, of in ((self.name, self.names), (self.graph, self.graphs)):
            if len(places) and not 0 <= places.min() <= places.max() < len(of):
                raise ValueError("an index is beyond the end of its list")

    @classmethod
    def of(cls, facts: Sequence[JobFacts]) -> FactColumns:
        """Convert any sequence of ``facts`` to columns."""
        if isinstance(facts, FactColumns):
            return facts
        columns = dict(zip(JobFacts._fields, zip(*facts, strict=True) if facts else repeat(()), strict=False))
        name, names = numbered(chain.from_iterable(columns["tasks"]))
        graph, graphs = numbered(columns["parents"])
        return cls(
            ids=columns["id"],
            **{number: np.array(columns[number], float) for number in NUMBERS},  # None becomes NaN
            tenant=columns["tenant"],
            first=np.cumsum([0, *map(len, columns["tasks"])]),
            name=name,
            names=names,
            graph=graph,
            graphs=graphs,
        )

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[JobFacts]:
        for start in range(0, len(self), _BLOCK):
            yield from self._made(start, min(start + _BLOCK, len(self)))

    @overload
    def __getitem__(self, place: int) -> JobFacts: ...

    @overload
    def __getitem__(self, place: slice) -> list[JobFacts]: ...

    def __getitem__(self, place: int | slice) -> JobFacts | list[JobFacts]:
        listed = range(len(self))[place]
        if isinstance(listed, int):
            return self._made(listed, listed + 1)[0]
        if listed.step == 1:
            return self._made(listed.start, max(listed.start, listed.stop))
        return [self[index] for index in listed]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FactColumns | list):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def _made(self, start: int, stop: int) -> list[JobFacts]:
        """Return the facts about the jobs from ``start`` to ``stop``."""
        first = self.first[start : stop + 1].tolist()
        begin, names = first[0], [self.names[place] for place in self.name[first[0] : first[-1]].tolist()]
        columns = {
            "id": self.ids[start:stop],
            "tenant": self.tenant[start:stop],
            "tasks": [tuple(names[one - begin : other - begin]) for one, other in pairwise(first)],
            "parents": [self.graphs[place] for place in self.graph[start:stop].tolist()],
            **{name: getattr(self, name)[start:stop].tolist() for name in NUMBERS},
        }
        columns["deadline_s"] = [
            None if deadline_s != deadline_s else deadline_s for deadline_s in columns["deadline_s"]
        ]
        return list(map(JobFacts._make, zip(*[columns[name] for name in JobFacts._fields], strict=True)))


class ScheduleLog:
    """The rows of a log in the order of events. ``pack`` joins the bytes of full chunks into
    ``ROW`` arrays.
    """

    __slots__ = ("_packed", "_packed_rows", "_tail", "append_packed")

    append_packed: Callable[[bytes], None]
    """Add a ``packed_row``. The kernel writes four per task."""

    def __init__(self) -> None:
        self._packed: list[np.ndarray] = []
        self._packed_rows = 0
        self._tail: list[bytes] = []
        self.append_packed = self._tail.append

    def append(self, row: LogRow) -> None:
        """Add one row."""
        self._tail.append(packed_row(*row))

    def pack(self) -> None:
        """If there are many new rows, pack them into an array (49 bytes per row). Call this from
        time to time while writing.
        """
        if len(self._tail) >= _CHUNK:
            self._pack()

    def rows(self) -> np.ndarray:
        """Return all rows as one structured array of dtype ``ROW``."""
        self._pack()
        if len(self._packed) > 1:
            self._packed = [np.concatenate(self._packed)]
        return self._packed[0] if self._packed else np.empty(0, ROW)

    def since(self, row: int) -> list[LogRow]:
        """Return the rows from number ``row`` onwards as tuples. Code that follows a running
        simulation, such as a reward, uses this.
        """
        if row >= self._packed_rows:
            return [*map(unpacked_row, self._tail[row - self._packed_rows :])]
        return list(self.rows()[row:].tolist())

    def save(self, path: Path) -> None:
        """Write the rows to the file ``path`` (NumPy ``.npy``)."""
        with path.open("wb") as file:
            self.write(file)

    def write(self, file: IO[bytes]) -> None:
        """Write the rows to an open file, as ``save`` does."""
        np.save(file, self.rows(), allow_pickle=False)

    @classmethod
    def load(cls, path: Path) -> ScheduleLog:
        """Read a log from a file written by ``save``.

        Raises:
            RunFolderError: ``path`` is missing, damaged, or not a schedule log.
        """
        try:
            rows = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise RunFolderError(f"{path}: the schedule log cannot be read ({error})") from None
        if rows.dtype != ROW:
            raise RunFolderError(
                f"{path}: the schedule log comes from another version of dagsim (its fields are {rows.dtype.names})"
            )
        return cls.of(rows)

    @classmethod
    def of(cls, rows: np.ndarray) -> ScheduleLog:
        """Create a log from a ``ROW`` array, without copying it."""
        log = cls()
        log._packed = [rows]
        log._packed_rows = len(rows)
        return log

    def copy(self) -> ScheduleLog:
        """Return a copy of the log. Both logs share the packed rows and grow independently."""
        log = ScheduleLog()
        log._packed = list(self._packed)
        log._packed_rows = self._packed_rows
        log._tail.extend(self._tail)
        return log

    def __len__(self) -> int:
        return self._packed_rows + len(self._tail)

    def __iter__(self) -> Iterator[Record]:
        for row in self.rows().tolist():
            yield Record(Kind(row[0]), *row[1:])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ScheduleLog):
            return NotImplemented
        return self.rows().tobytes() == other.rows().tobytes()

    __hash__ = None  # type: ignore[assignment]

    def _pack(self) -> None:
        if self._tail:
            # np.frombuffer makes a writable array from a bytearray, but a read-only one from bytes
            self._packed.append(np.frombuffer(bytearray().join(self._tail), ROW))
            self._packed_rows += len(self._tail)
            self._tail.clear()


@dataclass(slots=True)
class Schedule:
    """The result of a simulation. The simulation may still be running, or the result may have been
    read from a run folder. ``jobs[n]`` is the job with ``Record.job == n``.
    """

    cluster: Cluster
    jobs: Sequence[JobFacts] = field(default_factory=list)
    """A list, or ``FactColumns`` for large runs."""
    log: ScheduleLog = field(default_factory=ScheduleLog)
    seed: int = 0
    decision_s: float = 0.0
    """Total time in seconds that the policy spent on its decisions, or 0 if it was not measured."""
    decisions: int = 0
    """Number of decisions that were executed."""
    ended_s: float = 0.0
    """Time at which the simulation stopped: its last event, or the time until which it was run."""
    begins_s: float = 0.0
    """Time at which the simulation began. Earlier rows belong to jobs that were in the system at
    that time: they record their arrivals, and the starts of runs that were still in progress."""

    def arrived(self, job: JobFacts) -> None:
        """Add the next job."""
        if not isinstance(self.jobs, list):
            self.jobs = list(self.jobs)
        self.jobs.append(job)

    def check(self) -> None:
        """Check a schedule that was read from a file. It must have all those properties of a
        simulated schedule on which other code relies.

        Raises:
            ValueError: No simulation could have written this schedule. The message names the first
                wrong row (counted from 0) or the job.
        """
        rows, jobs = self.log.rows(), FactColumns.of(self.jobs)
        if rows.ndim != 1:
            raise ValueError(f"the rows must have one dimension, got {rows.ndim}")
        # The ideal times may be infinite, because a rejected job that fits on no node would never
        # end, even on an idle cluster.
        numbers = np.array([getattr(jobs, name) for name in NUMBERS if name not in ("deadline_s", *_IDEAL)])
        ideals = np.array([getattr(jobs, name) for name in _IDEAL])
        ends = (self.seed, self.ended_s, self.begins_s)
        finite = np.isfinite(numbers).all() and all(isinstance(end, int | float) and isfinite(end) for end in ends)
        if not finite or not (ideals >= 0).all():
            raise ValueError("a number in a job, the seed, or the beginning or end of the simulation is not finite")
        texts = (*jobs.ids, *jobs.tenant, *jobs.names)
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("a name is not a string")
        kind, job, node, task = rows["kind"], rows["job"], rows["node"], rows["task"]
        self._check_rows(rows, "kind", (kind < 0) | (kind > max(Kind)))
        for name in ("time_s", "value"):
            self._check_rows(rows, name, ~np.isfinite(rows[name]))
        self._check_rows(rows, "time_s", np.append(False, np.diff(rows["time_s"]) < 0)[: len(rows)])
        of_node, of_run = np.isin(kind, (Kind.DOWN, Kind.UP, Kind.POWER)), np.isin(kind, _OF_RUNS)
        self._check_rows(rows, "job", (job < -1) | (job >= len(jobs)) | ((job < 0) & ~of_node))
        arrivals = np.bincount(job[kind == Kind.ARRIVED], minlength=len(jobs))
        if (wrong := np.flatnonzero(arrivals != 1)).size:
            raise ValueError(f"job {wrong[0]} arrives {arrivals[wrong[0]]} times")
        tasks = np.append(np.diff(jobs.first), 0)[job]
        self._check_rows(rows, "task", (task < -1) | ((task >= tasks) & (job >= 0)) | ((task < 0) & of_run))
        nodes = self.cluster.nodes
        self._check_rows(rows, "node", (node < -1) | (node >= len(nodes)) | ((node < 0) & (of_run | of_node)))
        self._check_rows(rows, "run", (rows["run"] < 0) & of_run)
        masks = np.array([(1 << min(machine.gpus, 62)) - 1 for machine in nodes] + [0], np.int64)[node]
        self._check_rows(rows, "gpus", (rows["gpus"] & ~masks) != 0)
        self._check_rows(rows, "instances", rows["instances"] < 0)
        self._check_rows(rows, "value", (kind == Kind.POWER) & ~np.isin(rows["value"], list(PowerState)))

    @staticmethod
    def _check_rows(rows: np.ndarray, name: str, wrong: np.ndarray) -> None:
        if (places := np.flatnonzero(wrong)).size:
            raise ValueError(f"row {places[0]}: {name} must not be {rows[name][places[0]]}")

    def copy(self) -> Schedule:
        """Return a copy of the schedule. Both schedules grow independently."""
        return replace(self, jobs=list(self.jobs), log=self.log.copy())
