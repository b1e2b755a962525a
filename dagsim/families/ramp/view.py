"""The view, which is all that a policy may see when a job has arrived. This module also measures
the space for later jobs: which blocks of servers will be free at the next arrivals, with and
without the waiting job.

A fabric can become fragmented in space, if blocks of one size do not fill the gaps between other
blocks. It can also become fragmented in time: jobs that end together free whole blocks, but jobs
that end at different times leave gaps. Both effects reduce the number of free blocks of each size
at the next arrivals. To compute this number, assume that no other job is accepted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from dagsim.families.ramp.bounded import Bounded
from dagsim.families.ramp.decisions import Partition, Rules
from dagsim.families.ramp.fabric import Fabric
from dagsim.families.ramp.partition import PartitionedGraph
from dagsim.families.ramp.planner import Outlook
from dagsim.families.ramp.workload import RampJob

if TYPE_CHECKING:
    from dagsim.families.ramp.kernel import RampKernel


class RampView:
    """The waiting job and the fabric as it is now. The view always shows the current state of the
    kernel, so do not store it for later use."""

    __slots__ = ("_kernel",)

    def __init__(self, kernel: RampKernel) -> None:
        self._kernel = kernel

    @property
    def now(self) -> float:
        """Seconds since the start of the simulation."""
        return self._kernel.now

    @property
    def number(self) -> int:
        """The number of the waiting job, by which a ``Partition`` names it."""
        return self._kernel.queued_number

    @property
    def job(self) -> RampJob:
        """The waiting job."""
        return self._kernel.queued

    @property
    def degrees(self) -> tuple[int, ...]:
        """The degrees that may be chosen, in ascending order. They always include 0, which rejects
        the job.
        """
        return self._kernel.degrees()

    @property
    def free(self) -> int:
        """Number of servers without a job."""
        return self._kernel.free

    @property
    def occupied(self) -> int:
        """The servers with a job, as a bit mask."""
        return self._kernel.occupied

    @property
    def running(self) -> int:
        """Number of running jobs."""
        return len(self._kernel.running)

    @property
    def fabric(self) -> Fabric:
        """The topology and its GPUs."""
        return self._kernel.planner.fabric

    @property
    def rules(self) -> Rules:
        """The rules for splitting, timing and accepting jobs."""
        return self._kernel.planner.rules

    @property
    def remaining_s(self) -> tuple[float, ...]:
        """The remaining seconds of each server's job, or 0 for a server without a job."""
        return self._kernel.remaining_s()

    @property
    def ends(self) -> tuple[tuple[float, int], ...]:
        """The end of each running job (in seconds since the start), and its servers as a bit mask.
        The order is arbitrary."""
        return tuple((run.end_s, run.servers) for run in self._kernel.running)

    @property
    def gap_s(self) -> float:
        """The mean time between the arrivals so far. At the first arrival, it is 0."""
        number = self._kernel.queued_number
        return (self._kernel.queued.arrival_s - self._kernel.jobs[0].arrival_s) / number if number else 0.0

    @property
    def examples(self) -> tuple[RampJob, ...]:
        """Examples of jobs similar to the future ones (but not the future jobs themselves), if
        there are any."""
        return self._kernel.examples

    def outlook(self, degree: int, placer: str | None = None, servers: int | None = None) -> Outlook | None:
        """Return the servers and times that the job would have at this degree, or None if it cannot be
        placed now.

        With ``servers`` (a bit mask), the job is placed only on these servers.
        """
        return self._kernel.outlook(degree, placer, servers)

    def jct_on(self, degree: int, servers: Iterable[int]) -> Iterator[float | None]:
        """Yield, for each set of free servers (a bit mask), how many seconds the job would take
        there, or None if it cannot be placed there.
        """
        return self._kernel.jct_on(degree, servers)

    def parts(self, degree: int) -> PartitionedGraph:
        """Return the job's graph, split into pieces for a degree."""
        return self._kernel.planner.parts(self.job.graph, degree)

    def stream(self, name: str) -> np.random.Generator:
        """Return a named random stream for this simulation."""
        return self._kernel.streams.of(name)


class RampPolicy(Protocol):
    """A policy, which makes one decision for each arriving job."""

    def decide(self, view: RampView) -> Iterable[Partition]:
        """Return one decision for the waiting job. An empty answer rejects the job."""


SIZES = (1, 2, 4, 8, 16)
"""Sizes of the blocks that are counted."""
ARRIVALS = (1, 2, 3, 5, 8, 13, 21)
"""Numbers of arrivals ahead at which blocks are counted."""

_MOST_BLOCKS = 4096
"""Maximum number of blocks counted per size; larger fabrics use the first ones."""


