"""Which jobs are measured."""

from __future__ import annotations

import pytest

from dagsim.config.schema import load_config
from dagsim.errors import ConfigError, WorkloadError
from dagsim.experiment.simulate import run_policy
from dagsim.workload import PRESETS, Synthetic
from dagsim.workload.windows import parse_measure


@pytest.mark.parametrize(
    ("text", "measure"),
    [("1000:19000", [1000, 19000]), ("1000:-1000", [1000, -1000]), ("5:", [5, None]), (":5", [0, 5])],
)
def test_a_stretch_is_written_as_a_slice(text: str, measure: list[int | None]) -> None:
    assert parse_measure(text) == measure


def test_what_is_no_stretch_is_refused() -> None:
    with pytest.raises(WorkloadError, match="expected FROM:TO, such as 1000:19000 or 1000:-1000, got '5'"):
        parse_measure("5")
    with pytest.raises(WorkloadError, match=r"contains none of the 100 jobs; workload.measure=10:-10 leaves out"):
        Synthetic(100, measure=(60, -60))
    with pytest.raises(ConfigError, match="the first job must come before the last one"):
        load_config(None, ["workload.measure=[-1, 5]"])


def test_jobs_that_are_not_measured_run_all_the_same() -> None:
    settings = ["workload.count=30", "cluster.groups=[{name: t4, gpu: T4, gpus: 8}]"]
    whole = run_policy(load_config(None, settings), "sjf", 0)
    part = run_policy(load_config(None, [*settings, "workload.measure=[10, 20]"]), "sjf", 0)
    assert part.schedule.log == whole.schedule.log
    assert (part.summary.jobs_completed, whole.summary.jobs_completed) == (10, 30)


def test_steady_presets_keep_both_ends_out_and_arrive_at_one_rate() -> None:
    for name in ("steady", "steady-dag", "steady-heavy-tailed"):
        workload = PRESETS[name].workload
        assert (workload.count, workload.measure, workload.load_mode) == (20_000, (1000, -1000), "expected")
