"""Standard Task Graph set (Kasahara Laboratory; Tobita and Kasahara 2002): one graph per file or
tar member.

The first number n does not count the two dummy tasks 0 and n + 1, which take no time. It is
followed by n + 2 rows ``id, time, count, parents...`` and by lines of ``#``. Files are read one at
a time, each as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator

from dagsim.model import Job, Task
from dagsim.traces.fields import Dirty, count, finite_number
from dagsim.traces.reader import Reader
from dagsim.traces.report import Disagreement, ImpossibleTimes, ReadReport, RepeatedId
from dagsim.traces.source import Source
from dagsim.traces.trace_options import TraceOptions
from dagsim.traces.workflow import stem, workflow


class Stg(Reader):
    """Builds one job per graph, and all jobs arrive at time 0; a task runs on one core, and the
    dummy tasks take no time."""

    name = "stg"
    summary = "Standard Task Graph set (.stg): random graphs with known optimal makespans"
    uses = frozenset({"gpus_per_task"})

    def recognises(self, source: Source) -> bool:
        lines = [line.split() for line in source.head(8) if line.strip()]
        if len(lines) < 2 or len(lines[0]) != 1 or len(lines[1]) < 3:
            return False
        return all(field.isdecimal() for field in (*lines[0], *lines[1])) and lines[1][:3] == ["0", "0", "0"]

    def read(self, source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Job]:
        for file in source.files:
            job = _job(file, options, report)
            if job is not None:
                yield job

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        return {
            "demand": options.cpu_demand_text("one core"),
            "work": "one unit of processing time is one second",
            "arrival": "the set has none: every graph arrives at 0",
        }


def _job(file: Source, options: TraceOptions, report: ReadReport) -> Job | None:
    gpus, cpus, _ = options.cpu_demand(1.0, 0.0)
    promised: int | None = None
    tasks: dict[str, Task] = {}
    edges: list[tuple[str, str, float]] = []
    first, rows = f"{file}:1", 0
    for line, text in file.lines():
        fields = text.split()
        if not fields or fields[0].startswith("#"):
            continue
        where = file.where(line)
        try:
            if promised is None:
                promised, first = count(fields[0], "number of tasks", 0) + 2, where
                continue
            rows += 1
            report.rows += 1
            name, seconds, parents = _row(fields)
            if name in tasks:
                raise Dirty(RepeatedId("with the same id as another row"))
            tasks[name] = Task(name, seconds, gpus=gpus, cpus=cpus)
            edges += [(parent, name, 0.0) for parent in parents]
        except Dirty as reason:
            if promised is None:
                report.note(f"files {reason}", where)
                return None
            report.drop(str(reason), where)
    if not tasks:
        return None
    if len(tasks) < rows:
        report.drop("of graphs from which another row was dropped", first, len(tasks))
        return None
    if rows != promised:
        report.drop("with a different number of rows than stated", first, len(tasks), f"{rows} instead of {promised}")
        return None
    return workflow(stem(file), list(tasks.values()), edges, report, first)


def _row(fields: list[str]) -> tuple[str, float, list[str]]:
    if len(fields) < 3:
        raise Dirty("with a wrong number of fields")
    name, seconds = count(fields[0], "id", 0), finite_number(fields[1], "processing time")
    parents = [str(count(field, "predecessor", 0)) for field in fields[3:]]
    if count(fields[2], "number of predecessors", 0) != len(parents):
        raise Dirty(Disagreement("with a different number of predecessors than stated"))
    if seconds < 0:
        raise Dirty(ImpossibleTimes("with a negative processing time"))
    return str(name), seconds, parents
