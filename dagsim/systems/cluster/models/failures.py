"""Failure models."""

from __future__ import annotations

import csv
from collections.abc import Collection, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from math import inf
from os.path import expandvars
from typing import Literal, Protocol

import numpy as np
from simpy.events import Event

from dagsim.errors import ModelError
from dagsim.files import open_lines, why_unreadable
from dagsim.model.streams import stream
from dagsim.systems.cluster.clock import DISTURBANCES, Clock, Timer

_ORDER = "start_s must be 0 or more and before end_s"


class Nodes(Protocol):
    """The operations on nodes that a failure model may call."""

    @property
    def node_count(self) -> int:
        """Number of nodes in the cluster."""

    def take_down(self, node: int, notice_s: float = 0.0) -> None:
        """Take the node down. Its runs end as failed, but keep their work if ``notice_s`` is long
        enough for a checkpoint.
        """

    def bring_up(self, node: int) -> None:
        """Bring the node back. It is up when every process that took it down has brought it back."""


class FailureModel(Protocol):
    """The interface for failure models. A failure model describes when nodes fail. Its method
    ``start`` creates the state of a failure process, which is plain data.
    """

    def start(self, nodes: int, seed: int) -> FailureProcess:
        """Return the state at time 0 for a cluster with ``nodes`` nodes."""


class FailureProcess(Protocol):
    """The state of a failure model during a simulation. Its future changes are stored as plain
    data, so that a copy can continue in a forked simulation.
    """

    def processes(self, clock: Clock, nodes: Nodes) -> list[Generator[Event, object, None]]:
        """Return SimPy processes that take nodes down and bring them up, continuing from the
        current state.
        """

    def postpone(self, by_s: float) -> None:
        """Postpone all future failures and repairs by ``by_s`` seconds."""

    def copy(self) -> FailureProcess:
        """Return a copy of the state that continues independently."""

    def returning(self) -> Collection[int]:
        """Return the nodes that this process keeps down and will bring back. A node that it has
        taken down twice is listed twice.
        """


@dataclass(frozen=True, slots=True)
class NodeFailures:
    """Nodes that fail and are repaired after exponentially distributed times (a memoryless
    machine-repair model).
    """

    mean_up_s: float
    """Mean time in seconds from a repair to the next failure."""
    mean_down_s: float
    """Mean time in seconds that a repair takes."""
    kind: Literal["node_failures"] = "node_failures"
    rack: int = 1
    """Number of consecutive nodes that fail together, as they do when they share a switch or a power
    supply. With 1, each node fails independently.
    """

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        _check_means("node failures", self)
        if not self.rack >= 1:
            raise ModelError(f"node failures: rack must be at least 1 node, got {self.rack!r}")

    def start(self, nodes: int, seed: int) -> _Failing:
        """Return a state in which every node is up and each rack has its own random stream."""
        racks = [tuple(range(first, min(first + self.rack, nodes))) for first in range(0, nodes, self.rack)]
        rngs = [stream(seed, "failures", rack) for rack in range(len(racks))]
        up_s = [float(rng.exponential(self.mean_up_s)) for rng in rngs]
        return _Failing(self, racks, rngs, up_s, [True] * len(racks))

    @property
    def notice_s(self) -> float:
        """The seconds of notice before a failure, which are 0 because failures come without notice."""
        return 0.0


def _check_means(name: str, rates: NodeFailures | SpotCapacity) -> None:
    for key in ("mean_up_s", "mean_down_s"):
        if not getattr(rates, key) > 0:
            raise ModelError(f"{name}: {key} must be positive, got {getattr(rates, key)!r}")


@dataclass(frozen=True, slots=True)
class SpotCapacity:
    """Spot nodes, which their owner takes away and later returns. The times between these events
    are exponentially distributed, and each node is independent of the others.

    If the notice is at least as long as ``Preemption.checkpoint_write_s``, the runs keep all work
    done until then. Otherwise, they lose as much work as in a failure. If checkpoints are sent over a
    network to a storage, they must arrive within the notice.
    """

    mean_up_s: float
    """Mean number of seconds for which a node is available."""
    mean_down_s: float
    """Mean number of seconds for which a node is away."""
    notice_s: float = 120.0
    """Seconds of notice before a node is taken away. When the notice arrives, the runs on the node
    stop and write a checkpoint, and nothing else starts there.
    """
    nodes: tuple[int, ...] | None = None
    """Numbers of the spot nodes. By default, all nodes of the cluster are spot nodes."""
    kind: Literal["spot"] = "spot"

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        _check_means("spot", self)
        if not 0 <= self.notice_s < inf:
            raise ModelError(f"spot: notice_s must be 0 or more, got {self.notice_s!r}")

    def start(self, nodes: int, seed: int) -> _Failing:
        """Return a state in which every spot node is available and has its own random stream.

        Raises:
            ModelError: The cluster does not have one of the nodes.
        """
        spot = sorted(set(range(nodes) if self.nodes is None else self.nodes))
        if any(not 0 <= node < nodes for node in spot):
            raise ModelError(f"spot: nodes must be from 0 to {nodes - 1}, got {self.nodes}")
        rngs = [stream(seed, "spot", node) for node in spot]
        up_s = [float(rng.exponential(self.mean_up_s)) for rng in rngs]
        return _Failing(self, [(node,) for node in spot], rngs, up_s, [True] * len(spot))


