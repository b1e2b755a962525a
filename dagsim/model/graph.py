"""The DAG of a job's tasks: who waits for whom, and for how many bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from dagsim.errors import GraphError

if TYPE_CHECKING:
    from dagsim.model.job import Task

__all__ = ["Edge", "TaskGraph"]


class Edge(NamedTuple):
    """``child`` starts after ``parent`` ends and reads ``bytes`` of its output; both are places in ``tasks``."""

    parent: int
    child: int
    bytes: float = 0.0


_NONE: tuple[tuple[int, ...], ...] = ((),)


@dataclass(frozen=True, slots=True)
class TaskGraph:
    """Tasks and the edges between them; checked at birth.

    Raises:
        GraphError: No tasks, two tasks of one name, an edge to nowhere, a doubled edge, a task that waits for itself, a
            cycle (the message walks along it).
    """

    tasks: tuple[Task, ...]
    edges: tuple[Edge, ...] = ()
    parents: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)
    children: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)
    order: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """A topological order: parents first; among free tasks the first listed first."""

    def __post_init__(self) -> None:
        count = len(self.tasks)
        if count == 1 and not self.edges:  # most jobs of most traces: keep them cheap
            self._set(_NONE, _NONE, (0,))
            return
        if not count:
            raise GraphError("a job needs at least one task")
        if len({task.name for task in self.tasks}) != count:
            seen: set[str] = set()
            twice = next(task.name for task in self.tasks if task.name in seen or seen.add(task.name))  # type: ignore[func-returns-value]
            raise GraphError(f"two tasks are called {twice!r}")
        parents: list[list[int]] = [[] for _ in range(count)]
        children: list[list[int]] = [[] for _ in range(count)]
        known: set[tuple[int, int]] = set()
        for parent, child, size in self.edges:
            if not (0 <= parent < count and 0 <= child < count):
                raise GraphError(f"edge {parent} -> {child} leads outside the {count} tasks")
            if parent == child:
                raise GraphError(f"task {self.tasks[child].name!r} waits for itself")
            if not size >= 0:
                raise GraphError(f"edge {self._arrow(parent, child)}: bytes must be 0 or more, got {size!r}")
            if (parent, child) in known:
                raise GraphError(f"edge {self._arrow(parent, child)} is given twice")
            known.add((parent, child))
            parents[child].append(parent)
            children[parent].append(child)
        self._set(tuple(map(tuple, parents)), tuple(map(tuple, children)), self._sorted(parents, children))

    @classmethod
    def of(cls, tasks: Iterable[Task], parents: Mapping[str, Iterable[str]]) -> TaskGraph:
        """A graph from parents by name, ``{"reduce": ["map-0", "map-1"]}``.

        Raises:
            GraphError: As above, and a parent or child that is no task, by name.
        """
        listed = tuple(tasks)
        place = {task.name: index for index, task in enumerate(listed)}
        edges = []
        for child, names in parents.items():
            for parent in names:
                for name, role in ((child, "child"), (parent, "parent")):
                    if name not in place:
                        raise GraphError(f"{role} {name!r} of edge {parent!r} -> {child!r} is no task of this job")
                edges.append(Edge(place[parent], place[child]))
        return cls(listed, tuple(edges))

    def upward_rank(self, seconds: Sequence[float]) -> list[float]:
        """Per task the longest path from its start to the job's end. The task itself is included; ``seconds`` are per
        task."""
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
        """The longest path through the graph with ``seconds`` per task."""
        return max(self.upward_rank(seconds))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tasks, in order."""
        tasks = self.tasks
        return (tasks[0].name,) if len(tasks) == 1 else tuple([task.name for task in tasks])

    def depth(self) -> int:
        """Tasks on the longest chain."""
        return int(self.critical_path([1.0] * len(self.tasks)))

    def _set(
        self, parents: tuple[tuple[int, ...], ...], children: tuple[tuple[int, ...], ...], order: tuple[int, ...]
    ) -> None:
        object.__setattr__(self, "parents", parents)
        object.__setattr__(self, "children", children)
        object.__setattr__(self, "order", order)

    def _arrow(self, parent: int, child: int) -> str:
        return f"{self.tasks[parent].name!r} -> {self.tasks[child].name!r}"

    def _sorted(self, parents: list[list[int]], children: list[list[int]]) -> tuple[int, ...]:
        """Kahn's order; what is left when no task is free is a cycle."""
        missing = [len(of) for of in parents]
        order = [index for index, count in enumerate(missing) if count == 0]
        for index in order:
            for child in children[index]:
                missing[child] -= 1
                if missing[child] == 0:
                    order.append(child)
        if len(order) < len(self.tasks):
            raise GraphError(f"tasks wait for each other in a circle: {self._circle(parents, set(order))}")
        return tuple(order)

    def _circle(self, parents: list[list[int]], free: set[int]) -> str:
        index = next(index for index in range(len(self.tasks)) if index not in free)
        walk: list[int] = []
        while index not in walk:
            walk.append(index)
            index = next(parent for parent in parents[index] if parent not in free)
        circle = [*walk[walk.index(index) :], index][::-1]
        return " -> ".join(repr(self.tasks[step].name) for step in circle)
