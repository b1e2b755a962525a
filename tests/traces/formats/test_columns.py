"""Tables read in any way: the same jobs and the same report, whatever the rows look like."""

from __future__ import annotations

import gzip
import random
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from traces.formats.in_columns import ways

from dagsim.errors import ConfigError
from dagsim.experiment.sizing import TotalDemand
from dagsim.families.compiled.reading import read_scenario
from dagsim.model import GPU_TYPES, Cluster, Edge, GpuType, Job, Task, TaskGraph
from dagsim.model.gpu import canonical
from dagsim.systems.cluster import Estimates
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.traces import Source, TraceOptions, open_trace
from dagsim.traces.chunks import date_seconds
from dagsim.traces.fields import Dirty, seconds_since_1970
from dagsim.workload.arrays import JobArrays


class Kind(NamedTuple):
    """A format: the head of its files, how a row is put together, rows in order, and where they have id and time."""

    head: str
    separator: str
    rows: tuple[str, ...]
    id: int
    time: int
    options: tuple[TraceOptions, ...]


FORMATS = {
    "swf": Kind(
        "; MaxProcs: 128\n",
        " ",
        (
            "1 0 5 60 4 -1 -1 4 90 -1 1 1 1 -1 1 1 -1 -1",
            "2 10 0 100.5 8 -1 -1 8 100 -1 1 2 1 -1 1 1 -1 -1",
            "3 10 0 70 1 -1 -1 16 -1 -1 0 -1 1 -1 1 1 -1 -1",
            "4 20 0 7 -1 -1 -1 256 7.5 -1 0 02 1 -1 1 1 3 -1",
        ),
        0,
        1,
        (
            TraceOptions(),
            TraceOptions(protocol="pyss"),
            TraceOptions(protocol="rlscheduler"),
            TraceOptions(gpus_per_task=0.5, floor_s=65.0),
            TraceOptions(processors=8),
        ),
    ),
    "helios": Kind(
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n",
        ",",
        (
            "a,u1,vcA,16,64,2,COMPLETED,2020-04-02 00:00:10,2020-04-02 00:00:20,2020-04-02 00:01:20,60,10",
            "b,u1,,0,48,7,FAILED,2020-04-02 00:00:00,,,5.5,0",
            "c,u2,vcA,1,4,,SUSPENDED,2020-02-29 00:00:30,2020-04-02 00:00:30,2020-04-02 00:00:31,,0",
            "d,u2,vcB,0,3,,NODE_FAIL,2020-04-01T00:00:30,,,10,0",
        ),
        0,
        7,
        (TraceOptions(), TraceOptions(floor_s=7.0, reference_gpu="T4")),
    ),
    "pai2020": Kind(
        "job_id,user,gpu_type,num_cpu,num_gpu,num_inst,submit_time,duration,wait_time,size\n",
        ",",
        (
            "7,user-1,T4,6.0,0.5,1,120,60,3.0,40.0",
            "8,user-1,V100,4.0,1,4,100,600.0,3.0,40.0",
            "9,,MISC,4.25,2.5,,130.5,0,3.0,40.0",
            "10,user-2,CPU,12,0,3,100,17,3.0,40.0",
            "11,user-2,,,1,1,1e2,17,3.0,40.0",
        ),
        0,
        6,
        (TraceOptions(), TraceOptions(reference_gpu="T4", floor_s=20.0)),
    ),
    "plain": Kind(
        "id;arrival_s;gpus;duration_s;start_s;end_s;eligible_s;gpu_type;instances;gang;cpus;memory_gb;estimate_s;model;"
        "priority;tenant;user;account;partition;qos;deadline_s;weight\n",
        ";",
        (
            "a;30;0.5;120.5;40;160.5;35;;;;;;;;;;u;acc;p;;;",
            "b;10;1;60;;;;V100|A100;500;;4;16;90;;2;red;;;;;;2.5",
            "c;30;8;;35;95.5;;T4;4;no;;;;bert;;blue;;;p2;q;100;",
            "d;2024-01-01 00:00:40;1;10;;;;T4;6;yes;;;30;;-1;;;;;;;",
            "e;20;1;0:10;;;;gpu7;1;yes;;;30;;-1;;;;;;;",
        ),
        0,
        1,
        (
            TraceOptions(),
            TraceOptions(reference_gpu="A100-40", gpu_names="gpu7=T4", floor_s=20.0),
            TraceOptions(timezone="Europe/Berlin"),
        ),
    ),
    "sacct": Kind(
        "JobID|User|Account|Partition|QOS|State|Submit|Eligible|Start|End|ElapsedRaw|Suspended|TimelimitRaw|NNodes|NCPUS|"
        "ReqTRES|AllocTRES|Restarts|NodeList\n",
        "|",
        (
            "11|u1|a|gpu|normal|COMPLETED|100|100|110|170|60|00:00:00|5|2|8|cpu=8,gres/gpu=4,mem=8G,node=2|"
            "cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=8G,node=2|0|n[01-02]",
            "12_3|u2||cpu,long|low|TIMEOUT|120|Unknown|130|190||00:00:10|UNLIMITED|1|4|cpu=4,mem=1G,node=1|"
            "cpu=4,mem=1G,node=1||n03",
            "13|u2|b|cpu|low|CANCELLED by 7|2020-03-01T00:00:10|2020-03-01T00:00:10|2020-03-01T02:00:10|"
            "2020-03-01T03:00:10|3600|00:00:00|90|1|4|cpu=4,mem=1G,node=1|cpu=4,mem=1G,node=1|0|n03",
            "14|u2|b|cpu|low|PENDING|140|140|Unknown|Unknown|0|00:00:00|90|1|4|cpu=4,mem=1G,node=1|||None assigned",
            "15.batch|||||COMPLETED|140||150|160|10||||4|||0|n03",
            "16|u2|b|cpu|low|FAILED|140|140|150|160|10|00:00:00|90|1|4|cpu=4,mem=1G,node=1|cpu=4,mem=1G,node=1|2|n[03",
        ),
        0,
        6,
        (
            TraceOptions(),
            TraceOptions(reference_gpu="T4", floor_s=20.0, tenant="partition"),
            TraceOptions(timezone="Europe/Berlin", tenant="user", keep_partial=True),
            TraceOptions(demand="requested", protocol="all-attempts", gpus_per_task=0.5),
        ),
    ),
}
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
    kind, path = FORMATS[request.param], tmp_path / "trace"
    lines = [kind.rows[number % len(kind.rows)].split(kind.separator) for number in range(400)]
    for number, fields in enumerate(lines):
        fields[kind.id] = str(number)
    if request.param != "sacct":  # which leaves such files to the rows
        lines[17][kind.time] = "x"
    lines[18][kind.id] = "3"
    path.write_text(kind.head + "".join(kind.separator.join(fields) + "\n" for fields in lines))
    return open_trace(path, request.param).arrays()


@pytest.mark.parametrize("kind", ["exact", "predicted", "hidden"])
def test_the_lane_reads_the_same_scene_from_columns(arrays: JobArrays, kind: str) -> None:
    if kind == "predicted" and (arrays.estimate is None or np.isnan(arrays.estimate).any()):
        return
    cluster, jobs, estimates = Cluster.of({"V100": 8, "T4": 4}), list(arrays.jobs()), Estimates(kind)  # type: ignore[arg-type]
    one = read_scenario(cluster, JobArrays.of(jobs), Recorded(), estimates, 3)
    other = read_scenario(cluster, arrays, Recorded(), estimates, 3)
    assert one.facts == other.facts
    for name in ("truth", "seconds", "child", "tasks"):
        assert np.array_equal(getattr(one.work, name), getattr(other.work, name)), name
    assert all(map(np.array_equal, one.work.jobs, other.work.jobs))
    assert all(map(np.array_equal, one.classes, other.classes))


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
