"""Readers of real traces: one file per format, a path in, jobs in order of arrival out.

``open_trace("batch_task.csv")`` recognises the format from names and content; ``trace.jobs()`` then yields jobs as they
are asked for, and ``trace.report`` counts what was read and dropped.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from pathlib import Path

from dagsim.errors import ConfigError, TraceError, UnknownName
from dagsim.traces.options import COMMON_OPTIONS, TraceOptions
from dagsim.traces.reader import Downtime, Reader
from dagsim.traces.report import ReadReport
from dagsim.traces.source import Source
from dagsim.traces.trace import Trace

__all__ = [
    "READERS",
    "Downtime",
    "ReadReport",
    "Reader",
    "Source",
    "Trace",
    "TraceOptions",
    "open_trace",
    "reader",
    "recognise",
]

READERS: dict[str, str] = {
    "alibaba2017": "dagsim.traces.formats.alibaba2017:Alibaba2017",
    "alibaba2018": "dagsim.traces.formats.alibaba2018:Alibaba2018",
    "dax": "dagsim.traces.formats.dax:Dax",
    "gavel": "dagsim.traces.formats.gavel:Gavel",
    "google2011": "dagsim.traces.formats.google2011:Google2011",
    "google2019": "dagsim.traces.formats.google2019:Google2019",
    "helios": "dagsim.traces.formats.helios:Helios",
    "itp": "dagsim.traces.formats.itp:Itp",
    "jsonl": "dagsim.traces.formats.jsonl:JsonLines",
    "kubernetes": "dagsim.traces.formats.kubernetes:Kubernetes",
    "openb2023": "dagsim.traces.formats.openb2023:Openb2023",
    "pai2020": "dagsim.traces.formats.pai2020:Pai2020",
    "pbs": "dagsim.traces.formats.pbs:Pbs",
    "philly": "dagsim.traces.formats.philly:Philly",
    "pipedream": "dagsim.traces.formats.pipedream:PipeDream",
    "plain": "dagsim.traces.formats.plain:Plain",
    "sacct": "dagsim.traces.formats.sacct:Sacct",
    "stg": "dagsim.traces.formats.stg:Stg",
    "swf": "dagsim.traces.formats.swf:Swf",
    "tiresias": "dagsim.traces.formats.tiresias:Tiresias",
    "tpch": "dagsim.traces.formats.tpch:Tpch",
    "wfcommons": "dagsim.traces.formats.wfcommons:WfCommons",
}
"""Every format by name, as ``module:class``; imported when first needed."""

_AS_IT_IS = TraceOptions()


def reader(name: str) -> Reader:
    """The reader of the format called ``name``.

    Raises:
        UnknownName: No such format; the message suggests the nearest.
    """
    if name not in READERS:
        near = get_close_matches(name, READERS, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(READERS))}"
        raise UnknownName(f"unknown trace format {name!r}; {hint}")
    module, _, attribute = READERS[name].partition(":")
    made: Reader = getattr(import_module(module), attribute)()
    return made


def recognise(path: Path | str) -> str:
    """The name of the one format that ``path`` is in.

    Raises:
        TraceError: The file cannot be read, or no reader or more than one recognises it.
    """
    source = Source(path)
    source.head()  # a file that cannot be read at all is no matter of its format
    names = [name for name in sorted(READERS) if reader(name).recognises(source)]
    if len(names) == 1:
        return names[0]
    if names:
        raise TraceError(f"{source}: could be any of the formats {', '.join(names)}; name one (--format)")
    hints = [hint for name in sorted(READERS) if (hint := reader(name).nearly(source))]
    if hints:
        raise TraceError(f"{source}: not recognised; {'; or '.join(hints)}")
    raise TraceError(
        f"{source}: not recognised as any known format; name one of {', '.join(sorted(READERS))} (--format)"
    )


def open_trace(
    path: Path | str, format: str | None = None, options: TraceOptions = _AS_IT_IS, *, full_report: bool = False
) -> Trace:
    """The trace at ``path``, in the format called ``format`` or else recognised.

    ``path`` is whatever ``Source`` takes. ``full_report`` keeps every detail of the report, not just a hundred.

    Raises:
        TraceError: The file cannot be read or is not recognised.
        UnknownName: No format is called that.
        ConfigError: An option is given that the format does not heed.
    """
    chosen = reader(format or ("plain" if options.map else recognise(path)))
    heeded = COMMON_OPTIONS | chosen.uses
    for name in options.given():
        if name not in heeded:
            raise ConfigError(
                f"the format {chosen.name!r} does not use the option {name!r}; it uses {', '.join(sorted(heeded))}"
            )
    return Trace(Source(path), chosen, options, full_report=full_report)
