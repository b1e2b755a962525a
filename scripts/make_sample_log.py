"""Make the sample log in ``workloads/site/``: ``python scripts/make_sample_log.py``. A larger one,
for tests of speed: ``--jobs 200000 --to FOLDER``.

The log has 500 synthetic jobs of fictional users on 64 GPUs of three types, in the format of
``sacct -P``, ``scontrol show nodes`` and, for one instant, ``squeue --json``. The jobs are those of
the preset ``diurnal``, run under EASY backfilling with the time limits that users ask for. So the
observed waits come from a scheduler that knew only these limits. Above 20,000 jobs, the cluster
grows with their number.

``--jobs 10000 --typed 1 --to workloads/site-long`` makes the longer sample, of which two files ship. Each
of its jobs asks for a GPU type, so that its seconds are those on any GPU that it may use.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from dagsim.metrics.columns import columns
from dagsim.model import Cluster, Job, Node, gpu_type
from dagsim.model.job import TaskGraph
from dagsim.systems.cluster.models.estimates import Estimates
from dagsim.systems.cluster.models.runtime import Throughput
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.seam import drive
from dagsim.workload import PRESETS, Synthetic
from dagsim.workload.distributions import LogNormal
from dagsim.workload.sizes import Independent

FOLDER = Path(__file__).parents[1] / "workloads" / "site"
SEED = 2026
JOBS = 500
JOBS_A_CLUSTER = 20_000
"""Number of jobs above which every kind of node is there twice, three times and so on."""
LOAD = 0.9
LONGER, MOST_WORK = 8.0, 100_000.0
"""Factor that lengthens jobs, and limit of their work: hours instead of minutes, and no job of
weeks.
"""
LONG_LOAD, LONG_MEDIAN_S, LONG_MOST_WORK = 0.7, 4_000.0, 20_000.0
"""Load, and median and limit of the work, of a log whose jobs all ask for a type: many busy periods instead of one."""
BEGIN_S = 1_767_600_000
"""Monday, 5 January 2026, 08:00 UTC."""
NODES = {"ant": ("a100", "A100-40", 2), "fox": ("v100", "V100-16", 3), "owl": ("t4", "T4", 3)}
"""Nodes of eight GPUs by name prefix: the site's name of the GPU type, ours, and their number."""
USERS = {"ada": "vision", "bela": "vision", "cato": "vision", "dilo": "speech", "ennu": "speech", "fari": "plasma"}
QUEUE_S = 194_400
"""When the queue of the sample is printed, in seconds after the first submission."""
LIMITS_MIN = (30, 60, 120, 240, 480, 720, 1440, 2880, 5760, 11520)
FIELDS = (
    "JobIDRaw|JobID|User|Account|Partition|QOS|State|Submit|Eligible|Start|End|ElapsedRaw|Suspended|TimelimitRaw|NNodes"
    "|NCPUS|ReqTRES|AllocTRES|Priority|Reason|Flags|NodeList"
)


def node_names(times: int) -> Iterator[tuple[str, str, str]]:
    """Yield name, site's type and our type of each node of a cluster ``times`` as large."""
    for name, (site, ours, count) in NODES.items():
        for number in range(1, times * count + 1):
            yield f"{name}{number:02d}", site, ours


def cluster(times: int = 1) -> Cluster:
    nodes = [Node(name, gpu_type(ours), 8, 64, 512) for name, _, ours in node_names(times)]
    return Cluster(tuple(nodes), "site")


