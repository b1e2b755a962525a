"""The end of a training: its agent, a linear one and heuristics, judged once."""

from __future__ import annotations

from collections.abc import Callable

from dagsim.agents.policy import Checkpoint
from dagsim.experiment.training.report import ReportLine, report
from dagsim.experiment.training.session import Progress, Session

__all__ = ["finish"]


def finish(session: Session, tell: Callable[[Progress], None] | None = None) -> list[ReportLine]:
    """Run the best agent of the session, a linear policy, the reference and its rivals on the report seeds."""
    kind = session.train.algorithm.kind
    agents: dict[str, Checkpoint] = {kind: Checkpoint.load(session.folder.path / "best.pt")}
    linear = session.linear()
    if linear is not None:
        agents[f"linear {kind}"] = linear
    heuristics = tuple(dict.fromkeys((session.reference, *session.train.rivals)))

    def said(policy: str, done: int, of: int) -> None:
        if tell is not None:
            tell(Progress(f"report: {policy}", done, of))

    return report(session.config, agents, heuristics, session.report_seeds, said)
