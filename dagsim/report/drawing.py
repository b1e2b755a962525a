"""Plots and traces of run folders: which plots a folder gets, and where the files go."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dagsim.errors import InputError
from dagsim.experiment.kept_files import CellRun
from dagsim.experiment.scenario import metric_of, sample_of
from dagsim.experiment.store import Store
from dagsim.experiment.trace_info import TraceInfo
from dagsim.metrics.standings import PolicyResult, standings
from dagsim.report.comparison import metric_name
from dagsim.report.perfetto import write_perfetto
from dagsim.report.plots import comparison, draw_all, save
from dagsim.report.plots import workload as workload_figure

__all__ = ["draw", "draw_comparison", "draw_perfetto", "draw_trace"]


def draw(
    folder: Store,
    number: int | None = None,
    out: Path | None = None,
    kind: str = "png",
    ranked: Sequence[PolicyResult] = (),
) -> list[Path]:
    """Draw finished run ``number``. By default, draw the first run, or compare the policies if
    there are several.

    The plots go to ``out`` (default: ``plots/`` in the folder) as png, pdf or svg files. ``ranked``
    are the standings of the folder's policies, if the caller already has them.

    Raises:
        InputError: There is no such run.
        RunFolderError: The run cannot be read.
    """
    lines, out = folder.lines(), out or folder.path / "plots"
    workload = folder.label
    if number is None and len({line.policy for line in lines}) > 1:
        metric = metric_of(folder.config)
        ranked = ranked or standings(lines, metric, sample=sample_of(folder.config))
        return [draw_comparison(ranked, out / f"comparison.{kind}", metric, workload=workload)]
    chosen = number or 0
    run = _line(folder, chosen)
    schedule = folder.schedule(chosen)
    n = f"run {chosen + 1} of {len(lines)}, {len(schedule.jobs):,} jobs"
    return draw_all(schedule, out, run.policy, f"{run.policy}, seed {run.seed}, {workload}: {n}", kind)


def draw_perfetto(folder: Store, path: Path, number: int = 0) -> Path:
    """Write finished run ``number`` as a trace for ui.perfetto.dev.

    Raises:
        InputError: There is no such run, or the file cannot be written.
        RunFolderError: The run cannot be read.
    """
    run = _line(folder, number)
    return write_perfetto(folder.schedule(number), path, f"{run.policy}, seed {run.seed}")


def _line(folder: Store, number: int) -> CellRun:
    lines = folder.lines()
    if number >= len(lines):
        raise InputError(f"{folder.path}: there is no run {number}; finished runs: {len(lines)}, counted from 0")
    return lines[number]


def draw_comparison(
    ranked: Sequence[PolicyResult], path: Path, metric: str = "jct_s.mean", *, workload: str = ""
) -> Path:
    """Draw the ratios of all policies to the reference, with intervals; ``ranked`` are the
    ``standings``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    return save(comparison(ranked, metric_name(metric), workload), path)


def draw_trace(info: TraceInfo, folder: Path) -> Path:
    """Draw the distributions of a workload into a PNG in ``folder``, named after the trace. Return
    its path.

    Raises:
        InputError: The file cannot be written.
    """
    name = info.trace.source.name
    path = folder / f"trace-{name.partition('.')[0] or 'info'}.png"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return save(workload_figure(info.tally, name), path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None