@dataclass(slots=True)
class _Failing:
    """A failure process for racks. For each rack, its state contains the nodes, a random stream,
    the time of the next change, and whether the rack is up until then.
    """

    rates: NodeFailures | SpotCapacity
    racks: list[tuple[int, ...]]
    rngs: list[np.random.Generator]
    next_s: list[float]
    up: list[bool]

    def processes(self, clock: Clock, nodes: Nodes) -> list[Generator[Event, object, None]]:
        return [self._life(clock, nodes, rack) for rack in range(len(self.rngs))]

    @property
    def takes_for_good(self) -> bool:
        """True if nodes that go down never come back."""
        return self.rates.mean_down_s == inf

    def postpone(self, by_s: float) -> None:
        self.next_s = [next_s + by_s for next_s in self.next_s]

    def copy(self) -> _Failing:
        rngs = []
        for rng in self.rngs:
            twin = np.random.default_rng()
            twin.bit_generator.state = rng.bit_generator.state
            rngs.append(twin)
        return _Failing(self.rates, self.racks, rngs, list(self.next_s), list(self.up))

    def returning(self) -> set[int]:
        down = [rack for rack, up in enumerate(self.up) if not up and self.next_s[rack] < inf]
        return {node for rack in down for node in self.racks[rack]}

    def _life(self, clock: Clock, nodes: Nodes, rack: int) -> Generator[Event, object, None]:
        while True:
            yield Timer(clock, self.next_s[rack], DISTURBANCES)
            for node in self.racks[rack]:
                if self.up[rack]:
                    nodes.take_down(node, self.rates.notice_s)
                else:
                    nodes.bring_up(node)
            self.up[rack] = not self.up[rack]
            mean = self.rates.mean_up_s if self.up[rack] else self.rates.mean_down_s
            self.next_s[rack] = clock.now + float(self.rngs[rack].exponential(mean))


@dataclass(frozen=True, slots=True)
class Maintenance:
    """A maintenance period: the listed nodes are out of service from ``start_s`` to ``end_s``. If
    ``end_s`` is ``inf``, they do not return.
    """

    nodes: tuple[int, ...]
    """Numbers of the nodes."""
    start_s: float
    """The time in seconds at which the nodes go out of service."""
    end_s: float
    """The time in seconds at which they return. With ``inf``, they do not return."""
    kind: Literal["maintenance"] = "maintenance"

    __pydantic_config__ = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if not 0 <= self.start_s < self.end_s:
            raise ModelError(f"maintenance: {_ORDER}, got {self.start_s!r} and {self.end_s!r}")

    def start(self, nodes: int, seed: int) -> _Calendar:
        """Return the initial state, in which nothing has happened yet.

        Raises:
            ModelError: The cluster does not have one of the nodes.
        """
        if any(not 0 <= node < nodes for node in self.nodes):
            raise ModelError(f"maintenance: nodes must be from 0 to {nodes - 1}, got {self.nodes}")
        return _Calendar(tuple((node, self.start_s, self.end_s) for node in sorted(set(self.nodes))))


@dataclass(frozen=True, slots=True)
class Outages:
    """Periods in which nodes are absent, because they are added late, removed, or unavailable for a
    time. The machine events in a trace describe such periods. A window lasts from ``start_s`` to
    ``end_s`` (``inf`` means until the end of the simulation). The windows of one node must not
    overlap.
    """

    windows: tuple[tuple[int, float, float], ...]
    """``(node, start_s, end_s)`` in any order."""

    def __post_init__(self) -> None:
        for node, start_s, end_s in self.windows:
            if not 0 <= start_s < end_s:
                raise ModelError(f"downtime of node {node}: {_ORDER}, got {start_s!r} and {end_s!r}")

    def start(self, nodes: int, seed: int) -> _Calendar:
        """Return the initial state, in which nothing has happened yet.

        Raises:
            ModelError: The cluster does not have one of the nodes.
        """
        wrong = next((node for node, _, _ in self.windows if not 0 <= node < nodes), None)
        if wrong is not None:
            raise ModelError(f"downtimes: nodes must be from 0 to {nodes - 1}, got {wrong}")
        return _Calendar(self.windows)


