"""Prices and carbon by the hour. The sample files are made by hand: own numbers, three invented regions."""

from __future__ import annotations

import json
import random
from datetime import datetime
from pathlib import Path

import pytest
from support.command_line import fine, invoke, json_of

from dagsim.errors import ConfigError
from dagsim.metrics import energy
from dagsim.metrics.own import METRICS
from dagsim.metrics.tariff import is_series, read_tariff
from dagsim.model import Cluster

SERIES = Path(__file__).parent / "series"
HEAD = "time,value\n"
TWO = HEAD + "2026-03-01T00:00+00:00,1\n2026-03-01T01:00+00:00,3\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "series.csv"
    path.write_text(text)
    return path


def one_run(plan_of, start_s: float, end_s: float, arrival_s: float = 0.0):
    """A T4 (9 W idle, 56 W busy) that is held from start to end."""
    plan = plan_of(Cluster.of({"T4": 1}))
    plan.run(plan.job(arrival_s, completed_s=end_s), start_s, end_s, {0: (0,)})
    return plan.schedule()


def test_the_cost_is_power_times_price_times_time(plan_of, tmp_path) -> None:
    path = written(tmp_path, TWO)
    schedule = one_run(plan_of, 1800.0, 5400.0)  # 0.5 h idle at 1, then 0.5 h busy at 1 and 0.5 h busy at 3
    by_hand = (0.5 * 9 * 1 + 0.5 * 56 * 1 + 0.5 * 56 * 3) / 1000
    assert METRICS.create(f"energy_cost[series={path}]").of(schedule) == pytest.approx(by_hand)
    assert METRICS.create(f"energy_cost[series={path},pue=1.5]").of(schedule) == pytest.approx(1.5 * by_hand)
    assert METRICS.create(f"carbon_kg[series={path}]").of(schedule) == pytest.approx(by_hand / 1000)


def test_a_series_of_one_price_costs_the_energy_times_the_price(plan_of, tmp_path) -> None:
    path = written(tmp_path, HEAD + "2026-03-01T00:00Z,0.25\n")
    schedule = one_run(plan_of, 100.0, 90_000.0)
    cost = METRICS.create(f"energy_cost[series={path}]").of(schedule)
    assert cost == pytest.approx(0.25 * energy(schedule).total_kwh)


def test_a_series_repeats_and_its_last_value_lasts_as_long_as_the_one_before(tmp_path) -> None:
    tariff = read_tariff(written(tmp_path, TWO)).on_clock(0.0)
    assert [tariff.integral(hour * 3600.0, (hour + 1) * 3600.0) / 3600 for hour in range(5)] == [1, 3, 1, 3, 1]
    assert list(tariff.changes(0.0, 14_400.0)) == [3600.0, 7200.0, 10_800.0]


def test_a_series_that_ends_refuses_a_run_that_lasts_longer(plan_of, tmp_path) -> None:
    metric = METRICS.create(f"energy_cost[series={written(tmp_path, TWO)},repeats=false]")
    metric.of(one_run(plan_of, 0.0, 7200.0))
    with pytest.raises(
        ConfigError, match=r"series\.csv: the series covers .* but the run needs .* leave out repeats=false"
    ):
        metric.of(one_run(plan_of, 0.0, 7201.0))


def test_a_log_with_dates_meets_the_series_at_its_dates(plan_of, tmp_path) -> None:
    path = written(tmp_path, TWO)
    second_hour_s = datetime.fromisoformat("2026-03-01T02:00+01:00").timestamp()  # 1:00 UTC
    schedule = one_run(plan_of, second_hour_s, second_hour_s + 3600, arrival_s=second_hour_s)
    assert METRICS.create(f"energy_cost[series={path}]").of(schedule) == pytest.approx(0.056 * 3)
    with pytest.raises(ConfigError, match="already contains dates"):
        METRICS.create(f"energy_cost[series={path},begins=2026-03-01T00:00Z]").of(schedule)


def test_begins_says_what_time_a_generated_run_starts(plan_of, tmp_path) -> None:
    path = written(tmp_path, TWO)
    metric = METRICS.create(f"energy_cost[series={path},begins='2026-03-01T01:00+00:00']")
    assert metric.of(one_run(plan_of, 0.0, 3600.0)) == pytest.approx(0.056 * 3)


