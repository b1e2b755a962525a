"""Pegasus DAX 2 and 3: abstract workflows in XML.

``<adag>`` contains ``<job id runtime>`` with ``<uses file link size/>``, and
``<child ref><parent ref/></child>``. The attribute ``jobCount`` is ignored, because it is often
wrong. Some runtimes drawn by the generator are negative (57 in Epigenomics_997) and count as 0.
Files are read one at a time, each as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from dagsim.errors import TraceError
from dagsim.model import Job, Task
from dagsim.traces.fields import Dirty, finite_number
from dagsim.traces.reader import Reader
from dagsim.traces.report import ImpossibleTimes, ReadReport, RepeatedId
from dagsim.traces.source import Source
from dagsim.traces.trace_options import TraceOptions
from dagsim.traces.workflow import shared_bytes, stem, workflow


class Dax(Reader):
    """Builds one job per file, and all jobs arrive at time 0; a task takes one core for its
    runtime."""

    name = "dax"
    summary = "Pegasus DAX (.xml, .dax): synthetic scientific workflows"
    uses = frozenset({"gpus_per_task", "floor_s"})

    def recognises(self, source: Source) -> bool:
        return any("<adag" in line for line in source.head(64))

    def read(self, source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Job]:
        files = (
            source.files if len(source.files) == 1 else source.select("*.xml", "*.dax", "*.xml.gz", "*.dax.gz").files
        )
        for file in files:
            job = _job(file, options, report)
            if job is not None:
                yield job

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        return {
            "demand": options.cpu_demand_text("one core"),
            "arrival": "the file has none: every workflow arrives at 0",
        }


@dataclass
class _Document:
    """The contents of a document's elements, collected while the file is parsed."""

    jobs: list[tuple[int, str, str]] = field(default_factory=list)
    """Line, id and runtime."""
    edges: list[tuple[str, str]] = field(default_factory=list)
    written: dict[str, dict[str, float]] = field(default_factory=dict)
    read: dict[str, dict[str, float]] = field(default_factory=dict)
    job: str = ""
    child: str = ""

    def start(self, tag: str, attributes: dict[str, str], line: int) -> None:
        match tag.rpartition(":")[2]:
            case "job":
                self.job = attributes.get("id", "")
                self.jobs.append((line, self.job, attributes.get("runtime", "")))
            case "uses":
                uses = self.written if attributes.get("link") == "output" else self.read
                uses.setdefault(self.job, {})[attributes.get("file", attributes.get("name", ""))] = _bytes(
                    attributes.get("size", "")
                )
            case "child":
                self.child = attributes.get("ref", "")
            case "parent":
                self.edges.append((attributes.get("ref", ""), self.child))


def _job(file: Source, options: TraceOptions, report: ReadReport) -> Job | None:
    document = _parse(file)
    if not document.jobs:
        raise TraceError(f"{file}:1: the workflow has no jobs")
    gpus, cpus, _ = options.cpu_demand(1.0, 0.0)
    tasks: dict[str, Task] = {}
    for line, id, runtime in document.jobs:
        report.rows += 1
        with report.dropping(f"{file}:{line}"):
            if not id or id in tasks:
                raise Dirty(RepeatedId("with the same id as another job") if id else "without an id")
            seconds = finite_number(runtime, "runtime")
            if seconds < 0:
                report.note(ImpossibleTimes("jobs with a negative runtime (taken as 0)"), f"{file}:{line}")
            tasks[id] = Task(id, max(seconds, options.floor_s, 0.0), gpus=gpus, cpus=cpus)
    where = f"{file}:{document.jobs[0][0]}"
    if len(tasks) < len(document.jobs):
        if tasks:
            report.drop("of workflows from which another job was dropped", where, len(tasks))
        return None
    edges = (
        (parent, child, shared_bytes(parent, child, document.written, document.read))
        for parent, child in document.edges
    )
    return workflow(stem(file), list(tasks.values()), edges, report, where)


def _parse(file: Source) -> _Document:
    document = _Document()
    parser = expat.ParserCreate()
    parser.StartElementHandler = lambda tag, attributes: document.start(tag, attributes, parser.CurrentLineNumber)
    text = file.read_bytes()
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise TraceError(f"{file}:{error.lineno}: invalid XML ({expat.errors.messages[error.code]})") from None
    except (LookupError, ValueError):  # the encoding is unknown or multi-byte
        raise TraceError(f"{file}:1: the declared encoding is not supported; convert the file to UTF-8") from None
    return document


def _bytes(size: str) -> float:
    """Return the size of a file in bytes, or 0 if it is unknown."""
    try:
        return max(0.0, finite_number(size, "size"))
    except Dirty:
        return 0.0
