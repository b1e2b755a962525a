"""Export a run as a cluster log with the jobs' simulated start times, nodes and run times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from dagsim.errors import InputError, UnknownName
from dagsim.experiment.store import Store
from dagsim.family import refuse_missing
from dagsim.model import Cluster, Job, Kind, TaskGraph
from dagsim.spelling import nearest
from dagsim.systems.cluster.scenario import ClusterScenario, cluster_scenario_of
from dagsim.text import count_of
from dagsim.traces.export import Written, export, formats


class _Run(NamedTuple):
    """The last run of a job: its start, its end, and the number of instances on each node."""

    start_s: float
    end_s: float
    nodes: dict[int, int]


def is_run(path: Path) -> bool:
    """Return True if the path is a run folder."""
    return path.is_dir() and (path / "manifest.json").is_file()


def write_run(
    path: Path, to: Path, to_format: str | None, counted: Callable[[Iterable[Job]], Iterator[Job]] = iter
) -> tuple[str, Written]:
    """Write the first run in a folder as a log in ``to_format``. The work of each job is the
    duration of its last run. Return a sentence that states what was left out, and the files that
    were written.

    Raises:
        InputError: The folder is not a run on the GPU cluster, or its jobs cannot be generated
            again.
        WorkloadError: The format cannot represent a job.
    """
    if to_format not in formats():
        refuse_missing("writers", to_format or "")
        hint = nearest(to_format or "", formats())
        raise UnknownName(f"--to-format {to_format!r}: a run can only be written as {', '.join(formats())}{hint}")
    store = Store.open(path)
    if (kind := store.config.kind) != "cluster":
        raise InputError(f"{path}: a run on the system {kind!r} cannot be written as the log of a cluster")
    line, scenario = store.line(0), cluster_scenario_of(store.config)
    runs, earlier = _last_runs(store)
    jobs = list(scenario.jobs(line.seed))
    ran = [_as_it_ran(job, runs[number], scenario) for number, job in enumerate(jobs) if number in runs]
    parts = [f"{count_of(len(jobs) - len(ran), 'job')} that did not end"] if len(ran) < len(jobs) else []
    parts += [f"{earlier:,} stopped runs before the last run of their job"] if earlier else []
    summary = f"{line.policy}, seed {line.seed}: {count_of(len(ran), 'job')}" + (
        f"; left out {', '.join(parts)}" if parts else ""
    )
    return summary, export(to_format, to, counted(ran), scenario.cluster)


def _last_runs(store: Store) -> tuple[dict[int, _Run], int]:
    """Return the last run of each completed job, keyed by job number, and the number of earlier
    runs that were stopped.
    """
    starts: dict[int, float] = {}
    where: dict[int, dict[int, int]] = defaultdict(dict)
    job_of: dict[int, int] = {}
    last: dict[int, _Run] = {}
    completed, stopped = set(), 0
    for row in store.schedule(0).log:
        match row.kind:
            case Kind.STARTED:
                starts[row.run], job_of[row.run] = row.time_s, row.job
                where[row.run][row.node] = where[row.run].get(row.node, 0) + row.instances
            case Kind.FINISHED | Kind.PREEMPTED | Kind.FAILED if row.run in starts:
                last[row.job] = _Run(starts.pop(row.run), row.time_s, where.pop(row.run))
                stopped += row.kind != Kind.FINISHED
            case Kind.COMPLETED:
                completed.add(row.job)
    return {job: run for job, run in last.items() if job in completed}, stopped


def _as_it_ran(job: Job, run: _Run, scenario: ClusterScenario) -> Job:
    """Return the job with ``run`` as its recorded run. If every node ran the same number of
    instances, merge the instances on each node into one.
    """
    cluster: Cluster = scenario.cluster
    nodes = [cluster.nodes[number] for number in run.nodes]
    if len(job.tasks) > 1:
        return job  # the format will reject a job with several tasks
    task, each = job.tasks[0], set(run.nodes.values())
    ran_s = run.end_s - run.start_s
    together = each.pop() if len(each) == 1 else 1
    if together > 1 and task.instances == together * len(nodes):
        task = replace(
            task,
            instances=len(nodes),
            gpus=task.gpus * together,
            cpus=task.cpus * together,
            memory_gb=task.memory_gb * together,
        )
    gpu = nodes[0].gpu if task.gpus else None
    claim = None if task.estimate is None or not task.work else task.estimate * ran_s / task.work
    task = replace(
        task, work=ran_s, speeds=None, model=None, batch=None, estimate=claim, gang=task.gang or task.instances > 1,
        gpu_types=None if gpu is None else (gpu.name,),
    )  # fmt: skip
    return replace(
        job,
        graph=TaskGraph((task,)),
        observed_start_s=run.start_s,
        observed_nodes=tuple(node.name.partition(":")[0] for node in nodes),
        observed_gpu="" if gpu is None else gpu.name,
        in_flight=(),
        eligible_s=None if job.eligible_s is None else min(job.eligible_s, run.start_s),
    )