def jobs(machines: Cluster, rng: np.random.Generator, count: int = JOBS, typed: float = 0.25) -> Iterator[Job]:
    """Return the preset's jobs, longer, each on one node and with an owner. The share ``typed`` asks
    for a GPU type.
    """
    runtime = Throughput()
    most_work = MOST_WORK if typed < 1 else LONG_MOST_WORK
    shares = [0.25, 0.39, 0.36] if typed == 1 else [0.5, 0.3, 0.2]  # by capacity, if all demand is of one type
    preset = PRESETS["diurnal"].workload
    assert isinstance(preset, Synthetic)
    assert isinstance(preset.sizes, Independent)
    assert isinstance(preset.sizes.work, LogNormal)
    workload = replace(preset, count=count, load=LOAD)
    longer = LONGER
    if typed == 1:  # longer jobs on the same days, so that the log has many busy periods
        work = replace(preset.sizes.work, median=LONG_MEDIAN_S, high=LONG_MOST_WORK)
        sizes = replace(preset.sizes, work=work)
        workload, longer = replace(workload, load=LONG_LOAD, sizes=sizes), 1.0
    drawn = workload.jobs(machines, runtime, SEED)
    types = machines.gpu_types
    for job in drawn:
        (short,) = job.tasks
        task = replace(short, work=min(longer * short.work, most_work), instances=1, gang=False, gpus=short.instances)
        asked = (str(rng.choice(["A100-40", "V100-16", "T4"], p=shares)),) if rng.random() < typed else None
        seconds = dict(zip((gpu.name for gpu in types if gpu is not None), runtime.seconds(task, types), strict=True))
        longest_s = max(seconds[name] for name in (asked if asked and typed == 1 else seconds))
        wished_s = longest_s * rng.uniform(1.0, 2.5)
        limit_s = 60 * next((limit for limit in LIMITS_MIN if 60 * limit >= wished_s), LIMITS_MIN[-1])
        estimate = task.work * limit_s / longest_s
        asking = replace(task, gpu_types=asked, cpus=4.0 * task.gpus, memory_gb=32.0 * task.gpus, estimate=estimate)
        user = str(rng.choice(list(USERS), p=[0.3, 0.2, 0.1, 0.15, 0.05, 0.2]))
        arrival_s = longer * job.arrival_s
        yield replace(job, graph=TaskGraph((asking,)), arrival_s=arrival_s, tenant=f"{user}:{limit_s // 60}")


def rows(count: int = JOBS, times: int = 1, typed: float = 0.25) -> Iterator[str]:
    """Return the lines of the log, one for each job."""
    machines, rng = cluster(times), np.random.default_rng(SEED)
    work = list(jobs(machines, rng, count, typed))
    scenario = ClusterScenario(machines, work, runtime=Throughput(), estimates=Estimates("predicted"))
    cols = columns(drive(scenario.engaged("easy", SEED).kernel, POLICIES.create("easy")))
    first, last = (np.searchsorted(np.sort(cols.runs.job), np.arange(count), side) for side in ("left", "right"))
    by_job = np.argsort(cols.runs.job, kind="stable")
    site = {ours: name for name, ours, _ in NODES.values()}
    yield FIELDS
    for number, job in enumerate(work):
        (task,) = job.tasks
        mine = by_job[first[number] : last[number]]
        names = [machines.nodes[node].name for node in cols.runs.node[mine]]
        gpu = machines.nodes[int(cols.runs.node[mine[0]])].gpu
        assert gpu is not None
        user, _, limit = job.tenant.partition(":")
        submit, start, end = (
            BEGIN_S + round(at) for at in (job.arrival_s, cols.runs.start_s[mine[0]], cols.runs.end_s[mine[0]])
        )
        gpus = int(task.gpus)
        tres = f"cpu={4 * gpus},gres/gpu{{kind}}={gpus},gres/gpu={gpus},mem={32 * gpus}G,node={len(names)}"
        asked = f":{site[task.gpu_types[0]]}" if task.gpu_types else None
        wanted = f"cpu={4 * gpus},gres/gpu={gpus},mem={32 * gpus}G,node={len(names)}"
        state = "FAILED" if rng.random() < 0.06 else "COMPLETED"
        yield "|".join(
            map(
                str,
                (
                    *(1000 + number, 1000 + number, user, USERS[user], "gpu", "normal", state),
                    *(submit, submit, start, max(end, start + 1), max(end, start + 1) - start, "00:00:00", limit),
                    *(len(names), 4 * gpus, tres.format(kind=asked) if asked else wanted),
                    tres.format(kind=f":{site[gpu.name]}"),
                    *(1, "None", "SchedBackfill,StartReceived", ",".join(sorted(names))),
                ),
            )
        )


