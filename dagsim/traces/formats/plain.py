"""Plain CSV or JSON Lines for your own logs, with one row per job, or per task of a job.

The header names the columns, in any order. If a file uses other names, ``--map`` assigns its
columns to these names, or sets the same number for all rows (``gpus=0``). Required columns are
``id``, ``arrival_s``, ``gpus`` or ``cpus``, and either ``duration_s`` or both ``start_s`` and
``end_s``. These columns are also allowed:

==================  =====================================================================================
``gpu_type``        GPU types that the job may use, ``A100-40|V100-16``; if empty, any
``nodes``           number of nodes, instead of ``instances``: ``gpus``, ``cpus``, ``memory_gb`` are then totals
                    (``--read spread=true``: they are totals over any number of nodes)
``instances``       identical parallel instances, each with ``gpus`` GPUs and ``duration_s`` (1)
``gang``            whether the instances start together: yes or no (yes)
``cpus``            cores per instance (0)
``memory_gb``       memory per instance (0)
``estimate_s``      duration that the user requested
``model``           row of the throughput table, together with ``batch``
``priority``        larger is more urgent (0)
``tenant``          user, group or queue
``user``            with ``account``, ``partition`` and ``qos``: attributes of a job in a batch system
``deadline_s``      point in time, on the same clock as ``arrival_s``
``start_s``         time at which the job really started, on the same clock
``end_s``           time at which the job really ended
``eligible_s``      earliest time at which the job could have started
``state``           how the job ended; running and waiting jobs are dropped, and so are those cancelled without a run
``constraint``      features that the job's nodes must have, ``a100|v100``
``level``           network level, such as ``rack``; each gang lies within one domain of this level
``level_required``  whether the level is required (yes) or preferred (no)
``segment``         number of instances per segment of a gang; each segment lies within one domain
``weight``          cost of one second of waiting (1)
``task``            name of a task: rows with the same ``id`` are then the tasks of one job
``parents``         names of the tasks that a task waits for, ``map|shuffle``
==================  =====================================================================================

``--map type=COLUMN`` means ``gpu_type``. Times are seconds, from any origin at or before the first
arrival, or ISO dates. Durations are seconds or ``[DD-]HH:MM:SS``. Jobs are sorted by arrival.
"""

from __future__ import annotations

from collections.abc import Iterator

from dagsim.errors import TraceError
from dagsim.traces.formats.plain_graphs import task_blocks
from dagsim.traces.formats.plain_rows import ALLOWED, COLUMNS, NEEDED, NUMBERS, PlainRows
from dagsim.traces.reader import JobBlock, Reader
from dagsim.traces.report import ReadReport
from dagsim.traces.rows import row_blocks
from dagsim.traces.source import Source
from dagsim.traces.table_files import NamedColumns, likely, map_command
from dagsim.traces.trace_options import TraceOptions
from dagsim.traces.typed_table import Table
from dagsim.workload.records import clipped

_DURATION = ("duration_s", "start_s", "end_s")


class Plain(Reader):
    """A reader that creates one job from each row. If there is a column ``task``, each row is a
    task instead, and the rows with the same ``id`` form a job.
    """

    name = "plain"
    summary = "plain CSV of your own: id,arrival_s,gpus,duration_s[,gpu_type,priority,...]"
    uses = frozenset({"reference_gpu", "floor_s", "map", "timezone", "gpu_names", "delimiter", "spread"})

    def recognises(self, source: Source) -> bool:
        return not _missing(NamedColumns(source, {}))

    def nearly(self, source: Source) -> str | None:
        names = NamedColumns(source, {}).names
        columns = likely(names, (*NEEDED, "gpus", *_DURATION))
        if len(columns) < 2:
            return None
        missing = _missing(NamedColumns(source, columns))
        if "duration_s" in columns or missing:
            columns = {ours: theirs for ours, theirs in columns.items() if ours not in ("start_s", "end_s")}
        unnamed = [ours for ours in missing if ours not in columns]
        lacking = _missing(NamedColumns(source, {}))
        return (
            f"almost a table in the format 'plain', but it lacks {', '.join(lacking)}. Its columns are "
            f"{clipped(', '.join(names))}; state which of them contain this: {map_command(source, columns, unnamed)}"
        )

    def blocks(self, source: Source, options: TraceOptions, report: ReadReport, most: int | None) -> Iterator[JobBlock]:
        columns = _columns(source, options)
        rows = PlainRows(options, columns.constants)
        if not columns.has("task"):

            def read(report: ReadReport) -> Iterator[Table]:
                for table in columns.tables(NEEDED, ALLOWED, NUMBERS, report):
                    yield rows.in_order(table, report)

            return row_blocks(read, rows.arrivals, rows.jobs, report, most, apart=True)
        return task_blocks(columns, rows, report, most)

    def assumptions(self, source: Source, options: TraceOptions) -> dict[str, str]:
        answers = {
            "work": "duration_s, or else end_s - start_s, measured on the job's gpu_type if it names exactly one"
        }
        columns = _columns(source, options)
        if not columns.has("gpus") and "gpus" not in columns.constants:
            answers["gpus"] = "none: the table has no column for them"
        if options.spread:
            answers["nodes"] = "a job may be spread over nodes, a GPU or core at a time (--read spread=)"
        if options.map or options.timezone:
            answers["dates"] = f"those without an offset are of {options.timezone or 'UTC'} (--read timezone=)"
        return answers


def _columns(source: Source, options: TraceOptions) -> NamedColumns:
    """Return the columns of the table, after checking them.

    Raises:
        TraceError: A column is missing or unknown.
    """
    mapping = options.mapping()
    if "type" in mapping:
        mapping["gpu_type"] = mapping.pop("type")
    columns = NamedColumns(source, mapping, options.delimiter, constant=[COLUMNS[place] for place in NUMBERS])
    columns.check(COLUMNS)
    if missing := _missing(columns):
        raise TraceError(
            f"{source}:1: there is no column for {', '.join(missing)}; the columns are "
            f"{clipped(', '.join(columns.names))}; name the right columns with: "
            f"{map_command(source, options.mapping(), missing)}"
        )
    return columns


def _missing(columns: NamedColumns) -> list[str]:
    """Return the required columns that the table lacks."""
    missing = [ours for ours in NEEDED if not columns.has(ours)]
    if not ({"gpus", "cpus"} & columns.constants.keys() or columns.has("gpus") or columns.has("cpus")):
        missing.append("gpus")
    if not columns.has("duration_s") and not (columns.has("start_s") and columns.has("end_s")):
        missing.append("duration_s")
    return missing
