"""What the commands share: from options to a configuration, and from a configuration to a printed run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

if TYPE_CHECKING:
    from dagsim.config.schema import Config, Setting
    from dagsim.experiment.folder import RunFolder, RunLine

__all__ = ["Output", "cluster_of", "configured", "given", "run_kept", "run_policies"]


class Output(NamedTuple):
    """What is to be written where."""

    root: Path
    plots: bool
    json: bool
    quiet: bool


def configured(
    file: str | None, settings: Iterable[str] | None, given: Iterable[Setting] = (), workload: str | None = None
) -> Config:
    """The configuration in ``file``, with another workload, then ``--set``, then the other options."""
    from dagsim.config.bundled import find_config
    from dagsim.config.schema import Setting, load_config

    jobs = [] if workload is None else [Setting(f"--workload {workload}", "workload", workload)]
    return load_config(None if file is None else find_config(file), [*jobs, *(settings or ()), *given])


def given(**options: Any) -> list[Setting]:
    """Settings from the options that were given, by the key that each sets."""
    from dagsim.config.schema import Setting

    return [Setting(f"{_option(key)} {value}", key, value) for key, value in options.items() if value is not None]


def _option(key: str) -> str:
    return "--algo" if key == "policy" else f"--{key.rpartition('.')[2].replace('_', '-')}"


def cluster_of(file: str) -> list[Setting]:
    """The cluster of another configuration, as settings."""
    from dagsim.config.schema import Setting, plain

    source, other = f"--cluster {file}", configured(file, None)
    return [Setting(source, key, plain(getattr(other, key))) for key in ("cluster", "gpu_types")]


def run_policies(command: str, config: Config, policies: Sequence[str], output: Output) -> None:
    """Run the policies into a new folder, print what came out, and draw it."""
    from dagsim.metrics.standings import standings
    from dagsim.report.drawing import draw

    label = policies[0] if len(policies) == 1 else f"{len(policies)}-policies"
    folder, lines = run_kept(command, config, policies, output, label=label)
    if output.json:
        ranked = {"standings": [standing.to_dict() for standing in standings(lines)]} if len(policies) > 1 else {}
        typer.echo(json.dumps(folder.to_dict() | ranked))
    elif not output.quiet:
        _print(folder, lines)
    if output.plots:
        draw(folder)


def run_kept(
    command: str,
    config: Config,
    policies: Sequence[str],
    output: Output,
    *,
    label: str | None = None,
    seeds: Sequence[int] | None = None,
) -> tuple[RunFolder, list[RunLine]]:
    """Run the policies into a new folder under a progress bar; Ctrl-C keeps what is finished and ends with 130."""
    from dagsim.experiment.folder import RunFolder
    from dagsim.experiment.run import check
    from dagsim.experiment.runner import run_into
    from dagsim.report.terminal import progress

    check(config, policies)
    folder = RunFolder.create(output.root, command, config, argv=["dagsim", *sys.argv[1:]], label=label, seeds=seeds)
    try:
        with progress(wanted=not (output.quiet or output.json)) as watch:
            return folder, run_into(folder, config, policies, watch, seeds)
    except KeyboardInterrupt:
        typer.echo(f"interrupted: {len(folder.lines())} finished runs are kept in {folder.path}", err=True)
        raise typer.Exit(130) from None


def _print(folder: RunFolder, lines: Sequence[RunLine]) -> None:
    from dagsim.report.tables import comparison_table, observed_table, summary_table, workload_notes
    from dagsim.report.terminal import console

    many = len({line.policy for line in lines}) > 1
    console().print(comparison_table(lines) if many else summary_table(lines))
    first = {line.policy: line for line in reversed(lines)}  # of several seeds the first
    for policy, line in reversed(first.items()):
        if "observed" in line.workload:
            console().print(observed_table(policy, line.workload["observed"]))
    for note in workload_notes([line.workload for line in lines]):
        typer.echo(note)
    typer.echo(f"run folder: {folder.path}")
