"""Flux's jobs: ``flux jobs -a -A --json``, an object with a list ``jobs``.

Times are epoch seconds with fractions: ``t_submit``, ``t_depend``, ``t_run``, ``t_cleanup``,
``t_inactive``. ``duration`` is the time limit, or 0 if there is none (flux-jobs(1)).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from math import nan
from typing import Any

from dagsim.traces.batch import BatchJob, BatchReader
from dagsim.traces.documents import elements, object_in, text_in
from dagsim.traces.fields import count, finite_number
from dagsim.traces.report import ReadReport
from dagsim.traces.sites import hosts
from dagsim.traces.source import Source

_RANKS = re.compile(r"rank\[?([\d,-]+)\]?/(\S+)")
_RESOURCES = re.compile(r"(core|gpu)\[?(\d[\d,-]*\d|\d)\]?")
_INACTIVE = 64
"""The state INACTIVE as a number, as ``flux job list`` and Flux's REST API print it."""


class Flux(BatchReader):
    """Builds one gang per job, with one instance per node. Instances have equal shares of the job's
    cores and GPUs.
    """

    name = "flux"
    summary = "Flux's jobs: flux jobs -a -A --json"
    demand = "its cores (ncores) and GPUs, even over its nodes"

    def recognises(self, source: Source) -> bool:
        text = "\n".join(source.head(200))
        return text.lstrip()[:1] == "{" and all(f'"{name}"' in text for name in ("t_submit", "urgency", "userid"))

    def records(self, source: Source, report: ReadReport) -> Iterator[tuple[int, Mapping[str, Any]]]:
        return elements(source, "jobs")

    def job(self, record: Mapping[str, Any]) -> BatchJob:
        def seconds(name: str) -> float:
            value = record.get(name)
            return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else nan

        def size(name: str, least: int = 0) -> int:
            value = record.get(name)
            return least if value in (None, "") else count(str(value), name, least)

        over = record.get("state", "INACTIVE") in ("INACTIVE", _INACTIVE)
        start_s = seconds("t_run")
        nodes = max(size("nnodes"), 1)
        summary = text_in(object_in(record, "annotations", "sched"), "resource_summary")
        held = _counted(summary)
        gpus, cores = size("ngpus") or held["gpu"], size("ncores") or held["core"] or size("ntasks") or nodes
        pieces = nodes if gpus % nodes == 0 else gpus
        try:
            names = " ".join(hosts(text_in(record, "nodelist")))
        except ValueError:
            names = ""
        end_s = seconds("t_cleanup")
        fault = "" if over and start_s > 0 else "that never ran" if over else "that outlive the trace"
        duration_s = seconds("duration")
        return BatchJob(
            str(record.get("id", "")),
            finite_number(str(record.get("t_submit", "")), "t_submit"),
            start_s,
            seconds("t_inactive") if not end_s > 0 else end_s,
            eligible_s=seconds("t_depend"),
            limit_s=duration_s if duration_s > 0 else nan,
            pieces=pieces,
            gpus=gpus / pieces,
            cpus=cores / pieces,
            user=str(record.get("username") or record.get("userid", "")),
            account=text_in(record, "bank") or text_in(record, "project"),
            partition=text_in(record, "queue"),
            nodes=names,
            fault=fault,
        )


def _counted(summary: str) -> Counter[str]:
    """Return the cores and GPUs in a summary such as ``rank[0-1]/core[0-3],gpu[0] rank2/core0``."""
    held: Counter[str] = Counter()
    for ranks, listed in _RANKS.findall(summary):
        for kind, ids in _RESOURCES.findall(listed):
            held[kind] += len(hosts(f"x[{ranks}]")) * len(hosts(f"x[{ids}]"))
    return held