def queue(log: Iterable[str]) -> str:
    """Format the jobs that run and wait ``QUEUE_S`` after the first submission like ``squeue --json``."""
    now_s, listed = BEGIN_S + QUEUE_S, []
    for line in list(log)[1:]:
        row = dict(zip(FIELDS.split("|"), line.split("|"), strict=True))
        if not int(row["Submit"]) <= now_s < int(row["End"]):
            continue
        runs = int(row["Start"]) < now_s
        listed.append(
            {
                "job_id": int(row["JobIDRaw"]),
                "user_name": row["User"],
                "account": row["Account"],
                "partition": row["Partition"],
                "qos": row["QOS"],
                "job_state": ["RUNNING" if runs else "PENDING"],
                "state_reason": "None" if runs else "Resources",
                "submit_time": _number(int(row["Submit"])),
                "eligible_time": _number(int(row["Eligible"])),
                "start_time": _number(int(row["Start"]) if runs else 0),
                "time_limit": _number(int(row["TimelimitRaw"])),
                "node_count": _number(int(row["NNodes"])),
                "cpus": _number(int(row["NCPUS"])),
                "tres_req_str": row["ReqTRES"],
                "tres_alloc_str": row["AllocTRES"] if runs else "",
                "nodes": row["NodeList"] if runs else "",
            }
        )
    lines = ",\n".join(json.dumps(job) for job in listed)
    meta = json.dumps({"plugin": {"data_parser": "data_parser/v0.0.40"}})
    return f'{{"jobs": [\n{lines}\n],\n"last_update": {json.dumps(_number(now_s))},\n"meta": {meta}}}\n'


def _number(value: int) -> dict[str, bool | int]:
    return {"set": True, "infinite": False, "number": value}


def nodes(times: int = 1) -> Iterator[str]:
    """Format the nodes like ``scontrol show nodes``."""
    for name, site, _ in node_names(times):
        yield (
            f"NodeName={name} Arch=x86_64 CoresPerSocket=32\n"
            f"   CPUAlloc=0 CPUEfctv=64 CPUTot=64 CPULoad=0.10\n"
            f"   Gres=gpu:{site}:8\n   NodeAddr={name} NodeHostName={name}\n"
            f"   RealMemory=524288 AllocMem=0 Sockets=2 Boards=1\n"
            f"   State=IDLE ThreadsPerCore=1 Partitions=gpu\n"
            f"   CfgTRES=cpu=64,mem=512G,billing=64,gres/gpu=8,gres/gpu:{site}=8\n"
        )


def main(*arguments: str) -> None:
    parser = argparse.ArgumentParser(description="Make the sample log, or a larger one.")
    parser.add_argument("--jobs", type=int, default=JOBS, help="number of jobs")
    parser.add_argument("--to", type=Path, help="folder (default: workloads/site, for the default number only)")
    parser.add_argument("--typed", type=float, default=0.25, help="share of the jobs that ask for a GPU type")
    options = parser.parse_args(arguments)
    if options.jobs < 1 or (options.to is None and options.jobs != JOBS):
        parser.error("--jobs: give a positive number, and --to FOLDER for another than the sample's")
    folder, times = options.to or FOLDER, max(1, round(options.jobs / JOBS_A_CLUSTER))
    folder.mkdir(parents=True, exist_ok=True)
    lines = list(rows(options.jobs, times, options.typed))
    text = "\n".join(lines) + "\n"
    (folder / "squeue.json").write_text(queue(lines), encoding="utf-8")
    (folder / "sacct.txt.gz").write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))
    (folder / "nodes.txt").write_text("\n".join(nodes(times)), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
