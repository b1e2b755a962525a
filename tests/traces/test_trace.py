"""Opening a trace: recognition, options, windows, and the clock of its jobs."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dagsim.errors import ConfigError, ModelError, TraceError, UnknownName
from dagsim.traces import READERS, Source, TraceOptions, open_trace, reader, recognise

Reading = Callable[..., Any]

LOG = "id,arrival_s,gpus,duration_s,deadline_s\n" + "".join(f"j{i},{100 + 10 * i},1,{i},{200 + i}\n" for i in range(5))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "log.csv").write_text(LOG)
    return tmp_path / "log.csv"


def test_every_reader_is_named_as_it_is_listed_and_says_what_it_reads() -> None:
    for name in READERS.names():
        trace_reader = reader(name)
        assert trace_reader.name == name
        assert trace_reader.summary
        assert trace_reader.uses <= set(TraceOptions.__dataclass_fields__)


def test_no_file_of_the_samples_is_of_two_formats(samples: Path) -> None:
    for path in sorted(file for file in samples.rglob("*") if file.is_file()):
        names = [name for name in READERS.names() if reader(name).recognises(Source(path))]
        assert len(names) <= 1, f"{path}: {names}"


@pytest.mark.family("formats")
def test_an_unknown_format_is_suggested_and_an_unknown_file_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="unknown trace format 'alibaba2081'; did you mean 'alibaba2018'"):
        reader("alibaba2081")
    (tmp_path / "x.csv").write_text("some,other,table\n1,2,3\n")
    with pytest.raises(TraceError, match=r"x\.csv: not recognised as a trace; if it is a table, .*--format names"):
        recognise(tmp_path / "x.csv")
    with pytest.raises(TraceError, match=r"y\.csv: no such file"):
        open_trace(tmp_path / "y.csv")


def test_nothing_is_read_before_it_is_asked_for(log: Path) -> None:
    trace = open_trace(log)
    jobs = trace.jobs()
    assert (trace.report.rows, trace.meta) == (0, {})
    assert next(jobs).id == "j0"
    assert trace.report.jobs == 5, "jobs come in blocks"
    assert trace.meta == {"origin_s": 100}


def test_a_trace_can_be_read_twice(log: Path) -> None:
    trace = open_trace(log)
    assert list(trace.jobs()) == list(trace.jobs())
    assert trace.report.rows == 5


def test_the_window_counts_jobs_and_the_clock_starts_with_its_first(read: Reading, log: Path) -> None:
    # j1 at 110 s is the first: j2 comes 10 s later, half of that at twice the pace; deadlines keep their distance
    got = read(log, start=1, limit=2, time_scale=0.5)
    assert [(job.id, job.arrival_s, job.deadline_s) for job in got.jobs] == [("j1", 0, 91), ("j2", 5, 87)]
    assert got.trace.report.skipped == {"before the window": 1, "after the window": 2}
    assert str(got.trace.report) == "read 5 rows: kept 2; skipped 2 after the window, 1 before the window"


def test_a_window_behind_the_last_job_is_an_error_with_the_counts(log: Path) -> None:
    with pytest.raises(
        TraceError, match=r"log\.csv: the trace has no usable jobs \(read 5 rows: kept 0; skipped 5 before the window\)"
    ):
        list(open_trace(log, options=TraceOptions(start=9)).jobs())


@pytest.mark.family("formats")
def test_the_archive_of_a_publisher_is_read_as_it_is(read: Reading, samples: Path, tmp_path: Path) -> None:
    content = (samples / "alibaba2018" / "batch_task.csv").read_bytes()
    with tarfile.open(tmp_path / "batch_task.tar.gz", "w:gz") as archive:
        info = tarfile.TarInfo("batch_task.csv")
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    expected = read(samples / "alibaba2018" / "batch_task.csv").jobs
    assert read(tmp_path / "batch_task.tar.gz").jobs == expected
    assert read(f"{tmp_path}/batch_task.tar.gz:batch_task.csv").jobs == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gpus_per_task": 1.5}, "gpus_per_task must be a fraction up to 1 or a whole number, got 1.5"),
        ({"gpus_per_task": 0}, "gpus_per_task must be"),
        ({"time_scale": 0.0}, "time_scale must be positive, got 0.0"),
        ({"load": float("nan")}, "load must be positive, got nan"),
        ({"start": -1}, "start must be 0 or more, got -1"),
        ({"limit": 0}, "limit must be 1 or more, got 0"),
        ({"floor_s": -1.0}, r"floor_s must be 0 or more, got -1\.0"),
    ],
)
def test_options_outside_their_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TraceOptions(**options)


def test_an_unknown_reference_gpu_is_refused() -> None:
    with pytest.raises(ModelError, match="unknown GPU type 'T5'"):
        TraceOptions(reference_gpu="T5")


def test_a_time_scale_that_leaves_the_numbers_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,arrival_s,gpus,duration_s\na,0,1,1\nb,1e308,1,1\n")
    with pytest.raises(TraceError, match=r"a\.csv: the time scale 10\.0 is too large for this trace \(job 'b'"):
        list(open_trace(tmp_path / "a.csv", "plain", TraceOptions(time_scale=10.0)).jobs())


@pytest.mark.family("formats", "kubernetes", "pbs", "slurm")
@pytest.mark.parametrize(
    "name",
    [
        *("flux/jobs.json", "htcondor/history.json", "jsonl/jobs.jsonl", "kubernetes/pods.json", "pbs/qstat-x.json"),
        *("sacct/jobs.json", "squeue/squeue.json", "wfcommons/v15.json"),
    ],
)
@pytest.mark.parametrize("differs", [True, False])
def test_a_name_with_two_values_in_an_object_is_an_error(
    samples: Path, tmp_path: Path, name: str, differs: bool
) -> None:
    text, copy = (samples / name).read_text(), tmp_path / Path(name).name
    pairs = list(re.finditer(r'"\w+": ?("[^"]*"|\d+)', text))
    one = pairs[len(pairs) // 2]
    again = f'{one[0].partition(":")[0]}: "another"' if differs else one[0]
    copy.write_text(f"{text[: one.start()]}{again}, {text[one.start() :]}")
    format = recognise(samples / name)
    assert len(open_trace(samples / name, format).arrays()) > 0
    if differs:
        with pytest.raises(TraceError, match=r":\d+: .*an object contains the key '\w+' twice"):
            open_trace(copy, format).arrays()
    else:
        assert len(open_trace(copy, format).arrays()) == len(open_trace(samples / name, format).arrays())
