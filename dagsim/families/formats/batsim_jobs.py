"""Batsim workloads: a JSON file with ``nb_res``, ``jobs`` and ``profiles``.

A job has ``id``, ``subtime``, ``res``, ``profile`` and, if its user set a limit, ``walltime``. Only
profiles of the type ``delay`` state a duration, because the others depend on SimGrid's platform.
The file is read as a whole, and jobs are sorted by submission.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dagsim.errors import TraceError
from dagsim.model import Cluster, Job, Node, Task
from dagsim.traces.documents import list_in, object_in
from dagsim.traces.fields import Dirty, count
from dagsim.traces.reader import Reader
from dagsim.traces.report import ImpossibleTimes, ReadReport
from dagsim.traces.source import Source
from dagsim.traces.trace_options import TraceOptions
from dagsim.traces.workflow import read_json, value


class BatsimWorkload(Reader):
    """Builds one gang task per job, with ``res`` instances of one core each, which run for the delay
    of the job's profile.
    """

    name = "batsim"
    summary = "Batsim workloads (.json) with delay profiles"
    uses = frozenset({"gpus_per_task", "floor_s"})

    def recognises(self, source: Source) -> bool:
        if not source.path.is_file() and len(source.files) != 1:
            return False
        head = source.head(20)
        return head[:1] != [] and head[0].lstrip().startswith("{") and any('"nb_res"' in line for line in head)

    def read(self, source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Job]:
        document = read_json(source)
        where = f"{source}:1"
        if not isinstance(document, dict) or "jobs" not in document:
            raise TraceError(f"{where}: not a Batsim workload, because there is no list 'jobs'")
        profiles = object_in(document, "profiles")
        jobs = []
        for item in list_in(document, "jobs"):
            report.rows += 1
            with report.dropping(where, detail=item):
                jobs.append(_job(item, profiles, options))
        for job in sorted(jobs, key=lambda job: job.arrival_s):
            report.kept += 1
            yield job

    def cluster(self, source: Source, options: TraceOptions) -> Cluster | None:
        """Return one machine with ``nb_res`` cores."""
        try:
            cores = count(str(object_in(read_json(source)).get("nb_res", "")), "nb_res")
        except Dirty:
            return None
        return Cluster((Node("machine", cpus=cores),), "batsim")

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        return {
            "demand": options.cpu_demand_text("one core"),
            "gang": "the resources of a job start together",
            "estimate": "the walltime, if there is one; no job is killed when it is reached",
        }


def _job(item: Any, profiles: Any, options: TraceOptions) -> Job:
    if not isinstance(item, dict):
        raise Dirty("that are not objects")
    profile = object_in(profiles, str(item.get("profile", "")))
    if not profile:
        raise Dirty("with a profile that is not listed")
    if profile.get("type") != "delay":
        raise Dirty("with a profile that is not a delay")
    arrival_s, seconds = value(item.get("subtime"), "subtime"), value(profile.get("delay"), "delay")
    if arrival_s < 0 or seconds < 0:
        raise Dirty(ImpossibleTimes("with a negative time"))
    work = max(seconds, options.floor_s)
    limit_s = value(item["walltime"], "walltime") if item.get("walltime") is not None else 0.0
    width = count(str(item.get("res", "")), "res")
    gpus, cpus, _ = options.cpu_demand(1.0, 0.0)
    id_ = str(item.get("id", ""))
    if not id_:
        raise Dirty("without an id")
    task = Task(id_, work, width, width > 1, gpus, cpus, estimate=limit_s if limit_s > 0 else None)
    return Job.single(id_.rpartition("!")[2], task, arrival_s)
