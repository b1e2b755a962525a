"""What the lane says of scenarios that it cannot carry out."""

from __future__ import annotations

from math import inf

import pytest

from dagsim.errors import ModelError
from dagsim.model import Cluster, Job, Kind, Node, Task
from dagsim.systems.cluster import Estimates, MovingDelay, NodeFailures, Preemption, UniformNetwork
from dagsim.systems.cluster.lane import jit
from dagsim.systems.cluster.lane.drive import compile_loops, is_warm, run
from dagsim.systems.cluster.lane.kernel import ARRIVED, COMPLETED, FINISHED, PREEMPTED, REJECTED, STARTED_ROW
from dagsim.systems.cluster.lane.scenario import PLACEMENTS, POLICIES, applies, planned

FOUR = Cluster.of({"V100": 4})


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_it_knows_every_policy_with_every_placement(policy: str, placement: str) -> None:
    assert applies(FOUR, f"{policy}[placement={placement}]", needs_numba=False) == (True, "")


@pytest.mark.parametrize(
    ("models", "named"),
    [
        ({"setup": MovingDelay(2.0)}, "a set-up model"),
        ({"network": UniformNetwork()}, "a network"),
        ({"disturbances": (NodeFailures(1e5, 1e3),)}, "disturbances"),
        ({"observers": (print,)}, "observers"),
        ({"admission": True}, "admission"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_refusal_names_the_feature(models: dict[str, object], named: str) -> None:
    verdict = applies(FOUR, "fifo", needs_numba=False, **models)  # type: ignore[arg-type]
    assert not verdict.holds
    assert named in verdict.why


@pytest.mark.parametrize(
    ("policy", "named"),
    [
        ("heft", "policy 'heft'"),
        ("sjf[placement=fgd]", "placement 'fgd'"),
        ("fifo[patience=3]", "parameter 'patience' of fifo"),
        (object(), "policies by name"),
    ],
    ids=["policy", "placement", "parameter", "object"],
)
def test_an_unknown_policy_is_refused_by_name(policy: object, named: str) -> None:
    assert named in applies(FOUR, policy, needs_numba=False).why


def test_rounds_that_lose_work_are_refused() -> None:
    verdict = applies(FOUR, "las", preemption=Preemption("restart"), needs_numba=False)
    assert "lose their work" in verdict.why
    assert applies(FOUR, "srtf", preemption=Preemption("restart"), needs_numba=False).holds


def test_without_numba_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "numba", None)
    assert "pip install -e '.[fast]'" in applies(FOUR, "fifo").why
    assert applies(FOUR, "fifo", needs_numba=False).holds


def test_warm_is_a_policy_whose_loop_was_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "is_kept", lambda name: name == "advance_easy")
    assert [is_warm(policy) for policy in ("easy-sjf", "easy", "sjf", "las")] == [True, True, False, False]


@pytest.mark.timeout(600)
@pytest.mark.skipif(not jit.jitted(), reason="numba is not installed")
def test_what_was_compiled_once_is_kept() -> None:
    assert not jit.is_kept("advance_nothing")
    compile_loops(["fifo"])
    assert is_warm("sjf")
    assert compile_loops(["sjf"]) == []


def test_memory_without_end_is_refused() -> None:
    node = Node("n", FOUR.nodes[0].gpu, 4, memory_gb=inf)
    assert "GB of memory" in applies(Cluster((node,)), "fifo", needs_numba=False).why


def test_jobs_must_come_in_order_of_arrival() -> None:
    jobs = [Job.single(f"j{at}", Task("t", 1.0), float(at)) for at in (3, 1)]
    with pytest.raises(ModelError, match=r"job 'j1' arrives at 1.0 s, after one that arrived at 3.0 s"):
        run(FOUR, jobs, "fifo")


def test_predicted_estimates_need_the_users_claim() -> None:
    with pytest.raises(ModelError, match="task j/t has none"):
        run(FOUR, [Job.single("j", Task("t", 1.0))], "sjf", estimates=Estimates("predicted"))


def test_no_jobs_leave_an_empty_log() -> None:
    schedule = run(FOUR, [], "fifo")
    assert (len(schedule.log), schedule.jobs, schedule.ended_s) == (0, [], 0.0)


def test_a_plan_keeps_the_parameters_of_its_policy() -> None:
    assert planned("priority[ageing=0.5,placement=worst-fit]").params == {"ageing": 0.5}


def test_rows_are_of_the_kinds_of_the_log() -> None:
    kinds = (ARRIVED, REJECTED, STARTED_ROW, FINISHED, PREEMPTED, COMPLETED)
    assert kinds == (Kind.ARRIVED, Kind.REJECTED, Kind.STARTED, Kind.FINISHED, Kind.PREEMPTED, Kind.COMPLETED)
