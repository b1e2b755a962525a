"""Tables read in any way: the same jobs and the same report, whatever the rows look like."""

from __future__ import annotations

import gzip
import random
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from traces.formats.in_columns import ways
from traces.formats.tables import FORMATS, Kind, arrays_of

from dagsim.errors import ConfigError
from dagsim.experiment.sizing import TotalDemand
from dagsim.model import GPU_TYPES, Edge, GpuType, Job, Task, TaskGraph
from dagsim.model.gpu import canonical
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.traces import Source, TraceOptions, open_trace
from dagsim.traces.fields import Dirty, seconds_since_1970
from dagsim.traces.times import date_seconds
from dagsim.workload.arrays import JobArrays

WINDOWS = (
    {},
    {"limit": 3},
    {"start": 2, "limit": 2},
    {"start": 3, "time_scale": 0.5},
    {"strict": True},
)
DIRT = (
    *(
        "",
        "-1",
        "0",
        "-0",
        "-0.5",
        "1.5",
        "nan",
        "inf",
        "1e400",
        "1e-400",
        "x",
        " 5",
        "+7",
        "0x1",
        "1_0",
        "\uff11\uff12",
        "é",
    ),
    *("True", "None", "65537", "70000000000", "9007199254740993", "12345678901234567890123", "0.30000000000000004"),
    *("2020-02-30 00:00:00", "2020-4-2 1:2:3", "2020-04-02", "1969-01-01 00:00:00", "2020-04-02 00:00:10+01:00"),
    *("2020-04-02 24:00:00", "CPU", "V100M32", "COMPLETED", "row 3", "row 4"),
)
"""What a field may hold that it should not, or that is easily misread."""


def text_of(rng: random.Random, kind: Kind, dirt: float) -> bytes:
    """A file with rows in any order, some ids given twice, and each row dirty in some way with probability ``dirt``."""
    lines = []
    for number in range(rng.randint(1, 30)):
        fields = rng.choice(kind.rows).split(kind.separator)
        fields[kind.id] = str(rng.randint(1, 200) if rng.random() < dirt else number)
        if rng.random() < 0.6:
            time = rng.randint(0, 50)
            fields[kind.time] = f"2020-03-01 00:00:{time:02}" if "-" in fields[kind.time] else str(time)
        if rng.random() < dirt:
            text = rng.choice(DIRT)
            fields[rng.randrange(len(fields))] = (
                text if kind.separator != " " else text.strip().replace(" ", "T") or "-1"
            )
        separator = kind.separator if kind.separator != " " else rng.choice((" ", "   ", "\t", " \t"))
        lines.append(separator.join(fields))
        if rng.random() < dirt / 4:
            lines.append(lines[-1])
    text = kind.head + "\n".join(lines) + rng.choice(("\n", "", "\n\n"))
    data = (text.replace("\n", "\r\n") if rng.random() < 0.1 else text).encode()
    return gzip.compress(data) if rng.random() < 0.1 else data


@pytest.mark.parametrize("name", FORMATS)
def test_blocks_and_parts_hold_the_jobs_of_the_rows_and_say_the_same(tmp_path: Path, name: str) -> None:
    kind, path = FORMATS[name], tmp_path / "trace"
    for seed in range(25):
        rng = random.Random(seed)
        path.write_bytes(text_of(rng, kind, rng.choice((0.0, 0.05, 0.4))))
        for window in rng.sample(WINDOWS, 2):
            own = rng.choice(kind.options)
            options = TraceOptions(**{**{name: getattr(own, name) for name in own.given()}, **window})
            first, *others = ways(path, name, options)
            assert all(other == first for other in others), f"seed {seed}, {options}"


