"""Writers for the formats that other simulators read."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

from dagsim.files import replaced
from dagsim.model import Cluster, Job
from dagsim.traces.export import Writer, machine_size, number_text, processors, refused, single_task, write_table


def _write_swf(path: Path, jobs: Iterable[Job], cluster: Cluster | None) -> tuple[Path, ...]:
    rows, users, widest = [], dict[str, int](), 1
    for number, job in enumerate(jobs, 1):
        task, width = single_task(job, "swf")
        widest = max(widest, width)
        user = -1 if not job.tenant else users.setdefault(job.tenant, len(users) + 1)
        limit = -1 if task.estimate is None else task.estimate
        wait_s = -1.0 if job.observed_start_s is None else job.observed_start_s - job.arrival_s
        row = [number, job.arrival_s, wait_s, task.work, width, -1, -1, width, limit, -1, 1, user, *[-1] * 6]
        rows.append(" ".join(map(number_text, row)))
    head = [
        f"; MaxProcs: {machine_size(cluster, widest)}",
        *(f"; User {user}: {name!r}" for name, user in users.items()),
    ]
    with replaced(path) as unfinished:
        unfinished.write_text("\n".join([*head, *rows, ""]), encoding="utf-8")
    return (path,)


def _write_batsim(path: Path, jobs: Iterable[Job], cluster: Cluster | None) -> tuple[Path, ...]:
    rows, profiles, widest = [], {}, 1
    for job in jobs:
        task, width = single_task(job, "batsim")
        if cluster is not None and len(cluster.gpu_types) > 1:
            raise refused(
                job,
                "batsim",
                "the cluster has several GPU types, but a delay profile takes the same time on every resource",
            )
        widest = max(widest, width)
        profile = number_text(task.work)
        profiles[profile] = {"type": "delay", "delay": task.work}
        row: dict[str, Any] = {"id": job.id, "subtime": job.arrival_s, "res": width, "profile": profile}
        rows.append(row if task.estimate is None else row | {"walltime": task.estimate})
    size = machine_size(cluster, widest)
    platform = path.with_name(f"{path.name.removesuffix('.json')}.platform.xml")
    document = {"nb_res": size, "jobs": rows, "profiles": profiles}
    with replaced(path) as unfinished:
        unfinished.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    with replaced(platform) as unfinished:
        unfinished.write_text(_platform(size, "dagsim" if cluster is None else cluster.name), encoding="utf-8")
    return path, platform


def _platform(size: int, name: str) -> str:
    """Return a SimGrid platform with equal hosts and Batsim's master host. Delay jobs use neither
    speeds nor links.
    """
    return f"""<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <zone id={quoteattr(name)} routing="Full">
    <cluster id="compute" prefix="host" suffix="" radical="0-{size - 1}" speed="1Gf" bw="1Gbps" lat="50us"/>
    <cluster id="master" prefix="master_host" suffix="" radical="0-0" speed="1Gf" bw="1Gbps" lat="50us"/>
    <link id="backbone" bandwidth="1Gbps" latency="50us"/>
    <zoneRoute src="compute" dst="master" gw_src="hostcompute_router" gw_dst="master_hostmaster_router">
      <link_ctn id="backbone"/>
    </zoneRoute>
  </zone>
