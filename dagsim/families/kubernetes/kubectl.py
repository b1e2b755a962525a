"""Kubernetes: the output of ``kubectl get pods -A -o json``, Kueue's workloads, or both.

Reads a list, one object per line, or a folder of such files; scheduling events (in files named
``*event*.json``) state when pods were bound. Pods with the same owner form one job. Pods are
grouped before jobs are built, so that jobs can be built one at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dagsim.families.kubernetes.pod_jobs import PodJobs, bound_times_s, objects_around
from dagsim.model import Job
from dagsim.traces.reader import Reader
from dagsim.traces.report import ReadReport
from dagsim.traces.source import Source
from dagsim.traces.trace_options import TraceOptions

_KIND = re.compile(r'"kind"\s*:\s*"(Pod|Workload|Event)(List)?"')


class Kubernetes(Reader):
    """Builds one job for all pods with the same owner, with one task per kind of pod. The job is a
    gang if a pod group, Kueue, Volcano or JobSet starts its pods together.

    A pod with the same index as an earlier pod, or created after another pod failed, is the next
    attempt of that pod. The amount of work is the time between the first start and the last end of
    a container in the last attempt.
    """

    name = "kubernetes"
    summary = "Kubernetes pods, Kueue workloads and events: kubectl get ... -A -o json"
    uses = frozenset({
        "keep_partial", "gpus_per_task", "reference_gpu", "floor_s", "tenant", "mig", "shards", "gpu_names",
        "count_pull",
    })  # fmt: skip

    def recognises(self, source: Source) -> bool:
        head = "\n".join(source.head(1 << 16))
        return head.lstrip()[:1] in ("{", "[") and _KIND.search(head) is not None and '"metadata"' in head

    def read(self, source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Job]:
        reading = PodJobs(source, options, report, options.named_gpus(), bound_times_s(source), objects_around(source))
        yield from filter(None, map(reading.job, reading.groups()))

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        return {
            "survivors": "pods that were deleted before the objects were printed are missing",
            "work": "first start to last end of the containers; "
            + (
                "pulling images counts (--read count_pull=true)"
                if options.count_pull
                else "pulling images does not count"
            ),
            "start": "observed when the last pod of a gang, or the first of others, was bound; Kueue: when admitted",
            "tenant": f"the {options.tenant or 'queue, or else the namespace'} (--read tenant=)",
        }
