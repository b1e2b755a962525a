"""The end of a training: its agent, a linear one and heuristics, judged once."""

from __future__ import annotations

from collections.abc import Callable

from dagsim.agents.checkpoint import Checkpoint
from dagsim.agents.config import algorithm_name
from dagsim.experiment.training.report import ReportLine, compare_agents
from dagsim.experiment.training.trainer import Progress, TrainingRun

__all__ = ["finish"]


def finish(run: TrainingRun, tell: Callable[[Progress], None] | None = None) -> list[ReportLine]:
    """Run the agent and its rivals on the report seeds. Rivals are a linear policy, the reference and other
    heuristics."""
    kind = algorithm_name(run.train.algorithm)
    agents: dict[str, Checkpoint] = {kind: Checkpoint.load(run.folder.path / "best.pt")}
    linear = run.linear()
    if linear is not None:
        agents[f"linear {kind}"] = linear
    heuristics = tuple(dict.fromkeys((run.reference, *run.train.rivals)))

    def said(policy: str, done: int, of: int) -> None:
        if tell is not None:
            tell(Progress(f"report: {policy}", done, of))

    return compare_agents(run.config, agents, heuristics, run.report_seeds, said)
