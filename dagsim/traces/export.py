"""Write jobs and machines in the formats of other simulators.

Each format can hold only certain jobs. A job that another simulator would treat differently (a DAG
in a format without dependencies, a share of a GPU) is refused by name. Attributes that only
dagsim's own format has are left out, and the summary counts them.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import MISSING, fields
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from math import isfinite
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple
from xml.sax.saxutils import quoteattr

from dagsim.errors import WorkloadError
from dagsim.files import replaced
from dagsim.model import Cluster, Job, Task
from dagsim.model.job_fields import JOB_FIELDS
from dagsim.traces.arrow import import_pyarrow
from dagsim.traces.sites import folded


class Written(NamedTuple):
    """The files of an export, and the number of jobs by attribute that the format cannot hold."""

    files: tuple[Path, ...]
    left_out: dict[str, int]

    def __str__(self) -> str:
        text = f"wrote {', '.join(map(str, self.files))}"
        if self.left_out:
            parts = ", ".join(f"{name} of {count:,} jobs" for name, count in sorted(self.left_out.items()))
            text += f"; left out: {parts}"
        return text


def export(format: str, path: Path, jobs: Iterable[Job], cluster: Cluster | None) -> Written:
    """Write ``jobs``, in order of arrival, to ``path`` in a format of ``FORMATS``. ``cluster`` is
    the machine on which the jobs ran; without it, the platform is large enough for the widest job.

    Raises:
        WorkloadError: The format cannot hold a job (the message names it), or a file cannot be written.
    """
    write, holds = _WRITERS[format]
    left_out: Counter[str] = Counter()
    try:
        files = write(path, _noticed(jobs, holds, left_out), cluster)
    except OSError as error:
        raise WorkloadError(f"{path}: cannot be written ({error})") from None
    return Written(files, dict(left_out))


def _noticed(jobs: Iterable[Job], holds: frozenset[str], left_out: Counter[str]) -> Iterator[Job]:
    """Yield the jobs, and count those with an attribute that is not in ``holds``."""
    for job in jobs:
        left_out.update(name for name, default in _ATTRIBUTES if name not in holds and getattr(job, name) != default)
        tasks = job.tasks
        lost = {
            "cpus": any(task.gpus and task.cpus for task in tasks),
            "estimate": any(task.estimate is not None for task in tasks),
            "gpu_types": any(task.gpu_types for task in tasks),
            "memory_gb": any(task.memory_gb for task in tasks),
        }
        left_out.update(name for name, is_lost in lost.items() if is_lost and name not in holds)
        if "bytes" not in holds and any(edge.bytes for edge in job.graph.edges):
            left_out["bytes"] += 1
        yield job


_ATTRIBUTES = tuple([(field.name, field.default) for field in fields(Job) if field.default is not MISSING])
"""Attributes of a job that have a default, with it."""


def _processors(job: Job, task: Task, format: str) -> int:
    """Return the GPUs of an instance, or its cores if it needs no GPU."""
    if task.speeds or task.model:
        raise _refused(job, format, f"the duration of task {task.name!r} depends on the GPU type")
    amount = task.gpus or task.cpus
    if amount < 1 or amount != int(amount):
        raise _refused(
            job, format, f"task {task.name!r} needs {amount:g} processors, but the format only has whole ones"
        )
    return int(amount)


def _single(job: Job, format: str) -> tuple[Task, int]:
    """Return the only task of a job and the number of its processors."""
    if len(job.tasks) > 1:
        raise _refused(job, format, f"it has {len(job.tasks)} tasks, but the format has no dependencies")
    task = job.tasks[0]
    if task.instances > 1 and not task.gang:
        raise _refused(
            job, format, "its instances start independently, but all processors of a job in the format start together"
        )
    return task, task.instances * _processors(job, task, format)


def _refused(job: Job, format: str, reason: str) -> WorkloadError:
    return WorkloadError(f"job {job.id!r} cannot be written as {format}: {reason}")


def _size(cluster: Cluster | None, widest: int) -> int:
    """Return the processors of the machine: its GPUs, or its cores if it has none."""
    if cluster is None:
        return widest
    return int(sum(node.gpus for node in cluster.nodes) or sum(int(node.cpus) for node in cluster.nodes))


def _number(value: float) -> str:
    """Return a number as text that reads back exactly, without a decimal point if it is whole."""
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def _write_swf(path: Path, jobs: Iterable[Job], cluster: Cluster | None) -> tuple[Path, ...]:
    rows, users, widest = [], dict[str, int](), 1
    for number, job in enumerate(jobs, 1):
        task, width = _single(job, "swf")
        widest = max(widest, width)
        user = -1 if not job.tenant else users.setdefault(job.tenant, len(users) + 1)
        limit = -1 if task.estimate is None else task.estimate
        wait_s = -1.0 if job.observed_start_s is None else job.observed_start_s - job.arrival_s
        row = [number, job.arrival_s, wait_s, task.work, width, -1, -1, width, limit, -1, 1, user, *[-1] * 6]
        rows.append(" ".join(map(_number, row)))
    head = [f"; MaxProcs: {_size(cluster, widest)}", *(f"; User {user}: {name!r}" for name, user in users.items())]
    with replaced(path) as unfinished:
        unfinished.write_text("\n".join([*head, *rows, ""]), encoding="utf-8")
    return (path,)


def _write_slurm_events(path: Path, jobs: Iterable[Job], cluster: Cluster | None) -> tuple[Path, ...]:
    """Return the workload of a Slurm simulator; an instance is a node with one task per core."""
    with replaced(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for job in jobs:
            task, _ = _single(job, "slurm-events")
            if task.cpus < 1 or task.cpus != int(task.cpus) or task.gpus != int(task.gpus):
                raise _refused(job, "slurm-events", "it needs a fraction of a core or of a GPU, or no core")
            if task.memory_gb * 1024 != int(task.memory_gb * 1024):
                raise _refused(job, "slurm-events", f"{task.memory_gb:g} GB is not a whole number of MB")
            limit = task.estimate
            if limit is not None and (limit != int(limit) or limit < task.work):
                raise _refused(
                    job, "slurm-events", "its estimate is not a limit in whole seconds, or the job exceeds it"
                )
            cores = int(task.cpus)
            words = [f"-sim-walltime {_number(task.work)} -n {task.instances * cores} --ntasks-per-node={cores}"]
            words += [f"-t {int(limit) // 60}:{int(limit) % 60:02d}"] if limit is not None else []
            words += [f"--gres=gpu:{int(task.gpus)}"] if task.gpus else []
            words += [f"--mem={_number(task.memory_gb * 1024)}"] if task.memory_gb else []
            named = {
                "-J": job.id,
                "--uid": job.user,
                "-A": job.account or job.tenant,
                "-p": job.partition,
                "-q": job.qos,
            }
            words += [f"{key}{'=' if key == '--uid' else ' '}{quote(value)}" for key, value in named.items() if value]
            file.write(f"-dt {_number(job.arrival_s)} -e submit_batch_job | {' '.join(words)} pseudo.job\n")
    return (path,)


def _write_batsim(path: Path, jobs: Iterable[Job], cluster: Cluster | None) -> tuple[Path, ...]:
    rows, profiles, widest = [], {}, 1
    for job in jobs:
        task, width = _single(job, "batsim")
        if cluster is not None and len(cluster.gpu_types) > 1:
            raise _refused(
                job, "batsim", "the cluster has several GPU types, but delays are the same on every resource"
            )
        widest = max(widest, width)
        profile = _number(task.work)
        profiles[profile] = {"type": "delay", "delay": task.work}
        row: dict[str, Any] = {"id": job.id, "subtime": job.arrival_s, "res": width, "profile": profile}
        rows.append(row if task.estimate is None else row | {"walltime": task.estimate})
    size = _size(cluster, widest)
    platform = path.with_name(f"{path.name.removesuffix('.json')}.platform.xml")
    document = {"nb_res": size, "jobs": rows, "profiles": profiles}
    with replaced(path) as unfinished:
        unfinished.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    with replaced(platform) as unfinished:
        unfinished.write_text(_platform(size, "dagsim" if cluster is None else cluster.name), encoding="utf-8")
    return path, platform


def _platform(size: int, name: str) -> str:
    """Return a platform of SimGrid with equal hosts and Batsim's master host. Delay jobs use
    neither speeds nor links."""
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
    """Return one file per job: ``path`` itself if it has this ending, or else files in that
    folder."""
    files: list[Path] = []
    for job in jobs:
        content = text(job)
        if path.suffix == ending:
            if files:
                raise _refused(job, format, "a file holds only one graph, so name a folder instead")
            to = path
        else:
            path.mkdir(parents=True, exist_ok=True)
            to = path / f"{len(files):06d}-{''.join(sign if sign.isalnum() else '_' for sign in job.id)[:60]}{ending}"
        with replaced(to) as unfinished:
            unfinished.write_text(content, encoding="utf-8")
        files.append(to)
    return tuple(files)


def _standard_graph(job: Job) -> str:
    """Return a graph of the Standard Task Graph set: one processor per task, and a first and a last
    task without work."""
    graph = job.graph
    for task in job.tasks:
        if task.instances > 1 or _processors(job, task, "stg") > 1:
            raise _refused(job, "stg", f"task {task.name!r} needs several processors, but the format has one per task")
    number = {place: row for row, place in enumerate(graph.order, 1)}
    last = len(graph.tasks) + 1
    rows: list[tuple[int, float, list[int]]] = [(0, 0.0, [])]
    for place in graph.order:
        parents = sorted(number[parent] for parent in graph.parents[place]) or [0]
        rows.append((number[place], graph.tasks[place].work, parents))
    rows.append((last, 0.0, sorted(number[place] for place in graph.order if not graph.children[place])))
    lines = [" ".join(map(_number, (row, seconds, len(parents), *parents))) for row, seconds, parents in rows]
    return "\n".join([str(last - 1), *lines, ""])


def _workflow(job: Job) -> str:
    """Return a workflow of WfFormat 1.5. A file stands for the bytes of an edge."""
    tasks, ran, sizes = [], [], []
    names = [task.name for task in job.tasks]
    for place, (task, parents) in enumerate(zip(job.tasks, job.graph.parents, strict=True)):
        if task.instances > 1:
            raise _refused(
                job, "wfcommons", f"task {task.name!r} has {task.instances} instances, but the format has one"
            )
        cores = _processors(job, task, "wfcommons")
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


_BATCH = 1 << 16
"""Maximum number of rows of a batch of Arrow or Parquet."""

_PLAIN = ("id", "arrival_s", "gpus", "duration_s", "gpu_type", "instances", "gang", "cpus", "memory_gb", "estimate_s")
_PLAIN_JOB = tuple(field.name for field in JOB_FIELDS if field.in_tables)
_PLAIN_HEAD = (*_PLAIN, "model", "batch", *_PLAIN_JOB, "start_s", "task", "parents")
_PLAIN_TEXTS = {"id", "gpu_type", "gang", "model", "task", "parents"} | {
    field.name for field in JOB_FIELDS if field.is_text and field.in_tables
}


def _plain_rows(jobs: Iterable[Job]) -> Iterator[list[Any]]:
    """Yield a row for each task, in the order of ``_PLAIN_HEAD``."""
    for job in jobs:
        names = [task.name for task in job.tasks]
        if len(names) > 1 and any(set("|") & set(name) for name in names):
            raise _refused(job, "plain", "the name of a task has a |, which separates parents")
        for task, parents in zip(job.tasks, job.graph.parents, strict=True):
            if task.speeds:
                raise _refused(job, "plain", f"task {task.name!r} has different speeds on different GPU types")
            values = [job.id, job.arrival_s, task.gpus, task.work, "|".join(task.gpu_types or ()), task.instances]
            values += ["yes" if task.gang else "no", task.cpus, task.memory_gb, task.estimate]
            values += [task.model, task.batch, *(getattr(job, name) for name in _PLAIN_JOB), job.observed_start_s]
            values += [task.name, "|".join(names[parent] for parent in parents)] if len(names) > 1 else ["", ""]
            yield values


_TIRESIAS_HEAD = ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration", "interval")


def _tiresias_rows(jobs: Iterable[Job]) -> Iterator[list[Any]]:
    """Yield a row for each job; an iteration takes a second."""
    for job in jobs:
        task, width = _single(job, "tiresias")
        if not task.gpus:
            raise _refused(job, "tiresias", "it needs no GPU")
        yield [job.id, width, job.arrival_s, task.work, "unknown", task.work, 1]


_OPENB_HEAD = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase",
               "creation_time", "deletion_time", "scheduled_time")  # fmt: skip


def _openb_rows(jobs: Iterable[Job]) -> Iterator[list[Any]]:
    """Yield a pod for each job, scheduled at the logged time, or else at once."""
    for job in jobs:
        if len(job.tasks) > 1 or job.tasks[0].instances > 1:
            raise _refused(job, "openb2023", "it has several tasks or instances, but a pod has only one")
        (task,) = job.tasks
        if task.speeds or task.model:
            raise _refused(job, "openb2023", "its duration depends on the GPU type")
        gpus = 1 if 0 < task.gpus < 1 else task.gpus
        sizes = (1000 * task.cpus, 1024 * task.memory_gb, gpus, 1000 * min(task.gpus, 1.0))
        if any(abs(size - round(size)) > 1e-6 for size in sizes):
            raise _refused(
                job, "openb2023", "its CPUs, memory or GPUs are not multiples of 0.001 CPU, 1 MiB and 0.001 GPU"
            )
        start_s = job.arrival_s if job.observed_start_s is None else job.observed_start_s
        yield [
            *(job.id, *map(round, sizes), "|".join(task.gpu_types or ()), "Guaranteed", "Succeeded"),
            *(job.arrival_s, start_s + task.work, start_s),
        ]


def _write_openb(path: Path, jobs: Iterable[Job], cluster: Cluster | None) -> tuple[Path, ...]:
    """Return the pods, and the node list beside them, where the reader finds it."""
    pods = _write_table(_OPENB_HEAD, _openb_rows, ",", path, jobs, cluster)
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


_SACCT_HEAD = ("JobID", "Submit", "Eligible", "Start", "End", "ElapsedRaw", "State", "Timelimit", "NNodes", "NCPUS",
               "ReqTRES", "AllocTRES", "User", "Account", "Partition", "QOS", "NodeList")  # fmt: skip
_CLOCK_S = 86_400.0
"""Time in Slurm's log that corresponds to 0 s, because the beginning of 1970 means that a time is
not set."""


def _slurm_time(seconds: float) -> str:
    """Return a date, or seconds since 1970 if they are not a whole number."""
    if seconds != int(seconds):
        return repr(seconds + _CLOCK_S)
    return datetime.fromtimestamp(seconds + _CLOCK_S, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _sacct_rows(jobs: Iterable[Job]) -> Iterator[list[Any]]:
    """Yield a finished job of Slurm's accounting; an instance is a node. Without a recorded start
    it starts when eligible."""
    for job in jobs:
        task, _ = _single(job, "sacct")
        eligible_s = job.arrival_s if job.eligible_s is None else job.eligible_s
        start_s = eligible_s if job.observed_start_s is None else job.observed_start_s
        nodes = task.instances
        amounts = [nodes * amount for amount in (task.cpus, task.gpus, 1024 * task.memory_gb)]
        # a third of a job's memory may be fractional, but the total is whole
        cpus, gpus, memory = map(round, amounts)
        if any(abs(amount - round(amount)) > 1e-6 for amount in amounts):
            raise _refused(job, "sacct", "its total CPUs, GPUs or memory (in MB) is not a whole number")
        limit = (
            ""
            if task.estimate is None
            else str(timedelta(seconds=task.estimate)).replace(" days, ", "-").replace(" day, ", "-")
        )
        kind = f":{task.gpu_types[0]}" if task.gpu_types else ""
        if len(task.gpu_types or ()) > 1:
            raise _refused(job, "sacct", "it may run on several GPU types")
        tres = [f"cpu={cpus}", f"node={nodes}"]
        tres += [f"mem={memory}M"] if memory else []
        tres += [f"gres/gpu={gpus}"] + ([f"gres/gpu{kind}={gpus}"] if kind else []) if gpus else []
        times = [_slurm_time(seconds) for seconds in (job.arrival_s, eligible_s, start_s, start_s + task.work)]
        named = (job.user, job.account or job.tenant, job.partition, job.qos)
        if any("|" in word or "\n" in word for word in (job.id, *named)):
            raise _refused(job, "sacct", "a name has a |, which separates columns")
        if set(".+[") & set(job.id):
            raise _refused(job, "sacct", "its id has a sign (. + [) by which Slurm names parts of jobs")
        demand = ",".join(tres)
        yield [
            *(job.id, *times, task.work, "COMPLETED", limit, nodes, cpus, demand, demand),
            *(*named, folded(job.observed_nodes)),
        ]


def _write_table(
    head: Sequence[str],
    rows: Callable[[Iterable[Job]], Iterator[list[Any]]],
    delimiter: str,
    path: Path,
    jobs: Iterable[Job],
    cluster: Cluster | None,
) -> tuple[Path, ...]:
    with replaced(path) as unfinished, unfinished.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, delimiter=delimiter, lineterminator="\n")
        table.writerow(head)
        for values in rows(jobs):
            table.writerow([_cell(value) for value in values])
    return (path,)


def _write_columns(
    kind: str, module: str, writer: str, path: Path, jobs: Iterable[Job], cluster: Cluster | None
) -> tuple[Path, ...]:
    """Write the plain table with ``writer`` from a module of pyarrow."""
    purpose = f"{path}: writing {kind} files"
    arrow = import_pyarrow(purpose, error=WorkloadError)
    open_file = getattr(import_pyarrow(purpose, module, WorkloadError), writer)
    with replaced(path) as unfinished, open_file(str(unfinished), _arrow_schema(arrow)) as file:
        for batch in _arrow_batches(arrow, jobs):
            file.write_batch(batch)
    return (path,)


def _arrow_schema(arrow: Any) -> Any:
    return arrow.schema([(name, arrow.string() if name in _PLAIN_TEXTS else arrow.float64()) for name in _PLAIN_HEAD])


def _arrow_batches(arrow: Any, jobs: Iterable[Job]) -> Iterator[Any]:
    """Yield the rows of the plain table in batches; empty fields become null."""
    rows = _plain_rows(jobs)
    while some := list(islice(rows, _BATCH)):
        columns = [
            [None if value == "" or value is None or (name not in _PLAIN_TEXTS and not isfinite(value)) else value
             for value in column]
            for name, column in zip(_PLAIN_HEAD, zip(*some, strict=True), strict=True)
        ]  # fmt: skip
        yield arrow.record_batch(columns, schema=_arrow_schema(arrow))


def _cell(value: object) -> str:
    if isinstance(value, float):
        return _number(value) if isfinite(value) else ""
    return "" if value is None else str(value)


Writer = Callable[[Path, Iterable[Job], Cluster | None], tuple[Path, ...]]

_PLAIN_HOLDS = frozenset({"arrival_s", "estimate", "cpus", "memory_gb", "gpu_types", "observed_start_s", *_PLAIN_JOB})

_WRITERS: dict[str, tuple[Writer, frozenset[str]]] = {
    "batsim": (_write_batsim, frozenset({"arrival_s", "estimate"})),
    "openb2023": (
        _write_openb,
        frozenset({"arrival_s", "cpus", "memory_gb", "gpu_types", "observed_start_s"}),
    ),
    "plain": (partial(_write_table, _PLAIN_HEAD, _plain_rows, ","), _PLAIN_HOLDS),
    "plain-arrow": (partial(_write_columns, "Arrow", "pyarrow.ipc", "new_file"), _PLAIN_HOLDS),
    "plain-parquet": (partial(_write_columns, "Parquet", "pyarrow.parquet", "ParquetWriter"), _PLAIN_HOLDS),
    "sacct": (
        partial(_write_table, _SACCT_HEAD, _sacct_rows, "|"),
        frozenset(
            {"arrival_s", "estimate", "cpus", "memory_gb", "gpu_types", "observed_start_s", "eligible_s"}
            | {"observed_nodes", "observed_gpu", "tenant", "user", "account", "partition", "qos"}
        ),
    ),
    "slurm-events": (
        _write_slurm_events,
        frozenset({"arrival_s", "estimate", "cpus", "memory_gb", "tenant", "user", "account", "partition", "qos"}),
    ),
    "stg": (partial(_write_each, "stg", ".stg", _standard_graph), frozenset()),
    "swf": (_write_swf, frozenset({"arrival_s", "estimate", "tenant", "observed_start_s"})),
    "tiresias": (partial(_write_table, _TIRESIAS_HEAD, _tiresias_rows, ","), frozenset({"arrival_s"})),
    "wfcommons": (partial(_write_each, "wfcommons", ".json", _workflow), frozenset({"bytes"})),
}
"""Each format's writer, and the attributes that it holds besides work and demands."""

FORMATS = tuple(_WRITERS)
"""Formats that ``export`` writes."""
