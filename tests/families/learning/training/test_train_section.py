"""Nothing is judged on what it was chosen by: the seeds that are really played, and how the best is chosen."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from support.command_line import fine

from dagsim.config.schema import load_config
from dagsim.errors import ConfigError, InputError
from dagsim.experiment.cell_run import CellRun
from dagsim.experiment.ledger import claim_report_seeds
from dagsim.experiment.run_store import RunStore
from dagsim.experiment.scenario import scenario_of
from dagsim.experiment.simulate import run_policy
from dagsim.experiment.store import Store
from dagsim.experiment.training_log import read_log
from dagsim.experiment.tune import best_of, candidates, write_tuned
from dagsim.families.learning.training import final_test, trainer
from dagsim.families.learning.training import session as finishing
from dagsim.families.learning.training.final_test import PolicyRuns, best_heuristic, completed_jct_s, contenders
from dagsim.families.learning.training.trainer import TrainingRun
from dagsim.families.ramp.scenario import RampScenario
from dagsim.families.spark.scenario import SparkScenario
from dagsim.metrics import jct, summarize
from dagsim.metrics.standings import PolicyResult, standings
from dagsim.seeds import REPORT, TRAIN, VALIDATION, part_of, seeds_of
from dagsim.systems.cluster.scenario import ClusterScenario

CLUSTER = ("cluster.groups=[{name: t4, gpu: T4, gpus: 4}]", "workload.count=3")
SPARK = ("system={kind: spark, executors: 3, jobs: 2}", "train.time_constant_s=[100.0, 400.0]")
LEARNING = "train.algorithm={kind: reinforce, sequences: 2, replicas: 2}"
SHORT = ("train.iterations=2", "train.validate_every=1", "train.validation_seeds=12", "train.report_seeds=3")


class Played:
    """The seeds that were played, by what for."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.seeds: dict[str, set[int]] = defaultdict(set)
        self.purpose = "nothing that is known"
        self.patch = patch
        self._noting(ClusterScenario, "jobs")
        self._noting(SparkScenario, "kernel")

    def _noting(self, owner: Any, name: str) -> None:
        """Note the seed of every call of a method: nothing is played that does not come by there."""
        inner = getattr(owner, name)

        def noted(scenario: Any, seed: int, *args: Any, **named: Any) -> Any:
            self.seeds[self.purpose].add(seed)
            return inner(scenario, seed, *args, **named)

        self.patch.setattr(owner, name, noted)

    @contextmanager
    def during(self, purpose: str) -> Iterator[None]:
        before, self.purpose = self.purpose, purpose
        try:
            yield
        finally:
            self.purpose = before

    def is_for(self, purpose: str, owner: Any, name: str) -> None:
        """All that ``owner.name`` plays is for that purpose."""
        inner: Callable[..., Any] = getattr(owner, name)

        def within(*args: Any, **named: Any) -> Any:
            with self.during(purpose):
                return inner(*args, **named)

        self.patch.setattr(owner, name, within)


