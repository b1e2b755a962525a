"""Facts of many jobs as NumPy arrays. ``JobFacts`` are views, made when Python code asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise, repeat
from typing import TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from dagsim.model.arithmetic import numbered
from dagsim.model.log import JobFacts

__all__ = ["NUMBERS", "FactColumns", "Parents"]

NUMBERS = ("arrival_s", "priority", "deadline_s", "weight", "ideal_s", "ideal_gpu_s", "gpus")
"""Names of the facts that are numbers."""

Parents: TypeAlias = tuple[tuple[int, ...], ...]

_BLOCK = 1024
"""Number of ``JobFacts`` made at once."""


@dataclass(frozen=True, slots=True, eq=False)
class FactColumns(Sequence[JobFacts]):
    """Facts of J jobs with n tasks, as columns. A slice is a list.

    Raises:
        ValueError: The columns have different lengths.
    """

    ids: tuple[str, ...]
    arrival_s: NDArray[np.float64]  # (J,), like all numbers
    priority: NDArray[np.float64]
    deadline_s: NDArray[np.float64]
    """NaN if the job has none."""
    weight: NDArray[np.float64]
    ideal_s: NDArray[np.float64]
    ideal_gpu_s: NDArray[np.float64]
    gpus: NDArray[np.float64]
    tenant: tuple[str, ...]
    first: np.ndarray  # (J + 1,) int64: where the tasks of each begin
    name: np.ndarray  # (n,) int: place of each task's name in names
    names: tuple[str, ...]
    graph: np.ndarray  # (J,) int: place in graphs
    graphs: tuple[Parents, ...]
    """Distinct ``JobFacts.parents``. Like ``names``, in order of first appearance in the jobs."""

    def __post_init__(self) -> None:
        jobs = len(self.ids)
        numbers = [getattr(self, name) for name in NUMBERS]
        if any(len(column) != jobs for column in (*numbers, self.tenant, self.graph)):
            raise ValueError("columns of jobs of different lengths")
        if len(self.first) != jobs + 1 or self.first[-1] != len(self.name) or (np.diff(self.first) < 0).any():
            raise ValueError("tasks that are of no job")
        for places, of in ((self.name, self.names), (self.graph, self.graphs)):
            if len(places) and not 0 <= places.min() <= places.max() < len(of):
                raise ValueError("a place beyond its list")

    @classmethod
    def of(cls, facts: Sequence[JobFacts]) -> FactColumns:
        """Convert ``facts`` in any form to columns."""
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
        """Jobs ``start`` to ``stop``."""
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