def pai_tables(rng: random.Random, dirt: float, folder: Path) -> None:
    """The tables of a few jobs, unsorted; some rows are dirty, some tables missing."""

    def spoilt(fields: list[str]) -> str:
        if rng.random() < dirt:
            fields[rng.randrange(len(fields))] = rng.choice(("", "0", "-1", "2.5", "x", "nan", "150.0", "job-3", "T4"))
        return ",".join(fields)

    task, job, instance, tag = [], [], [], []
    for number in range(rng.randint(1, 12)):
        start = rng.choice(("500.0", str(rng.randint(1, 90))))
        job.append(spoilt([f"job-{number}", f"inst-{number}", rng.choice(("u1", "u2")), "Terminated", start, "900.0"]))
        tag.append(spoilt([f"inst-{number}", "u1", rng.choice(("", "T4", "MISC", "V100")), "g", "bert"]))
        for name in rng.sample(("ps", "worker", "chief"), rng.randint(1, 3)):
            begin, end = rng.choice((f"{rng.randint(1, 50)}.0", "10")), rng.choice(("60.0", "70.5", "60"))
            asked = [rng.choice(("600.0", "")), rng.choice(("8.0", "29.296875", "")), rng.choice(("50.0", "", "100"))]
            status = rng.choice(("Terminated", "Terminated", "Terminated", "Failed"))
            row = [f"job-{number}", name, rng.choice(("1.0", "", "4")), status, begin, end, *asked]
            task.append(spoilt([*row, rng.choice(("T4", "MISC", "CPU", ""))]))
            instance.append(spoilt([f"job-{number}", name, "n", "w", "i", "Terminated", "20", "65", "m"]))
            if rng.random() < dirt / 3:
                task.append(task[-1])
        if rng.random() < dirt / 3:
            job.append(job[-1])
    for name, lines in {"task": task, "job": job, "instance": instance, "group_tag": tag}.items():
        if name == "task" or rng.random() < 0.7:
            rng.shuffle(lines)
            (folder / f"pai_{name}_table.csv").write_text("\n".join(lines) + "\n")


@pytest.mark.family("formats")
def test_the_tables_of_pai_are_joined_alike_in_any_way(tmp_path: Path) -> None:
    for seed in range(25):
        rng, folder = random.Random(seed), tmp_path / str(seed)
        folder.mkdir()
        pai_tables(rng, rng.choice((0.0, 0.1, 0.4)), folder)
        own = rng.choice(({}, {"keep_partial": True}, {"reference_gpu": "T4", "floor_s": 30.0}))
        options = TraceOptions(**own, **rng.choice(WINDOWS))  # type: ignore[arg-type]
        first, *others = ways(folder, "pai2020", options)
        assert all(other == first for other in others), f"seed {seed}, {options}"


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text.replace("\n", "\r"),
        lambda text: text.replace("\n", "\n\n"),
        lambda text: text.replace("1", '"1"'),
        lambda text: text + text.splitlines()[-1] + " 1,1;1|1\n",
        lambda text: text + "1\n",
        lambda text: text + "\x1f\n",
        lambda text: text[: text.index("\n") + 1],
    ],
    ids=("ends of lines", "blank lines", "quotes", "more fields", "fewer fields", "separator", "no rows"),
)
def test_a_file_that_is_not_a_plain_table_is_the_same_in_any_way(tmp_path: Path, name: str, spoil) -> None:  # type: ignore[no-untyped-def]
    path, kind = tmp_path / "trace", FORMATS[name]
    path.write_bytes(spoil(kind.head + "\n".join(kind.rows) + "\n").encode())
    first, *others = ways(path, name, TraceOptions())
    assert all(other == first for other in others)


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_bytes_are_the_same_error(tmp_path: Path, name: str) -> None:
    path, kind = tmp_path / "trace", FORMATS[name]
    text = (kind.head + "\n".join(kind.rows) + "\n").encode()
    for data in (text[:-3] + b"\xff" + text[-3:], b";\xff" + text, gzip.compress(text)[:-9]):
        path.write_bytes(data)
        first, *others = ways(path, name, TraceOptions())
        assert all(other == first for other in others)
        assert isinstance(first, str) or data.startswith(b";")


@pytest.mark.family("formats")
def test_an_unknown_protocol_is_refused_in_columns_too(tmp_path: Path) -> None:
    path = tmp_path / "trace.swf"
    path.write_text("\n".join(FORMATS["swf"].rows))
    with pytest.raises(ConfigError, match="swf has no protocol 'easy'"):
        open_trace(path, "swf", TraceOptions(protocol="easy")).arrays()


