"""The ledger of report seeds."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep

import pytest

from dagsim.errors import ConfigError
from dagsim.experiment.ledger import BLOCK, FIRST, Ledger, claim_report_seeds
from dagsim.files import Lock
from dagsim.seeds import REPORT, TRAIN, VALIDATION


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "seeds.yaml")


def test_every_table_has_a_pool_of_its_own(ledger: Ledger) -> None:
    grid, cells = ledger.spend("grid", 30, "make grid"), ledger.spend("cells", 100, "make cells")
    assert grid.seeds == range(FIRST, FIRST + 30)
    assert cells.seeds == range(FIRST + BLOCK, FIRST + BLOCK + 100)
    assert set(grid.seeds) | set(cells.seeds) <= set(REPORT)
    assert not (set(TRAIN) | set(VALIDATION)) & set(cells.seeds)


def test_pools_that_lie_elsewhere_leave_the_blocks_alone(ledger: Ledger) -> None:
    ledger.spend("windows", 5, "make", pool=range(REPORT.start, REPORT.start + 69))
    ledger.spend("sequences", 5, "make", pool=range(6_000_000, 6_001_000))
    assert ledger.spend("grid", 5, "make grid").seeds.start == FIRST


def test_the_ledger_of_the_project_gives_no_seed_to_two_tables() -> None:
    tables = Ledger(Path(__file__).parents[2] / "results" / "seeds.yaml").tables()
    pools = [range(*entry["pool"]) for entry in tables.values() if "windows_of" not in entry]  # places, not draws
    assert len({seed for pool in pools for seed in pool}) == sum(map(len, pools))
    assert all(
        range(*claim["seeds"])[-1] in range(*entry["pool"]) for entry in tables.values() for claim in entry["spent"]
    )


def test_spent_seeds_are_refused(ledger: Ledger) -> None:
    ledger.close(ledger.spend("grid", 30, "make grid"))
    with pytest.raises(ConfigError, match=r"grid.*were used on .*make grid.*--fresh.*--again"):
        ledger.spend("grid", 30, "make grid")


def test_a_stopped_command_gets_its_seeds_back_and_no_other_does(ledger: Ledger) -> None:
    opened = ledger.spend("grid", 30, "make grid")
    assert ledger.spend("grid", 30, "make grid") == opened
    with pytest.raises(ConfigError, match="were used on"):
        ledger.spend("grid", 30, "make another grid")


def test_a_table_that_was_finished_at_another_commit_names_both(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dagsim.experiment.ledger.code_commit", lambda _: "a" * 40)
    assert "at commit aaaaaaaaaaaa on" in ledger.spend("grid", 30, "make grid").sentence("a method")
    monkeypatch.setattr("dagsim.experiment.ledger.code_commit", lambda _: "b" * 40 + "-dirty")
    assert "at commit aaaaaaaaaaaa to bbbbbbbbbbbb-dirty on" in ledger.spend("grid", 30, "make grid").sentence("it")
    assert ledger.tables()["grid"]["spent"][0]["last_commit"].endswith("-dirty")


def test_windows_of_a_trace_are_said_to_be_that(ledger: Ledger) -> None:
    ledger.spend("itp", 5, "judge", pool=range(REPORT.start, REPORT.start + 69), windows_of="ITP, last fifth")
    assert ledger.tables()["itp"]["windows_of"] == "ITP, last fifth"


def test_fresh_seeds_follow_those_spent(ledger: Ledger) -> None:
    ledger.close(ledger.spend("grid", 30, "make grid"))
    second = ledger.spend("grid", 20, "make grid", fresh=True)
    assert (second.seeds, second.times) == (range(FIRST + 30, FIRST + 50), 1)
    assert "used" not in second.sentence("a method")


def test_the_same_seeds_again_stand_in_the_table(ledger: Ledger) -> None:
    first = ledger.spend("grid", 30, "make grid")
    ledger.close(first)
    again = ledger.spend("grid", 30, "make grid", again=True)
    assert again.seeds == first.seeds
    assert "n = 30 report seeds" in first.sentence("a method")
    assert "used 2 times" in again.sentence("a method")


def test_a_pool_has_an_end(ledger: Ledger) -> None:
    windows = range(REPORT.start, REPORT.start + 69)
    assert ledger.spend("itp", 69, "judge", pool=windows).seeds == windows
    ledger.close(ledger.spend("itp", 69, "judge"))
    with pytest.raises(ConfigError, match="has only 0 seeds left"):
        ledger.spend("itp", 1, "judge", fresh=True)


def test_every_training_reports_on_seeds_of_its_own(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).mkdir()
    first, second = (claim_report_seeds(tmp_path / name, 200) for name in "ab")
    assert first == tuple(range(FIRST, FIRST + 200))
    assert second == tuple(range(FIRST + BLOCK, FIRST + BLOCK + 200))
    assert claim_report_seeds(tmp_path / "c", 1500)[-1] == FIRST + 2 * BLOCK + 1499
    (tmp_path / "d").mkdir()
    assert claim_report_seeds(tmp_path / "d", 1)[0] == FIRST + 4 * BLOCK
    entry = Ledger(tmp_path / "seeds.yaml").tables()["train/b"]["spent"]
    assert [(claim["seeds"], claim["done"]) for claim in entry] == [([second[0], second[-1] + 1], True)]


def test_a_resumed_training_keeps_its_report_seeds(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    seeds = claim_report_seeds(tmp_path / "a", 5)
    assert claim_report_seeds(tmp_path / "a", 5) == seeds
    (tmp_path / "b").mkdir()
    assert claim_report_seeds(tmp_path / "b", 5, first=seeds[0]) == seeds  # another one repeats its report
    assert "train/b" not in Ledger(tmp_path / "seeds.yaml").tables()
    (tmp_path / "c").mkdir()
    with pytest.raises(ConfigError, match=r"train\.report_from: seeds 5 to 9 must be within 3000000"):
        claim_report_seeds(tmp_path / "c", 5, first=5)


def test_trainings_that_end_at_once_share_no_seed(tmp_path: Path) -> None:
    names = [f"run{number}" for number in range(12)]
    for name in names:
        (tmp_path / name).mkdir()
    with ThreadPoolExecutor(6) as pool:
        claimed = list(pool.map(lambda name: claim_report_seeds(tmp_path / name, 10), names))
    assert len({seed for seeds in claimed for seed in seeds}) == 120


def test_who_finds_the_ledger_locked_waits_until_it_is_free(ledger: Ledger) -> None:
    lock = Lock(ledger.path.with_name(f".{ledger.path.name}.lock"))
    assert lock.claim()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ledger.spend, "grid", 30, "make grid")
        sleep(0.1)
        assert not waiting.done()
        lock.release()
        assert waiting.result().seeds == range(FIRST, FIRST + 30)
