"""``scripts/table_drift.py``: sites whose policy is replaced every Monday."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import table_drift
from table_drift import DEFAULT, WEEK_S, WEEKS, Past, Row, page, rows_in, simulated, tuned, tuned_once, tuned_weekly

from dagsim.model import Job, Kind, Task, TaskGraph
from dagsim.model.streams import stream
from dagsim.workload.arrays import JobArrays


def few_jobs(per_week: int = 4) -> JobArrays:
    """A few one-GPU jobs each week, of which some end in the next week."""
    rng = np.random.default_rng(1)
    arrivals = np.sort(rng.uniform(0, WEEKS * WEEK_S, WEEKS * per_week)).tolist()
    tasks = [Task("t", float(rng.uniform(6e4, 2e5)), model="bert") for _ in arrivals]
    return JobArrays.of(
        [Job(str(n), TaskGraph((task,)), at) for n, (at, task) in enumerate(zip(arrivals, tasks, strict=True))]
    )


def test_a_policy_learns_only_from_jobs_that_have_ended_in_the_week_before(tmp_path: Path) -> None:
    jobs = few_jobs()
    past, seen = Past(jobs, 1, tmp_path), {}

    def choose(week: int, past: Past) -> str:
        ended = past.ended(week)
        assert (ended.arrival_s >= 0).all()
        assert (np.diff(ended.arrival_s) >= 0).all()
        seen[week] = set(ended.ids.tolist())
        return "sjf" if week % 2 else "easy"

    past.play(choose)
    rows = past.schedule.log.rows()
    done = {jobs.ids[row["job"]]: row["time_s"] for row in rows if row["kind"] == Kind.COMPLETED}
    assert len(done) == len(jobs)
    for week, ended in seen.items():
        assert ended == {name for name, time_s in done.items() if week - 1 < time_s / WEEK_S <= week}
    assert list(seen) == [*range(1, WEEKS)]
    assert past.chosen == [DEFAULT, *["sjf", "easy"] * 6]
    early = [name for name, time_s in done.items() if time_s // WEEK_S > jobs.arrival_s[int(name)] // WEEK_S]
    assert early, "no job runs over a Monday"


def test_tuning_once_keeps_the_choice_and_weekly_tuning_follows_the_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = iter(["sjf", "easy"] * 10)
    monkeypatch.setattr(table_drift, "tuned", lambda jobs: next(best))
    once, weekly = Past(few_jobs(), 1, tmp_path), Past(few_jobs(), 1, tmp_path)
    once.play(tuned_once)
    weekly.play(tuned_weekly)
    assert once.chosen == [DEFAULT, *["sjf"] * 12]
    assert weekly.chosen == [DEFAULT, *["easy", "sjf"] * 6]


def test_tuning_takes_the_policy_with_the_least_mean_and_needs_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = few_jobs()
    burst = replace(jobs, arrival_s=np.zeros(len(jobs)), instances=np.full(len(jobs), 4))
    policies = ("fifo", "sjf", "easy")
    means = {policy: table_drift.mean_jct_s(burst, policy) for policy in policies}
    assert tuned(burst, policies) == min(means, key=means.__getitem__) == "sjf"
    assert tuned(jobs.between(0, 0), policies) == DEFAULT


def test_limits_are_powers_of_two_between_the_truth_and_forty_times_it() -> None:
    jobs = table_drift.with_limits(few_jobs(40), stream(1, "test"))
    assert jobs.estimate is not None
    ratio = jobs.estimate / jobs.work
    assert (ratio >= 1).all()
    assert (ratio <= 2 * np.exp(3)).all()
    assert ratio.std() > 0.5
    assert (np.log2(jobs.estimate) % 1 == 0).all()


@pytest.mark.family("learning", "episodes")
def test_an_agent_is_trained_on_a_week_and_kept_if_the_week_has_too_few_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_drift, "WINDOW", 10)
    config = table_drift.load_config

    def shorter(path: Path, settings: list[str]) -> object:
        return config(path, [*settings, "train.iterations=1", "train.algorithm.replicas=2", "train.validation_seeds=2"])

    monkeypatch.setattr(table_drift, "load_config", shorter)
    past = Past(few_jobs(), 1, tmp_path)
    agent = table_drift.trained(few_jobs().between(0, 20), past.agent, tmp_path)
    assert agent == past.agent
    agent = table_drift.trained(few_jobs().between(0, 36), past.agent, tmp_path)
    assert agent.parent.parent == tmp_path
    assert table_drift.make_policy(table_drift.world(), f'ppo[checkpoint="{agent}"]')


def row(site: str, seed: int, way: str, mean_s: float) -> Row:
    return Row(site, seed, way, 10, mean_s, 2 * mean_s, 50.0, 3 * mean_s, 100, 0.002, 24.0, 3)


def test_a_stopped_table_continues_with_the_missing_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def row_of(site: str, seed: int, way: str, data: Path) -> Row:
        made.append((site, seed, way))
        return row(site, seed, way, 100.0 + seed)

    monkeypatch.setattr(table_drift, "row_of", row_of)
    options = Namespace(ways=["default", "agent"], sites=["itp", "philly"], data=tmp_path, draw=False)
    path = tmp_path / "drift.csv"
    simulated(options, [1], path, lambda text: None)
    rows = simulated(options, [1, 2], path, lambda text: None)
    options.draw = True
    assert simulated(options, [1, 2, 3], path, lambda text: None) == rows
    assert len(made) == len(set(made)) == len(rows) == 8
    assert rows == rows_in(path)
    assert [one[:3] for one in rows[:2]] == [("philly", 1, "default"), ("philly", 2, "default")]


def test_the_page_has_ratios_to_the_heuristic_tuned_once() -> None:
    rows = [row(site, seed, "tuned once", 100.0 * seed) for site in ("philly", "itp") for seed in (1, 2)]
    rows += [row(site, seed, "agent", 90.0 * seed) for site in ("philly", "itp") for seed in (1, 2)]
    lines = page(rows)
    assert "| tuned once | 4 | 1 | 1 | 1 | 1 | 20 | 2.0 | 3.0 |" in lines
    assert sum(line.startswith("| agent | 2 | 0.900 (") for line in lines) == 2
    rows += [row("itp", seed, "tuned weekly", 180.0 * seed) for seed in (1, 2)]
    assert any(line.startswith("| agent | tuned weekly | 2 | 0.500 (") for line in page(rows))
    means = "mean 150 s, mean in weeks with unseen jobs 450 s, area-weighted mean 300 s, p95 wait 50 s"
    assert f"10 jobs; `tuned once`: {means}." in lines


def test_a_way_that_ran_at_some_sites_is_only_in_their_tables() -> None:
    rows = [row(site, seed, "tuned once", 100.0 * seed) for site in ("philly", "itp") for seed in (1, 2)]
    rows += [row("itp", seed, way, mean_s * seed) for seed in (1, 2) for way, mean_s in (("agent", 90), ("search", 45))]
    text = "\n".join(page(rows))
    assert "| search |" not in text.partition("## philly")[0]
    assert "| search | agent | 2 | 0.500 (" in text.partition("## itp")[2]
