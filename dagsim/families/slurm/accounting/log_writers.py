"""Writers that export jobs as Slurm's accounting, or as the workload of a Slurm simulator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

from dagsim.files import replaced
from dagsim.model import Cluster, Job
from dagsim.traces.export import Writer, number_text, refused, single_task, write_table
from dagsim.traces.sites import folded


def _write_slurm_events(path: Path, jobs: Iterable[Job], cluster: Cluster | None) -> tuple[Path, ...]:
    """Write jobs as a workload for a Slurm simulator. Each instance becomes a node with one task
    per core."""
    with replaced(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for job in jobs:
            task, _ = single_task(job, "slurm-events")
            if task.cpus < 1 or task.cpus != int(task.cpus) or task.gpus != int(task.gpus):
                raise refused(
                    job, "slurm-events", "the task needs a fraction of a core or of a GPU, or it needs no core"
                )
            if task.memory_gb * 1024 != int(task.memory_gb * 1024):
                raise refused(job, "slurm-events", f"{task.memory_gb:g} GB is not a whole number of MB")
            limit = task.estimate
            if limit is not None and (limit != int(limit) or limit < task.work):
                raise refused(
                    job,
                    "slurm-events",
                    "the estimate of the task is not in whole seconds, or the task runs longer than estimated",
                )
            cores = int(task.cpus)
            words = [f"-sim-walltime {number_text(task.work)} -n {task.instances * cores} --ntasks-per-node={cores}"]
            words += [f"-t {int(limit) // 60}:{int(limit) % 60:02d}"] if limit is not None else []
            words += [f"--gres=gpu:{int(task.gpus)}"] if task.gpus else []
            words += [f"--mem={number_text(task.memory_gb * 1024)}"] if task.memory_gb else []
            named = {
                "-J": job.id,
                "--uid": job.user,
                "-A": job.account or job.tenant,
                "-p": job.partition,
                "-q": job.qos,
            }
            words += [f"{key}{'=' if key == '--uid' else ' '}{quote(value)}" for key, value in named.items() if value]
            file.write(f"-dt {number_text(job.arrival_s)} -e submit_batch_job | {' '.join(words)} pseudo.job\n")
    return (path,)


_SACCT_HEAD = ("JobID", "Submit", "Eligible", "Start", "End", "ElapsedRaw", "State", "Timelimit", "NNodes", "NCPUS",
               "ReqTRES", "AllocTRES", "User", "Account", "Partition", "QOS", "NodeList")  # fmt: skip
_CLOCK_S = 86_400.0
"""Time in Slurm's log that corresponds to 0 s. It is later than the beginning of 1970, which means
that a time is not set."""


def _slurm_time(seconds: float) -> str:
    """Return a time as a date, or as seconds since 1970 if it is not a whole number of seconds."""
    if seconds != int(seconds):
        return repr(seconds + _CLOCK_S)
    return datetime.fromtimestamp(seconds + _CLOCK_S, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _sacct_rows(jobs: Iterable[Job]) -> Iterator[list[Any]]:
    """Yield a row of Slurm's accounting for each job, as if the job had completed. Each instance
    becomes a node. A job without a recorded start is assumed to start when it becomes eligible.
    """
    for job in jobs:
        task, _ = single_task(job, "sacct")
        eligible_s = job.arrival_s if job.eligible_s is None else job.eligible_s
        start_s = eligible_s if job.observed_start_s is None else job.observed_start_s
        nodes = task.instances
        amounts = [nodes * amount for amount in (task.cpus, task.gpus, 1024 * task.memory_gb)]
        cpus, gpus, memory = map(
            round, amounts
        )  # round the total, because the memory per instance may be a fraction of a MB
        if any(abs(amount - round(amount)) > 1e-6 for amount in amounts):
            raise refused(job, "sacct", "the total number of CPUs, GPUs or MB of memory is not a whole number")
        limit = (
            ""
            if task.estimate is None
            else str(timedelta(seconds=task.estimate)).replace(" days, ", "-").replace(" day, ", "-")
        )
        kind = f":{task.gpu_types[0]}" if task.gpu_types else ""
        if len(task.gpu_types or ()) > 1:
            raise refused(job, "sacct", "the task may run on several GPU types")
        tres = [f"cpu={cpus}", f"node={nodes}"]
        tres += [f"mem={memory}M"] if memory else []
        tres += [f"gres/gpu={gpus}"] + ([f"gres/gpu{kind}={gpus}"] if kind else []) if gpus else []
        times = [_slurm_time(seconds) for seconds in (job.arrival_s, eligible_s, start_s, start_s + task.work)]
        named = (job.user, job.account or job.tenant, job.partition, job.qos)
        if any("|" in word or "\n" in word for word in (job.id, *named)):
            raise refused(job, "sacct", "a name contains |, which separates columns")
        if set(".+[") & set(job.id):
            raise refused(
                job, "sacct", "the id contains a character (. + [) that Slurm uses in the names of parts of jobs"
            )
        demand = ",".join(tres)
        yield [
            *(job.id, *times, task.work, "COMPLETED", limit, nodes, cpus, demand, demand),
            *(*named, folded(dict.fromkeys(job.observed_nodes))),
        ]


_NAMES = frozenset({"tenant", "user", "account", "partition", "qos"})
SACCT = Writer(
    partial(write_table, _SACCT_HEAD, _sacct_rows, "|"),
    frozenset({"arrival_s", "estimate", "cpus", "memory_gb", "gpu_types", "observed_start_s", "eligible_s"})
    | {"observed_nodes", "observed_gpu"}
    | _NAMES,
)
SLURM_EVENTS = Writer(_write_slurm_events, frozenset({"arrival_s", "estimate", "cpus", "memory_gb"}) | _NAMES)
