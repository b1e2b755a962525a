"""Answers of ``plan`` and ``whatif`` on logs of M/M/c queues, whose truth is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.command_line import fine, invoke

from dagsim.metrics.series import Change, JobSeries, change_of, next_period
from dagsim.metrics.student import t_quantile
from dagsim.model import Job, Task
from dagsim.testing.known_waits import erlang_p95, first_come_waits
from dagsim.workload.records import write_jobs

Columns = tuple[np.ndarray, np.ndarray]


def queue(servers: int, load: float, jobs: int, seed: int, service_s: float = 3600.0) -> Columns:
    """Arrivals and durations of an M/M/c queue."""
    rng = np.random.default_rng(seed)
    return np.cumsum(rng.exponential(service_s / (servers * load), jobs)), rng.exponential(service_s, jobs)


def site(folder: Path, columns: Columns, nodes: int, gpus: int) -> list[str]:
    jobs = zip(columns[0].tolist(), columns[1].tolist(), strict=True)
    rows = [f"{n},{at_s!r},1,{run_s!r}" for n, (at_s, run_s) in enumerate(jobs)]
    (folder / "log.csv").write_text("\n".join(["id,arrival_s,gpus,duration_s", *rows]) + "\n", encoding="utf-8")
    groups = f"[{{name: n, gpu: T4, gpus: {gpus}, count: {nodes}}}]"
    (folder / "c.yaml").write_text(f"cluster: {{groups: {groups}}}\n", encoding="utf-8")
    return ["--trace", "log.csv", "--cluster", "c.yaml", "--policy", "fifo", "--price", "none", "--on", "local:1"]


def answer(*arguments: str, code: int = 0) -> dict[str, Any]:
    result = invoke(*arguments, "--json")
    assert result.exit_code == code, result.output
    facts: dict[str, Any] = json.loads(result.stdout)
    return facts


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("load", "jobs", "seed"), [(0.95, 8000, 1), (0.8, 3000, 2)])
def test_plan_finds_the_size_of_an_independent_simulation(load: float, jobs: int, seed: int, here: Path) -> None:
    columns, bound = queue(16, load, jobs, seed), 1200
    facts = answer("plan", *site(here, columns, 16, 1), "--target", f"wait_s.p95<{bound}")
    assert facts["today"]["value"] == pytest.approx(np.percentile(first_come_waits(*columns, 16), 95), rel=1e-6)
    least = next(size for size in range(1, 60) if np.percentile(first_come_waits(*columns, size), 95) < bound)
    assert facts["best"]["gpus"] == least
    period_s = (columns[0][-1] - columns[0][0]) * jobs / (jobs - 1)
    assert facts["today"]["low"] < erlang_p95(16, load, 3600.0) < facts["today"]["high"]
    assert facts["demand"][-1]["demand"] == pytest.approx(columns[1].sum() / period_s, rel=1e-6)


@pytest.mark.parametrize("jobs", [3, 12])
def test_a_short_log_that_never_waits_needs_no_further_machine(jobs: int, here: Path) -> None:
    """One job of all 3 GPUs for 57 s every minute: a load of .95, whatever their number."""
    rows = [f"j{number},{number * 60},3,57" for number in range(jobs)]
    (here / "log.csv").write_text("\n".join(["id,arrival_s,gpus,duration_s", *rows]) + "\n", encoding="utf-8")
    (here / "c.yaml").write_text("cluster: {groups: [{name: n, gpu: T4, gpus: 3, count: 1}]}\n", encoding="utf-8")
    common = ["--trace", "log.csv", "--config", "c.yaml", "--price", "none", "--on", "local:1"]
    facts = answer("plan", *common, "--policy", "fifo", "--target", "wait_s.p95<1")
    assert (facts["load"], facts["best"]["gpus"]) == (pytest.approx(0.95), 3)
    choices = answer("whatif", *common, "--policy", "fifo", "--policy", "sjf")["choices"]
    assert [choice["verdict"] for choice in choices] == ["reference", "identical"]
    assert choices[0]["load"] == pytest.approx(0.95)
    for options, last_s in (([], 60.0), (["--load", "0.95"], 60.0), (["--load", "0.475"], 120.0)):
        out = here / "-".join(["r", *options])
        words = ["--trace", "log.csv", "--config", "c.yaml", "--policy", "fifo", *options, "--no-plots", "-o", str(out)]
        fine("replay", *words)
        workload = json.loads(next(out.glob("*/runs.jsonl")).read_text().splitlines()[0])["workload"]
        assert workload["span_s"] == pytest.approx(last_s * (jobs - 1))
        assert workload["warning"] is None


def test_a_burst_in_which_nothing_waits_is_simulated_and_keeps_up(here: Path) -> None:
    """On one GPU each job ends when the next comes; the last two bring work for later: a load of 1.25."""
    rows = [f"j{number},{number * 60},1,{60 if number < 7 else 180}" for number in range(8)]
    (here / "log.csv").write_text("\n".join(["id,arrival_s,gpus,duration_s", *rows]) + "\n", encoding="utf-8")
    (here / "c.yaml").write_text("cluster: {groups: [{name: n, gpu: T4, gpus: 1, count: 1}]}\n", encoding="utf-8")
    common = ["--trace", "log.csv", "--config", "c.yaml", "--price", "none", "--on", "local:1", "--policy", "fifo"]
    facts = answer("plan", *common, "--target", "wait_s.mean<1")
    assert facts["load"] == pytest.approx(600 / 480)
    assert facts["today"]["keeps_up"]
    assert facts["best"]["gpus"] == 1


def test_a_size_below_the_demand_cannot_keep_up_and_never_meets(here: Path) -> None:
    common = site(here, queue(16, 0.95, 2000, 3), 16, 1)
    facts = answer("plan", *common, "--target", "wait_s.p95<1e9")
    assert facts["best"]["gpus"] > facts["demand"][-1]["demand"]
    assert all(size["value"] is None and not size["meets"] for size in facts["tried"] if not size["keeps_up"])
    none = answer("plan", *common, "--target", "wait_s.p95<100", "--most", "12", code=1)
    assert none["best"] is None
    result = invoke("plan", *common, "--target", "wait_s.p95<100", "--most", "12")
    assert "Even the largest cluster" not in result.output  # today's 16 GPUs can
    assert "cannot keep up" in result.output.replace("\n", " ")


def test_other_questions_get_other_folders_and_windows_are_refused(here: Path) -> None:
    common = site(here, queue(4, 0.5, 60, 4, 60.0), 4, 1)
    runs = [answer("whatif", *common, "--add", f"{gpus}xT4")["run"] for gpus in (2, 4, 2)]
    assert runs[0] != runs[1]
    assert runs[0] == runs[2]
    result = invoke("whatif", *common, "--add", "2xT4", "--set", "workload.window=10")
    assert result.exit_code == 2
    assert "simulate the whole log" in result.output.replace("\n", " ")


def test_a_log_shorter_than_its_jobs_is_refused(here: Path) -> None:
    common = site(here, (np.array([0.0, 10.0, 20.0]), np.array([500.0, 900.0, 700.0])), 4, 1)
    result = invoke("plan", *common, "--target", "wait_s.p95<1")
    assert result.exit_code == 2
    assert "shorter than one busy period" in result.output.replace("\n", " ")


def series(waits: np.ndarray) -> JobSeries:
    return JobSeries({"wait_s": waits}, np.zeros(len(waits), np.int64), ("",))


@pytest.mark.parametrize("metric", ["wait_s.mean", "wait_s.p95"])
def test_intervals_of_independent_values_hold_the_next_period(metric: str) -> None:
    rng = np.random.default_rng(11)
    hits = 0
    for _ in range(200):
        now, later = rng.exponential(1.0, (2, 2000))
        of = np.mean if metric == "wait_s.mean" else lambda values: np.percentile(values, 95)
        period = next_period(series(now), metric, float(of(now)))
        hits += period.low < of(later) < period.high
    assert 182 <= hits <= 199  # 95 % of 200, with 2.6 standard deviations


def test_a_correlated_run_has_fewer_blocks_and_one_trend_has_none() -> None:
    rng = np.random.default_rng(12)
    independent = rng.exponential(1.0, 4000)
    slow = np.repeat(rng.exponential(1.0, 16), 250)
    assert next_period(series(independent), "wait_s.mean", independent.mean()).blocks >= 2 * (
        next_period(series(slow), "wait_s.mean", slow.mean()).blocks
    )
    trend = np.linspace(1.0, 2.0, 4000)
    period = next_period(series(trend), "wait_s.mean", 1.5)
    assert period.longer > 1
    assert not np.isfinite(period.low)


def test_a_mean_that_one_block_makes_alone_has_no_interval() -> None:
    """All waits in one week of sixteen: nothing is known about the next period."""
    values = np.zeros(1600)
    values[500:510] = 1.0
    period = next_period(series(values), "wait_s.mean", float(values.mean()))
    assert not np.isfinite(period.high)
    assert period.longer > 1


def test_the_ratio_of_two_runs_of_the_same_jobs_is_sharper_than_either() -> None:
    rng = np.random.default_rng(13)
    before = rng.exponential(1.0, 4000)
    after = 0.8 * before * rng.uniform(0.95, 1.05, 4000)
    change = change_of(series(after), after.mean(), series(before), before.mean(), "wait_s.mean")
    assert change.low < 0.8 < change.high
    assert change.high / change.low < 1.011
    assert change.p < 1e-6


def test_nodes_bought_for_a_partition_serve_its_jobs(here: Path) -> None:
    """Three jobs at a time need the only node of their partition: they wait 0, 100 and 200 s."""
    rows = [f"{n}-{k},{400 * n},8,100,debug" for n in range(12) for k in range(3)]
    (here / "log.csv").write_text("\n".join(["id,arrival_s,gpus,duration_s,partition", *rows]) + "\n")
    (here / "c.yaml").write_text(
        "cluster: {groups: [{name: a, gpu: T4, gpus: 8, hosts: a01}, {name: b, gpu: T4, gpus: 8, count: 2}]}\n"
        "queues: {partitions: [{name: debug, nodes: [a]}, {name: main, nodes: [b]}]}\n"
    )
    common = ["--trace", "log.csv", "--config", "c.yaml", "--policy", "slurm-multifactor[bf_interval_s=1]"]
    common += ["--price", "none", "--on", "local:1"]
    waits = {
        text: answer("whatif", *common, "--add", text, "--metric", "wait_s.mean")["choices"]
        for text in ("16xT4:debug", "16xT4:main")
    }
    assert waits["16xT4:debug"][0]["wait_s"] > 90
    assert waits["16xT4:debug"][1]["wait_s"] < 40
    assert waits["16xT4:main"][1]["wait_s"] == waits["16xT4:main"][0]["wait_s"]
    facts = answer("plan", *common, "--target", "wait_s.mean<40")
    assert facts["best"]["gpus"] > facts["today"]["gpus"] == 24


def test_demand_is_counted_by_partition_and_an_overloaded_one_cannot_keep_up(here: Path) -> None:
    """In 1,000 s debug gets 12 x 8 x 100 GPU-seconds for its 8 GPUs, a load of 1.2; all 24 GPUs have a load of .55.
    Jobs arrive at 20 different times, from 0 to 950 s, which stand for 1,000 s.
    """
    times = [0, 50, *range(150, 900, 100), 900, 950]
    rows = [f"d{number},{time_s},8,100,debug" for number, time_s in enumerate(times)]
    rows += [f"m{number},{number * 100},4,90,all" for number in range(10)]
    (here / "log.csv").write_text("\n".join(["id,arrival_s,gpus,duration_s,partition", *rows]) + "\n", encoding="utf-8")
    groups = "[{name: a, gpu: T4, gpus: 8, count: 1, hosts: ant}, {name: b, gpu: T4, gpus: 8, count: 2}]"
    parts = "[{name: debug, nodes: [ant]}, {name: all, nodes: [a, b]}]"
    (here / "c.yaml").write_text(f"cluster: {{groups: {groups}}}\nqueues: {{partitions: {parts}}}\n", encoding="utf-8")
    common = ["--trace", "log.csv", "--config", "c.yaml", "--policy", "fifo", "--price", "none", "--on", "local:1"]
    facts = answer("plan", *common, "--target", "wait_s.p50<1h")
    debug, every = facts["demand"]
    assert (debug["part"], debug["capacity"], every["part"], every["capacity"]) == ("debug", 8, "", 24)
    assert debug["demand"] == pytest.approx(9.6)
    assert every["demand"] == pytest.approx(9.6 + 3.6)
    assert facts["load"] == pytest.approx(1.2)
    assert not facts["today"]["keeps_up"]
    assert not facts["today"]["meets"]
    assert facts["best"]["gpus"] == 40  # the first size with a second node in debug
    bought = answer("whatif", *common, "--add", "8xT4:debug", "--remove", "8xT4:all")["choices"]
    assert bought[0]["load"] == pytest.approx(1.2)
    assert bought[1]["load"] == pytest.approx(0.6)


def test_growth_makes_arrivals_more_frequent_and_nothing_else(here: Path) -> None:
    columns = queue(8, 0.6, 1500, 5)
    common = [*site(here, columns, 8, 1), "--target", "wait_s.p95<1800"]
    now, later = answer("plan", *common), answer("plan", *common, "--growth", "50%")
    assert later["run"] != now["run"]
    assert later["load"] == pytest.approx(1.5 * now["load"])
    assert later["today"]["value"] == pytest.approx(
        np.percentile(first_come_waits(columns[0] / 1.5, columns[1], 8), 95), rel=1e-6
    )
    for wrong in (["--growth", "much"], ["--growth", "-100%"], ["--growth", "5%", "--load", "0.9"]):
        result = invoke("plan", *common, *wrong)
        assert result.exit_code == 2
        assert "--growth" in result.output


def swap(folder: Path) -> list[str]:
    """A100 jobs of 100 s, three at a time, on one node of A100 beside one of T4."""
    rows = [f"{n}-{k},{400 * n},8,100,A100-40,{'ann' if k else 'bob'}" for n in range(40) for k in range(3)]
    head = "id,arrival_s,gpus,duration_s,gpu_type,user"
    (folder / "log.csv").write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")
    (folder / "c.yaml").write_text(
        "cluster: {groups: [{name: a, gpu: A100-40, gpus: 8}, {name: t, gpu: T4, gpus: 8}]}\n", encoding="utf-8"
    )
    return ["--trace", "log.csv", "--cluster", "c.yaml", "--policy", "fifo", "--price", "none", "--on", "local:1"]


def test_a_swap_loses_jobs_and_is_never_better_unless_they_accept_the_new_type(here: Path) -> None:
    question = ["whatif", *swap(here), "--metric", "wait_s.mean", "--remove", "8xA100-40", "--add", "16xH200"]
    today, lost = answer(*question)["choices"]
    assert lost["jobs_not_done"] == 120
    assert lost["verdict"] == "loses 120 jobs more"
    same, fast = (answer(*question, "--accept", f"A100=H200{speed}")["choices"][1] for speed in ("", ":2"))
    assert today["wait_s"] == 100
    assert (same["jobs_not_done"], same["wait_s"]) == (0, pytest.approx(100 / 3))  # two nodes for three jobs
    assert fast["wait_s"] == pytest.approx(50 / 3)
    assert same["load"] == pytest.approx(2 * fast["load"])


def test_the_ratio_of_a_cluster_that_loses_jobs_is_of_the_jobs_that_both_complete() -> None:
    """Every fourth job waits 30 s today; these are lost, and the others take as long as before."""
    today = np.tile([1.0, 1.0, 1.0, 30.0], 100)
    lossy = np.where(today == 30.0, np.nan, today)
    change = change_of(series(lossy), 1.0, series(today), float(today.mean()), "wait_s.mean")
    assert change.ratio == 1.0
    assert np.isnan(change_of(series(lossy), 2.0, series(today), 1.0, "energy_kwh").ratio)


def test_gpus_that_arrive_later_serve_later_jobs(here: Path) -> None:
    question = ["whatif", *swap(here), "--metric", "wait_s.mean"]
    span_s = 400 * 39
    half = answer(*question, "--add", f"16xA100-40@{span_s / 2}s")["choices"]
    assert half[1]["wait_s"] == pytest.approx(half[0]["wait_s"] / 2)
    for when, message in (
        ("2027-03-01", "the log has no dates"),
        ("9d", "the time is"),
        ("soon", "expected a date"),
    ):
        result = invoke(*question, "--add", f"16xA100-40@{when}")
        assert result.exit_code == 2
        assert message in result.output.replace("\n", " ")


def test_several_targets_must_all_hold_and_can_be_of_one_user(here: Path) -> None:
    common = ["plan", *swap(here), "--types", "A100-40"]
    loose, tight = "user[bob].wait_s.mean<10", "user[ann].wait_s.mean<60"
    assert answer(*common, "--target", loose)["best"]["nodes"] == {"A100-40": 1}  # bob is always first
    both = answer(*common, "--target", loose, "--target", tight)["best"]
    assert both["nodes"] == {"A100-40": 2}
    assert [part["value"] for part in both["targets"]] == [0, 50]
    result = invoke(*common, "--target", "user[eve].wait_s.mean<10")
    assert "there is no user 'eve'; the log has 'ann', 'bob'" in result.output.replace("\n", " ")


def test_a_budget_buys_the_best_mix_and_prices_come_from_a_file(here: Path) -> None:
    common = [word for word in swap(here) if word not in ("--price", "none")]
    # A T4 costs nothing; an A100 that was bought for 35,040 over four years costs 1 an hour.
    (here / "p.yaml").write_text("buy: {A100-40: 35040}\nrent: {T4: 0}\npower: 0.5\npue: 2\n", encoding="utf-8")
    question = ["plan", *common, "--prices", "p.yaml", "--target", "wait_s.mean", "--types", "A100-40"]
    answers = {nodes: answer(*question, "--budget", str(nodes * 8 * 730 * 2)) for nodes in (2, 3)}
    assert answers[2]["best"]["nodes"] == {"A100-40": 3}  # the fourth would fit without the price of energy
    assert answers[3]["best"]["value"] == 0
    assert all(facts["best"]["cost"] <= facts["budget"] for facts in answers.values())
    assert answers[2]["prices"]["A100-40"]["per_gpu_h"] == pytest.approx(1)
    (here / "p.yaml").write_text("rent: {A100-40: 1}\nbuy: {A100-40: 1}\n", encoding="utf-8")
    assert "under rent and under buy" in invoke(*question, "--budget", "9").output.replace("\n", " ")


def full_site(folder: Path, servers: int = 8) -> list[str]:
    """The jobs that still ran or waited after three days, or arrived later, at a FIFO cluster."""
    arrival_s, run_s = queue(servers, 0.9, 1200, 5)
    free_s, starts = [0.0] * servers, []
    for at_s, lasts_s in zip(arrival_s.tolist(), run_s.tolist(), strict=True):
        starts.append(max(at_s, free_s.pop(0)))
        free_s = sorted([*free_s, starts[-1] + lasts_s])
    rows = zip(arrival_s.tolist(), starts, run_s.tolist(), strict=True)
    listed = [(at_s, start_s, lasts_s) for at_s, start_s, lasts_s in rows if start_s + lasts_s > 3 * 86400]
    jobs = [
        Job.single(f"j{n}", Task("t", lasts_s, gpus=1), at_s, observed_start_s=start_s, account="ab"[n % 2])
        for n, (at_s, start_s, lasts_s) in enumerate(listed)
    ]
    write_jobs(folder / "log.jsonl", jobs)
    (folder / "c.yaml").write_text(f"cluster: {{groups: [{{name: n, gpu: T4, gpus: 1, count: {servers}}}]}}\n")
    return ["--trace", "log.jsonl", "--cluster", "c.yaml", "--policy", "fifo", "--price", "none", "--on", "local:1"]


def test_a_log_that_begins_with_a_full_cluster_is_simulated_from_there(here: Path) -> None:
    common = full_site(here)
    facts = answer("whatif", *common, "--add", "1xT4")
    today = json.loads((Path(facts["run"]) / "runs.jsonl").read_text().splitlines()[0])
    state = today["workload"]["state"]
    jobs = state["running"] + state["waiting"] + today["metrics"]["jobs_arrived"]
    assert jobs == len(Path("log.jsonl").read_text().splitlines()) - 2  # the first to end, and the header
    assert state["running"] >= 7  # the eighth has just ended
    assert state["waiting"] > 0
    assert facts["fit"]["simulated"] == pytest.approx(facts["fit"]["observed"], rel=1e-9)
    assert facts["fit"]["mean_s"] == pytest.approx(facts["choices"][0]["wait_s"], rel=1e-9)
    shown = invoke("whatif", *common, "--add", "1xT4").output.replace("\n", " ")
    assert f"with {state['running']} jobs running and {state['waiting']} waiting" in " ".join(shown.split())


def test_groups_growth_and_sizes_of_a_part_count_the_same_jobs(here: Path) -> None:
    common = [*full_site(here), "--from", "30h"]
    of_a = answer("plan", *common, "--target", "account[a].wait_s.mean<2h")["today"]["value"]
    of_b = answer("plan", *common, "--target", "account[b].wait_s.mean<2h")["today"]["value"]
    facts = answer("plan", *common, "--target", "wait_s.mean<2h")
    assert min(of_a, of_b) < facts["today"]["value"] < max(of_a, of_b)
    grown = answer("plan", *common, "--target", "wait_s.mean<2h", "--growth", "30%")
    assert grown["load"] == pytest.approx(1.3 * facts["load"], rel=1e-6)
    assert grown["best"]["gpus"] > facts["best"]["gpus"]


def test_a_wide_interval_says_how_long_the_log_would_have_to_be() -> None:
    """A few jobs of a heavy tail decide the mean: it is not known within a factor of 2."""
    rng = np.random.default_rng(1)
    slow, quick = np.exp(rng.normal(0, 3, 1600)), rng.exponential(1.0, 1600)
    names = ("jct_s", "wait_s", "queueing_s", "stretch", "bounded_stretch", "bounded_slowdown")
    nobody = np.zeros(1600, np.int64), ("",)
    series, today = (JobSeries(dict.fromkeys(names, values), *nobody) for values in (slow, quick))
    period = next_period(series, "jct_s.mean", slow.mean())
    assert period.longer == pytest.approx((np.log(period.high / period.value) / np.log(2)) ** 2)
    narrow = next_period(today, "jct_s.mean", quick.mean())
    assert narrow.high / narrow.value < 2
    assert narrow.longer == 1


WAITS = np.random.default_rng(2).exponential(1.0, 4000)


def change(waits: np.ndarray, before: np.ndarray, run_s: np.ndarray | float, metric: str = "jct_s.mean") -> Change:
    """The change of a metric by other waits of jobs with these run times."""
    both = [
        JobSeries({"jct_s": of + run_s, "wait_s": of}, np.zeros(len(of), np.int64), ("",)) for of in (waits, before)
    ]
    values = [jobs.value(metric) or 0.0 for jobs in both]
    return change_of(both[0], values[0], both[1], values[1], metric)


def test_a_log_whose_squared_run_times_are_those_of_few_jobs_is_too_short() -> None:
    run_s = np.ones(4000)
    assert np.isfinite(change(0.5 * WAITS, WAITS, run_s).low)
    run_s[:20] = 1000.0  # 20 equal jobs make the sum of squares: half of what is needed
    few = change(0.5 * WAITS, WAITS, run_s)
    assert not np.isfinite(few.low)
    assert few.longer == pytest.approx(2, rel=1e-3)
    run_s[:100] = 1000.0  # enough, but the interval is as 300 / 100 times as wide
    ours = WAITS * np.random.default_rng(9).uniform(0.2, 0.8, 4000)
    some, many = change(ours, WAITS, run_s, "wait_s.mean"), change(ours, WAITS, 1.0, "wait_s.mean")
    assert some.longer == many.longer == 1
    assert np.log(some.high / some.low) == pytest.approx(3 * np.log(many.high / many.low), rel=1e-3)


def test_a_run_shorter_than_eighty_autocorrelation_times_is_too_short() -> None:
    rng = np.random.default_rng(3)
    for blocks, enough in ((400, True), (200, True), (50, False)):
        slow = np.repeat(rng.exponential(1.0, blocks), 4000 // blocks)
        found = change(0.5 * slow, slow, 1.0)
        assert np.isfinite(found.low) == enough, blocks
        assert (found.longer > 1) != enough, blocks
        assert found.blocks == pytest.approx(blocks, rel=0.5), blocks
        if not enough:
            assert found.longer == pytest.approx(80 / found.blocks, rel=0.05)


def test_a_calm_log_at_a_high_load_is_too_short() -> None:
    """A queue at a load of 0.95 forgets its past within 0.95^2 / 0.05^2 x 2 = 722 exponential jobs."""
    run_s = np.random.default_rng(10).exponential(1.0, 4000)
    spread = 1 + run_s.var() / run_s.mean() ** 2

    def at(load: float) -> Change:
        both = [
            JobSeries({"jct_s": of + run_s, "wait_s": of}, np.zeros(4000, np.int64), ("",), load=load)
            for of in (0.5 * WAITS, WAITS)
        ]
        return change_of(
            both[0], both[0].value("jct_s.mean") or 0.0, both[1], both[1].value("jct_s.mean") or 0.0, "jct_s.mean"
        )

    assert np.isfinite(at(0.5).low)
    assert at(0.5).longer == 1
    assert np.isfinite(at(float("nan")).low)
    busy, load = at(0.95), 0.95 * (1 + (spread / 4000) ** 0.5)
    assert not np.isfinite(busy.low)
    assert busy.longer == pytest.approx(80 / (4000 * ((1 - load) / load) ** 2 / spread))


def test_a_difference_that_few_busy_periods_make_is_uncertain_by_their_number() -> None:
    """Of 100 blocks N wait, equally long: the Poisson mean may be as large as Byar's bound says."""
    for busy in (2, 5, 20):
        waits = np.zeros(4000)
        waits[np.repeat(np.arange(busy) * (4000 // busy), 40) + np.tile(np.arange(40), busy)] = 1.0
        found = change(0.5 * waits, waits, 100.0)
        exact = {2: 7.224688, 5: 11.668332, 20: 30.888838}[busy]  # half of the 97.5 % quantile of chi-squared
        further = 2 * (exact / busy - 1) * waits.sum()
        service = 100.0 * 4000
        longer = np.log1p(further / (service + waits.sum())) - np.log1p(0.5 * further / (service + 0.5 * waits.sum()))
        reach = np.log(found.high / found.ratio)
        assert reach == pytest.approx(max(longer * (1 + (80 / found.blocks) ** 2), 0.005), rel=0.02), busy
        assert np.log(found.ratio / found.low) == pytest.approx(reach)


@pytest.mark.parametrize("seed", range(8, 14))
def test_a_difference_in_all_blocks_is_uncertain_by_their_spread(seed: int) -> None:
    """Waits that vary less than independent ones from block to block, so that the autocorrelation time is 1."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(0.0, 0.2, (2, 401))
    ours, theirs = (np.repeat(2.0 + of[1:] - 0.3 * of[:-1], 10) for of in noise)
    found = change(ours, theirs, 0.0, "wait_s.mean")
    apart = (ours / ours.mean() - theirs / theirs.mean()).reshape(400, 10).mean(axis=1)
    spread = 0.0
    for blocks in range(4, 17):
        means = [part.mean() for part in np.array_split(apart, blocks)]
        spread = max(spread, t_quantile(0.95, blocks - 1) * float(np.std(means, ddof=1)) / blocks**0.5)
    assert found.blocks == 400
    assert np.log(found.high / found.ratio) == pytest.approx(1.6 * spread * (1 + 0.2**2), rel=0.03)


def test_equal_runs_are_identical_and_may_still_differ_in_the_long_run() -> None:
    never = change(np.zeros(4000), np.zeros(4000), WAITS)
    assert (never.ratio, never.low, never.high) == (1, pytest.approx(0.995, abs=2e-5), pytest.approx(1.005, abs=2e-5))
    assert np.isnan(never.p)
    seldom = np.where(np.arange(4000) % 1000 < 10, WAITS, 0.0)
    same = change(seldom, seldom, 0.0, "wait_s.mean")
    assert same.ratio == 1
    assert same.high > 1.5  # one of four busy periods would change the mean


def test_the_p_of_a_change_is_below_5_percent_if_its_interval_leaves_1_out() -> None:
    rng = np.random.default_rng(4)
    outside = 0
    for factor in np.linspace(0.9, 1.1, 21):
        found = change(factor * WAITS * rng.uniform(0.5, 1.5, 4000), WAITS, 1.0, "wait_s.mean")
        leaves_out = not found.low <= 1 <= found.high
        assert (found.p < 0.05) == leaves_out
        outside += leaves_out
    assert 5 < outside < 19


def test_the_interval_of_the_next_period_has_blocks_of_two_autocorrelation_times_and_the_stated_factors() -> None:
    """Sums of neighbours with opposite signs have an autocorrelation time below 1, which counts as 1: 16 blocks."""
    rng = np.random.default_rng(5)
    noise = rng.normal(0.0, 0.1, 401)
    waits = np.repeat(1.0 + noise[1:] - 0.5 * noise[:-1], 10)
    period = next_period(series(waits), "wait_s.mean", float(waits.mean()))
    means = waits.reshape(16, 250).mean(axis=1)
    of_blocks = means.std(ddof=1) / 4 / waits.mean()
    logs = np.log(means.sum() - means)
    of_level = np.sqrt(15 / 16 * ((logs - logs.mean()) ** 2).sum())
    half = max(of_blocks, of_level) * np.sqrt((1 + 16 / 400) / (1 - 1 / 4))
    assert period.blocks == 16
    assert np.log(period.high / period.value) == pytest.approx(np.sqrt(2) * 2.131449545559323 * half, rel=1e-9)
    assert period.low * period.high == pytest.approx(period.value**2)


def test_there_are_as_many_blocks_as_two_autocorrelation_times_fit() -> None:
    """Values that last 1/25 of the run have that autocorrelation time, and a block lasts two of them."""
    rng = np.random.default_rng(6)
    numbers = []
    for _ in range(60):
        waits = np.repeat(rng.exponential(1.0, 25), 160)
        numbers.append(next_period(series(waits), "wait_s.mean", float(waits.mean())).blocks)
    assert np.mean(numbers) == pytest.approx(12.5, rel=0.15)
    assert max(numbers) <= 16


def test_two_blocks_are_too_few_for_an_interval_and_three_are_enough() -> None:
    rng = np.random.default_rng(7)
    finite: dict[bool, list[bool]] = {True: [], False: []}
    for _ in range(60):
        waits = np.repeat(rng.exponential(1.0, 6), 600)
        period = next_period(series(waits), "wait_s.mean", float(waits.mean()))
        finite[period.blocks >= 3].append(bool(np.isfinite(period.high)))
        assert period.blocks >= 3 or 1 < period.longer <= 6
    assert any(finite[True])
    assert finite[False]
    assert not any(finite[False])
