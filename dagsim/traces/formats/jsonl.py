"""dagsim's own JSON Lines, as written by ``dagsim.workload.records``, which describes the format."""

from __future__ import annotations

from collections.abc import Iterator

from dagsim.errors import TraceError
from dagsim.model import Job
from dagsim.traces.reader import Reader
from dagsim.traces.report import ReadReport
from dagsim.traces.source import Source
from dagsim.traces.trace_options import TraceOptions
from dagsim.workload import records


class JsonLines(Reader):
    """A reader that returns jobs exactly as they were written. The jobs in the file are in order of
    arrival, so the reader needs to hold only one of them in memory.

    The file was written by a program, so an invalid line means that the file is damaged. Such a
    line raises an error instead of being dropped.
    """

    name = "jsonl"
    summary = "dagsim's own JSON Lines (dagsim trace convert)"

    def recognises(self, source: Source) -> bool:
        first = source.head(1)[0]
        return first.startswith("{") and f'"{records.FORMAT}"' in first

    def read(self, source: Source, options: TraceOptions, report: ReadReport) -> Iterator[Job]:
        if len(source.files) != 1 or source.files[0].member:
            raise TraceError(f"{source}: JSON Lines can only be read from a single file, plain or gzipped")
        source.head(1)  # raises a specific error for a Git LFS pointer, a web page or an empty file
        for job in records.read_jobs(source.files[0].path):
            report.rows += 1
            report.kept += 1
            yield job

    def begins_s(self, source: Source, options: TraceOptions) -> float | None:
        """Return the time at which a simulation of the jobs begins, or None if the file was written
        without runs in progress.
        """
        begins_s = records.read_meta(source.files[0].path).get("begins_s")
        return float(begins_s) if isinstance(begins_s, int | float) and begins_s > 0 else None

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        """Return the assumptions under which the jobs were read. The result is empty if they were
        not written with the jobs.
        """
        recorded = records.read_meta(source.files[0].path).get("assumptions")
        return {name: str(text) for name, text in recorded.items()} if isinstance(recorded, dict) else {}