</platform>
"""


def _write_each(
    format: str, ending: str, text: Callable[[Job], str], path: Path, jobs: Iterable[Job], cluster: Cluster | None
) -> tuple[Path, ...]:
    """Write one file per job. If ``path`` ends in ``ending``, it is the file for the only job.
    Otherwise, it is the folder for the files. Return the paths."""
    files: list[Path] = []
    for job in jobs:
        content = text(job)
        if path.suffix == ending:
            if files:
                raise refused(job, format, "a file holds only one graph, so name a folder instead")
            to = path
        else:
            path.mkdir(parents=True, exist_ok=True)
            to = path / f"{len(files):06d}-{''.join(sign if sign.isalnum() else '_' for sign in job.id)[:60]}{ending}"
        with replaced(to) as unfinished:
            unfinished.write_text(content, encoding="utf-8")
        files.append(to)
    return tuple(files)


def _standard_graph(job: Job) -> str:
    """Return a graph in the format of the Standard Task Graph set, with one processor per task. The
    first and the last task have no work.
    """
    graph = job.graph
    for task in job.tasks:
        if task.instances > 1 or processors(job, task, "stg") > 1:
            raise refused(
                job, "stg", f"task {task.name!r} needs several processors, but the format supports only one per task"
            )
    number = {place: row for row, place in enumerate(graph.order, 1)}
    last = len(graph.tasks) + 1
    rows: list[tuple[int, float, list[int]]] = [(0, 0.0, [])]
    for place in graph.order:
        parents = sorted(number[parent] for parent in graph.parents[place]) or [0]
        rows.append((number[place], graph.tasks[place].work, parents))
    rows.append((last, 0.0, sorted(number[place] for place in graph.order if not graph.children[place])))
    lines = [" ".join(map(number_text, (row, seconds, len(parents), *parents))) for row, seconds, parents in rows]
    return "\n".join([str(last - 1), *lines, ""])


def _workflow(job: Job) -> str:
    """Return a workflow in WfFormat 1.5. The bytes of an edge become a file."""
    tasks, ran, sizes = [], [], []
    names = [task.name for task in job.tasks]
    for place, (task, parents) in enumerate(zip(job.tasks, job.graph.parents, strict=True)):
        if task.instances > 1:
            raise refused(
                job, "wfcommons", f"task {task.name!r} has {task.instances} instances, but the format supports only one"
            )
        cores = processors(job, task, "wfcommons")
        inputs = [edge for edge in job.graph.edges if edge.child == place and edge.bytes]
        outputs = [edge for edge in job.graph.edges if edge.parent == place and edge.bytes]
        sizes += [{"id": f"{edge.parent}-{edge.child}", "sizeInBytes": edge.bytes} for edge in outputs]
        tasks.append(
            {
                "name": task.name,
                "id": task.name,
                "parents": [names[parent] for parent in parents],
                "children": [names[edge.child] for edge in job.graph.edges if edge.parent == place],
                "inputFiles": [f"{edge.parent}-{edge.child}" for edge in inputs],
                "outputFiles": [f"{edge.parent}-{edge.child}" for edge in outputs],
            }
        )
        ran.append({"id": task.name, "runtimeInSeconds": task.work, "coreCount": cores})
    makespan_s = job.graph.critical_path([task.work for task in job.tasks])
    document = {
        "name": job.id,
        "schemaVersion": "1.5",
        "workflow": {
            "specification": {"tasks": tasks, "files": sizes},
            "execution": {"makespanInSeconds": makespan_s, "executedAt": "1970-01-01T00:00:00Z", "tasks": ran},
        },
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


_TIRESIAS_HEAD = ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration", "interval")


def _tiresias_rows(jobs: Iterable[Job]) -> Iterator[list[Any]]:
    """Yield a row for each job, in which every iteration takes a second."""
    for job in jobs:
        task, width = single_task(job, "tiresias")
        if not task.gpus:
            raise refused(job, "tiresias", "the task needs no GPU")
        yield [job.id, width, job.arrival_s, task.work, "unknown", task.work, 1]


_OPENB_HEAD = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase",
               "creation_time", "deletion_time", "scheduled_time")  # fmt: skip


def _openb_rows(jobs: Iterable[Job]) -> Iterator[list[Any]]:
    """Yield a pod for each job. It is scheduled at the recorded start or, if this is unknown, on
    arrival.
    """
    for job in jobs:
        if len(job.tasks) > 1 or job.tasks[0].instances > 1:
            raise refused(job, "openb2023", "the job has several tasks or instances, but a pod can have only one")
        (task,) = job.tasks
        if task.speeds or task.model:
            raise refused(job, "openb2023", "the duration of the task depends on the GPU type")
        gpus = 1 if 0 < task.gpus < 1 else task.gpus
        sizes = (1000 * task.cpus, 1024 * task.memory_gb, gpus, 1000 * min(task.gpus, 1.0))
        if any(abs(size - round(size)) > 1e-6 for size in sizes):
            raise refused(
                job,
                "openb2023",
                "the CPUs, memory or GPUs of the task are not multiples of 0.001 CPU, 1 MiB and 0.001 GPU",
            )
        start_s = job.arrival_s if job.observed_start_s is None else job.observed_start_s
        yield [
            *(job.id, *map(round, sizes), "|".join(task.gpu_types or ()), "Guaranteed", "Succeeded"),
            *(job.arrival_s, start_s + task.work, start_s),
        ]


def _write_openb(path: Path, jobs: Iterable[Job], cluster: Cluster | None) -> tuple[Path, ...]:
    """Write the pods, and the node list next to them, where the reader looks for it. Return the paths."""
    pods = write_table(_OPENB_HEAD, _openb_rows, ",", path, jobs, cluster)
    if cluster is None:
        return pods
    nodes = path.with_name("openb_node_list.csv")
    with replaced(nodes) as unfinished, unfinished.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("sn", "cpu_milli", "memory_mib", "gpu", "model"))
        for node in cluster.nodes:
            model = "" if node.gpu is None else node.gpu.name
            table.writerow((node.name, round(1000 * node.cpus), round(1024 * node.memory_gb), node.gpus, model))
    return *pods, nodes


BATSIM = Writer(_write_batsim, frozenset({"arrival_s", "estimate"}))
OPENB2023 = Writer(_write_openb, frozenset({"arrival_s", "cpus", "memory_gb", "gpu_types", "observed_start_s"}))
STG = Writer(partial(_write_each, "stg", ".stg", _standard_graph))
SWF = Writer(_write_swf, frozenset({"arrival_s", "estimate", "tenant", "observed_start_s"}))
TIRESIAS = Writer(partial(write_table, _TIRESIAS_HEAD, _tiresias_rows, ","), frozenset({"arrival_s"}))
WFCOMMONS = Writer(partial(_write_each, "wfcommons", ".json", _workflow), frozenset({"bytes"}))
