"""Print and draw the results of the runs in a run folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dagsim.cli.app import say
from dagsim.cli.options import Output
from dagsim.cli.running import Kept

if TYPE_CHECKING:
    from dagsim.experiment.cell_run import CellRun
    from dagsim.experiment.store import Store
    from dagsim.metrics.ratio_over_time import OverTime
    from dagsim.metrics.standings import PolicyResult


def folders_with_runs(paths: Sequence[Path]) -> list[Path]:
    """Return the given run folders. Warn about each path that is left out because it contains no
    run.
    """
    from dagsim.experiment.store import run_folders

    folders, left_out = run_folders(paths)
    for sentence in left_out:
        say(f"warning: {sentence}", err=True)
    return folders


def tell(kept: Kept, output: Output) -> None:
    """Print and draw the results, which are already in the folder. Exit with code 1 if a policy
    failed.

    Raises:
        InputError: Every job of every run was rejected, so the runs contain no information about
            any policy.
    """
    from dagsim.errors import InputError

    with kept.folder.noting():
        _tell_kept(kept, output)
    if tell_failures(kept.folder):
        raise typer.Exit(1)
    if kept.lines and all(_without_room(line.metrics) for line in kept.lines):
        raise InputError("no job could run: the cluster rejected every job when it arrived")


def _without_room(metrics: Mapping[str, Any]) -> bool:
    """Return True if every job of a run was rejected because the cluster is too small or lacks its GPU types."""
    rejected = [metrics.get(name) or 0 for name in ("rejected_too_large", "rejected_no_such_gpu")]
    return 0 < rejected[0] + rejected[1] == (metrics.get("jobs_arrived") or 0)


def _tell_kept(kept: Kept, output: Output) -> None:
    folder, lines, precise = kept.folder, kept.lines, kept.precise
    notes = [] if precise is None else list(precise.notes())
    over = _over_time(folder)
    if over is not None:
        first, last = folder.manifest["policies"][0], folder.manifest["policies"][-1]
        notes.append(f"{last} / {first}, {len(over.pieces)} blocks of {over.jobs:,} jobs: {over}")
    ranked = folder.ranked
    if output.json_:
        say(json.dumps(audit_of(lines) | _incomplete(lines) | folder.to_dict() | _comparison(kept, ranked, over)))
    elif not output.quiet:
        _print(folder, lines, ranked, output, notes)
    if sys.stdout.isatty() if output.plots is None else output.plots:
        from dagsim.report.drawing import draw

        draw(folder, ranked=ranked)


def audit_of(lines: Iterable[CellRun]) -> dict[str, Any]:
    """Return values for JSON: the contradictions in the first run whose input has any, and what
    policies knew about run times.
    """
    from dagsim.report.tables import knowledge_of

    knowledge = knowledge_of([line.workload for line in lines])
    audit: dict[str, Any] = next(({"audit": line.workload["audit"]} for line in lines if "audit" in line.workload), {})
    return audit if knowledge is None else audit | {"knowledge": str(knowledge)}


def _incomplete(lines: Iterable[CellRun]) -> dict[str, Any]:
    """Return, for JSON, sentences about the jobs that did not complete. Each run also contains
    their number.
    """
    from dagsim.report.tables import losses

    lost = losses(lines)
    return {"incomplete": lost} if lost else {}


def tell_failures(folder: Store) -> int:
    """Print the failed runs to standard error, and return their number."""
    failures = folder.failures()
    for failure in failures:
        say(f"failed: {failure.policy}, seed {failure.seed}: {failure.error}", err=True)
    return len(failures)


def _over_time(folder: Store) -> OverTime | None:
    """Return the comparison over blocks of consecutive jobs, or None if it was not requested."""
    blocks = (folder.manifest["plan"] or {}).get("blocks")
    if blocks is None:
        return None
    from dagsim.experiment.compare import block_ratios

    return block_ratios(folder, folder.manifest["policies"][-1], folder.manifest["policies"][0], blocks)


def _comparison(kept: Kept, ranked: Sequence[PolicyResult], over: OverTime | None) -> dict[str, Any]:
    """Return values for JSON: the comparison of several policies, and how the precision was
    reached.
    """
    from dagsim.metrics.standings import METHOD

    facts: dict[str, Any] = {} if over is None else {"blocks": asdict(over)}
    if len(kept.folder.manifest["policies"]) > 1:
        facts |= {"method": METHOD, "standings": [result.to_dict() for result in ranked]}
    if kept.precise is not None:
        facts["precision"] = kept.precise.to_dict()
    return facts


def _print(
    folder: Store,
    lines: Sequence[CellRun],
    ranked: Sequence[PolicyResult],
    output: Output,
    notes: Iterable[str] = (),
) -> None:
    from dagsim.experiment.scenario import metric_of, sample_of
    from dagsim.metrics.standings import Sample, standings, without_repeats
    from dagsim.report.comparison import comparison_table
    from dagsim.report.grid import TableFormat
    from dagsim.report.tables import (
        contradictions,
        fidelity_lines,
        losses,
        observed_table,
        run_notes,
        summary_table,
        workload_notes,
    )
    from dagsim.report.terminal import show_grid

    workloads = [line.workload for line in lines]
    urgent = [*contradictions(workloads), *losses(lines)]
    for note in urgent:  # print first which jobs the numbers below leave out
        say(note, err=output.table is not TableFormat.TEXT)
    workload, sample = folder.label, sample_of(folder.config)
    if sample is Sample.TRACE and len(shown := without_repeats(lines)) < len(lines):
        lines, notes = shown, (*notes, "one run, because seeds have no effect here")
        ranked = standings(lines, metric_of(folder.config), sample=sample) if ranked else []
    if len(ranked) > 1:
        table = comparison_table(ranked, metric_of(folder.config), workload=workload, wide=output.wide)
    else:
        table = summary_table(lines, workload=workload, sample=sample)
    show_grid(table, output.table, wide=output.wide)
    for failed in dict.fromkeys(failure.policy for failure in folder.failures()):
        say(f"failed: {failed}")
    # If a policy ran with several seeds, show its first run.
    first = {line.policy: line for line in reversed(lines)}
    for policy, line in reversed(first.items()):
        if "observed" in line.workload:
            show_grid(observed_table(policy, line.workload["observed"]), output.table, wide=output.wide)
    for note in (*notes, *workload_notes(workloads), *run_notes(lines)):
        if note not in urgent:
            say(note)
    for policy, line in reversed(first.items()):
        if "observed" in line.workload:
            say(*fidelity_lines(policy, line.workload["observed"]))
    say(f"run folder: {folder.path}")