@dataclass(frozen=True, slots=True)
class FailureLog:
    """Failures that are read from a CSV file with the columns ``node`` (the number of the node),
    ``start_s`` and ``end_s`` (empty if the node never returns). Overlapping failures of a node
    count as one.
    """

    path: str
    """The CSV file."""
    kind: Literal["failure_log"] = "failure_log"

    __pydantic_config__ = {"extra": "forbid"}

    def start(self, nodes: int, seed: int) -> _Calendar:
        """Return the initial state, in which nothing has happened yet.

        Raises:
            ModelError: The file cannot be read, or a row is not a failure of an existing node.
        """
        merged: list[tuple[int, float, float]] = []
        for node, start_s, end_s in sorted(self._windows(nodes)):
            if merged and merged[-1][0] == node and start_s <= merged[-1][2]:
                start_s, end_s = merged[-1][1], max(end_s, merged.pop()[2])
            merged.append((node, start_s, end_s))
        return _Calendar(tuple(merged))

    def _windows(self, nodes: int) -> Iterator[tuple[int, float, float]]:
        columns = ["node", "start_s", "end_s"]
        try:
            with open_lines(expandvars(self.path), ModelError) as file:
                rows = csv.DictReader(file)
                if not set(columns) <= set(rows.fieldnames or ()):
                    raise ModelError(f"{self.path}:1: a failure log needs the columns {', '.join(columns)}")
                for number, row in enumerate(rows, 2):
                    try:
                        node, start_s, end_s = int(row["node"]), float(row["start_s"]), float(row["end_s"] or inf)
                    except (TypeError, ValueError) as error:
                        raise ModelError(
                            f"{self.path}:{number}: a row needs node, start_s and end_s ({error})"
                        ) from None
                    if not 0 <= node < nodes:
                        raise ModelError(f"{self.path}:{number}: node must be from 0 to {nodes - 1}, got {node}")
                    if not 0 <= start_s < end_s:
                        raise ModelError(f"{self.path}:{number}: {_ORDER}, got {start_s} and {end_s}")
                    yield node, start_s, end_s
        except OSError as error:
            raise ModelError(f"failure log {self.path}: {why_unreadable(error)}") from None


@dataclass(slots=True)
class _Calendar:
    """A failure process for given windows ``(node, start_s, end_s)``, in which nodes are
    unavailable. Its state also contains the number of changes that have already happened.
    """

    windows: tuple[tuple[int, float, float], ...]
    done: int = 0
    changes: list[tuple[float, bool, int]] = field(init=False)
    """``(time_s, goes down, node)``, sorted; at the same time, nodes return before others leave, in
    order of their numbers.
    """
    takes_for_good: bool = field(init=False)
    """True if a node stays away forever."""

    def __post_init__(self) -> None:
        self._list_changes()

    def _list_changes(self) -> None:
        ends = [(end_s, False, node) for node, _, end_s in self.windows if end_s < inf]
        self.takes_for_good = len(ends) < len(self.windows)
        self.changes = sorted(ends + [(start_s, True, node) for node, start_s, _ in self.windows])

    def processes(self, clock: Clock, nodes: Nodes) -> list[Generator[Event, object, None]]:
        return [self._carry_on(clock, nodes)]

    def postpone(self, by_s: float) -> None:
        self.windows = tuple([(node, start_s + by_s, end_s + by_s) for node, start_s, end_s in self.windows])
        self._list_changes()

    def copy(self) -> _Calendar:
        return _Calendar(self.windows, self.done)

    def returning(self) -> list[int]:
        """Return the nodes that are absent now and will return. The cost is O(windows), and this is
        called only while nothing is running.
        """
        if not self.done:
            return []
        now = self.changes[self.done - 1][0]
        return [node for node, start_s, end_s in self.windows if start_s <= now < end_s < inf]

    def _carry_on(self, clock: Clock, nodes: Nodes) -> Generator[Event, object, None]:
        while self.done < len(self.changes):
            time_s = self.changes[self.done][0]
            yield Timer(clock, time_s, DISTURBANCES)
            while self.done < len(self.changes) and self.changes[self.done][0] == time_s:
                _, down, node = self.changes[self.done]
                self.done += 1
                if down:
                    nodes.take_down(node)
                else:
                    nodes.bring_up(node)


def start_all(models: Iterable[FailureModel], nodes: int, seed: int, begins_s: float = 0.0) -> list[FailureProcess]:
    """Return the state of all failure processes at the beginning of the simulation. The times of
    failures are counted from this beginning. The windows of all models are combined in a single
    calendar. The order of simultaneous changes therefore does not depend on the order of the
    models.

    Raises:
        ModelError: The cluster does not have one of the nodes.
    """
    processes = [model.start(nodes, seed) for model in models]
    if begins_s:
        for process in processes:
            process.postpone(begins_s)
    calendars = [process for process in processes if isinstance(process, _Calendar)]
    if len(calendars) < 2:
        return processes
    everything = _Calendar(tuple(window for calendar in calendars for window in calendar.windows))
    return [everything, *(process for process in processes if not isinstance(process, _Calendar))]