class _Blocks:
    """All distinct blocks on a fabric, as the bits of words. All blocks in a word have the same
    size."""

    def __init__(self, fabric: Fabric) -> None:
        of_size = [blocks_of(fabric, size) for size in SIZES]
        self.words = [blocks[begin : begin + 64] for blocks in of_size for begin in range(0, max(len(blocks), 1), 64)]
        self.starts = np.cumsum([0, *(max(-(-len(blocks) // 64), 1) for blocks in of_size)])[:-1]
        """First word of each size, (sizes,)."""
        self.full = np.array([(1 << len(blocks)) - 1 for blocks in self.words], np.uint64)
        self.counts = np.maximum(self.count(self.full), 1)
        self._touched: Bounded[int, NDArray[np.uint64]] = Bounded()

    def touched(self, servers: int) -> NDArray[np.uint64]:
        """Return the bits of the blocks that contain at least one of these servers. Shape (words,)."""
        words = self._touched.get(servers)
        if words is None:
            bits = [sum(1 << bit for bit, block in enumerate(blocks) if block & servers) for blocks in self.words]
            words = self._touched[servers] = np.array(bits, np.uint64)
        return words

    def count(self, bits: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return, for each block size, the number of bits that are set in ``bits``, (..., words).
        Shape (..., sizes).
        """
        return np.add.reduceat(np.bitwise_count(bits).astype(np.int64), self.starts, axis=-1)


_made: WeakKeyDictionary[Fabric, _Blocks] = WeakKeyDictionary()


class Room:
    """The number of blocks that will be free at the next arrivals, by ``ARRIVALS`` (rows) and
    ``SIZES`` (columns)."""

    def __init__(self, view: RampView) -> None:
        self._blocks = blocks = _blocks_of(view.fabric)
        self.gap_s = view.gap_s or _gap_of(view)
        """The mean time between arrivals."""
        self._at_s = np.array([view.now + ahead * self.gap_s for ahead in ARRIVALS])
        self._free = np.repeat(blocks.full[None], len(ARRIVALS), axis=0)  # shape (arrivals, words)
        for end_s, servers in view.ends:
            self._free[: int(np.searchsorted(self._at_s, end_s))] &= ~blocks.touched(servers)
        self.before = blocks.count(self._free)  # shape (arrivals, sizes)
        self.counts = blocks.counts
        """Blocks of the empty fabric, (sizes,)."""

    def after(self, servers: Sequence[int], ends_s: Sequence[float]) -> NDArray[np.int64]:
        """Return how many blocks remain free if a job is on ``servers`` until its end. Shape
        (choices, arrivals, sizes).

        Each entry in ``servers`` is a bit mask.
        """
        touched = np.stack([self._blocks.touched(mask) for mask in servers])  # shape (choices, words)
        lost = self._blocks.count(touched[:, None] & self._free[None])
        runs = np.array(ends_s)[:, None] > self._at_s
        left: NDArray[np.int64] = self.before - lost * runs[:, :, None]
        return left


class Way(NamedTuple):
    """A way to partition the waiting job. Degree 0 rejects it."""

    degree: int
    servers: int
    """Bit mask of its servers, or 0 if the job is rejected or the placer chooses."""
    jct_s: float


def ways_in_time(view: RampView) -> Iterator[Way]:
    """Yield every combination of a degree and a free block with which the job would be in time.
    If several degrees split the job in the same way, only one of them is used.
    """
    limit_s = view.rules.limit_s(view.job.acceptable_s)
    splits = None
    for degree in view.degrees[1:]:
        parts = view.parts(degree)
        if parts.splits == splits:
            continue
        splits = parts.splits
        masks = free_blocks(view, parts.degree)
        for mask, jct_s in zip(masks, view.jct_on(degree, masks), strict=True):
            if jct_s is not None and jct_s <= limit_s:
                yield Way(degree, mask, jct_s)


def blocks_of(fabric: Fabric, size: int) -> tuple[int, ...]:
    """Return the distinct blocks of ``size`` servers as bit masks. If any servers form a block,
    return only blocks of consecutive servers.
    """
    if size > fabric.servers:
        return ()
    return fabric.masks(size)[:_MOST_BLOCKS]


def free_blocks(view: RampView, size: int) -> list[int]:
    """Return the distinct free blocks of ``size`` servers as bit masks, in first-fit order."""
    occupied = view.occupied
    if view.fabric.topology.anywhere:
        return list(dict.fromkeys(mask for mask, _ in view.fabric.free(size, occupied)))
    return [mask for mask in view.fabric.masks(size) if not mask & occupied]


def _blocks_of(fabric: Fabric) -> _Blocks:
    blocks = _made.get(fabric)
    if blocks is None:
        blocks = _made[fabric] = _Blocks(fabric)
    return blocks


def _gap_of(view: RampView) -> float:
    """Estimate the mean time between arrivals when only one job has arrived. It is the mean gap
    among the examples or, without examples, the time that the job would take on all servers.
    """
    examples = view.examples
    if len(examples) > 1 and examples[-1].arrival_s > examples[0].arrival_s:
        return (examples[-1].arrival_s - examples[0].arrival_s) / (len(examples) - 1)
    return view.job.sequential_s / view.fabric.servers
