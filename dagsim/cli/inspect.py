"""``dagsim trace``: describe, fetch and convert traces."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dagsim.cli.app import App, app, say
from dagsim.cli.options import Json, OutFile, Quiet, Read, Strict, TraceFormat, TraceMap, one_output, read_settings
from dagsim.family import added_names

if TYPE_CHECKING:
    from dagsim.traces import ReadReport
    from dagsim.traces.fetch import Fetched

trace_app = App(help="Describe, fetch and convert traces.", no_args_is_help=True)
app.add_typer(trace_app, name="trace")


@trace_app.command("sample")
def trace_sample(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Folder to write the files to.")] = Path(
        "site"
    ),
    long: Annotated[
        bool, typer.Option("--long", help="Write a longer log, with 10,000 jobs, which is enough for clear answers.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Write a sample: the log and the list of nodes of a synthetic Slurm cluster, with 500 jobs on
    64 GPUs of three types.

    Example: dagsim trace sample --out site
    """
    from shutil import copyfile

    from dagsim.config.bundled import shipped_folder
    from dagsim.errors import InputError
    from dagsim.files import writing

    files = sorted(shipped_folder("workloads", "site-long" if long else "site").iterdir())
    there = sorted({path.name for path in out.iterdir()} - {file.name for file in files}) if out.is_dir() else []
    if there:
        raise InputError(f"--out: {out} already contains other files, such as {there[0]}; choose another folder")
    for file in files:
        copy = out / file.name
        if copy.exists() and copy.read_bytes() != file.read_bytes():
            raise InputError(
                f"{copy}: a different file with this name already exists, so choose another folder with --out"
            )
        with writing(copy) as temporary:
            copyfile(file, temporary)
        if not quiet:
            say(copy)


