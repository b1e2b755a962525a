"""Decisions about a job, and the rules under which they are carried out.

A policy sends a ``Partition``; the planner places and orders the pieces of the job by the ``Rules``. All values are
frozen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from dagsim.errors import ConfigError
from dagsim.systems.ramp.topology import Block

__all__ = [
    "DDLS",
    "PLAIN",
    "OpPlacement",
    "OpSchedule",
    "Partition",
    "Rules",
]


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules for splitting, timing, offering and accepting jobs.

    Raises:
        ConfigError: A quantum that is not positive, a degree below 1, or a negative tolerance.
    """

    quantum_s: float = 1e-5
    """An operation is split into pieces of this length and not below (SiP-ML: 1e-5 s)."""
    max_degree: int = 16
    """No operation is split into more pieces."""
    flow_bytes: Literal["output", "memory"] = "output"
    """An edge carries its producer's output, or (ddls) output and weights of whichever end is split first."""
    sync_bytes: Literal["weights", "memory"] = "weights"
    """Pieces of a backward operation exchange their weights, or (ddls) weights and output."""
    joins: Literal["sinks", "last"] = "sinks"
    """Where the loss joins the passes: at every operation without children, or (ddls) at the one numbered last."""
    flows: Literal["serial", "parallel"] = "serial"
    """A channel carries one dependency at a time, or (ddls) all that are ready, each at the full rate."""
    collectives: Literal["operation", "pair"] = "operation"
    """What an operation sends on is one collective, and so is the exchange of its weights; or (ddls) a mirror's inputs
    are one, and every two pieces exchange weights in one of their own."""
    early_release: bool = False
    """A weight exchange counts as a parent, so that it can release an operation early (ddls)."""
    backward_memory: bool = True
    """Memory is held by both passes; ddls counts the forward one only."""
    mask: Literal["placeable", "shape"] = "placeable"
    """A degree is offered if it can be placed now, or (ddls) if it could in an empty cluster with as many free."""
    tolerance: float = 1e-9
    """A job is late if it takes longer than acceptable by more than this fraction (ddls: 0)."""
    remembered: bool = False
    """A model at a degree takes as long as where it was first let in, wherever it runs now (the memo of ddls)."""
    same_s: float = 0.0
    """A job that ends at most this much later than another event ends with it (ddls: 1e-7)."""

    def __post_init__(self) -> None:
        if not self.quantum_s > 0:
            raise ConfigError(f"quantum_s must be positive, got {self.quantum_s!r}")
        if self.max_degree < 1:
            raise ConfigError(f"max_degree must be at least 1, got {self.max_degree!r}")
        for name in ("tolerance", "same_s"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name} must not be negative, got {getattr(self, name)!r}")

    @property
    def of_steps(self) -> tuple[object, ...]:
        """The rules on which a step's time depends, given what is split and runs where."""
        return self.flow_bytes, self.sync_bytes, self.joins, self.collectives, self.flows, self.early_release

    def but(self, **changes: object) -> Rules:
        """These rules with some of them changed."""
        return replace(self, **changes)  # type: ignore[arg-type]


PLAIN = Rules()
"""The rules that hold unless others are given."""

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
"""The rules of ddls as its paper's experiments have them, with milliseconds taken as seconds."""


class Partition(NamedTuple):
    """Split each operation of the job into at most ``degree`` pieces and start it; 0 turns the job away.

    ``placer`` names another placer than the kernel's for this job. ``servers`` is a bit mask of free servers that the
    job must stay on; no placer is asked then.
    """

    job: int
    degree: int
    placer: str | None = None
    servers: int | None = None


class OpPlacement(NamedTuple):
    """On which block each operation runs: piece ``k``, and its mirror's piece, on the block's ``k``-th server."""

    job: int
    blocks: tuple[Block, ...]
    """Distinct blocks, in the order of their first use."""
    block_of: tuple[int, ...]
    """Per operation its place in ``blocks``."""

    @property
    def servers(self) -> frozenset[int]:
        """All servers that the job takes."""
        return frozenset(server for block in self.blocks for server in block)

    def block(self, op: int) -> Block:
        """The block of an operation."""
        return self.blocks[self.block_of[op]]


class OpSchedule(NamedTuple):
    """The order of the operations of a server: among those that are ready, the one of the highest rank.

    One order per GPU type in use (``ranks[type][pass operation]``).
    """

    job: int
    ranks: tuple[tuple[int, ...], ...]
