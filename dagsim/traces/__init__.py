"""Readers for real traces. Each module reads one format and yields jobs in order of arrival.

``open_trace("batch_task.csv")`` recognises the format by the names and the content of the files.
The trace's method ``jobs()`` then yields jobs lazily, and its ``report`` counts the rows that were
read and dropped.
"""

from __future__ import annotations

from pathlib import Path

from dagsim.errors import ConfigError, NotRecognised, TraceError
from dagsim.registry import Entry, Registry
from dagsim.traces.reader import Downtime, Reader
from dagsim.traces.report import ReadReport
from dagsim.traces.source import Source
from dagsim.traces.trace import Trace
from dagsim.traces.trace_options import COMMON_OPTIONS, TraceOptions
from dagsim.traces.unread import unread_kind

__all__ = [
    "READERS",
    "Downtime",
    "ReadReport",
    "Reader",
    "Source",
    "Trace",
    "TraceOptions",
    "format_of",
    "open_trace",
    "reader",
    "recognise",
]

READERS: Registry[Reader] = Registry(
    "trace format",
    [Entry("jsonl", ".jsonl:JsonLines"), Entry("plain", ".plain:Plain")],
    group="dagsim.readers",
    listing="dagsim list readers",
    home="dagsim.traces.formats",
    method="recognises",
    aliases={"csv": "plain"},
)
"""Every format by name. Its module is imported on first use."""


def reader(name: str) -> Reader:
    """Return the reader for the format called ``name``. ``csv`` means ``plain``.

    Raises:
        UnknownName: There is no such format. The message suggests the nearest name.
    """
    return READERS.create(name)


def recognise(path: Path | str) -> str:
    """Return the name of the format of ``path``.

    Raises:
        TraceError: The file cannot be read, or no reader or more than one reader recognises it.
    """
    source = Source(path)
    for name in READERS.names() if source.path.is_dir() else ():
        if reader(name).whole_folders and reader(name).recognises(source):
            return name
    source.head()  # raises an error if the file cannot be read, regardless of its format
    names = [name for name in sorted(READERS.names()) if reader(name).recognises(source)]
    if len(names) == 1:
        return names[0]
    if names:
        raise TraceError(f"{source}: could be any of the formats {', '.join(names)}; choose one with --format")
    if (unread := unread_kind(source)) is not None:
        raise TraceError(f"{source}: this is {unread.name}, not a log of jobs that dagsim reads; {unread.advice}")
    hints = [hint for name in sorted(READERS.names()) if (hint := reader(name).nearly(source))]
    if hints:
        raise NotRecognised(f"{source}: not recognised; {'; or '.join(hints)}")
    from dagsim.traces.table_files import header_hint

    hint = header_hint(source)
    listed = "--format names the format, and dagsim list readers lists them"
    raise NotRecognised(f"{source}: not recognised as a trace; {f'{hint}; otherwise, ' if hint else ''}{listed}")


def format_of(path: Path | str, options: TraceOptions) -> str:
    """Return the name of the format in which to read ``path``. The option ``--map`` restricts the
    choice to a plain table or SWF, and the option ``columns`` selects sacct.

    Raises:
        TraceError: The file cannot be read or is not recognised.
    """
    if options.columns and not options.map:
        return "sacct"
    if not options.map:
        return recognise(path)
    return "swf" if "swf" in READERS and reader("swf").recognises(Source(path)) else "plain"


def open_trace(
    path: Path | str, format: str | None = None, options: TraceOptions | None = None, *, full_report: bool = False
) -> Trace:
    """Open the trace at ``path``. If no ``format`` is given, recognise it.

    ``path`` is anything that ``Source`` accepts. ``full_report`` keeps every detail of the report
    instead of the first hundred.

    Raises:
        TraceError: The file cannot be read or is not recognised.
        UnknownName: There is no format with that name.
        ConfigError: The format does not use one of the options.
    """
    options = TraceOptions() if options is None else options
    chosen = reader(format or format_of(path, options))
    heeded = COMMON_OPTIONS | chosen.uses
    for name in options.given():
        if name not in heeded:
            raise ConfigError(
                f"the format {chosen.name!r} does not have the option {name!r}; options: {', '.join(sorted(heeded))}"
            )
    return Trace(Source(path), chosen, options, full_report=full_report)