def test_dates_in_columns_are_those_of_each_or_none() -> None:
    rng = random.Random(4)
    years, days = (0, 1969, 1970, 1999, 2000, 2023, 2024, 2100, 9999), (0, 1, 28, 29, 30, 31, 32)
    texts = [
        f"{rng.choice(years):04}-{rng.randint(0, 13):02}-{rng.choice(days):02}{rng.choice(' T')}"
        f"{rng.randint(0, 24):02}:{rng.choice((0, 59, 60)):02}:{rng.choice((0, 59, 60)):02}"
        for _ in range(5000)
    ]
    for text, seconds in zip(texts, date_seconds(np.array(texts, object)).tolist(), strict=True):
        try:
            assert seconds == seconds_since_1970(text, "date"), text
        except Dirty:
            assert np.isnan(seconds), text
    odd = ["2020-01-01 00:00:00x", "2020-01-01 00:00", "2020-01-01", "", "2020-01-01 00:00:00 ", "2020-01-01x00:00:00"]
    assert np.isnan(date_seconds(np.array(odd, object))).all()
    assert np.isnan(date_seconds(np.array(["\uff12020-01-01 00:00:00"], object))).all()


@pytest.mark.data
@pytest.mark.parametrize(
    "name",
    [
        *("KTH-SP2-1996-2.1-cln.swf.gz", "SDSC-SP2-1998-first5000lines.swf"),
        "lublin_256.swf.gz",
    ],
)
def test_columns_hold_the_jobs_of_real_rows(data: Path, name: str, tmp_path: Path) -> None:
    path, whole = tmp_path / "log.swf", Source(data / "traces" / "swf" / name).read_bytes()
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:3000]))
    for options in (TraceOptions(), TraceOptions(start=500, limit=1000, protocol="pyss")):
        first, *others = ways(path, "swf", options)
        assert all(other == first for other in others)


@pytest.mark.data
@pytest.mark.parametrize("run", ["arrays-24.11", "preempt-24.11", "states-22.05", "states-24.11"])
def test_columns_hold_the_jobs_of_real_accounting(data: Path, run: str) -> None:
    for options in FORMATS["sacct"].options:
        first, *others = ways(data / "golden" / "slurm" / run / "sacct-aDX.txt", "sacct", options)
        assert all(other == first for other in others)


@pytest.fixture(params=FORMATS)
def arrays(request: pytest.FixtureRequest, tmp_path: Path) -> JobArrays:
    return arrays_of(request.param, tmp_path)


def test_the_size_of_a_cluster_is_the_same_sum(arrays: JobArrays) -> None:
    asked, in_columns = TotalDemand(Recorded()), TotalDemand(Recorded())
    for job in arrays.jobs():
        asked.add(job)
    in_columns.add_arrays(arrays, Recorded())
    totals = [{name: value for name, value in vars(demand).items() if name[0] != "_"} for demand in (asked, in_columns)]
    assert totals[0] == totals[1]


class _OnlyOnV100(Recorded):
    """A model that was not measured on any other type."""

    def rates(self, task: Task, types: Sequence[GpuType]) -> Any:
        return tuple(float(type_ is GPU_TYPES.get(canonical("V100"))) for type_ in types)

    def seconds(self, task: Task, types: Sequence[GpuType]) -> Any:
        return tuple(task.work / rate if rate else inf for rate in self.rates(task, types))


def test_a_type_that_cannot_run_a_task_adds_nothing_to_the_size_of_a_cluster() -> None:
    task = Task("t", 60.0, 2, gpus=4, gpu_types=("V100", "T4"))
    asked, in_columns = TotalDemand(_OnlyOnV100()), TotalDemand(_OnlyOnV100())
    asked.add(Job.single("j", task, 0.0))
    in_columns.add_arrays(JobArrays.of([Job.single("j", task, 0.0)]), _OnlyOnV100())
    for demand in (asked, in_columns):
        assert {name: value for name, value in demand.gpu_s.items() if value} == {canonical("V100"): 0.5 * 60 * 2 * 4}

    # nor does a task that can run nowhere lengthen the critical path over which a job's GPUs are spread
    runs, never = replace(task, gpu_types=("V100",)), replace(task, name="never", gpu_types=("T4",))
    dag = Job("j", TaskGraph((runs, never), (Edge(0, 1),)), 0.0)
    asked, in_columns = TotalDemand(_OnlyOnV100()), TotalDemand(_OnlyOnV100())
    asked.add(dag)
    in_columns.add_arrays(JobArrays.of([dag]), _OnlyOnV100())
    for demand in (asked, in_columns):
        assert {name: gpus for name, gpus in demand.gpus_at_once.items() if gpus} == {canonical("V100"): 8.0}


def test_columns_take_less_than_150_bytes_a_task(arrays: JobArrays) -> None:
    assert arrays.nbytes / arrays.tasks < 150
