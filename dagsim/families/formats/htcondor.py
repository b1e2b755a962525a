"""HTCondor's history: ``condor_history -json``, ``condor_history -long``, or the history file itself.

A job is a ClassAd: attributes with values. The text form has one attribute per line. An ad ends at
a blank line or, in the history file, at a banner (``*** ...``). The files in
``PER_JOB_HISTORY_DIR`` have neither, so an ad also ends where its first attribute is set again, or
where another ``ClusterId`` begins. If any other attribute is set several times in an ad, the last
value counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import isnan, nan
from typing import Any

from dagsim.traces.batch import BatchJob, BatchReader
from dagsim.traces.documents import elements
from dagsim.traces.fields import Dirty, count, finite_number
from dagsim.traces.report import ReadReport
from dagsim.traces.source import Source

_REMOVED, _COMPLETED = "3", "4"
_ATTRIBUTE = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*(.*?)\s*$")
_KNOWN = ("ClusterId", "QDate", "JobStatus")


class HtCondor(BatchReader):
    """Builds one task per job, on one slot. Work is the duration of the last run. Removed jobs are
    kept if they ran.
    """

    name = "htcondor"
    summary = "HTCondor's history: condor_history -json or -long, or the history file"
    demand = "the cores, GPUs and memory of its slot, else what it requested"

    def recognises(self, source: Source) -> bool:
        head = source.head(400)
        text = "\n".join(head)
        if head[0].lstrip()[:1] in ("[", "{"):
            return all(f'"{name}"' in text for name in _KNOWN)
        return all(re.search(rf"^{name} = ", text, re.MULTILINE) for name in _KNOWN)

    def records(self, source: Source, report: ReadReport) -> Iterator[tuple[int, Mapping[str, Any]]]:
        if source.head(1)[0].lstrip()[:1] in ("[", "{"):
            for place, record in elements(source, "jobs"):
                yield place, {name.lower(): value for name, value in record.items()}
            return
        ad: dict[str, Any] = {}
        start = 0
        for place, line in source.lines():
            if found := _ATTRIBUTE.match(line):
                name, value = found[1].lower(), found[2].strip('"')
                if name == next(iter(ad), "") or (name == "clusterid" and ad.get(name, value) != value):
                    yield start, ad
                    ad = {}
                start = start if ad else place
                ad[name] = value
            elif ad:
                yield start, ad
                ad = {}
        if ad:
            yield start, ad

    def job(self, record: Mapping[str, Any]) -> BatchJob:
        ad = _Ad(record)
        if "clusterid" not in record:
            raise Dirty("without ClusterId")
        status = str(record.get("jobstatus", _COMPLETED))
        start_s = ad.number("JobCurrentStartDate", "JobStartDate")
        end_s = next((at for name in ("CompletionDate", "EnteredCurrentStatus") if (at := ad.number(name)) > 0), nan)
        wall_s = ad.number("RemoteWallClockTime")
        runs = ad.number("NumJobStarts", "NumShadowStarts")
        if status not in (_REMOVED, _COMPLETED):
            fault = "that outlive the trace"
        else:
            fault = "" if start_s > 0 and wall_s != 0 else "that never ran"
        hosts = [
            name.partition("@")[2] or name for name in re.split(r"[,\s]+", ad.text("LastRemoteHost", "RemoteHost"))
        ]
        several = ad.number("MaxHosts")
        pieces = count(f"{several:g}", "MaxHosts") if several > 1 else 1
        memory_mb = ad.number("MemoryProvisioned", "RequestMemory")
        gpus, cpus = ad.number("GPUsProvisioned", "RequestGPUs"), ad.number("CpusProvisioned", "RequestCpus")
        if isnan(gpus) and (held := ad.text("AssignedGPUs")):
            gpus = float(held.count(",") + 1)
            ad.formulas.pop("RequestGPUs", None)
        limit_s = ad.number("AllowedJobDuration", "MaxRuntime")
        remarks = ["with several runs, of which the last counts"] if runs > 1 else []
        if ad.formulas:
            remarks.append(f"whose {' and '.join(ad.formulas)} is a formula (not evaluated, as if not stated)")
        return BatchJob(
            f"{record['clusterid']}.{record.get('procid', 0)}",
            finite_number(ad.text("QDate"), "QDate"),
            start_s if start_s > 0 else nan,
            end_s if end_s > 0 else nan,
            wall_s if not runs > 1 or not end_s > 0 else nan,
            limit_s=limit_s,
            pieces=pieces,
            gpus=gpus if gpus >= 0 else 0.0,
            cpus=cpus if cpus >= 0 else 1.0,
            memory_gb=memory_mb / 1024 if memory_mb >= 0 else 0.0,
            gpu_type=ad.text("GPUs_DeviceName", "AssignedGPUsType") if gpus > 0 else "",
            user=ad.text("Owner", "User").partition("@")[0],
            account=ad.text("AcctGroup", "AccountingGroup", "ProjectName"),
            partition=ad.text("JobUniverse") and f"universe-{ad.text('JobUniverse')}",
            nodes=" ".join(dict.fromkeys(filter(None, hosts))),
            fault=fault,
            remark="" if fault else "; ".join(remarks),
        )


class _Ad:
    """The attributes of a job, by their names in lower case."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self._record = record
        self.formulas: dict[str, None] = {}
        """Requests that are formulas instead of numbers."""

    def number(self, *names: str) -> float:
        """Return the first of the attributes that is a number, NaN if there is none."""
        for name in names:
            value = self._record.get(name.lower())
            if isinstance(value, int | float) and not isinstance(value, bool):
                return float(value)
            if isinstance(value, str) and re.fullmatch(r"-?\d+(\.\d*)?([eE][+-]?\d+)?", value):
                return float(value)
            if value and name.startswith("Request") and str(value).lower() != "undefined":
                self.formulas[name] = None
        return nan

    def text(self, *names: str) -> str:
        """Return the first of the attributes that is set."""
        return next((str(self._record[name.lower()]) for name in names if self._record.get(name.lower())), "")
