"""The kernel: jobs start when they arrive or are lost, and nothing illegal is carried out."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagsim.errors import IllegalDecision, ModelError
from dagsim.families.ramp.api import (
    DDLS,
    RAMP_POLICIES,
    ComputationGraph,
    Fabric,
    Memo,
    Op,
    Partition,
    Planner,
    Ramp,
    RampJob,
    RampKernel,
    RampView,
    Rules,
)
from dagsim.metrics import columns, jct
from dagsim.model import Kind, RejectReason

RULES = Rules(quantum_s=0.01, max_degree=4)


def graph(seconds: float = 1.0) -> ComputationGraph:
    return ComputationGraph("one", [Op("1", seconds, seconds, 0.0, 0.0)], [])


def job(arrival_s: float = 0.0, *, seconds: float = 1.0, beta: float = 1.0, steps: int = 5) -> RampJob:
    return RampJob(f"at {arrival_s:g}", graph(seconds), arrival_s, beta, steps)


def kernel(jobs: Iterable[RampJob], *, rules: Rules = RULES, horizon_s: float = inf, seed: int = 0) -> RampKernel:
    return RampKernel(jobs, Planner(Fabric(Ramp(2, 2, 1)), rules, memo=Memo()), horizon_s=horizon_s, seed=seed)


class Degrees:
    def __init__(self, *degrees: int) -> None:
        self.left = list(degrees)

    def decide(self, view: RampView) -> Iterable[Partition]:
        return (Partition(view.number, self.left.pop(0)),)


def test_a_job_starts_when_it_arrives_and_takes_its_steps() -> None:
    done = kernel([job(3.0)])
    done.run(Degrees(2))
    # 5 steps of 2 s on two servers, and nothing to exchange
    assert done.outcomes[0].completed_s == 8.0
    assert done.schedule.ended_s == 8.0


def test_the_log_says_when_a_job_had_which_servers() -> None:
    done = kernel([job()])
    schedule = done.run(Degrees(2))
    rows = [(Kind(row.kind), row.time_s, row.job, row.run, row.node) for row in schedule.log]
    assert rows == [
        (Kind.ARRIVED, 0.0, 0, -1, -1),
        (Kind.ADMITTED, 0.0, 0, -1, -1),
        (Kind.STARTED, 0.0, 0, 0, 0),
        (Kind.STARTED, 0.0, 0, 0, 2),
        (Kind.FINISHED, 5.0, 0, 0, 0),
        (Kind.FINISHED, 5.0, 0, 0, 2),
        (Kind.COMPLETED, 5.0, 0, -1, -1),
    ]
    assert jct(schedule).tolist() == [5.0]


def test_the_metrics_of_other_systems_read_the_log() -> None:
    done = kernel([job(), job(1.0), job(2.0, beta=0.1)])
    cols = columns(done.run(Degrees(2, 1, 1)))
    assert cols.jobs.finished.tolist() == [True, True, False]
    assert cols.runs.gpu_s.sum() == 2 * 5.0 + 10.0


def test_a_job_ends_before_another_arrives_at_the_same_instant() -> None:
    done = kernel([job(), job(2.5)])
    done.run(Degrees(4, 4))
    assert [outcome.completed_s for outcome in done.outcomes] == [2.5, 5.0]


def test_a_degree_is_offered_if_it_can_be_placed() -> None:
    asked = kernel([job(), job(1.0), job(2.0)])
    conversation = asked.decisions()
    view = next(conversation)
    assert view.degrees == (0, 1, 2, 4)
    view = conversation.send([Partition(0, 2)])
    assert (view.degrees, view.free, view.occupied) == ((0, 1, 2), 2, 0b101)
    assert view.remaining_s == (4.0, 0.0, 4.0, 0.0)
    view = conversation.send([Partition(1, 2)])
    assert view.degrees == (0,)


def anti_diagonal(rules: Rules) -> RampKernel:
    """At 5 s the last job finds 0-1 and 1-0 free, which are no block: neither group, nor rack, nor diagonal."""
    singles = [job(seconds=seconds, beta=2.0) for seconds in (9.0, 0.1, 0.1, 9.0)]
    return kernel([*singles, job(5.0)], rules=rules)


def test_ddls_offers_what_would_fit_elsewhere_and_turns_it_away() -> None:
    done = anti_diagonal(DDLS.but(max_degree=4))
    done.run(Degrees(1, 1, 1, 1, 2))
    assert done.outcomes[4].degrees == (0, 1, 2)
    assert done.outcomes[4].reason is RejectReason.NO_PLACE


def test_what_cannot_be_placed_now_is_not_offered() -> None:
    done = anti_diagonal(RULES)
    done.run(Degrees(1, 1, 1, 1, 1))
    assert done.outcomes[4].degrees == (0, 1)


def test_a_job_with_too_large_an_operation_is_never_offered_a_server() -> None:
    heavy = ComputationGraph("heavy", [Op("1", 1.0, 1.0, 100e9, 0.0)], [])
    done = kernel([RampJob("heavy", heavy)], rules=RULES.but(max_degree=2, quantum_s=2.0))
    done.run(Degrees(0))
    assert done.outcomes[0].degrees == (0,)


def test_a_job_that_would_take_too_long_is_turned_away_with_that_reason() -> None:
    done = kernel([job(beta=0.5), job(beta=0.49)])
    schedule = done.run(Degrees(2, 2))
    assert done.outcomes[0].started
    assert done.outcomes[1].reason is RejectReason.TOO_SLOW
    assert [row.value for row in schedule.log if row.kind == Kind.REJECTED] == [float(RejectReason.TOO_SLOW)]


def test_no_decision_and_degree_0_turn_a_job_away() -> None:
    done = kernel([job(), job(1.0)])
    conversation = done.decisions()
    next(conversation)
    conversation.send(None)
    with pytest.raises(StopIteration):
        conversation.send([Partition(1, 0)])
    assert [outcome.reason for outcome in done.outcomes] == [RejectReason.BY_POLICY] * 2


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        (Partition(0, 3), "at 1 s: job 0 cannot be split into 3 parts now; allowed: 0, 1, 2, 4"),
        (Partition(0, -1), "cannot be split into -1 parts"),
        (Partition(0, 8), "cannot be split into 8 parts"),
        (Partition(5, 2), "job 5 is not waiting for a decision, but job 0 is"),
        (Partition(0, 2.0), "a degree must be a whole number, got 2.0"),
        (Partition(0, True), "a degree must be a whole number, got True"),
        (Partition(0, 2, "fist_fit"), "unknown placer 'fist_fit'; did you mean 'first_fit'"),
        (Partition(0, 2, "first_fit[a]"), "expected param=value"),
        (Partition(0, 2, 5), "a placer must be a name, got 5"),
        ((0, 2), "expected a Partition"),
    ],
)
def test_an_illegal_decision_is_refused_and_changes_nothing(decision: Partition, words: str) -> None:
    asked = kernel([job(1.0)])
    conversation = asked.decisions()
    next(conversation)
    before = (asked.schedule.copy(), list(asked.outcomes), list(asked.running), asked.occupied, asked.now)
    with pytest.raises(IllegalDecision, match=words):
        conversation.send([decision])
    assert (asked.schedule, asked.outcomes, asked.running, asked.occupied, asked.now) == before
    again = asked.decisions()
    assert next(again).number == 0  # the job still waits


def test_a_second_decision_is_refused() -> None:
    asked = kernel([job()])
    conversation = asked.decisions()
    next(conversation)
    with pytest.raises(
        IllegalDecision, match="no job is waiting for a decision, because the decision for job 0 has already been made"
    ):
        conversation.send([Partition(0, 1), Partition(0, 1)])


def test_a_decision_may_name_another_placer() -> None:
    done = kernel([job()])
    conversation = done.decisions()
    next(conversation)
    with pytest.raises(StopIteration):
        conversation.send([Partition(0, 2, "random[seed=3]")])
    assert done.outcomes[0].completed_s is not None


def test_at_the_horizon_an_arrival_is_not_decided_and_running_jobs_stay_unfinished() -> None:
    done = kernel([job(0.0), job(3.0), job(4.0)], horizon_s=4.0)
    done.run(Degrees(4, 1))
    assert [outcome.completed_s for outcome in done.outcomes] == [2.5, None, None]
    assert done.outcomes[1].started
    assert done.outcomes[2].degrees == ()
    assert done.schedule.ended_s == 4.0


def test_a_run_goes_on_where_it_was_stopped() -> None:
    jobs = [job(float(at), seconds=0.3 + at % 2) for at in range(6)]
    whole, halves = kernel(jobs), kernel(jobs)
    policy = RAMP_POLICIES.create("min")
    whole.run(policy)
    halves.run(policy, until_s=2.2)
    assert halves.now == 2.2
    halves.run(policy)
    assert halves.schedule.log == whole.schedule.log


def test_a_fork_goes_on_by_itself() -> None:
    one = kernel([job(), job(1.0), job(2.0)])
    conversation = one.decisions()
    next(conversation)
    conversation.send([Partition(0, 2)])
    other = one.fork()
    one.run(Degrees(0, 0))
    other.run(Degrees(2, 0))
    assert one.outcomes[1].reason is RejectReason.BY_POLICY
    assert other.outcomes[1].completed_s == 6.0
    assert len(one.schedule.log) != len(other.schedule.log)


def test_jobs_come_in_the_order_of_their_arrival() -> None:
    with pytest.raises(ModelError, match="'at 1' arrives before 'at 2'"):
        kernel([job(2.0), job(1.0)])


@pytest.mark.parametrize(("field", "value"), [("arrival_s", -1.0), ("beta", 0.0), ("steps", 0)])
def test_a_job_that_cannot_be_is_refused(field: str, value: float) -> None:
    with pytest.raises(ModelError, match=f"job 'j': {field} must be"):
        RampJob("j", graph(), **{field: value})  # type: ignore[arg-type]


@settings(deadline=None, max_examples=50)
@given(
    policy=st.sampled_from(["no", "min", "max", "random", "sip_ml[degree=2]", "constant[degree=2]", "acceptable_jct"]),
    placer=st.sampled_from(["first_fit", "packed", "best_fit", "random"]),
    ddls=st.booleans(),
    seed=st.integers(0, 500),
)
def test_no_server_ever_serves_two_jobs_and_every_job_is_accounted_for(
    policy: str, placer: str, ddls: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rules = DDLS.but(max_degree=8) if ddls else RULES.but(max_degree=8)
    arrivals = np.cumsum(rng.exponential(1.0, 25))
    jobs = [job(float(at), seconds=float(rng.uniform(0.1, 2)), beta=float(rng.uniform(0.1, 1))) for at in arrivals]
    played = RampKernel(jobs, Planner(Fabric(Ramp(2, 2, 2)), rules, placer=placer, memo=Memo()), seed=seed)
    schedule = played.run(RAMP_POLICIES.create(policy))
    held: dict[int, int] = {}
    last_s = 0.0
    for row in schedule.log:
        assert row.time_s >= last_s
        last_s = row.time_s
        if row.kind == Kind.STARTED:
            assert row.node not in held
            held[row.node] = row.job
        elif row.kind == Kind.FINISHED:
            assert held.pop(row.node) == row.job
    assert not held
    assert len(played.outcomes) == 25
    assert all((outcome.completed_s is None) == (outcome.reason is not None) for outcome in played.outcomes)
    for outcome in played.outcomes:
        if outcome.completed_s is not None:
            assert outcome.completed_s - outcome.job.arrival_s <= outcome.job.acceptable_s * (1 + 1e-9)


def test_equal_seeds_give_equal_logs() -> None:
    jobs = [job(float(at), seconds=0.5 + at % 3) for at in range(40)]
    one, other, third = (
        kernel(jobs, seed=seed).run(RAMP_POLICIES.create("random")).log.rows().tobytes() for seed in (1, 1, 2)
    )
    assert one == other
    assert one != third
