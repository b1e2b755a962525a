"""LSF's accounting: ``lsb.acct``, with the records ``JOB_FINISH`` of IBM Spectrum LSF.

A record is a line of fields separated by blanks, and texts are quoted. It contains two lists, the
requested hosts and the hosts that the job held. Each list is preceded by its length. Times are
epoch seconds.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from math import nan
from typing import Any

from dagsim.traces.batch import BatchJob, BatchReader, even_parts
from dagsim.traces.fields import Dirty, count, finite_number
from dagsim.traces.report import OnlyInText, ReadReport
from dagsim.traces.source import Source

_EVENT, _JOB, _SLOTS, _SUBMIT, _BEGIN, _START, _USER, _QUEUE, _REQUIRES, _ASKED = 2, 3, 6, 7, 8, 10, 11, 12, 13, 22
_RUSAGE, _PROJECT, _INDEX = 19, 1, 6
"""Number of usage fields after the command; positions of the project and of the array index after
these."""
_GPUS = re.compile(r"\bngpus(?:_\w+)?=(\d+(?:\.\d+)?)|\bgpu:?num=(\d+)|\bnum=(\d+):[^ ]*\bmode=")
_TYPE = re.compile(r"\bgmodel=([\w-]+)")
_MEMORY = re.compile(r"\brusage\[[^\]]*\bmem=(\d+(?:\.\d+)?)")


class Lsf(BatchReader):
    """Builds one gang per job, with one instance per host if all hosts provide the same number of
    slots, or else one instance per slot.
    """

    name = "lsf"
    summary = "IBM Spectrum LSF's accounting: lsb.acct"
    demand = (
        "the slots that it held on each host, one core each; GPUs and memory (MB) per host from its "
        "resource requirement"
    )

    def recognises(self, source: Source) -> bool:
        return any(re.match(r'"JOB_FINISH2?" "', line) for line in source.head(8))

    def records(self, source: Source, report: ReadReport) -> Iterator[tuple[int, list[str]]]:
        for place, line in source.lines():
            if not line.strip():
                continue
            if not line.startswith('"JOB_FINISH" '):
                report.rows += 1
                report.skip("of other records")
                continue
            yield place, next(csv.reader([line], delimiter=" ", skipinitialspace=True), [])

    def job(self, record: list[str]) -> BatchJob:
        try:
            asked = count(record[_ASKED], "number of hosts", 0)
            held_at = _ASKED + 1 + asked
            held = count(record[held_at], "number of hosts", 0)
            # The hosts are followed by the status, the host factor, the name and the command.
            after = held_at + 1 + held
            hosts, tail = record[held_at + 1 : after], record[after + 4 + _RUSAGE :]
            project, index = tail[_PROJECT], tail[_INDEX]
        except IndexError:
            raise Dirty("with too few fields") from None
        slots: dict[str, int] = {}
        for host in hosts:
            times, star, name = host.partition("*")  # 4*n1 is LSF's short form
            name = name if star and times.isdecimal() else host
            slots[name] = slots.get(name, 0) + (int(times) if star and times.isdecimal() else 1)
        asked_for = " ".join([record[_REQUIRES], *tail[_INDEX:]])
        gpus = next((float(max(found.groups(""))) for found in _GPUS.finditer(asked_for)), 0.0)
        start_s = finite_number(record[_START], "start")
        pieces, cpus, gpus_of = even_parts(slots or {"": count(record[_SLOTS], "slots")}, gpus)
        memory = _MEMORY.search(record[_REQUIRES])
        kind = _TYPE.search(asked_for)
        submit_s, begin_s = (finite_number(record[at], "time") for at in (_SUBMIT, _BEGIN))
        return BatchJob(
            record[_JOB] + (f"[{index}]" if index not in ("", "0") else ""),
            submit_s,
            start_s or nan,
            finite_number(record[_EVENT], "end") if start_s else nan,
            eligible_s=max(submit_s, begin_s),
            pieces=pieces,
            gpus=gpus_of,
            cpus=cpus,
            memory_gb=float(memory[1]) / 1024 * len(slots) / pieces if memory and slots else 0.0,
            gpu_type=kind[1] if kind and gpus else "",
            user=record[_USER],
            account=project if project != "default" else "",
            partition=record[_QUEUE],
            nodes=" ".join(slots),
            remark=OnlyInText("whose GPUs are stated only in text, the requirement, per host") if gpus else "",
        )

    def assumptions(self, source: Source, options: Any) -> dict[str, str]:
        return super().assumptions(source, options) | {"limits": "none: lsb.acct does not state them in one place"}
