from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import process_time, sleep
from typing import Any

import pytest
from support.runs import kept, outcomes

from dagsim.config.schema import load_config
from dagsim.errors import ConfigError, InputError, TraceError, UnknownName
from dagsim.experiment.carry_out import RunProgress
from dagsim.experiment.run_store import RunStore
from dagsim.experiment.scenario import replicate_seeds
from dagsim.experiment.simulate import Timed, check, run_policy
from dagsim.model import Decision, Job, Start, Task
from dagsim.systems.cluster.kernel import ClusterKernel
from dagsim.systems.cluster.view import ClusterView

SMALL = ["cluster.groups=[{name: t4, gpu: T4, gpus: 4}]", "workload.count=20", "seeds=2"]


def test_the_first_replicate_is_the_root_itself() -> None:
    assert replicate_seeds(7, 1) == (7,)
    assert replicate_seeds(7, 3)[0] == 7


def test_more_replicates_leave_the_first_as_they_are() -> None:
    assert replicate_seeds(7, 10)[:3] == replicate_seeds(7, 3)


def test_neighbouring_roots_share_no_replicate() -> None:
    assert not set(replicate_seeds(0, 100)) & set(replicate_seeds(1, 100))


def test_all_policies_see_the_same_jobs() -> None:
    results = list(outcomes(load_config(None, SMALL), ("fifo", "sjf")))
    seeds = replicate_seeds(0, 2)
    assert [(result.policy, result.seed) for result in results] == [
        ("fifo", seeds[0]),
        ("sjf", seeds[0]),
        ("fifo", seeds[1]),
        ("sjf", seeds[1]),
    ]
    one, other, next_one, _ = (result.schedule.jobs for result in results)
    assert one == other != next_one


def test_a_replicate_runs_alone_as_it_ran_among_others() -> None:
    among = list(outcomes(load_config(None, SMALL), ("sjf",)))[1]
    alone = next(outcomes(load_config(None, [*SMALL, "seeds=1", f"seed={among.seed}"]), ("sjf",)))
    assert alone.schedule.log == among.schedule.log


def test_the_offered_load_is_told() -> None:
    workload = run_policy(load_config(None, [*SMALL, "workload.load=0.8"]), "fifo", 0).workload
    assert workload["jobs"] == 20
    assert workload["gpu_load"] == pytest.approx(0.8)
    assert workload["warning"] is None
    warning = run_policy(load_config(None, [*SMALL, "workload.load=1.5"]), "fifo", 0).workload["warning"]
    assert "so the offered load of 1.5 says little" in warning  # of 20 jobs, which last as long
    many = load_config(None, [*SMALL, "workload.load=1.5", "workload.count=300"])
    assert "the offered load 1.5 is above 1" in run_policy(many, "fifo", 0).workload["warning"]


def test_progress_is_told_at_the_start_of_each_run_and_now_and_then(tmp_path: Path) -> None:
    steps: list[RunProgress] = []
    config = load_config(None, [*SMALL, "workload.count=1100", "seeds=1"])
    kept(RunStore.create(tmp_path, "baseline", config, argv=[]), config, ("fifo", "sjf"), steps.append)
    assert [(step.policy, step.done, step.runs, step.jobs) for step in steps] == [
        *(("fifo", 0, 2, jobs) for jobs in (0, 500, 1000)),
        *(("sjf", 1, 2, jobs) for jobs in (0, 500, 1000)),
    ]


class Greedy:
    def decide(self, view: ClusterView) -> Iterator[Decision]:
        for task in list(view.ready):
            placement = view.fit(task)
            if placement is not None:
                yield Start(task, placement)


def test_a_stopwatch_changes_nothing_and_counts_decisions() -> None:
    cluster = load_config(None, SMALL).build_cluster()
    jobs = [Job.single(f"j{n}", Task("t", 10.0), arrival_s=float(n)) for n in range(30)]
    timed = Timed(Greedy())
    assert ClusterKernel(cluster, jobs).run(timed).log == ClusterKernel(cluster, jobs).run(Greedy()).log
    assert timed.decisions == 30
    assert timed.decision_s > 0


class Dreamer(Greedy):
    """Sleeps at every decision, and thinks a little."""

    def decide(self, view: ClusterView) -> Iterator[Start]:
        sleep(0.001)
        until = process_time() + 0.0001
        while process_time() < until:
            pass
        yield from super().decide(view)


def test_decisions_cost_cpu_time_not_time_on_the_wall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagsim.experiment.simulate._ALL", 20)  # of some 240 calls; of the others every 17th is timed
    cluster = load_config(None, SMALL).build_cluster()
    jobs = [Job.single(f"j{n}", Task("t", 10.0), arrival_s=100.0 * n) for n in range(120)]
    timed = Timed(Dreamer())
    ClusterKernel(cluster, jobs).run(timed)
    assert timed.decisions == 120
    assert 120 * 0.0001 <= timed.decision_s < 120 * 0.001 * 2  # two calls a decision: 0.2 ms of thought, 2 ms of sleep


@pytest.mark.parametrize(
    ("settings", "policy", "fault", "message"),
    [
        ([], "sfj", UnknownName, "unknown policy 'sfj'; did you mean 'sjf'"),
        ([], "fractions:Fraction", ConfigError, "has no method decide"),
        (
            ["failures=[{kind: maintenance, nodes: [9], start_s: 1, end_s: 2}]"],
            "fifo",
            ConfigError,
            "nodes must be from",
        ),
        (["workload={kind: trace, path: none.csv}"], "fifo", TraceError, "none.csv: no such file"),
    ],
)
def test_what_cannot_be_is_found_before_anything_runs(
    settings: list[str], policy: str, fault: type[InputError], message: str
) -> None:
    with pytest.raises(fault, match=message):
        check(load_config(None, settings if "kind: trace" in str(settings) else SMALL + settings), (policy,))


def test_a_network_a_set_up_and_failures_are_used() -> None:
    models = [
        "network.latency_s=5",
        "setup.delay_s=30",
        "failures=[{mean_up_s: 2000, mean_down_s: 100}]",
        "workload.output_gb={value: 1}",
    ]
    config: Any = load_config(None, [*SMALL, *models])
    summary = run_policy(config, "fifo", 0).summary
    assert summary.node_failures > 0
    assert summary.jct_s.mean > run_policy(load_config(None, SMALL), "fifo", 0).summary.jct_s.mean
