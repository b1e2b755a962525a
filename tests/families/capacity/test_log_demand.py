"""Times on the clock of a log, and growth of its demand."""

from __future__ import annotations

from pathlib import Path

import pytest
from families.capacity.capacity_cases import CLUSTER

from dagsim.config.dumping import plain
from dagsim.config.schema import Config
from dagsim.errors import InputError
from dagsim.families.capacity.log_demand import LogDemand, with_growth


@pytest.mark.parametrize(
    ("when", "after_s"),
    [
        ("90s", 90),
        ("1.5min", 90),
        ("2h", 7200),
        ("0.5d", 43200),
        ("2023-11-15T00:00", 6400),  # 22:13:20 plus 1 h 46 min 40 s
        ("2023-11-17T22:13:20", 86400),  # one day after the end of the log: one day after the beginning of the run
    ],
)
def test_an_instant_of_a_run_is_a_time_after_its_beginning_or_a_date(tmp_path: Path, when: str, after_s: float) -> None:
    demand = dated(tmp_path, 1_700_000_000)  # 2023-11-14 22:13:20 UTC
    assert demand.arrival_s(when) == after_s


@pytest.mark.parametrize(
    ("origin_s", "when", "words"),
    [
        (0, "2023-11-15", "the log has no dates"),
        (1_700_000_000, "2d", "the time is 2.0 days after the beginning of a run that lasts 2.0 days"),
        (1_700_000_000, "2023-11-13", "the time is -1.9 days after"),
        (1_700_000_000, "soon", "expected a date, such as 2027-03-01, or a time, such as 14d"),
    ],
)
def test_an_instant_outside_of_the_run_is_refused(tmp_path: Path, origin_s: int, when: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        dated(tmp_path, origin_s).arrival_s(when)


def dated(folder: Path, origin_s: int) -> LogDemand:
    """A log of two days with three jobs."""
    rows = [f"j{day},{origin_s + day * 86400},60,1" for day in range(3)]
    (folder / "log.csv").write_text("\n".join(["id,arrival_s,duration_s,gpus", *rows]))
    trace = {"kind": "trace", "path": str(folder / "log.csv")}
    return LogDemand(Config.model_validate({"workload": trace, "cluster": plain(CLUSTER)}))


def test_growth_brings_the_same_jobs_closer_together(tmp_path: Path) -> None:
    grown = with_growth(dated(tmp_path, 0).config, 0.25)
    assert grown.trace().options.time_scale == pytest.approx(0.8)
    twice = with_growth(grown, 0.25)
    assert twice.trace().options.time_scale == pytest.approx(0.64)
