"""Jobs in the formats of other simulators: what is written is read back, and what does not fit is refused."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
import typer

from dagsim.cli import app
from dagsim.errors import UnknownName, WorkloadError
from dagsim.model import Cluster, Edge, Job, Task, TaskGraph
from dagsim.traces import TraceOptions, open_trace
from dagsim.traces.convert import convert, targets
from dagsim.traces.export import export, formats
from dagsim.workload.records import write_jobs

pytestmark = pytest.mark.family("formats", "slurm")  # what is written is read back
SAMPLES = Path(__file__).parents[2] / "workloads" / "samples"
TWO = TaskGraph((Task("a", 1.0), Task("b", 1.0)), (Edge(0, 1),))
RIGID = [
    Job.single("1", Task("1", 10.0, 4, True, 0, 1, estimate=30.0)),
    Job.single("2", Task("2", 0.1 + 0.2, 1, False, 0, 1, estimate=5.0), 2.5, tenant="1"),
]


@pytest.mark.parametrize("format", ["batsim", "swf"])
def test_gangs_of_cores_are_read_back(format: str, tmp_path: Path) -> None:
    path = tmp_path / {"batsim": "jobs.json", "swf": "jobs.swf"}[format]
    written = export(format, path, RIGID, None)
    trace = open_trace(path)
    assert trace.format == format
    jobs = list(trace.jobs())
    assert [replace(job, tenant="") for job in jobs] == [
        replace(job, tenant="", graph=TaskGraph((replace(job.tasks[0], name=new.tasks[0].name),)))
        for job, new in zip(RIGID, jobs, strict=True)
    ]
    assert trace.cluster() == Cluster(trace.cluster().nodes, format)  # type: ignore[union-attr]
    assert trace.cluster().nodes[0].cpus == 4  # type: ignore[union-attr]
    assert written.left_out == ({"tenant": 1} if format == "batsim" else {})


def test_batsim_gets_a_platform_with_a_host_for_each_resource(tmp_path: Path) -> None:
    written = export("batsim", tmp_path / "jobs.json", RIGID, Cluster.of({"T4": 8}))
    assert [path.name for path in written.files] == ["jobs.json", "jobs.platform.xml"]
    document = json.loads(written.files[0].read_text())
    assert document["nb_res"] == 8
    assert document["jobs"][0] == {"id": "1", "subtime": 0.0, "res": 4, "profile": "10", "walltime": 30.0}
    assert document["profiles"]["0.30000000000000004"] == {"type": "delay", "delay": 0.1 + 0.2}
    root = ElementTree.fromstring(written.files[1].read_text())
    assert [part.attrib["radical"] for part in root.iter("cluster")] == ["0-7", "0-0"]


def test_a_batsim_workload_is_read_with_reasons_for_what_is_dropped() -> None:
    trace = open_trace(SAMPLES / "batsim" / "delays.json")
    jobs = list(trace.jobs())
    assert [(job.id, job.arrival_s, job.tasks[0].instances, job.tasks[0].work) for job in jobs] == [
        *[("1", 0, 4, 10), ("2", 10.5, 1, 10), ("3", 20, 2, 10), ("late", 30, 2, 1.5)],
    ]
    assert [job.tasks[0].estimate for job in jobs] == [100, 100, 5, None]
    reasons = " ".join(trace.report.dropped)
    for reason in (
        "with a profile that is not a delay",
        "with a profile that is not listed",
        "with an invalid value for res",
    ):
        assert reason in reasons


def test_workflows_are_read_back(tmp_path: Path) -> None:
    tasks = (Task("a", 2.0, gpus=0, cpus=2), Task("b", 3.0, gpus=0, cpus=1), Task("c", 1.0, gpus=0, cpus=1))
    graph = TaskGraph(tasks, (Edge(0, 1, 5e6), Edge(0, 2), Edge(1, 2, 1.0)))
    export("wfcommons", tmp_path / "one.json", [Job("one", graph)], None)
    trace = open_trace(tmp_path / "one.json")
    assert (trace.format, list(trace.jobs())) == ("wfcommons", [Job("one", graph)])
    written = export("wfcommons", tmp_path / "all", [Job("x/y", graph, 4.0), Job("z", graph)], None)
    assert [path.name for path in written.files] == ["000000-x_y.json", "000001-z.json"]
    assert written.left_out == {"arrival_s": 1}
    assert [job.graph for job in open_trace(tmp_path / "all").jobs()] == [graph, graph]


@pytest.mark.parametrize(
    ("format_", "ending"), [("plain", "csv"), ("plain-parquet", "parquet"), ("plain-arrow", "arrow")]
)
def test_a_table_of_any_job_is_read_back(format_: str, ending: str, tmp_path: Path) -> None:
    shared, whole = Task("a", 2.0, 3, gpus=0.5, gpu_types=("T4",)), Task("b", 3.0, 2, True, 8, 4, 16.5)
    graph = TaskGraph((shared, whole), (Edge(0, 1),))
    jobs = [
        Job("dag", graph, 0.0, 2.0, "red", deadline_s=90.0, weight=2.0, user="ada", account="x"),
        Job.single("one", Task("one", 7.25, gpus=1, estimate=9.0), 3.5, observed_start_s=4.0, eligible_s=3.75),
    ]
    export(format_, tmp_path / f"jobs.{ending}", jobs, None)
    read = list(open_trace(tmp_path / f"jobs.{ending}").jobs())
    assert read[0] == jobs[0]
    assert replace(read[1], graph=jobs[1].graph) == jobs[1]
    assert (read[1].tasks[0].work, read[1].tasks[0].estimate) == (7.25, 9.0)


def test_the_workload_of_a_slurm_simulator_is_read_back(tmp_path: Path) -> None:
    jobs = [
        Job.single("a b", Task("job", 60.25, 3, True, 4, 8, 2.5, estimate=90_000.0), 0.0, user="u", partition="long"),
        Job.single("2", Task("job", 0.1 + 0.2, cpus=1, gpus=0), 2.5, tenant="t", account="t"),
    ]
    assert export("slurm-events", tmp_path / "jobs.events", jobs, None).left_out == {}
    back = list(open_trace(tmp_path / "jobs.events").jobs())
    for job, new in zip(jobs, back, strict=True):
        assert new.tasks == job.tasks
        assert (new.id, new.arrival_s, new.user, new.account, new.partition) == (
            *(job.id, job.arrival_s, job.user, job.account, job.partition),
        )


def test_memory_and_cores_that_are_whole_for_the_job_need_not_be_whole_on_each_node(tmp_path: Path) -> None:
    job = Job.single("7", Task("t", 60.0, instances=3, gang=True, cpus=10 / 3, memory_gb=10 / 3))
    export("sacct", tmp_path / "jobs.txt", [job], None)
    assert "cpu=10,node=3,mem=10240M" in (tmp_path / "jobs.txt").read_text()
    (read,) = open_trace(tmp_path / "jobs.txt").jobs()
    task = read.tasks[0]
    assert (task.instances * task.cpus, task.instances * task.memory_gb) == pytest.approx((10, 10))


def test_accounting_of_slurm_is_read_back(tmp_path: Path) -> None:
    jobs = [
        Job.single(
            "1", Task("job", 60.0, 3, True, 4, 8, 2.5, ("A100-40",), estimate=90_061.0), 0.0, user="u", partition="long"
        ),
        Job.single(
            "2", Task("job", 7.0, cpus=1, gpus=0), 5.0, tenant="t", account="t", eligible_s=6.0, observed_start_s=9.0
        ),
    ]
    assert export("sacct", tmp_path / "jobs.txt", jobs, None).left_out == {}
    trace = open_trace(tmp_path / "jobs.txt")
    assert trace.format == "sacct"
    first, second = trace.jobs()
    assert (first.tasks[0].work, first.tasks[0].instances, first.tasks[0].gpus, first.tasks[0].cpus) == (60, 3, 4, 8)
    assert (first.tasks[0].memory_gb, first.tasks[0].estimate, first.tasks[0].gpu_types) == (2.5, 90_061, ("A100-40",))
    assert (first.user, first.partition, first.observed_start_s) == ("u", "long", 0)
    assert (second.arrival_s, second.eligible_s, second.observed_start_s, second.account) == (5, 6, 9, "t")
    assert (second.tasks[0].work, second.tasks[0].cpus, second.tasks[0].gpus) == (7, 1, 0)


def test_pods_are_read_back_with_their_nodes(tmp_path: Path) -> None:
    jobs = [
        Job.single("a", Task("pod", 60.5, 1, gpus=0.25, cpus=1.5, memory_gb=2, gpu_types=("V100-16", "V100-32"))),
        Job.single("b", Task("pod", 7.0, gpus=8, cpus=32), 4.0),
        Job.single("c", Task("pod", 7.0, gpus=0, cpus=1), 4.0),
    ]
    written = export("openb2023", tmp_path / "pods.csv", jobs, Cluster.of({"V100-16": 8, "T4": 4}))
    assert (written.left_out, len(written.files)) == ({}, 2)
    trace = open_trace(written.files[0])
    assert trace.format == "openb2023"
    assert [replace(job, priority=0.0) for job in trace.jobs()] == jobs
    cluster = trace.cluster()
    assert cluster is not None
    assert cluster.gpus == 12


def test_gangs_of_gpus_become_a_job_list_of_tiresias(tmp_path: Path) -> None:
    jobs = [Job.single("1", Task("job", 60.5, 2, True, 4)), Job.single("2", Task("job", 7.0), 1.5)]
    export("tiresias", tmp_path / "jobs.csv", jobs, None)
    trace = open_trace(tmp_path / "jobs.csv")
    assert trace.format == "tiresias"
    rows = [
        (job.id, job.arrival_s, job.tasks[0].work, job.tasks[0].instances * job.tasks[0].gpus) for job in trace.jobs()
    ]
    assert rows == [("1", 0, 60.5, 8), ("2", 1.5, 7, 1)]


def test_graphs_of_cores_become_standard_task_graphs(tmp_path: Path) -> None:
    tasks = (Task("c", 1.0, gpus=0, cpus=1), Task("a", 2.5, gpus=0, cpus=1), Task("b", 3.0, gpus=0, cpus=1))
    written = export(
        "stg", tmp_path / "all", [Job("x/y", TaskGraph(tasks, (Edge(1, 0), Edge(1, 2)))), Job("z", TWO)], None
    )
    assert [path.name for path in written.files] == ["000000-x_y.stg", "000001-z.stg"]
    trace = open_trace(written.files[0])
    assert trace.format == "stg"
    (job,) = trace.jobs()
    assert sorted(task.work for task in job.tasks) == [0, 0, 1, 2.5, 3]
    assert job.graph.critical_path([task.work for task in job.tasks]) == 5.5


def test_gpus_become_processors(tmp_path: Path) -> None:
    jobs = [Job.single("1", Task("1", 10.0, 4, True, gpus=2))]
    export("swf", tmp_path / "jobs.swf", jobs, Cluster.of({"T4": 16}))
    (job,) = open_trace(tmp_path / "jobs.swf", None, TraceOptions(gpus_per_task=1)).jobs()
    assert (job.tasks[0].instances, job.tasks[0].gpus) == (8, 1)


@pytest.mark.parametrize(
    ("format", "job", "reason"),
    [
        ("swf", Job("j", TWO), "does not support dependencies"),
        ("batsim", Job("j", TWO), "does not support dependencies"),
        ("swf", Job.single("j", Task("t", 1.0, gpus=0.5)), "0.5 processors"),
        ("swf", Job.single("j", Task("t", 1.0, 3)), "start independently"),
        ("batsim", Job.single("j", Task("t", 1.0, model="bert", batch=8)), "depends on the GPU type"),
        ("wfcommons", Job.single("j", Task("t", 1.0, 3)), "3 instances"),
        ("stg", Job.single("j", Task("t", 1.0, 3)), "several processors"),
        ("tiresias", Job.single("j", Task("t", 1.0, gpus=0, cpus=1)), "no GPU"),
        ("openb2023", Job("j", TWO), "a pod can have only one"),
        ("openb2023", Job.single("j", Task("t", 1.0, gpus=0.0001)), "not multiples of"),
        ("sacct", Job.single("j", Task("t", 1.0, cpus=1.5)), "not a whole number"),
        ("sacct", Job.single("7.1", Task("t", 1.0)), "uses in the names of parts of jobs"),
        ("sacct", Job.single("j", Task("t", 1.0, gpu_types=("T4", "A100"))), "several GPU types"),
        ("sacct", Job.single("j|", Task("t", 1.0)), "separates columns"),
        ("plain", Job.single("j", Task("t", 1.0, speeds={"T4": 1.0})), "speeds"),
        ("slurm-events", Job.single("j", Task("t", 1.0, gpus=1)), "no core"),
        ("slurm-events", Job.single("j", Task("t", 1.0, cpus=1, gpus=0.5)), "0.5 processors"),
        ("slurm-events", Job.single("j", Task("t", 1.0, cpus=1.5, gpus=2)), "fraction of a core or of a GPU"),
        (
            "slurm-events",
            Job.single("j", Task("t", 9.0, cpus=1, gpus=0, estimate=2.0)),
            "not in whole seconds",
        ),
        ("slurm-events", Job.single("j", Task("t", 1.0, cpus=1, gpus=0, memory_gb=0.0001)), "a whole number of MB"),
    ],
)
def test_a_job_that_a_format_cannot_hold_is_refused_and_nothing_is_written(
    format: str, job: Job, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(WorkloadError, match=f"job '[^']+' cannot be written as {format}: .*{reason}"):
        export(format, tmp_path / "out.json", [job], None)
    assert list(tmp_path.iterdir()) == []


def test_convert_writes_the_named_format(tmp_path: Path) -> None:
    report, written = convert(SAMPLES / "swf" / "sample.swf", tmp_path / "jobs", to_format="batsim")
    assert len(json.loads(written.files[0].read_text())["jobs"]) == report.jobs
    with pytest.raises(UnknownName, match="did you mean 'batsim'"):
        convert(SAMPLES / "swf" / "sample.swf", tmp_path / "jobs", to_format="batsin")
    assert set(formats()) < set(targets())


def test_the_help_of_convert_names_every_format() -> None:
    command = typer.main.get_command(app).commands["trace"].commands["convert"]  # type: ignore[attr-defined]
    (words,) = [option.help for option in command.params if option.name == "to_format"]
    assert {*re.split(", | or ", words.partition(" (")[0])} == {*targets()}


def test_a_workload_without_durations_is_refused(tmp_path: Path) -> None:
    write_jobs(tmp_path / "saved.jsonl", RIGID, {"runtime": {"kind": "flops"}})
    with pytest.raises(WorkloadError, match="depend on the GPU type"):
        convert(tmp_path / "saved.jsonl", tmp_path / "out.swf", to_format="swf")
