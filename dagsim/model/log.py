"""What happened in a simulation: events as rows, the log that holds them, and the schedule that every metric reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path
from struct import Struct
from typing import IO, NamedTuple, TypeAlias

import numpy as np

from dagsim.errors import RunFolderError
from dagsim.model.cluster import Cluster

__all__ = [
    "ROW",
    "JobFacts",
    "Kind",
    "Record",
    "RejectReason",
    "Row",
    "Schedule",
    "ScheduleLog",
    "packed_row",
    "unpacked_row",
]


class Kind(IntEnum):
    """The kind of a row of the log. A run that spans nodes (a gang) writes one row per node for each of its steps."""

    ARRIVED = 0
    """A job arrived."""
    ADMITTED = 1
    """A job that had to be admitted was."""
    REJECTED = 2
    """A job was turned away, or killed; ``value`` is the ``RejectReason``."""
    STARTED = 3
    """A run took its GPUs, CPUs and memory; ``value`` is the GPUs held on this node (a fraction where shared)."""
    COMPUTING = 4
    """A run that had transfers or a set-up has finished them and now computes."""
    FINISHED = 5
    """A run did all its work and gave its resources back; ``value`` as in STARTED."""
    PREEMPTED = 6
    """A run was stopped by a decision; ``value`` as in STARTED."""
    FAILED = 7
    """A run was stopped by the failure of a node; ``value`` as in STARTED."""
    COMPLETED = 8
    """The last task of a job finished."""
    DOWN = 9
    """A node went down."""
    UP = 10
    """A node came back."""


class RejectReason(IntEnum):
    """The reason why a job was rejected."""

    TOO_LARGE = 1
    """Some task asks more than the whole cluster, empty, can ever give."""
    NO_SUCH_GPU = 2
    """Some task allows only GPU types that the cluster does not have."""
    BY_POLICY = 3
    """The policy rejected it."""
    NO_PLACE = 4
    """It could not wait, and there was no place for it."""
    TOO_SLOW = 5
    """It would have taken longer than is acceptable."""
    TIME_LIMIT = 6
    """It ran until its time limit, and was killed."""
    CANCELLED = 7
    """It was cancelled: preempted by a scheduler that does not requeue, or because no limit would ever let it run."""


class Record(NamedTuple):
    """One row of the log. Fields that a kind does not use are -1 (``instances``, ``gpus``: 0).

    ``job`` counts arrivals from 0; ``task`` is the place in the job's graph; ``run`` counts starts from 0; ``node`` is
    the place in the cluster; ``gpus`` is the set of GPUs held on that node as a bit mask (0 where a node has more than
    62).
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


class JobFacts(NamedTuple):
    """Facts of a job that stay known after it left: one per arrival, in the order of ``Record.job``."""

    id: str
    arrival_s: float
    priority: float
    tenant: str
    deadline_s: float | None
    weight: float
    ideal_s: float
    """The critical path with every task on its fastest allowed GPU type and no waiting: no schedule ends sooner."""
    ideal_gpu_s: float
    """GPU-seconds of all instances, each on its fastest allowed GPU type (CPU-only tasks count 0)."""
    gpus: float
    """The most GPUs any one task can hold at once: instances times GPUs per instance."""
    tasks: tuple[str, ...]
    """The names of its tasks, by ``Record.task``."""
    parents: tuple[tuple[int, ...], ...] = ()
    """Per task those that must end before it starts; empty where the record does not say."""


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
"""A row: 49 bytes. Its fields are those of ``Record``."""

Row: TypeAlias = tuple[int, float, int, int, int, int, int, int, float]
"""One row as the kernel writes it: the fields of ``Record``, plain."""

_ROW = Struct("<bdiiqiiqd")
"""``ROW``, for one row at a time."""

packed_row: Callable[[int, float, int, int, int, int, int, int, float], bytes] = _ROW.pack
"""The 49 bytes of a row, from the fields of ``Record``. The garbage collector does not look into bytes, and joining
them makes the array: with tuples a simulation of 10,000 jobs spent a tenth of its time on collections."""

