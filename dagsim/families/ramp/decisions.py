"""Decisions about a job, and the rules for carrying them out.

A policy sends a ``Partition``. The planner then places and orders the job's pieces according to the
``Rules``. All classes are immutable.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from dagsim.errors import require
from dagsim.families.ramp.topology import Block


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules by which jobs are split, timed and accepted, and which degrees may be chosen.

    Raises:
        ConfigError: The quantum is not positive, a degree is below 1, or a tolerance is negative.
    """

    quantum_s: float = 1e-5
    """Length of a piece: operations are split into pieces of about this length (SiP-ML: 1e-5 s)."""
    max_degree: int = 16
    """Maximum number of pieces into which an operation may be divided."""
    flow_bytes: Literal["output", "memory"] = "output"
    """Load of an edge: its producer's output, or (ddls) output and weights of the end that is split
    first."""
    sync_bytes: Literal["weights", "memory"] = "weights"
    """Load of a weight exchange between pieces of a backward operation: weights, or (ddls) weights
    and output."""
    joins: Literal["sinks", "last"] = "sinks"
    """Where the loss joins the passes: at every operation without children, or (ddls) at the
    operation with the last number."""
    flows: Literal["serial", "parallel"] = "serial"
    """A channel carries one dependency at a time, or (ddls) all ready dependencies, each at the
    full rate."""
    collectives: Literal["operation", "pair"] = "operation"
    """All transfers of an operation are one collective, and its weight exchange is another. In
    ddls, all inputs of a mirrored operation form one collective, and each pair of pieces exchanges
    weights in its own collective."""
    early_release: bool = False
    """A weight exchange counts as a parent, so that it can release an operation early (ddls)."""
    backward_memory: bool = True
    """Memory is held by both passes; ddls counts only the forward pass."""
    mask: Literal["placeable", "shape"] = "placeable"
    """A degree is offered if it can be placed now, or (ddls) if it could be placed on an empty
    cluster with the same number of free servers."""
    tolerance: float = 1e-9
    """A job is late if it takes longer than acceptable by more than this fraction (ddls: 0)."""
    remembered: bool = False
    """A model at a degree always takes the time of its first placement, wherever it runs later (as
    in the memo of ddls)."""
    same_s: float = 0.0
    """A job that ends at most this many seconds after another event ends together with it (ddls:
    1e-7)."""

    def __post_init__(self) -> None:
        require(self.quantum_s > 0, "quantum_s must be positive", self.quantum_s)
        require(self.max_degree >= 1, "max_degree must be at least 1", self.max_degree)
        for name in ("tolerance", "same_s"):
            require(getattr(self, name) >= 0, f"{name} must not be negative", getattr(self, name))

    @property
    def of_steps(self) -> tuple[object, ...]:
        """The rules that affect the time of a training step for given splits and servers."""
        return self.flow_bytes, self.sync_bytes, self.joins, self.collectives, self.flows, self.early_release

    @property
    def degrees(self) -> tuple[int, ...]:
        """The numbers of pieces that an operation can have: 1, and the even numbers up to
        ``max_degree``.
        """
        return (1, *range(2, self.max_degree + 1, 2))

    def limit_s(self, acceptable_s: float) -> float:
        """Return the longest completion time that still counts as in time. ``acceptable_s`` is the
        acceptable time of the job.
        """
        return acceptable_s * (1 + self.tolerance)

    def but(self, **changes: object) -> Rules:
        """Return these rules with some of them changed."""
        return replace(self, **changes)  # type: ignore[arg-type]


PLAIN = Rules()
"""Default rules."""

DDLS = Rules(
    quantum_s=0.01,
    flow_bytes="memory",
    sync_bytes="memory",
    joins="last",
    flows="parallel",
    collectives="pair",
    early_release=True,
    backward_memory=False,
    mask="shape",
    tolerance=0.0,
    remembered=True,
    same_s=1e-7,
)
"""The rules of ddls as in the experiments of its paper, with milliseconds read as seconds."""


class Partition(NamedTuple):
    """Split each operation in the job into at most ``degree`` pieces, and start the job. Degree 0
    rejects the job.

    ``placer`` names the placer for this job, instead of the kernel's placer. ``servers`` is a bit
    mask of free servers that the job may use. If it is given, there is no placer.
    """

    job: int
    degree: int
    placer: str | None = None
    servers: int | None = None


class OpPlacement(NamedTuple):
    """The block of servers on which each operation runs. Piece ``k`` of an operation and piece
    ``k`` of its mirror run on the ``k``-th server in the block."""

    job: int
    blocks: tuple[Block, ...]
    """Distinct blocks, in the order of their first use."""
    block_of: tuple[int, ...]
    """Index into ``blocks`` of each operation."""

    @property
    def servers(self) -> frozenset[int]:
        """All servers that the job occupies."""
        return frozenset(server for block in self.blocks for server in block)

    def block(self, op: int) -> Block:
        """Return the block of an operation."""
        return self.blocks[self.block_of[op]]


class OpSchedule(NamedTuple):
    """The order in which a server runs its ready operations, highest rank first.

    There is a separate order for each GPU type in use (``ranks[type][pass operation]``).
    """

    job: int
    ranks: tuple[tuple[int, ...], ...]