@pytest.mark.parametrize("name", ["prices-north", "prices-south", "carbon-north"])
def test_the_integral_of_a_series_is_the_sum_over_its_minutes(name: str) -> None:
    tariff = read_tariff(SERIES / f"{name}.csv").on_clock(0.0)
    rng = random.Random(5)
    for _ in range(20):
        start, length = rng.randrange(0, 3000), rng.randrange(1, 3000)
        hours = [((start + minute) // 60) % 24 for minute in range(length)]
        assert tariff.integral(60.0 * start, 60.0 * (start + length)) == pytest.approx(
            60 * sum(tariff.values[hour] for hour in hours), abs=1e-6
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no rows"),
        (HEAD, "has no rows"),
        ("when,price\n", r"series\.csv:1: expected the columns time,value"),
        (HEAD + "2026-03-01T00:00,1\n", r"series\.csv:2: the time 2026-03-01T00:00 has no time zone"),
        (HEAD + "noon,1\n", r"series\.csv:2: 'noon' is not an ISO date"),
        (HEAD + "2026-03-01T00:00Z,dear\n", r"series\.csv:2: expected a number, got 'dear'"),
        (HEAD + "2026-03-01T00:00Z,inf\n", r"series\.csv:2: expected a number"),
        (HEAD + "2026-03-01T00:00Z,1,2\n", r"series\.csv:2: expected a time and a value, got 3 cells"),
        (TWO + "2026-03-01T02:00+01:00,1\n", r"series\.csv:4: the time .* must be later than the time in the previous"),
    ],
)
def test_a_wrong_series_is_refused_with_its_line(tmp_path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_tariff(written(tmp_path, text))


def test_carbon_is_never_negative_but_a_price_may_be(tmp_path) -> None:
    path = written(tmp_path, HEAD + "2026-03-01T00:00Z,-1\n")
    METRICS.create(f"energy_cost[series={path}]")
    with pytest.raises(ConfigError, match="a number from 0"):
        METRICS.create(f"carbon_kg[series={path}]")


def test_a_wrong_series_ends_a_command_before_it_simulates(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    series = written(tmp_path, HEAD + "2026-03-01T00:00,1\n")
    metric = f'metrics=["energy_cost[series={series}]"]'
    ended = invoke("eval", "--policy", "fifo", "--seeds", "1", "--set", metric)
    assert ended.exit_code == 2
    assert "series.csv:2: the time 2026-03-01T00:00 has no time zone" in ended.output
    assert not (tmp_path / "results").exists()


@pytest.mark.family("capacity", "slurm")
def test_whatif_adds_the_cost_and_the_carbon_of_every_alternative(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    fine("trace", "sample")
    flat = written(tmp_path, HEAD + "2026-03-01T00:00Z,0.5\n")
    asked = ["whatif", "--trace", "site/sacct.txt.gz", "--cluster", "site/slurm.yaml", "--policy", "fifo,easy"]
    choices = json_of(*asked, "--energy-prices", flat, "--carbon", flat)["choices"]
    assert len(choices) == 2
    for choice in choices:
        assert choice["energy_cost"] == pytest.approx(0.5 * choice["energy_kwh"])
        assert choice["carbon_kg"] == pytest.approx(0.0005 * choice["energy_kwh"])


@pytest.mark.family("capacity", "slurm")
def test_plan_adds_the_cost_and_the_carbon_of_every_size(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    fine("trace", "sample")
    dear = written(tmp_path, HEAD + "2026-03-01T00:00Z,0.5\n")
    (tmp_path / "other").mkdir()
    clean = written(tmp_path / "other", HEAD + "2026-03-01T00:00Z,40\n")
    asked = ["plan", "--trace", "site/sacct.txt.gz", "--cluster", "site/slurm.yaml", "--policy", "fifo"]
    asked += ["--target", "wait_s.p95<1d", "--max-gpus", "80", "--price", str(dear), "--carbon", str(clean)]
    ended = invoke(*asked, "--json")
    assert ended.exit_code in (0, 1), ended.output
    facts = json.loads(ended.stdout)
    for size in (facts["today"], *facts["tried"]):
        assert size["energy_cost"] > 0
        assert size["carbon_kg"] == pytest.approx(40 / 500 * size["energy_cost"])
    told = invoke(*asked, columns=200).output
    assert "kgCO2" in told
    assert "energy: over the whole log, hour by hour; a series repeats after its end." in told


@pytest.mark.parametrize("command", ["eval", "baseline"])
def test_tables_of_schedulers_have_the_cost_and_the_carbon_of_their_energy(command, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    flat = written(tmp_path, HEAD + "2026-03-01T00:00Z,0.5\n")
    asked = [command, "--policy", "sjf", "--set", "workload.count=9", "--seeds", "1"]
    metrics = json_of(*asked, "--price", flat, "--carbon", flat)["summary"]["sjf"]
    assert metrics["energy_cost"] == pytest.approx(0.5 * metrics["energy_kwh"])
    assert metrics["carbon_kg"] == pytest.approx(0.0005 * metrics["energy_kwh"])


@pytest.mark.family("spark")
def test_a_price_of_energy_is_refused_for_systems_without_energy(tmp_path: Path) -> None:
    flat = written(tmp_path, HEAD + "2026-03-01T00:00Z,0.5\n")
    ended = invoke("eval", "--system", "spark", "--price", flat, columns=200)
    assert ended.exit_code == 2
    assert "--price: energy is modelled only for GPU clusters, but the system is 'spark'" in ended.output


@pytest.mark.parametrize("name", ["prices.csv", "prices.txt"])
def test_a_file_of_prices_is_a_series_by_its_name_or_its_first_row(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(HEAD + "2026-03-01T00:00Z,0.5\n")
    (tmp_path / "rates.yaml").write_text("rent: {T4: 1.0}\n")
    assert is_series(tmp_path / name)
    assert not is_series(tmp_path / "rates.yaml")
    assert not is_series(Path("T4=1.0," * 100))


@pytest.mark.family("capacity")
@pytest.mark.parametrize("spelling", ["--price", "--energy-prices"])
def test_hourly_prices_of_energy_are_prices(spelling: str, tmp_path: Path) -> None:
    wrong = written(tmp_path, "hour,eur\n")
    log = tmp_path / "log.csv"
    log.write_text("id,arrival_s,gpus,duration_s\na,0,1,9\n")
    asked = ["whatif", "--trace", str(log), "--cluster", "sized", "--add", "8xT4", spelling, str(wrong)]
    ended = invoke(*asked, columns=200)
    assert (ended.exit_code, "expected the columns time,value, got 'hour,eur'" in ended.output) == (2, True), (
        ended.output
    )
    target = ["--cluster", "sized", "--target", "wait_s.p95<600", spelling, str(wrong)]
    ended = invoke("plan", "--trace", log, *target, columns=200)
    assert (ended.exit_code, "expected the columns time,value, got 'hour,eur'" in ended.output) == (2, True), (
        ended.output
    )