@trace_app.command("info")
def show_trace(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The trace: a published file, or your own table.")],
    format_: TraceFormat = None,
    skip: Annotated[int, typer.Option(min=0, help="Number of jobs to skip at the beginning.")] = 0,
    max_jobs: Annotated[int | None, typer.Option(min=1, help="Maximum number of jobs to keep (default: all).")] = None,
    map_: TraceMap = None,
    read: Read = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the plot.")] = Path("results"),
    plots: Annotated[
        bool, typer.Option("--plots/--no-plots", help="Draw distributions of work, sizes and arrivals.")
    ] = True,
    strict: Strict = False,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Describe a trace: its jobs, their shapes, sizes and arrivals, and the GPU-hours by account,
    user and partition.

    Example: dagsim trace info batch_task.csv.gz
    """
    from dagsim.config.dumping import plain
    from dagsim.config.schema import load_config
    from dagsim.config.yaml import Setting
    from dagsim.experiment.trace_info import trace_info
    from dagsim.report.drawing import draw_trace
    from dagsim.report.tables import hours_tables, info_tables, published_table, trace_notes
    from dagsim.report.terminal import console, counted
    from dagsim.systems.cluster.models.runtime import Recorded
    from dagsim.traces import TraceOptions
    from dagsim.traces.trace_file import TraceFile

    whole = TraceFile(str(path), format_, TraceOptions(start=skip, limit=max_jobs, map=map_))
    file = load_config(None, [Setting(str(path), "workload", plain(whole)), *read_settings(read or ())]).trace_file
    assert file is not None
    file.check()
    info = trace_info(file, Recorded(), counted(f"reading {path.name}", wanted=not (quiet or json_)))
    if strict:
        info.audit.refuse(str(path))
    drawn = draw_trace(info, out) if plots else None
    if json_:
        say(json.dumps(info.to_dict() | {"plot": None if drawn is None else str(drawn)}))
    elif not quiet:
        for sentence in info.audit.sentences():
            say(sentence)
        tables = [*info_tables(info.workload), *hours_tables(info)]
        tables += [published_table(info)] if info.comparison else []
        console().print(*tables, sep="\n")
        for note in trace_notes(info):
            say(note)
        if drawn is not None:
            say(f"plot: {drawn}")


_WRITTEN = ["jsonl", "parquet", *sorted(["plain", "plain-arrow", "plain-parquet", *added_names("writers")])]
"""The formats that ``trace convert`` writes; ``dagsim.traces.export`` is too slow to import for a help text."""


@trace_app.command("convert")
def convert_trace(
    path: Annotated[
        Path, typer.Argument(metavar="IN", help="The trace (a published file, or your own table), or a run folder.")
    ],
    to: Annotated[
        Path | None,
        typer.Argument(
            metavar="[OUT]",
            help="The file to write, or a folder if there are several workflows. You can also use --out.",
        ),
    ] = None,
    out: OutFile = None,
    format_: TraceFormat = None,
    to_format: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"{', '.join(_WRITTEN[:-1])} or {_WRITTEN[-1]} (default: chosen by the ending of the file name).",
        ),
    ] = None,
    strict: Strict = False,
) -> None:
    """Convert a trace to JSON Lines (which dagsim can read back without loss), to a Parquet table,
    or to the format of another simulator.

    For a run folder, the log of its first run is written. If you replay this log with --policy
    recorded, jobs start and end as in that run.

    Example: dagsim trace convert batch_task.csv.gz jobs.jsonl.gz
    """
    from dagsim.experiment.as_log import is_run, write_run
    from dagsim.report.terminal import counted
    from dagsim.systems.cluster.audit.audit import Audit
    from dagsim.traces.convert import convert

    to = one_output(to, out)
    if is_run(path):
        for text in write_run(path, to, to_format, counted(f"converting {path.name}", wanted=True)):
            say(str(text))
        return

    def check(report: ReadReport) -> None:
        audit = Audit(report.jobs, report.kept + report.dropped.total(), contradictions=report.contradictions)
        if strict:
            audit.refuse(str(path))
        for sentence in audit.sentences():
            say(sentence)

    report, written = convert(path, to, format_, counted(f"converting {path.name}", wanted=True), to_format, check)
    say(report)
    if to_format is not None:
        say(written)


@trace_app.command("fetch")
def fetch_trace(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name from `dagsim trace list`.")],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FOLDER", help="Folder in which a new folder for the trace is created."),
    ] = Path("traces"),
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Download a published trace from its publisher and verify it. To resume an interrupted
    download, repeat the command.

    Example: dagsim trace fetch ctc-sp2
    """
    from dagsim.report.terminal import downloading
    from dagsim.traces.catalogue import published_trace
    from dagsim.traces.fetch import fetch

    trace = published_trace(name)
    folder = out / name
    try:
        with downloading(wanted=not (json_ or quiet)) as watch:
            files = fetch(trace, folder, watch)
    except KeyboardInterrupt:
        say(f"interrupted: the downloaded part is kept in {folder}; run the same command again to resume", err=True)
        raise typer.Exit(130) from None
    opened = folder / trace.opened if trace.opened else folder
    if json_:
        rows = [asdict(file) | {"path": str(file.path)} for file in files]
        say(json.dumps({"name": name, "format": trace.format, "path": str(opened), "files": rows}))
    elif not quiet:
        for file in files:
            say(_line(file))
        say(f"terms: {trace.terms} ({trace.page})")
        say(f"next: {trace.after or f'dagsim replay --trace {opened} --format {trace.format}'}")


@trace_app.command("list")
def list_traces(json_: Json = False) -> None:
    """List the published traces that can be fetched, with their sizes and terms of use.

    Example: dagsim trace list
    """
    from dagsim.report.listings import listing
    from dagsim.report.terminal import show

    show(*listing("traces"), as_json=json_)


def _line(file: Fetched) -> str:
    source = "fetched" if file.downloaded else "there already"
    if file.verified:
        return f"{file.path}: {file.bytes:,} bytes, {source}, SHA-256 as published"
    return f"{file.path}: {file.bytes:,} bytes, {source}; not verified, no checksum is published: SHA-256 {file.sha256}"
