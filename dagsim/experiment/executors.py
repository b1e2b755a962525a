"""Where cells are run: processes of this machine (``--on local:4``), or another executor by its name."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from time import process_time
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from dagsim.config.schema import Config
from dagsim.errors import ConfigError, DagsimError, PluginError, RunFolderError, SimulationError
from dagsim.experiment.kept_files import RunRecord, lines_of, run_record
from dagsim.experiment.plan import Cell, Keep, code_digest, config_of
from dagsim.experiment.simulate import run_policy
from dagsim.processes import end_with_parent, starting
from dagsim.registry import Entry, Registry
from dagsim.traces.trace_file import TraceFile

__all__ = [
    "EXECUTORS",
    "CellFailure",
    "CellOutcome",
    "CellRecord",
    "CellWork",
    "Heard",
    "Local",
    "SweepExecutor",
    "Work",
    "cores",
    "executor_for",
    "in_order",
]


_KILLS = 3
"""So many workers may be killed, with no cell finished between, before it is no accident."""


class SweepExecutor(Protocol):
    """Runs cells somewhere. It writes nothing: outcomes come back to the process that asks, in any order."""

    def run(self, work: CellWork, cells: Sequence[Cell], heard: Heard | None = None) -> Iterator[CellOutcome]:
        """The outcomes of all cells, each once, lazily; ``heard`` may be told which one is under way.

        Raises:
            DagsimError: What ``work`` raised, or the workers are gone for good.
        """
        ...


EXECUTORS: Registry[Any] = Registry(
    "executor",
    [
        Entry("local", ".executors:Local", "processes of this machine: local, or local:4 for four of them"),
        Entry("ray", ".on_ray:OnRay", "a Ray cluster: ray, or ray://HOST:10001 (pip install -e '.[ray]')"),
    ],
    group="dagsim.executors",
    home="dagsim.experiment",
    listing="dagsim list executors",
    method="run",
)
"""Every executor by name; each is made of the text behind its name and colon."""


def executor_for(text: str) -> SweepExecutor:
    """The executor that ``--on`` means.

    Raises:
        UnknownName: There is no such executor.
        ConfigError: What stands behind its name is wrong.
    """
    name, _, address = text.partition(":")
    make: Any = EXECUTORS.get(name)
    made: SweepExecutor = make(address)
    return made


class Local:
    """Processes of this machine, as many as it has cores unless said otherwise.

    Raises:
        ConfigError: ``address`` is no number of processes.
    """

    def __init__(self, address: str = "") -> None:
        if address and not (address.isdecimal() and 1 <= int(address) <= 4096):
            raise ConfigError(f"--on local:{address}: expected a number of processes from 1 to 4096")
        self.workers = int(address) if address else cores()

    def run(self, work: CellWork, cells: Sequence[Cell], heard: Heard | None = None) -> Iterator[CellOutcome]:
        """The outcomes in the order of the cells; where a worker is killed, others go on with what is left."""
        done = kills = 0
        while done < len(cells):
            try:
                for outcome in in_order(work, cells[done:], self.workers, _counted(heard, done)):
                    done, kills = done + 1, 0
                    yield outcome
            except SimulationError:  # only that a worker was killed: a policy that fails is an outcome
                kills += 1
                if kills == _KILLS:
                    raise


def _counted(heard: Heard | None, before: int) -> Heard | None:
    """``heard``, told of places in the whole list."""
    if heard is None:
        return None
    return lambda index, done, count: heard(before + index, before + done, count)


class CellRecord(NamedTuple):
    """A finished cell, ready to be written."""

    id: str
    line: dict[str, Any]
    """Policy, seed, workload and metrics, as a line of ``runs.jsonl``."""
    timing: dict[str, Any]
    files: dict[str, bytes]
    """What else is kept of it, by the ending of the file."""


class CellFailure(NamedTuple):
    """A cell whose policy failed; it is tried again by the next start."""

    id: str
    error: str


CellOutcome: TypeAlias = CellRecord | CellFailure


@dataclass(frozen=True, slots=True)
class CellWork:
    """Runs cells. It is sent to workers whole: the same code must be there, and the traces where it says."""

    code: str
    """The digest of the code that simulates, where the sweep was started."""
    keep: Keep = "summary"
    traces: Mapping[str, str] = field(default_factory=dict)
    """Paths of the traces by their SHA-256."""

    def __call__(self, cell: Cell, tell: Callable[[int], None]) -> CellOutcome:
        """Simulate ``cell``; ``tell`` is called with the number of jobs that arrived, now and then.

        Raises:
            RunFolderError: The code here is not that of where the sweep was started.
            InputError: As ``run_policy``.
        """
        if self.code != code_digest():
            raise RunFolderError("sweep: this worker has another version of dagsim than the machine that asks it")
        try:
            result = run_policy(self._config(cell), cell.policy, cell.seed, tell)
        except (SimulationError, PluginError) as error:
            return CellFailure(cell.id, f"{type(error).__name__}: {error}")
        line, timing = lines_of(result)
        return CellRecord(
            cell.id, line, timing, {} if self.keep == "summary" else _files(run_record(result), self.keep)
        )

    def _config(self, cell: Cell) -> Config:
        config, path = config_of(cell), self.traces.get(cell.trace or "")
        if path is None or not isinstance(config.workload, TraceFile):
            return config
        member = config.workload.path.removeprefix(str(config.workload.source.path))
        return config.model_copy(update={"workload": replace(config.workload, path=path + member)})


def _files(record: RunRecord, keep: Keep) -> dict[str, bytes]:
    tables = [head + rows for head, rows in zip(record.heads, record.rows, strict=True)]
    files = {"jobs.csv.gz": tables[0]}
    if keep == "jobs":
        return files
    schedule = {ending.removeprefix("."): content for ending, content in record.files}
    return files | {"tasks.csv.gz": tables[1]} | schedule


Item = TypeVar("Item")
Outcome = TypeVar("Outcome")

Work: TypeAlias = Callable[[Item, Callable[[int], None]], Outcome]
"""Makes the outcome of an item; may tell a count meanwhile. It can be pickled, and is called in any process."""

Heard: TypeAlias = Callable[[int, int, int], None]
"""Is told of an item at work: its index, how many are done, and its count."""

_WORTH_S = 3.0
"""Less work than this is done before workers are ready."""
_WARM_UP_S = 0.5
"""Processor time that the first item may have spent on imports."""
_HELD_BYTES = 1 << 28
"""So much of outcomes that are there before their turn, pickled, is held in memory; then workers wait."""


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(
    work: Work[Item, Outcome],
    items: Sequence[Item],
    workers: int = 1,
    heard: Heard | None = None,
    wanted: Callable[[Item], bool] = lambda item: True,
) -> Iterator[Outcome]:
    """The outcomes of all items that are still ``wanted`` at their turn, in their order, lazily.

    This process begins by itself, and starts workers once it is clear that they pay. They end with the iterator, and
    with this process, however it ends.

    Raises:
        Exception: What ``work`` raised, at its turn.
        SimulationError: A worker was killed.
    """
    index, began = 0, process_time()
    pool: _Pool[Item, Outcome] | None = None
    tell = heard or (lambda index, done, count: None)
    try:
        while index < len(items):
            left = len(items) - index
            spent_s = max(process_time() - began - _WARM_UP_S, 0.0)  # by the clock, busy cores would ask for workers
            if pool is None and min(workers, left) > 1 and spent_s * left > _WORTH_S * max(index, 1):
                pool = _Pool(work, min(workers, left), telling=heard is not None)
            if pool is not None and pool.is_ready():
                yield from pool.run(items, index, tell, wanted)
                return
            if wanted(items[index]):
                yield work(items[index], lambda count, at=index: tell(at, at, count))  # type: ignore[misc]
            index += 1
    finally:
        if pool is not None:
            pool.end()


@dataclass(slots=True)
class _Worker:
    process: Any
    pipe: Connection
    ready: bool = False
    index: int | None = None
    """The item it is at."""


class _Answer(NamedTuple):
    """A message of a worker, and its bytes."""

    kind: str
    value: Any
    size: int


@dataclass(slots=True)
class _Pool(Generic[Item, Outcome]):
    """Processes that take items through pipes."""

    work: Work[Item, Outcome]
    count: int
    telling: bool
    workers: list[_Worker] = field(default_factory=list)

    def __post_init__(self) -> None:
        context, work = get_context("spawn"), pickle.dumps(self.work)
        with starting():
            for _ in range(self.count):
                ours, theirs = context.Pipe()
                process = context.Process(target=_serve, args=(theirs, work, self.telling), daemon=True)
                process.start()
                theirs.close()
                self.workers.append(_Worker(process, ours))

    def is_ready(self) -> bool:
        """A worker has started up."""
        for worker in self.workers:
            if not worker.ready and worker.pipe.poll():
                _received(worker)
                worker.ready = True
        return any(worker.ready for worker in self.workers)

    def run(self, items: Sequence[Item], first: int, tell: Heard, wanted: Callable[[Item], bool]) -> Iterator[Outcome]:
        """The outcomes of the items from ``first`` on."""
        given = turn = first
        kept: dict[int, _Answer] = {}
        held = 0
        while turn < len(items):
            for worker in self.workers:
                while given < len(items) and not wanted(items[given]):
                    kept[given] = _Answer("unwanted", None, 0)
                    given += 1
                if worker.ready and worker.index is None and given < len(items) and held < _HELD_BYTES:
                    _send(worker, (given, items[given]))
                    worker.index = given
                    given += 1
            if turn not in kept:
                held += self._listen(kept, turn, tell)
            while turn in kept:
                kind, value, size = kept.pop(turn)
                held -= size
                turn += 1
                if kind == "raised":
                    raise value
                if kind == "made" and wanted(items[turn - 1]):
                    yield value

    def end(self) -> None:
        """Kill every worker: none holds anything that is not here."""
        for worker in self.workers:
            worker.process.kill()
        for worker in self.workers:
            worker.process.join()
            worker.pipe.close()

    def _listen(self, kept: dict[int, _Answer], turn: int, tell: Heard) -> int:
        """Wait for workers, and keep the outcomes that they have; returns the bytes of these."""
        pipes = {worker.pipe: worker for worker in self.workers}
        held = 0
        for pipe in wait(list(pipes)):
            worker = pipes[pipe]  # type: ignore[index]
            answer = _received(worker)
            if answer.kind == "ready":
                worker.ready = True
            elif answer.kind == "count" and worker.index is not None:
                tell(worker.index, turn, answer.value)
            elif worker.index is not None:
                kept[worker.index] = answer
                held += answer.size
                worker.index = None
        return held


def _send(worker: _Worker, message: object) -> None:
    """Send the worker a message.

    Raises:
        SimulationError: It was killed.
    """
    try:
        worker.pipe.send(message)
    except ConnectionError:
        raise _killed(worker) from None


def _received(worker: _Worker) -> _Answer:
    """The next message of the worker.

    Raises:
        SimulationError: It was killed.
    """
    try:
        data = worker.pipe.recv_bytes()
    except (EOFError, ConnectionError):
        raise _killed(worker) from None
    kind, value = pickle.loads(data)
    return _Answer(kind, value, len(data))


def _killed(worker: _Worker) -> SimulationError:
    """The error of a worker that is gone."""
    worker.process.join(5)
    code = worker.process.exitcode
    how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
    return SimulationError(f"a worker process was killed ({how}; is there enough memory? --workers 1 takes the least)")


def _serve(pipe: Connection, pickled: bytes, telling: bool) -> None:
    """A worker's life: it ends when the pipe does, or at once when its parent is gone, also while it starts up."""
    end_with_parent()
    work: Work[Any, Any] = pickle.loads(pickled)  # imports all that it needs
    tell: Callable[[int], None] = (lambda count: pipe.send(("count", count))) if telling else (lambda count: None)
    with suppress(EOFError, ConnectionError):
        pipe.send(("ready", None))
        while True:
            _, item = pipe.recv()
            try:
                answer = ("made", work(item, tell))
            except Exception as error:
                answer = ("raised", _portable(error))
            pipe.send(answer)


def _portable(error: Exception) -> Exception:
    """The error, or one like it, that can be sent to another process."""
    try:
        sent: Exception = pickle.loads(pickle.dumps(error))
    except Exception:
        kind = type(error) if isinstance(error, DagsimError) else SimulationError
        sent = kind(f"{type(error).__name__}: {error}")
    sent.__cause__ = None
    return sent
