"""Make the sample log in ``workloads/site/``: ``python scripts/make_sample_log.py``.

The log has 500 synthetic jobs of fictional users on 64 GPUs of three types, in the format of
``sacct -P`` and ``scontrol show nodes``. The jobs are those of the preset ``diurnal``, run under
EASY backfilling with the time limits that users ask for. So the observed waits come from a
scheduler that knew only these limits.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
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
from dagsim.workload import PRESETS

FOLDER = Path(__file__).parents[1] / "workloads" / "site"
SEED = 2026
JOBS = 500
LOAD = 0.9
LONGER, MOST_WORK = 8.0, 100_000.0
"""Factor that lengthens jobs, and limit of their work: hours instead of minutes, and no job of
weeks.
"""
BEGIN_S = 1_767_600_000
"""Monday, 5 January 2026, 08:00 UTC."""
NODES = {"ant": ("a100", "A100-40", 2), "fox": ("v100", "V100-16", 3), "owl": ("t4", "T4", 3)}
"""Nodes of eight GPUs by name prefix: the site's name of the GPU type, ours, and their number."""
USERS = {"ada": "vision", "bela": "vision", "cato": "vision", "dilo": "speech", "ennu": "speech", "fari": "plasma"}
LIMITS_MIN = (30, 60, 120, 240, 480, 720, 1440, 2880, 5760, 11520)
FIELDS = (
    "JobIDRaw|JobID|User|Account|Partition|QOS|State|Submit|Eligible|Start|End|ElapsedRaw|Suspended|TimelimitRaw|NNodes"
    "|NCPUS|ReqTRES|AllocTRES|Priority|Reason|Flags|NodeList"
)


def cluster() -> Cluster:
    nodes = [
        Node(f"{name}{number:02d}", gpu_type(ours), 8, 64, 512)
        for name, (_, ours, count) in NODES.items()
        for number in range(1, count + 1)
    ]
    return Cluster(tuple(nodes), "site")


def jobs(machines: Cluster, rng: np.random.Generator) -> Iterator[Job]:
    """Return the preset's jobs, longer, each on one node and with an owner. 25 % ask for a GPU
    type.
    """
    runtime = Throughput()
    drawn = replace(PRESETS["diurnal"].workload, count=JOBS, load=LOAD).jobs(machines, runtime, SEED)
    types = machines.gpu_types
    for job in drawn:
        (short,) = job.tasks
        task = replace(short, work=min(LONGER * short.work, MOST_WORK), instances=1, gang=False, gpus=short.instances)
        asked = (str(rng.choice(["A100-40", "V100-16", "T4"], p=[0.5, 0.3, 0.2])),) if rng.random() < 0.25 else None
        longest_s = max(runtime.seconds(task, types))
        wished_s = longest_s * rng.uniform(1.0, 2.5)
        limit_s = 60 * next((limit for limit in LIMITS_MIN if 60 * limit >= wished_s), LIMITS_MIN[-1])
        estimate = task.work * limit_s / longest_s
        made = replace(task, gpu_types=asked, cpus=4.0 * task.gpus, memory_gb=32.0 * task.gpus, estimate=estimate)
        user = str(rng.choice(list(USERS), p=[0.3, 0.2, 0.1, 0.15, 0.05, 0.2]))
        arrival_s = LONGER * job.arrival_s
        yield replace(job, graph=TaskGraph((made,)), arrival_s=arrival_s, tenant=f"{user}:{limit_s // 60}")


def rows() -> Iterator[str]:
    """Return the lines of the log, one for each job."""
    machines, rng = cluster(), np.random.default_rng(SEED)
    work = list(jobs(machines, rng))
    scenario = ClusterScenario(machines, work, Throughput(), estimates=Estimates("predicted"))
    made = columns(drive(scenario.kernel(SEED), POLICIES.create("easy")))
    site = {ours: name for name, ours, _ in NODES.values()}
    yield FIELDS
    for number, job in enumerate(work):
        (task,) = job.tasks
        mine = np.flatnonzero(made.runs.job == number)
        names = [machines.nodes[node].name for node in made.runs.node[mine]]
        gpu = machines.nodes[int(made.runs.node[mine[0]])].gpu
        assert gpu is not None
        user, _, limit = job.tenant.partition(":")
        submit, start, end = (
            BEGIN_S + round(at) for at in (job.arrival_s, made.runs.start_s[mine[0]], made.runs.end_s[mine[0]])
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


def nodes() -> Iterator[str]:
    """Format the nodes like ``scontrol show nodes``."""
    for name, (site, _, count) in NODES.items():
        for number in range(1, count + 1):
            yield (
                f"NodeName={name}{number:02d} Arch=x86_64 CoresPerSocket=32\n"
                f"   CPUAlloc=0 CPUEfctv=64 CPUTot=64 CPULoad=0.10\n"
                f"   Gres=gpu:{site}:8\n   NodeAddr={name}{number:02d} NodeHostName={name}{number:02d}\n"
                f"   RealMemory=524288 AllocMem=0 Sockets=2 Boards=1\n"
                f"   State=IDLE ThreadsPerCore=1 Partitions=gpu\n"
                f"   CfgTRES=cpu=64,mem=512G,billing=64,gres/gpu=8,gres/gpu:{site}=8\n"
            )


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    text = "\n".join(rows()) + "\n"
    (FOLDER / "sacct.txt.gz").write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))
    (FOLDER / "nodes.txt").write_text("\n".join(nodes()), encoding="utf-8")


if __name__ == "__main__":
    main()
