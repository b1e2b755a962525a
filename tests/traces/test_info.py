"""What ``dagsim trace info`` says."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.command_line import fine

from dagsim.experiment.trace_info import PUBLISHED, published, trace_info
from dagsim.report.drawing import draw_trace
from dagsim.report.tables import hours_tables, info_tables, observed_table
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.traces import READERS, Source, reader
from dagsim.traces.trace_file import TraceFile

SAMPLES = Path(__file__).parents[2] / "workloads" / "samples"


@pytest.mark.family("formats", "slurm")
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
    gpu_s, work = info.workload.gpu_work, info.workload
    assert work.period_s == pytest.approx(work.span_s * 5 / 4)  # at five times
    assert info.mean_busy()["gpus"] == pytest.approx(gpu_s / work.period_s)


def test_hours_are_those_of_the_trace(tmp_path: Path) -> None:
    file = tmp_path / "jobs.csv"
    file.write_text("id,arrival_s,gpus,duration_s\na,7200,1,10\nb,7300,1,10\n")  # at 02:00 and a little later
    info = trace_info(TraceFile(str(file), "plain"), Recorded())
    assert info.workload.arrivals_by_hour[2] == 2


@pytest.mark.parametrize("format", sorted(READERS.names()))
def test_every_format_is_described(format: str, tmp_path: Path) -> None:
    info = trace_info(TraceFile(str(_sample(format)), format), Recorded())
    if format in ("plain", "swf", "google2011"):  # one job a row with GPUs, without GPUs, and DAGs
        assert draw_trace(info, tmp_path).stat().st_size > 10_000
    assert info.workload.jobs == info.trace.report.jobs > 0


def _sample(format: str) -> Path:
    """The first sample file of the format, or the folder, where its files belong together."""
    folder = SAMPLES / format
    files = sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: (len(path.parts), path))
    return next((path for path in files if reader(format).recognises(Source(path)) or len(files) == 1), folder)


@pytest.mark.family("formats")
def test_what_was_published_is_of_known_formats_and_statistics() -> None:
    info = trace_info(TraceFile(str(SAMPLES / "plain" / "jobs.csv")), Recorded()).workload
    for figure in PUBLISHED:
        assert figure.format in READERS
        assert figure.statistic == "gpu_hours" or hasattr(info, figure.statistic.split(".")[0])
    assert {figure.value for figure in published("helios", "/data/Venus/cluster_log.csv")} == {246_708}


@pytest.mark.data
def test_itp_has_the_jobs_and_gpu_hours_of_its_readme(data: Path) -> None:
    info = trace_info(TraceFile(str(data / "traces" / "microsoft-itp-2021")), Recorded())
    assert {figure.statistic for figure, _ in info.comparison} == {"jobs", "gpu_hours"}
    for figure, here in info.comparison:
        assert here == pytest.approx(figure.value, rel=1e-7)


def _log(tmp_path: Path, accounts: int = 2) -> Path:
    head = (
        "JobIDRaw|JobID|User|Account|Partition|State|Submit|Start|End|ElapsedRaw|TimelimitRaw|NNodes|NCPUS|AllocTRES\n"
    )
    rows = [
        f"{n}|{n}|u{n}|lab{n}|gpu|COMPLETED|{n}|{n}|{n + 3600}|3600|120|1|4|cpu=4,gres/gpu=2,node=1"
        for n in range(1, accounts + 1)
    ]
    requeued = [
        "90|90|u1|lab1|cpu|PREEMPTED|100|100|1900|1800|60|1|4|cpu=4,gres/gpu=1,node=1",
        "90|90|u1|lab1|cpu|COMPLETED|1900|2000|5600|3600|60|1|4|cpu=4,gres/gpu=1,node=1",
    ]
    path = tmp_path / "log.txt"
    path.write_text(head + "\n".join([*rows, *requeued]) + "\n")
    return path


@pytest.mark.family("slurm")
def test_gpu_hours_count_all_attempts_of_a_requeued_job(tmp_path: Path) -> None:
    hours = trace_info(TraceFile(str(_log(tmp_path))), Recorded()).to_dict()["hours"]
    assert {name: row["gpu_hours"] for name, row in hours["account"].items()} == {"lab1": 3.5, "lab2": 2.0}
    assert hours["user"]["u1"] == {
        "jobs": 2, "gpu_hours": 3.5, "core_hours": 10.0, "gpu_hours_claimed": 5.0, "core_hours_claimed": 12.0,
    }  # fmt: skip
    assert list(hours["partition"]) == ["gpu", "cpu"]


@pytest.mark.family("slurm")
def test_the_table_of_hours_says_how_many_accounts_it_leaves_out(tmp_path: Path) -> None:
    account, user, partition = hours_tables(trace_info(TraceFile(str(_log(tmp_path, 30))), Recorded()))
    assert account.title == "GPU-hours by account: 61.5"
    assert account.rows[0] == ("lab1", "2", "3.5", "5.7%", "5.0")
    assert len(account.rows) == 20
    assert account.notes == ("10 more have 20.0 GPU-hours together (--json has all)",)
    assert (user.heads[0], partition.notes) == ("user", ())


@pytest.mark.family("formats", "slurm")
def test_a_log_without_gpus_has_core_hours_and_one_without_owners_no_table(tmp_path: Path) -> None:
    path = _log(tmp_path)
    path.write_text(path.read_text().replace("gres/gpu=2,", "").replace("gres/gpu=1,", ""))
    assert hours_tables(trace_info(TraceFile(str(path)), Recorded()))[0].title == "core-hours by account: 14.0"
    assert hours_tables(trace_info(TraceFile(str(SAMPLES / "swf" / "sample.swf")), Recorded())) == []


def test_tables_of_tenants_say_how_many_they_leave_out(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rows = [f"{at},{at},1,10,t{at % 15:02}" for at in range(16)]
    path.write_text("id,arrival_s,gpus,duration_s,tenant\n" + "\n".join(rows) + "\n")
    counts = info_tables(trace_info(TraceFile(str(path)), Recorded()).workload)[1]
    names, values = [list(column.cells) for column in counts.columns]
    tenants = values[names.index("tenants")]
    assert tenants.count(": ") == 12
    assert tenants.endswith(", and 3 more")
    seconds = {"mean": 1.0, "median": 1.0, "p95": 1.0}
    pairs = {
        f"t{at:02}": {"jobs": 1 + (at == 14), "observed_s": seconds, "simulated_s": seconds, "difference_s": 0.0}
        for at in range(15)
    }
    waits = {"total": pairs["t00"], "by_size": {}, "by_tenant": pairs, "left_out": 0, "missed": 0}
    table = observed_table("fifo", waits)
    assert [row[0] for row in table.rows] == ["all", "tenant t14", *[f"tenant t{at:02}" for at in range(7)]]
    since = "wait: from submission, over the jobs that start in both"
    assert table.notes == ("7 tenants with fewer jobs are in runs.jsonl", since)
    late = observed_table("fifo", waits | {"from_eligible": True})
    assert late.notes[-1] == "wait: from the time at which a job could start, over the jobs that start in both"


def test_names_are_printed_as_they_are(tmp_path: Path) -> None:
    names = ["x[/b]", "[lab]", "[red]hot[/red]", "back\\", "[link=file:///etc]a[/link]"]
    rows = [f"j{at},{at},1,10,{name}" for at, name in enumerate(names)]
    (tmp_path / "log.csv").write_text("id,arrival_s,gpus,duration_s,tenant\n" + "\n".join(rows) + "\n")
    ended = fine("trace", "info", tmp_path / "log.csv", "--no-plot")
    shown = "".join(line.strip("│ ").removeprefix("tenants").strip("│ ") for line in ended.output.splitlines())
    for name in names:
        assert f"{name}: 1" in shown or f"{name}: 1".replace(" ", "") in shown.replace(" ", ""), name
