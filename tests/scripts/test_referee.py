"""The independent referee and dagsim write the same log; a referee with another tie rule does not."""

from __future__ import annotations

from pathlib import Path

import pytest
import referee

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("policy", referee.POLICIES_PLAYED)
def test_dagsim_and_the_referee_agree_to_the_last_bit(policy: str) -> None:
    workloads = [referee.draw(seed) for seed in range(20_000, 20_100)]
    assert [difference for workload in workloads if (difference := referee.difference(workload, policy))] == []


def test_the_workloads_have_what_they_promise() -> None:
    workloads = [referee.draw(seed) for seed in range(20_000, 20_100)]
    rows = [row for workload in workloads for row in referee.referee_rows(workload, "fifo")]
    kinds = {row[0] for row in rows}
    assert kinds == {
        referee.ARRIVED,
        referee.REJECTED,
        referee.STARTED,
        referee.FINISHED,
        referee.FAILED,
        referee.COMPLETED,
        referee.DOWN,
        referee.UP,
    }
    assert any(
        task.gang and task.instances > 1 for workload in workloads for job in workload.jobs for task in job.tasks
    )
    assert any(job.graph.edges for workload in workloads for job in workload.jobs)
    assert max(len({type_ for type_, _ in workload.nodes}) for workload in workloads) == 3


def test_another_rule_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Youngest instead of oldest among pairs that take equally long."""
    monkeypatch.setattr(referee.Piece, "age", property(lambda piece: (-piece.job, piece.task, piece.number)))
    assert any(referee.difference(referee.draw(seed), "sjf") for seed in range(20_000, 20_020))
