"""What the commands share: from options to a configuration, and from a configuration to a printed run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from dagsim.cli.options import Experiment, Output, TraceFlags

if TYPE_CHECKING:
    from dagsim.config.schema import Config, Setting
    from dagsim.experiment.folder import RunFolder, RunLine
    from dagsim.experiment.precise import Precise

__all__ = ["Kept", "cluster_of", "configured", "experiment", "given", "run_kept", "run_policies"]


def configured(
    file: str | None, settings: Iterable[str] | None, given: Iterable[Setting] = (), workload: str | None = None
) -> Config:
    """The configuration in ``file``, with another workload, then ``--set``, then the other options."""
    from dagsim.config.bundled import find_config
    from dagsim.config.schema import Setting, load_config

    jobs = [] if workload is None else [Setting(f"--workload {workload}", "workload", workload)]
    return load_config(None if file is None else find_config(file), [*jobs, *(settings or ()), *given])


def experiment(
    what: Experiment, trace: TraceFlags, policy: str | None = None, *, more: Sequence[Setting] = (), quiet: bool = False
) -> Config:
    """The configuration that the options of ``eval``, ``baseline``, ``tune`` and ``replay`` ask for.

    A workload that is a trace gets its cluster by one rule: that of ``--cluster``, else that of the configuration, else
    the machines that the trace lists, else a cluster sized to it.

    Raises:
        InputError: An option is wrong, or does not go with the system or the workload.
    """
    from dagsim.config.schema import Setting

    settings = [*more, *given(policy=policy, seeds=what.seeds, seed=what.seed, precision=what.precision)]
    if what.measure is not None:
        from dagsim.workload.measure import parse_measure

        settings.append(Setting(f"--measure {what.measure}", "workload.measure", parse_measure(what.measure)))
    if what.system is not None:
        settings.append(Setting(f"--system {what.system}", "system.kind", what.system))
    reading = given(**{f"workload.options.{key}": value for key, value in trace.reading().items()})
    if trace.format_ is not None and not more:
        reading.append(Setting(f"--format {trace.format_}", "workload.format", trace.format_))
    if trace.windows is not None:
        reading.append(Setting(f"--windows {trace.windows}", "seeds", trace.windows))
    options = {"window": "--window-jobs", "windows": "--windows"}
    reading += [Setting(options[key], f"workload.{key}", value) for key, value in trace.windowed().items()]
    _refuse_without_trace(what, trace, reading, settings)
    chosen = configured(what.config, what.set_, [*settings, *reading], what.workload)
    cluster = _cluster(chosen, trace.cluster, quiet=quiet)
    if cluster:
        chosen = configured(what.config, what.set_, [*settings, *reading, *cluster], what.workload)
    return _one_run_of_a_trace(chosen)


def _one_run_of_a_trace(config: Config) -> Config:
    """One seed for all of a trace, unless more were asked for: most are the same run again."""
    from dagsim.experiment.labels import sample_of
    from dagsim.metrics.standings import Sample

    if sample_of(config) is not Sample.TRACE or "seeds" in config.model_fields_set:
        return config
    return config.model_copy(update={"seeds": 1})


def given(**options: Any) -> list[Setting]:
    """Settings from the options that were given, by the key that each sets."""
    from dagsim.config.schema import Setting

    return [Setting(f"{_option(key)} {value}", key, value) for key, value in options.items() if value is not None]


def _option(key: str) -> str:
    if key in ("policy", "train.algorithm.kind"):
        return "--algo"
    return f"--{key.rpartition('.')[2].replace('_', '-')}"


def _refuse_without_trace(
    what: Experiment, trace: TraceFlags, reading: Sequence[Setting], settings: Sequence[Setting]
) -> None:
    """Raise where an option of traces is given and the workload is none: it would be ignored."""
    asked = [each.source.partition(" ")[0] for each in reading]
    if trace.cluster in ("trace", "sized"):
        asked.append("--cluster")
    if not asked:
        return
    from dagsim.errors import InputError
    from dagsim.traces.trace_file import TraceFile

    plain = configured(what.config, what.set_, settings, what.workload)
    if plain.system.kind != "cluster" or not isinstance(plain.workload, TraceFile):
        raise InputError(f"{', '.join(asked)}: goes with a workload that is a trace (--workload FILE)")


def cluster_of(file: str) -> list[Setting]:
    """The cluster of another configuration, as settings."""
    from dagsim.config.schema import Setting, plain

    source, other = f"--cluster {file}", configured(file, None)
    return [Setting(source, key, plain(getattr(other, key))) for key in ("cluster", "gpu_types")]


def _cluster(config: Config, cluster: str | None, *, quiet: bool) -> Sequence[Setting]:
    """Settings for the cluster that was asked for; none where the configuration describes it."""
    from dagsim.config.schema import Setting, plain
    from dagsim.experiment.sizing import sized
    from dagsim.report.terminal import counted
    from dagsim.traces.trace_file import TraceFile

    if cluster not in (None, "trace", "sized"):
        return cluster_of(cluster)
    described = bool({"cluster", "gpu_types"} & config.model_fields_set)
    if config.system.kind != "cluster" or not isinstance(config.workload, TraceFile) or (cluster is None and described):
        return []
    trace = config.workload
    if cluster is None and trace.saved_with("cluster") is not None:
        return [Setting("--cluster (as saved with the workload)", "cluster", trace.saved_with("cluster"))]
    if cluster is None:
        cluster = "trace" if trace.lists_machines() else "sized"
    if cluster == "trace":
        return [Setting("--cluster trace", "cluster", {"name": "trace", "from_trace": True})]
    jobs = counted("sizing a cluster to the trace", wanted=not quiet)(trace.as_recorded().jobs())
    return [Setting("--cluster sized", "cluster", plain(sized(jobs, config.runtime)))]


def run_policies(
    command: str, config: Config, policies: Sequence[str], output: Output, blocks: int | None = None
) -> None:
    """Run the policies into a new folder, print what came out, and draw it.

    ``blocks`` compares the last policy with the first over so many blocks of the jobs of one run.
    """
    from dagsim.experiment.blocks import blocks_of
    from dagsim.experiment.labels import sample_of
    from dagsim.metrics.standings import METHOD, standings
    from dagsim.report.drawing import draw

    label = policies[0] if len(policies) == 1 else f"{len(policies)}-policies"
    folder, lines, precise = run_kept(command, config, policies, output, label=label)
    notes = [] if precise is None else list(precise.notes())
    over = None if blocks is None else blocks_of(folder, policies[-1], policies[0], blocks)
    if over is not None:
        notes.append(f"{policies[-1]} / {policies[0]}, {blocks} blocks of {over.jobs:,} jobs: {over}")
    if output.json_:
        ranked: dict[str, Any] = {} if over is None else {"blocks": asdict(over)}
        if len(policies) > 1:
            table = standings(lines, sample=sample_of(config))
            ranked |= {"method": METHOD, "standings": [standing.to_dict() for standing in table]}
        if precise is not None:
            ranked["precision"] = precise.to_dict()
        typer.echo(json.dumps(folder.to_dict() | ranked))
    elif not output.quiet:
        _print(folder, lines, output, notes)
    if output.plots:
        draw(folder)


class Kept(NamedTuple):
    """A run folder, its lines, and where a precision was asked for, how it was reached."""

    folder: RunFolder
    lines: list[RunLine]
    precise: Precise | None = None


def run_kept(
    command: str,
    config: Config,
    policies: Sequence[str],
    output: Output,
    *,
    label: str | None = None,
    seeds: Sequence[int] | None = None,
) -> Kept:
    """Run the policies into a new folder under a progress bar; Ctrl-C keeps what is finished and ends with 130.

    ``seeds`` are those of the configuration unless given, or so many as its precision takes.
    """
    from dagsim.experiment.folder import RunFolder
    from dagsim.experiment.precise import rule_for, run_until_precise, seeds_for
    from dagsim.experiment.run import check
    from dagsim.experiment.runner import run_into
    from dagsim.report.terminal import progress

    check(config, policies)
    until_precise = config.precision is not None and seeds is None
    first = seeds_for(config, rule_for(config).start) if until_precise else seeds
    folder = RunFolder.create(output.out, command, config, argv=["dagsim", *sys.argv[1:]], label=label, seeds=first)
    try:
        with progress(wanted=not (output.quiet or output.json_)) as watch:
            if not until_precise:
                return Kept(folder, run_into(folder, config, policies, watch, seeds))
            precise = run_until_precise(folder, config, lambda more: run_into(folder, config, policies, watch, more))
            return Kept(folder, precise.lines, precise)
    except KeyboardInterrupt:
        typer.echo(f"interrupted: {len(folder.lines())} finished runs are kept in {folder.path}", err=True)
        raise typer.Exit(130) from None


def _print(folder: RunFolder, lines: Sequence[RunLine], output: Output, notes: Iterable[str] = ()) -> None:
    from dagsim.experiment.labels import sample_of, workload_label
    from dagsim.metrics.standings import Sample, without_repeats
    from dagsim.report.comparison import comparison_table
    from dagsim.report.tables import summary_table, workload_notes
    from dagsim.report.terminal import show_grid

    workload, sample = workload_label(folder.config), sample_of(folder.config)
    if sample is Sample.TRACE and len(shown := without_repeats(lines)) < len(lines):
        lines, notes = shown, (*notes, "one run: seeds change nothing here")
    if len({line.policy for line in lines}) > 1:
        table = comparison_table(lines, workload=workload, sample=sample, wide=output.wide)
    else:
        table = summary_table(lines, workload=workload, sample=sample)
    show_grid(table, output.table, wide=output.wide)
    for note in (*notes, *workload_notes([line.workload for line in lines])):
        typer.echo(note)
    typer.echo(f"run folder: {folder.path}")
