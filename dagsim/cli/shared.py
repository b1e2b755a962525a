"""Functions shared by commands: build a configuration from options, run it, and print the
results."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import typer

from dagsim import services
from dagsim.cli.app import say
from dagsim.cli.options import EnergySeries, Experiment, Output, TraceFlags, WindowCount

if TYPE_CHECKING:
    from dagsim.config.schema import Config, Setting
    from dagsim.experiment.compare import Precise
    from dagsim.experiment.kept_files import CellRun
    from dagsim.experiment.plan import Cell, Plan
    from dagsim.experiment.store import Store
    from dagsim.metrics.intervals import OverTime
    from dagsim.metrics.standings import PolicyResult
    from dagsim.systems.cluster.audit import Audit

OptionGroup: TypeAlias = "Experiment | TraceFlags | EnergySeries"
"""A group of options."""


def trust(*files: Path) -> None:
    """Allow this command to import the code that the user names on the command line and in
    ``files`` (YAML).

    If a file is in a run folder, only code with the SHA-256 recorded there is allowed.
    """
    from dagsim.config.yaml import read_yaml
    from dagsim.own_code import allowed

    names = allowed()
    if names is None:
        return
    names.trust_command_line()
    for file in files:
        if (file.parent / "manifest.json").is_file():
            from dagsim.experiment.store import recorded_code

            names.trust_recorded(file.parent, recorded_code(file.parent))
        else:
            names.trust_values(read_yaml(file).value)


def configured(
    file: str | None,
    settings: Iterable[str | Setting] | None,
    options: Iterable[Setting] = (),
    workload: str | None = None,
    *,
    named: str = "--workload",
    own: bool = True,
) -> Config:
    """Return the configuration in ``file`` with the workload, the values of ``--set`` and the other
    options applied to it, in this order.

    ``named`` is the option or argument that gives the workload. If ``own`` is False, no code
    outside dagsim is imported. This is meant for commands that run nothing.
    """
    from dagsim.config.bundled import find_config
    from dagsim.config.schema import Setting, load_config

    path = None if file is None else find_config(file)
    if own:
        trust(*([] if path is None else [path]))
    jobs = [] if workload is None else [Setting(f"{named} {workload}", "workload", workload)]
    return load_config(path, [*jobs, *(settings or ()), *options], own=own)


def experiment(
    what: Experiment,
    trace: TraceFlags,
    policy: str | None = None,
    *,
    windows: WindowCount | None = None,
    first: Sequence[Setting] = (),
    more: Sequence[Setting] = (),
    watched: bool,
    invented: bool = True,
) -> Config:
    """Return the configuration described by the options of a command.

    ``first`` is applied before ``--set``, so that ``--set`` can change keys of the parts that it
    selects. ``more`` is applied after ``--set``. If the workload is a trace,
    ``scenario.on_its_cluster`` chooses the cluster. If ``invented`` is False, no cluster is made
    up. This is meant for questions about a real cluster.

    Raises:
        InputError: The value of an option is wrong, or an option does not apply to the system or
            the workload.
    """
    from dagsim.config.schema import Setting

    settings = [
        *more,
        *given(policy=policy, seeds=what.seeds, seed=what.seed, precision=what.precision),
    ]
    system = [] if what.system is None else [Setting(f"--system {what.system}", "system.kind", what.system)]
    what = what._replace(set_=[*system, *first, *(what.set_ or ())])  # type: ignore[list-item]
    reading = trace.settings()
    if trace.format_ is not None:
        reading.append(Setting(f"--format {trace.format_}", "workload.format", trace.format_))
    reading += [] if windows is None else windows.settings()
    from dagsim.errors import ConfigError
    from dagsim.experiment.scenario import on_its_cluster
    from dagsim.report.terminal import counted

    asked = list(dict.fromkeys(setting.source.partition(" ")[0] for setting in reading))
    if trace.cluster in ("trace", "sized"):
        asked.append("--cluster")
    try:
        config = configured(what.config, what.set_, [*settings, *reading], what.workload)
    except ConfigError:  # The cause may be an option that applies only to traces; if so, say so instead.
        _refuse_without_trace(configured(what.config, what.set_, settings, what.workload), asked)
        raise
    _refuse_without_trace(config, [*asked, *(["--strict"] if trace.strict else [])])
    config = on_its_cluster(
        config, trace.cluster, counted("sizing a cluster to the trace", wanted=watched), invented=invented
    )
    if trace.strict:
        audited(config, told=False).refuse(config.trace().path)
    return config


def with_series(config: Config, prices: Path | None, carbon: Path | None) -> Config:
    """Return the configuration with metrics for the given series of energy prices and carbon
    intensities.

    Raises:
        ConfigError: A series cannot be read, or the configuration already has such a metric or does
            not describe a GPU cluster.
    """
    if prices is None and carbon is None:
        return config
    from dagsim.errors import ConfigError
    from dagsim.metrics.own import METRICS, value_name
    from dagsim.metrics.tariff import ENERGY
    from dagsim.systems.cluster.scenario import GpuCluster

    metrics = list(config.metrics)
    for option, name, path in zip(("--price", "--carbon"), ENERGY, (prices, carbon), strict=True):
        if path is None:
            continue
        if not isinstance(config.whole_system, GpuCluster):
            raise ConfigError(f"{option}: only GPU clusters use energy here, and the system is {config.kind!r}")
        if name in map(value_name, metrics):
            raise ConfigError(f"{option}: the configuration already has the metric {name}; leave one of them out")
        metrics.append(f"{name}[series={json.dumps(str(path))}]")
        METRICS.create(metrics[-1])
    return config.model_copy(update={"metrics": tuple(metrics)})


def with_own_site(path: Path, asked: Experiment, reading: TraceFlags, scratch: Path, *, told: bool) -> Experiment:
    """If a log or a snapshot itself describes a site, write the site's configuration to
    ``scratch``, and return the options with this configuration. If a cluster is given or the file
    describes no site, return the options unchanged.
    """
    if asked.config is not None or reading.cluster is not None or not services.holds_site(path):
        return asked
    file = scratch / "site.yaml"
    lines = services.import_site([path], file)
    for line in lines if told else ():
        if line.startswith("not modelled:"):
            say(f"{path.name}: {line}", err=True)
    return asked._replace(config=str(file))


def audited(config: Config, *, told: bool, doubts: tuple[str, ...] = ()) -> Audit:
    """Check a configuration's log before anything is simulated. Print the contradictions within the
    log and with the site, and the additional ``doubts``.
    """
    from dagsim.systems.cluster.scenario import cluster_scenario_of

    audit = cluster_scenario_of(config).audit()
    audit.doubts += doubts
    for sentence in audit.sentences() if told else ():
        say(sentence)
    return audit


def checked(option: str, metric: str, config: Config | None = None, own: Iterable[str] = ()) -> None:
    """Reject an unknown metric before anything is simulated.

    Raises:
        InputError: There is no such metric.
    """
    from dagsim.errors import InputError
    from dagsim.metrics.own import value_name
    from dagsim.metrics.summary import check_metric

    try:
        check_metric(metric, [*own, *(value_name(spec) for spec in (config.metrics if config else ()))])
    except InputError as error:
        raise InputError(f"{option}: {error}") from None


def trace_at(path: Path, option: str = "--trace") -> list[Setting]:
    """Return the setting that makes the trace ``path`` the workload. ``option`` is its name in
    messages.
    """
    from dagsim.config.schema import Setting

    return [Setting(f"{option} {path}", "workload", {"kind": "trace", "path": str(path)})]


def given(**options: Any) -> list[Setting]:
    """Return the settings for those options that were given. Each name is the key that the option
    sets.
    """
    from dagsim.config.schema import Setting

    return [Setting(f"{_option(key)} {value}", key, value) for key, value in options.items() if value is not None]


def _option(key: str) -> str:
    if key == "train.algorithm.kind":
        return "--algo"
    return f"--{key.rpartition('.')[2].replace('_', '-')}"


def _refuse_without_trace(config: Config, asked: Sequence[str]) -> None:
    """Raise an error if options for traces were given but the workload is not a trace. These
    options would be ignored.
    """
    from dagsim.errors import InputError

    if asked and config.trace_file is None:
        raise InputError(
            f"{', '.join(asked)}: applies only to a workload that is a trace (--workload FILE)"
            + ("; for a generated workload, use --set workload.load=0.7" if "--load" in asked else "")
        )


def _warn_of_changes(source: str | None, config: Config, policies: Sequence[str]) -> None:
    """Warn about code, checkpoints and traces that have changed since the run named by
    ``--config``.
    """
    if source is None or not Path(source, "manifest.json").is_file():
        return
    from dagsim.experiment.provenance import changes, provenance
    from dagsim.experiment.store import Store

    for change in changes(Store.read(Path(source)).manifest, provenance(config, policies)):
        say(f"warning: this run does not repeat {source}: {change}", err=True)


def _warn_of_agents(plan: Plan) -> None:
    """Warn if agents run on windows from the part of a trace on which they were trained. If durations
    are hidden, say which agents see expected ones, and warn of those that knew them in training.
    """
    from dagsim.experiment.provenance import provenance
    from dagsim.systems.policy_spec import PolicySpec

    trace, hidden = plan.config.trace_file, plan.config.whole_system.hides_durations
    if not hidden and (trace is None or trace.window is None):
        return
    seeds = sorted({cell.seed for cell in plan.cells})
    for policy, fact in provenance(plan.config, {cell.policy: None for cell in plan.cells})["checkpoints"].items():
        if believes := hidden and bool(PolicySpec.parse(policy).params.get("beliefs")):
            say(
                f"{policy}: durations are hidden, so the agent sees those that are expected from the service so far "
                "and from tasks that have ended",
                err=True,
            )
        for caveat in services.training_caveats(plan.config, seeds, Path(fact["file"]), believes):
            say(f"warning: {policy}: {caveat}", err=True)


class Kept(NamedTuple):
    """A run folder, its runs and, if a precision was requested, how that precision was reached."""

    folder: Store
    runs: dict[Cell, CellRun]
    """The runs of all finished and failed cells."""
    precise: Precise | None = None

    @property
    def lines(self) -> list[CellRun]:
        """The runs that did not fail."""
        return [run for run in self.runs.values() if not run.error]


def run_policies(
    command: str,
    config: Config,
    policies: Sequence[str],
    output: Output,
    *,
    label: str | None = None,
    seeds: Sequence[int] | None = None,
    about: Mapping[str, Any] | None = None,
    repeats: str | None = None,
) -> Kept:
    """Run the policies, store the runs in a new folder, and show progress. Ctrl-C keeps the
    finished runs and exits with code 130.

    By default, ``seeds`` are those in the configuration, or as many as the requested precision
    needs. If ``repeats`` (the value of ``--config``) is a run folder, files that have changed since
    that run are reported.
    """
    from dagsim.experiment.carry_out import check_plan
    from dagsim.experiment.compare import rule_for, seeds_for
    from dagsim.experiment.plan import Plan
    from dagsim.experiment.store import Store

    _warn_of_changes(repeats, config, policies)
    if config.precision is not None and seeds is None:
        seeds = seeds_for(config, rule_for(config).start)
    plan = Plan.of(command, config, policies, seeds, about=about, label=label, name=output.name)
    check_plan(plan)
    _warn_of_agents(plan)
    where = output.where()
    store = Store.begin(output.out, plan, argv=["dagsim", *sys.argv[1:]])
    return carried(store, plan, where, watched=output.watched)


def resume_policies(command: str, output: Output, *groups: OptionGroup, **options: Any) -> Kept:
    """Continue the run given with ``--resume``, which ``run_policies`` started.

    Raises:
        InputError: An option would be ignored, or the run was created by another command.
        RunFolderError: The run cannot be resumed.
    """
    from dagsim.errors import InputError
    from dagsim.experiment.store import Store

    refuse_beside_resume(groups, {**options, "name": output.name})
    assert output.resume is not None
    folder = Store.open(output.resume, own=True)
    made_by = folder.manifest["command"]
    if made_by != command:
        raise InputError(
            f"{folder.path} was created by dagsim {made_by}; to continue it, run dagsim {made_by} --resume "
            f"{folder.path}"
        )
    where = output.where()
    folder.resume()
    return carried(folder, folder.plan(), where, watched=output.watched)


def refuse_beside_resume(groups: Iterable[OptionGroup], options: Mapping[str, Any], what: str = "run") -> None:
    """Raise an error if an option is given together with ``--resume`` although the run folder
    already determines its value.
    """
    from dagsim.errors import InputError

    wrong = [name for name, value in options.items() if value is not None]
    for group in groups:
        wrong += [name for name, value in group._asdict().items() if value != group._field_defaults[name]]
    if wrong:
        names = ", ".join(f"--{name.strip('_').replace('_', '-')}" for name in wrong)
        raise InputError(f"--resume continues the {what} with its own configuration, so leave out {names}")


def carried(store: Store, plan: Plan, where: str, *, watched: bool, limit: int | None = None) -> Kept:
    """Run the cells of a plan, or as many seeds as the requested precision needs, while showing
    progress. After an error or Ctrl-C, the message states what has been kept.
    """
    from dagsim.experiment.carry_out import carry_out
    from dagsim.experiment.executors import executor_for
    from dagsim.report.terminal import progress

    executor, advice, precise = executor_for(where), list[str](), None
    with store.noting(), progress(wanted=watched, every_run=plan.command == "whatif") as watch:
        if plan.grid is not None or plan.config.precision is None or plan.command == "tune":
            runs = carry_out(store, plan, executor, watch, limit, advice.append)
        else:
            from dagsim.experiment.compare import run_until_precise
            from dagsim.experiment.scenario import metric_of

            runs = {}
            seeds: list[int] = []

            def run_on(more: Sequence[int]) -> list[CellRun]:
                nonlocal runs
                seeds.extend(more)
                runs = carry_out(store, plan.on_seeds(seeds), executor, watch, None, advice.append)
                return Kept(store, runs).lines

            precise = run_until_precise(store, plan.config, run_on, metric_of(plan.config))
    if advice and watched:
        say(advice[0], err=True)
    return Kept(store, runs, precise)


def tell(kept: Kept, output: Output) -> None:
    """Print and draw the results, which are already in the folder. Exit with code 1 if a policy
    failed.

    Raises:
        InputError: Every job of every run was rejected, so that no run shows anything about a policy.
    """
    from dagsim.errors import InputError

    with kept.folder.noting():
        _tell_kept(kept, output)
    if tell_failures(kept.folder):
        raise typer.Exit(1)
    if kept.lines and all(_without_room(line.metrics) for line in kept.lines):
        raise InputError("no job could run: the cluster rejected every job when it arrived")


def _without_room(metrics: Mapping[str, Any]) -> bool:
    """Return True if the cluster is too small for every job of a run, or lacks its GPU types."""
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
    """Return values for JSON: the contradictions in the first run whose input has any, and the
    information that policies had.
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
    for note in urgent:  # print these first, because all figures below leave these jobs out
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