unpacked_row: Callable[[bytes], Row] = _ROW.unpack
"""The fields of a row, from its bytes."""

_CHUNK = 1 << 16


class ScheduleLog:
    """Rows in the order things happened. ``pack`` joins the bytes of full chunks into ``ROW`` arrays."""

    __slots__ = ("_packed", "_packed_rows", "_tail", "append_packed")

    append_packed: Callable[[bytes], None]
    """Add a ``packed_row``: what the kernel writes four times a task."""

    def __init__(self) -> None:
        self._packed: list[np.ndarray] = []
        self._packed_rows = 0
        self._tail: list[bytes] = []
        self.append_packed = self._tail.append

    def append(self, row: Row) -> None:
        """Add one row."""
        self._tail.append(packed_row(*row))

    def pack(self) -> None:
        """Make long tails compact (49 bytes a row); call it now and then while writing."""
        if len(self._tail) >= _CHUNK:
            self._pack()

    def rows(self) -> np.ndarray:
        """All rows as one structured array of dtype ``ROW``."""
        self._pack()
        if len(self._packed) > 1:
            self._packed = [np.concatenate(self._packed)]
        return self._packed[0] if self._packed else np.empty(0, ROW)

    def since(self, row: int) -> list[Row]:
        """The rows from number ``row`` on, as tuples: what a live fold (a reward) has not seen yet."""
        if row >= self._packed_rows:
            return [*map(unpacked_row, self._tail[row - self._packed_rows :])]
        return list(self.rows()[row:].tolist())

    def save(self, path: Path) -> None:
        """Write the rows to ``path`` (NumPy ``.npy``)."""
        with path.open("wb") as file:
            self.write(file)

    def write(self, file: IO[bytes]) -> None:
        """Write the rows to an open file, as ``save`` does."""
        np.save(file, self.rows(), allow_pickle=False)

    @classmethod
    def load(cls, path: Path) -> ScheduleLog:
        """Read what ``save`` wrote.

        Raises:
            RunFolderError: ``path`` is missing, damaged, or no schedule log.
        """
        try:
            rows = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise RunFolderError(f"{path}: not a readable schedule log ({error})") from None
        if rows.dtype != ROW:
            raise RunFolderError(f"{path}: not a schedule log of this version (its fields are {rows.dtype.names})")
        return cls.of(rows)

    @classmethod
    def of(cls, rows: np.ndarray) -> ScheduleLog:
        """A log of the given ``ROW`` array."""
        log = cls()
        log._packed = [rows]
        log._packed_rows = len(rows)
        return log

    def copy(self) -> ScheduleLog:
        """An equal log that grows on its own; shares the packed rows."""
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
            self._packed.append(np.frombuffer(bytearray().join(self._tail), ROW))  # of a bytearray: writable
            self._packed_rows += len(self._tail)
            self._tail.clear()


@dataclass(slots=True)
class Schedule:
    """The result of a simulation, live or read back from a run folder. ``jobs[n]`` belongs to ``Record.job ==
    n``."""

    cluster: Cluster
    jobs: Sequence[JobFacts] = field(default_factory=list)
    """A list, or ``FactColumns`` where they are many."""
    log: ScheduleLog = field(default_factory=ScheduleLog)
    seed: int = 0
    decision_s: float = 0.0
    """Wall-clock seconds the policy took to decide, summed (0 where it was not measured)."""
    decisions: int = 0
    """Decisions carried out."""
    ended_s: float = 0.0
    """When the simulation stopped: its last event, or the time it was run until."""

    def arrived(self, job: JobFacts) -> None:
        """Take in the next job."""
        if not isinstance(self.jobs, list):
            self.jobs = list(self.jobs)
        self.jobs.append(job)

    def copy(self) -> Schedule:
        """An equal schedule that grows on its own."""
        return replace(self, jobs=list(self.jobs), log=self.log.copy())
