"""Tasks that share a GPU: the rates of their pair, joins that are refused, and the tables of rates."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.scripted_policy import Scripted, ends, rates

from dagsim.errors import ConfigError, IllegalDecision, ModelError
from dagsim.families.sharing.pairs import MeasuredPairs, PairTable
from dagsim.metrics.why import CauseKind, wait_reasons
from dagsim.model import Cluster, Decision, Job, Join, Kind, Node, Preempt, Share, Start, Task, gpu_type
from dagsim.systems.cluster import ClusterKernel, ClusterView, Maintenance
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.cluster.waits.causes import binding_causes
from dagsim.testing.violations import as_recorded, violations

T4 = gpu_type("T4")
PAIRS = MeasuredPairs({"T4": {(("bert", None), ("lstm", None)): (0.5, 0.8), (("bert", None), ("bert", None)): (0, 0)}})


def job(name: str, work: float, model: str, arrival_s: float = 0.0, gpus: float = 1.0) -> Job:
    return Job.single(name, Task("t", work, gpus=gpus, model=model), arrival_s)


def together(view: ClusterView) -> Iterator[Decision]:
    """Join each task to the first run that is alone; without one, start it."""
    for task in view.ready:
        alone = [run for run in view.running.values() if not run.beside]
        if alone:
            yield Join(task, alone[0].id)
        elif view.fits(task):
            yield Start(task, (Share(0, task.waiting),))


def kernel(jobs: list[Job], gpus: int = 1, **models: object) -> ClusterKernel:
    cluster = Cluster((Node("n", T4, gpus, 8, 64),))
    return ClusterKernel(cluster, jobs, Models(**({"sharing": PAIRS} | models)))  # type: ignore[arg-type]


def test_two_tasks_on_a_gpu_run_at_the_rates_of_their_pair_until_one_of_them_ends() -> None:
    jobs = [job("a", 100, "bert"), job("b", 40, "lstm", 20)]
    simulated = kernel(jobs)
    simulated.run(Scripted(together))
    # b takes 40 / 0.8 = 50 s, until 70; a did 20 + 25 s by then, and the rest takes 55 s alone.
    assert ends(simulated) == {"a": 125.0, "b": 70.0}
    assert rates(simulated) == [(20.0, 1, 0.8), (20.0, 0, 0.5), (70.0, 0, 1.0)]
    assert not violations(simulated.schedule, jobs, seconds=as_recorded, keeps_work=True, sharing=True)
    assert violations(simulated.schedule, jobs)  # without sharing, the GPU serves two tasks


def test_a_preempted_run_keeps_the_work_that_it_did_at_its_rate() -> None:
    jobs = [job("a", 100, "bert"), job("b", 40, "lstm"), job("late", 1, "bert", 40)]

    def decide(view: ClusterView) -> Iterator[Decision]:
        if view.now == 40 and len(view.running) == 2:
            yield Preempt(0)
        elif view.now < 40:
            yield from together(view)
        else:
            for task in view.ready:
                if view.fits(task):
                    yield Start(task, (Share(0),))

    simulated = kernel(jobs)
    simulated.run(Scripted(decide))
    # At 40 s, a did 20 s and b 32 s. b ends at 48 s, alone; then the other two follow each other.
    assert ends(simulated) == {"b": 48.0, "late": 49.0, "a": 129.0}
    assert not violations(simulated.schedule, jobs, seconds=as_recorded, keeps_work=True, sharing=True)


def test_the_view_expects_ends_at_the_present_rates() -> None:
    expected: list[float] = []

    def decide(view: ClusterView) -> Iterator[Decision]:
        yield from together(view)
        expected.extend(run.estimated_end_s(view.now) for run in view.running.values())
        assert [end_s for end_s, *_ in view.expected_free.ends(0)] == sorted(
            run.estimated_end_s(view.now) for run in view.running.values()
        )

    kernel([job("a", 100, "bert"), job("b", 40, "lstm")]).run(Scripted(decide))
    assert expected[:2] == [200.0, 50.0]
    assert expected[-1] == 125.0


@pytest.mark.parametrize(
    ("jobs", "gpus", "models", "message"),
    [
        ([job("a", 9, "bert"), job("b", 9, "lstm")], 1, {"sharing": None}, "has no sharing model"),
        ([job("a", 9, "bert"), job("b", 9, "bert")], 1, {}, "does not fit into the memory of its GPUs beside"),
        ([job("a", 9, "bert"), job("b", 9, "gan")], 1, {}, "no rates for gan running beside bert on T4; add the pair"),
        ([job("a", 9, "bert", gpus=2), job("b", 9, "lstm")], 2, {}, "requests 1 x 1 GPUs, but run 0 holds 1 x 2 GPUs"),
    ],
)
def test_a_join_that_cannot_be_carried_out_is_refused_with_its_reason(
    jobs: list[Job], gpus: int, models: dict[str, object], message: str
) -> None:
    with pytest.raises(IllegalDecision, match=message):
        kernel(jobs, gpus, **models).run(Scripted(together))


def test_a_third_task_cannot_join_and_a_run_that_shares_cannot_move() -> None:
    def third(view: ClusterView) -> Iterator[Decision]:
        for number, task in enumerate(view.ready):
            yield Join(task, 0) if number else Start(task, (Share(0),))

    jobs = [job("a", 9, "bert"), job("b", 9, "lstm"), job("c", 9, "lstm")]
    with pytest.raises(IllegalDecision, match="run 0 already shares its GPUs with run 1"):
        kernel(jobs).run(Scripted(third))


def test_the_failure_of_a_node_ends_both_runs_of_a_gpu() -> None:
    jobs = [job("a", 100, "bert"), job("b", 40, "lstm")]
    simulated = kernel(jobs, failures=(Maintenance((0,), 10, 20),))
    simulated.run(Scripted(together))
    failed = [row.time_s for row in simulated.schedule.log if row.kind == Kind.FAILED]
    assert failed == [10.0, 10.0]
    assert not violations(simulated.schedule, jobs, seconds=as_recorded, sharing=True)


def test_a_rate_that_never_changes_writes_no_row() -> None:
    simulated = kernel([job("a", 100, "bert"), job("b", 40, "lstm")], gpus=2)
    simulated.run(Scripted(lambda view: (Start(task, (Share(0),)) for task in view.ready)))
    assert not rates(simulated)


def test_a_table_of_gavel_gives_rates_relative_to_alone(tmp_path: Path) -> None:
    bert, lstm, wide = "('BERT (batch size 8)', 1)", "('LSTM', 1)", "('BERT (batch size 8)', 2)"
    rows = {
        bert: {"null": 10.0, lstm: [4.0, 3.0], bert: [0.0, 0.0]},
        lstm: {"null": 6.0},
        wide: {"null": 9.0, wide: [1.0, 1.0]},
    }
    path = tmp_path / "throughputs.json"
    path.write_text(json.dumps({"v100": rows, "v100_unconsolidated": rows}))
    table = PairTable(str(path))
    one, other = Task("t", 1, model="BERT", batch=8), Task("t", 1, model="LSTM")
    v100 = gpu_type("V100").name
    assert table.pair(one, other, v100) == (0.4, 0.5)
    assert table.pair(other, one, v100) == (0.5, 0.4)
    assert table.pair(one, one, v100) is None
    with pytest.raises(
        ModelError, match=r"no rates for LSTM running beside LSTM on .*; add the pair to the table, or set default"
    ):
        table.pair(other, other, v100)
    path.with_name("other.json").write_text("[]")
    with pytest.raises(ConfigError, match="is not a table of Gavel's throughputs"):
        PairTable(str(path.with_name("other.json")))
    with pytest.raises(ConfigError, match="needs a table of pairs or a default rate"):
        PairTable()


def test_a_table_of_lucid_gives_rates_on_all_types_that_have_the_memory(tmp_path: Path) -> None:
    head = "model1,dataset1,batchsize1,amp1,speed1,model2,dataset2,batchsize2,amp2,speed2,gmem"
    rows = ["VGG,CIFAR-10,64,0,0.9,VGG,CIFAR-10,64,1,1.1,9000", "VGG,CIFAR-10,64,0,0.6,LSTM,Wiki,128,0,0.5,16385"]
    path = tmp_path / "colocate_info.csv"
    path.write_text("\n".join([head, *rows]))
    table = PairTable(str(path), default=0.3)
    vgg, mixed = (Task("t", 1, model=f"VGG CIFAR-10{amp}", batch=64) for amp in ("", " amp"))
    lstm = Task("t", 1, model="LSTM Wiki", batch=128)
    assert table.pair(mixed, vgg, "T4") == (1.1, 0.9)
    assert table.pair(vgg, lstm, "V100-32") == (0.6, 0.5)
    assert table.pair(lstm, vgg, "V100-16") is None  # 16,385 of 16,384 MiB
    assert table.pair(lstm, vgg, "own-gpu") == (0.5, 0.6)
    assert table.pair(lstm, lstm, "T4") == (0.3, 0.3)
    for text in ("", head, head.replace("gmem", "x") + "\n" + rows[0], head + "\n" + rows[0].replace("0.9", "-1")):
        other = tmp_path / f"{len(text)}.csv"
        other.write_text(text)
        with pytest.raises(ConfigError, match="is not a table of Lucid's measured pairs"):
            PairTable(str(other))


@pytest.mark.family("gavel")
def test_gavels_packed_policies_let_tasks_share_at_the_rates_of_the_model() -> None:
    jobs = [job("a", 1000, "bert"), job("b", 1000, "lstm")]
    simulated = kernel(jobs, sharing=MeasuredPairs(default=0.8))
    simulated.run(POLICIES.create("gavel[policy=max_min_fairness_packed]"))
    assert ends(simulated) == {"a": 1250.0, "b": 1250.0}
    assert not violations(simulated.schedule, jobs, seconds=as_recorded, sharing=True)
    with pytest.raises(ConfigError, match="the simulation has no sharing model"):
        kernel(jobs, sharing=None).run(POLICIES.create("gavel[policy=max_min_fairness_packed]"))


def test_a_wait_for_shared_gpus_is_explained() -> None:
    jobs = [job("a", 100, "bert"), job("b", 40, "lstm"), job("c", 1, "lstm", 10)]
    simulated = kernel(jobs)
    simulated.run(Scripted(together))
    waits = wait_reasons(simulated.schedule, 2).periods
    (stretch,) = binding_causes(simulated.schedule, jobs, 2, waits, "fifo")
    assert (stretch.from_s, stretch.until_s) == (10.0, 50.0)
    assert [cause.kind for cause in stretch.causes] == [CauseKind.GPUS]


@pytest.mark.family("compiled")
def test_the_compiled_engine_refuses_rates() -> None:
    cluster = Cluster((Node("n", T4, 4),))
    shared = ClusterScenario(cluster, [job("a", 1, "bert")], sharing=PAIRS, engine="compiled")
    with pytest.raises(Exception, match="does not support a sharing model"):
        shared.engaged("fifo", 0)
