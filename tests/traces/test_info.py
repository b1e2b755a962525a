"""What ``dagsim trace info`` says."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagsim.experiment.trace_info import trace_info
from dagsim.report.drawing import draw_trace
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.traces import READERS, Source, reader
from dagsim.traces.published import PUBLISHED, published
from dagsim.traces.trace_file import TraceFile

SAMPLES = Path(__file__).parents[2] / "workloads" / "samples"


def test_a_trace_with_machines_has_a_load() -> None:
    info = trace_info(TraceFile(str(SAMPLES / "google2011")), Recorded())
    assert info.own
    assert info.workload.load is not None
    assert "4 nodes" in info.to_dict()["machines"]


def test_a_trace_without_machines_gets_a_cluster_for_its_load() -> None:
    info = trace_info(TraceFile(str(SAMPLES / "plain" / "jobs.csv")), Recorded())
    assert not info.own
    assert info.workload.load is None
    assert info.to_dict()["sized"].startswith("sized (")
    gpu_s, span_s = info.workload.gpu_work, info.workload.span_s
    assert info.mean_busy()["gpus"] == pytest.approx(gpu_s / span_s)


def test_hours_are_those_of_the_trace(tmp_path: Path) -> None:
    file = tmp_path / "jobs.csv"
    file.write_text("id,arrival_s,gpus,duration_s\na,7200,1,10\nb,7300,1,10\n")  # at 02:00 and a little later
    info = trace_info(TraceFile(str(file), "plain"), Recorded())
    assert info.workload.arrivals_by_hour[2] == 2


@pytest.mark.parametrize("format", sorted(READERS.names()))
def test_every_format_is_described_and_drawn(format: str, tmp_path: Path) -> None:
    info = trace_info(TraceFile(str(_sample(format)), format), Recorded())
    assert draw_trace(info, tmp_path).stat().st_size > 10_000
    assert info.workload.jobs == info.trace.report.jobs > 0


def _sample(format: str) -> Path:
    """The first sample file of the format, or the folder, where its files belong together."""
    folder = SAMPLES / format
    files = sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: (len(path.parts), path))
    return next((path for path in files if reader(format).recognises(Source(path))), folder)


def test_what_was_published_is_of_known_formats_and_statistics() -> None:
    info = trace_info(TraceFile(str(SAMPLES / "plain" / "jobs.csv")), Recorded()).workload
    for each in PUBLISHED:
        assert each.format in READERS
        assert each.statistic == "gpu_hours" or hasattr(info, each.statistic.split(".")[0])
    assert {each.value for each in published("helios", "/data/Venus/cluster_log.csv")} == {246_708}


@pytest.mark.data
def test_itp_has_the_jobs_and_gpu_hours_of_its_readme(data: Path) -> None:
    info = trace_info(TraceFile(str(data / "traces" / "microsoft-itp-2021")), Recorded())
    assert {each.statistic for each, _ in info.comparison} == {"jobs", "gpu_hours"}
    for each, here in info.comparison:
        assert here == pytest.approx(each.value, rel=1e-7)