@pytest.mark.parametrize("system", ["cluster", "spark"])
def test_no_seed_that_is_played_serves_two_purposes(
    system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = Played(monkeypatch)
    played.is_for("no play: what can be made", ClusterScenario, "check")
    played.is_for("training", trainer.InProcessRollouts, "play")
    played.is_for("training", trainer, "imitation")
    played.is_for("validation", trainer, "best_heuristic")
    played.is_for("validation", TrainingRun, "_validate")
    if system == "cluster":
        played.is_for("training", TrainingRun, "linear")
    two = ("sjf", "fifo") if system == "cluster" else ("fair", "fifo")
    monkeypatch.setattr(final_test, "contenders", lambda scenario: two)
    warm = f"train.warm_start={{policy: {two[0]}, episodes: 2, epochs: 1}}"
    settings = CLUSTER if system == "cluster" else SPARK
    config = load_config(
        None, [*settings, *SHORT, LEARNING, warm, f"train.linear_iterations={int(system == 'cluster')}", "seed=3"]
    )
    store = RunStore.create(tmp_path, "train", config, argv=[])
    run = TrainingRun(store)
    run.run()
    with played.during("report"):
        finishing.finish(run)
    assert set(played.seeds) == {"training", "validation", "report"}
    if system == "cluster":
        more = [part for setting in CLUSTER for part in ("--set", setting)]
        tune = ["tune", "--policy", "eft-wait", "--param", "theta=0.8", *more, "--seeds", "3", "--quiet"]
        with played.during("tuning"):
            fine(*tune, "--out", tmp_path)
        assert played.seeds["tuning"] == set(VALIDATION[:3])
    for purpose, pool in {"training": TRAIN, "validation": VALIDATION, "report": REPORT, "tuning": VALIDATION}.items():
        assert played.seeds[purpose] <= set(pool), purpose
    assert played.seeds["validation"] == set(VALIDATION[:12])
    assert played.seeds["report"] == set(claim_report_seeds(store.path, 3))  # as the run folder records them
    assert played.seeds["training"] >= set(TRAIN[150_000:150_004])  # those of seed 3
    assert not played.seeds["training"] & (played.seeds["validation"] | played.seeds["report"] | played.seeds["tuning"])
    assert not played.seeds["report"] & (played.seeds["validation"] | played.seeds["tuning"])


class Judged:
    """PolicyRuns of heuristics with these merits by seed, which note what is asked of them."""

    def __init__(self, **jct_s: Sequence[float]) -> None:
        self.config = load_config(None, [])
        self.jct_s = jct_s
        self.asked: list[tuple[str, int]] = []

    def run(self, name: str, policies: Mapping[str, str], seeds: Sequence[int]) -> list[CellRun]:
        self.asked += [(policy, len(seeds)) for policy in policies]
        return [
            CellRun(policy, seed, metrics={"jct_s.mean": None if np.isnan(jct_s) else jct_s})
            for policy in policies
            for seed, jct_s in zip(seeds, self.jct_s[policy], strict=False)
        ]


def test_the_reference_is_the_best_on_all_seeds_of_those_best_on_the_first_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    # g is the best of all but for its first ten seeds, where six others are ahead; f wins these and loses the rest.
    first = {"a": 6.0, "b": 5.0, "c": 4.0, "d": 3.0, "e": 2.0, "f": 1.0, "g": 7.0}
    then = {"a": 9.0, "b": 9.0, "c": 2.0, "d": 8.0, "e": 8.0, "f": 8.0, "g": 0.0}
    trials = Judged(**{name: [first[name]] * 10 + [then[name]] * 10 for name in first}, h=[np.nan] * 20)
    monkeypatch.setattr(final_test, "contenders", lambda scenario: tuple("abcdefgh"))
    best, runs = best_heuristic(cast(PolicyRuns, trials), range(20))
    assert best == "c"
    assert [run.metrics["jct_s.mean"] for run in runs] == [4.0] * 10 + [2.0] * 10
    assert trials.asked[:8] == [(name, 10) for name in "abcdefgh"]
    assert sorted(trials.asked[8:]) == [(name, 20) for name in "abcdef"]


def test_the_runs_of_the_first_round_are_not_run_again_in_the_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[tuple[str, int, int]] = []
    played = Played(monkeypatch)
    trials = PolicyRuns(tmp_path, load_config(None, [*CLUSTER]), tell=lambda *progress: reports.append(progress))
    monkeypatch.setattr(final_test, "contenders", lambda scenario: ("sjf", "fifo"))
    with played.during("search"):
        best, runs = best_heuristic(trials, VALIDATION[:12])
    assert (best, len(runs)) in {("sjf", 12), ("fifo", 12)}
    assert {run.policy for run in runs} == {best}
    starts = [event for event in Store.read(tmp_path / "sweep-reference").progress() if event["event"] == "started"]
    assert [start["to_run"] for start in starts] == [20, 4]
    assert (reports[0][2], reports[-1][2]) == (20, 24)
    with played.during("again"):
        assert best_heuristic(trials, VALIDATION[:12]) == (best, runs)
    assert not played.seeds["again"]


def test_a_results_folder_keeps_the_reference_of_one_experiment_and_validation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(final_test, "contenders", lambda scenario: ("sjf", "fifo"))
    base = [*CLUSTER, *SHORT, LEARNING, "train.validation_seeds=2", "train.report_seeds=2"]
    searches: list[str] = []

    def searched(purpose: str, *settings: str) -> tuple[str, float, float]:
        run = TrainingRun(RunStore.create(tmp_path, "train", load_config(None, [*base, *settings]), argv=[]))
        monkeypatch.setattr(run, "trials", lambda name: searches.append(purpose) or TrainingRun.trials(run, name))
        run.find_reference(None)
        return run.reference, run.reference_jct_s, run.reference_merit

    first = searched("first")
    assert searched("same") == searched("other weights", "seed=3", "train.algorithm.lr=0.5") == first
    (path,) = (tmp_path / "references").iterdir()
    path.write_text("damaged")
    assert searched("damaged") == searched("mended") == first
    searched("other seeds", "train.validation_seeds=3")
    searched("other jobs", "workload.count=7")
    assert searches == ["first", "damaged", "other seeds", "other jobs"]


def test_contenders_are_cheap_do_not_preempt_and_are_tuned() -> None:
    names = contenders(scenario_of(load_config(None, [])))
    assert {"sjf", "eft-wait", "fifo"} <= set(names)
    assert any(name.startswith("eft-wait[theta=") for name in names)
    assert not {"srtf", "rollout", "gavel", "2d-las"} & set(names)
    assert len(names) == len(set(names))
    on_spark = contenders(scenario_of(load_config(None, [SPARK[0]])))
    assert {"fair", "srpt-cp[cap=5]", "weighted-fair[alpha=0.25,order=shortest]"} <= set(on_spark)


def test_on_ramp_the_contenders_split_jobs_into_powers_of_two() -> None:
    names = contenders(RampScenario())
    degrees = [int(match[1]) for name in names if (match := re.search(r"(?:degree|least)=(\d+)", name))]
    assert len(degrees) == 9
    assert {degree.bit_count() for degree in degrees} == {1}
    assert {"constant", "on_time", "roomy"} <= set(names)


def test_a_heuristic_is_judged_by_the_completion_times_of_its_runs(tmp_path: Path) -> None:
    config = load_config(None, [*CLUSTER, "seed=3"])
    runs = PolicyRuns(tmp_path, config).run("reference", {"first come": "fifo"}, VALIDATION[:2])
    scenario = scenario_of(config)
    played = [scenario.kernel(seed).run(scenario.policies.create("fifo")) for seed in VALIDATION[:2]]
    assert [run.policy for run in runs] == ["first come"] * 2
    assert [completed_jct_s(config, run) for run in runs] == pytest.approx(
        [float(np.mean(jct(schedule))) for schedule in played], rel=1e-12
    )


def test_the_unit_of_time_is_that_of_the_jobs_that_completed(tmp_path: Path) -> None:
    config = load_config(None, ["system={kind: ramp, jobs: 6, horizon_s: 4000.0}"])
    run = CellRun("constant", 1, metrics={"jct_s.mean": None})
    schedule = run_policy(config, "constant", 1).schedule
    assert completed_jct_s(config, run) == summarize(schedule, unfinished="drop").jct_s.mean


def test_the_agent_is_judged_on_the_same_jobs_as_the_reference(tmp_path: Path) -> None:
    config = load_config(
        None, [*CLUSTER, "workload.count=30", "workload.measure=[20, 30]", *SHORT, "train.reference=sjf"]
    )
    run = TrainingRun(RunStore.create(tmp_path, "train", config, argv=[]))
    outcome = run_policy(config, "sjf", VALIDATION[0])
    schedule = outcome.schedule
    assert run.merit_of(schedule) == outcome.summary.jct_s.mean
    assert run.merit_of(schedule) != summarize(schedule).jct_s.mean


def test_an_interrupted_report_goes_on_where_it_stopped(tmp_path: Path) -> None:
    settings = [*CLUSTER, *SHORT, LEARNING, "train.reference=sjf", "train.rivals=[fifo]", "train.validation_seeds=2"]
    store = RunStore.create(tmp_path, "train", load_config(None, [*settings, "train.linear_iterations=0"]), argv=[])

    def stop(progress: trainer.Progress) -> None:
        if progress.what == "report: reinforce" and progress.done == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        finishing.train_in(store, watch=stop)
    assert store.state == "interrupted"
    trained = finishing.train_in(store, resume=True)
    starts = [event for event in Store.read(store.path / "sweep-report").progress() if event["event"] == "started"]
    assert [start["to_run"] for start in starts] == [9, 2]
    assert [(line.policy, line.seed) for line in trained.lines] == [
        (policy, seed) for policy in ("sjf", "fifo", "reinforce") for seed in claim_report_seeds(store.path, 3)
    ]


def test_the_agent_that_is_kept_is_the_best_on_validation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config(None, [*CLUSTER, *SHORT, LEARNING, "train.iterations=4", "train.reference=sjf"])
    run = TrainingRun(RunStore.create(tmp_path, "train", config, argv=[]))
    means = iter((90.0, 70.0, 50.0, np.nan, 60.0))
    seen: list[dict[str, Any]] = []

    def merit(*_: object) -> float:
        seen.append({name: value.clone() for name, value in run.judged.state_dict().items()})  # type: ignore[union-attr]
        return next(means)

    reference = CellRun("sjf", 0, metrics={"jct_s.mean": 100.0})
    monkeypatch.setattr(trainer.PolicyRuns, "run", lambda *_: [reference])
    monkeypatch.setattr(trainer, "evaluate_greedy", lambda *_, **__: [None])
    monkeypatch.setattr(run, "merit_of", merit)
    run.run()
    assert run.best == 0.5
    kept = trainer.Checkpoint.load(run.folder.path / "best.pt")
    assert kept.about["validation_ratio"] == 0.5
    assert all(bool((value == seen[2][name]).all()) for name, value in kept.weights.items())
    assert any(bool((value != seen[4][name]).any()) for name, value in kept.weights.items())


def ranked(**jct_s: Sequence[float]) -> list[PolicyResult]:
    return standings(
        [
            CellRun(policy, seed, {}, {"jct_s.mean": value})
            for policy, values in jct_s.items()
            for seed, value in enumerate(values)
        ]
    )


def test_tuning_takes_the_lowest_mean_and_says_by_how_much(tmp_path: Path) -> None:
    best = best_of(ranked(a=[2.0, 4.0, 4.0, 4.0, 6.0], b=[1.0, 2.0, 2.0, 2.0, 3.0], c=[9.0] * 5), "jct_s.mean")
    assert best.policy == "b"
    config = load_config(None, ["policy=sjf"])
    write_tuned(tmp_path / "tuned.yaml", config, best, "jct_s.mean", range(7, 12))
    text = (tmp_path / "tuned.yaml").read_text().splitlines()
    assert text[0] == "# b, tuned for jct_s.mean on 5 validation seeds from 7"
    assert text[1].startswith("# 0.5000 [")
    assert text[1].endswith("] times sjf, 5 seeds")
    assert "policy: b" in text
    write_tuned(tmp_path / "first.yaml", config, best_of(ranked(a=[1.0] * 5), "jct_s.mean"), "jct_s.mean", range(5))
    assert not (tmp_path / "first.yaml").read_text().splitlines()[1].startswith("#")
    with pytest.raises(InputError, match="no candidate has a value of jct_s"):
        best_of(ranked(a=[np.nan, 1.0], b=[1.0, np.nan]), "jct_s.mean")


def test_values_are_written_as_they_are_read() -> None:
    assert candidates("p", {"a": (None, False, 0.5)}) == ("p", "p[a=null]", "p[a=false]", "p[a=0.5]")
    assert len(candidates("p", {"a": range(1999)})) == 2000
    with pytest.raises(ConfigError, match="more than 2000"):
        candidates("p", {"a": range(2000)})


def test_each_pool_has_its_own_part_of_a_trace_and_a_last_seed() -> None:
    assert [part_of(pool[at]) for pool in (TRAIN, VALIDATION, REPORT) for at in (0, -1)] == [
        (0.0, 0.6),
        (0.0, 0.6),
        (0.6, 0.8),
        (0.6, 0.8),
        (0.8, 1.0),
        (0.8, 1.0),
    ]
    assert part_of(5) == (0.0, 1.0)
    assert seeds_of(range(4, 7), 3) == (4, 5, 6)
    with pytest.raises(ConfigError, match="between 1 and 3, got 4"):
        seeds_of(range(4, 7), 4)


def test_a_finished_training_run_can_be_made_longer(tmp_path: Path) -> None:
    settings = [*CLUSTER, *SHORT, LEARNING, "train.reference=sjf", "train.rivals=[fifo]", "train.validation_seeds=2"]
    store = RunStore.create(tmp_path, "train", load_config(None, [*settings, "train.linear_iterations=0"]), argv=[])
    finishing.train_in(store)
    rows, seeds = (store.path / "progress.csv").read_text(), claim_report_seeds(store.path, 3)
    with pytest.raises(InputError, match="so give more"):
        finishing.resumed_training(store.path, len(read_log(store.path)) - 1)
    longest = len(read_log(store.path)) + 2
    finishing.resumed_training(store.path, longest)
    longer = finishing.resumed_training(store.path, longest)  # the command was killed and is repeated
    assert longer.manifest["plan"]["iterations"] == longest
    trained = finishing.train_in(longer, resume=True)
    after = (store.path / "progress.csv").read_text()
    assert after.startswith(rows)
    assert after.count("\n") == rows.count("\n") + 2
    tested = {line.seed for line in trained.lines}
    assert len(tested) == 3
    assert not tested & set(seeds)
