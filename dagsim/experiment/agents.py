"""Trained agents by the name of their algorithm: ``--algo ppo`` means the newest one there is."""

from __future__ import annotations

from pathlib import Path

from dagsim.errors import UnknownName

__all__ = ["ALGORITHMS", "agent_spec", "decima_checkpoint"]

ALGORITHMS = ("ppo", "reinforce", "d3qn", "sac")


def agent_spec(algo: str, checkpoint: Path | None = None, root: Path = Path("results")) -> str:
    """The policy that ``--algo ALGO`` means, with ``--checkpoint`` if that is given: of an algorithm the agent of the
    newest training below ``root`` that has one; anything else is a policy already.

    Raises:
        UnknownName: No such training, or a checkpoint for what is no algorithm.
    """
    if algo not in ALGORITHMS:
        if checkpoint is not None:
            raise UnknownName(f"--checkpoint goes with --algo {', '.join(ALGORITHMS)}, not with {algo!r}")
        return algo
    if checkpoint is None:
        found = sorted(root.glob(f"*-train-{algo}-*/best.pt"), key=lambda path: path.parent.name)
        if not found:
            raise UnknownName(
                f"no trained {algo} below {root}/: train one (dagsim train --algo {algo}) or --checkpoint"
            )
        checkpoint = found[-1]
    return f'dagsim.agents.policy:load_agent[checkpoint="{checkpoint}"]'


def decima_checkpoint() -> Path:
    """The network for 50 executors that comes with dagsim."""
    package = Path(__file__).parents[1]
    return next(path for path in (package / "decima.pt", package.parent / "results/decima/w2.pt") if path.exists())
