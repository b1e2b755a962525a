"""Run or resume the policies of a command in a run folder, and warn of what has changed."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from dagsim import services
from dagsim.cli.app import say
from dagsim.cli.configuring import doubt_of
from dagsim.cli.options import EnergySeries, Experiment, Output, TraceFlags

if TYPE_CHECKING:
    from dagsim.config.schema import Config
    from dagsim.experiment.cell import Cell
    from dagsim.experiment.cell_run import CellRun
    from dagsim.experiment.plan import Plan
    from dagsim.experiment.precision import Precise
    from dagsim.experiment.store import Store

OptionGroup: TypeAlias = "Experiment | TraceFlags | EnergySeries"
"""A group of options."""


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
    """Warn if agents run on windows from the part of a trace on which they were trained. If
    durations are hidden, name the agents that use expected durations instead, and warn of agents
    that were trained with true durations.
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
                f"{policy}: durations are hidden, so the agent gets expected durations (from how long tasks have run, "
                "and from finished tasks)",
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
        """The finished runs that did not fail."""
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
    from dagsim.experiment.plan import Plan
    from dagsim.experiment.precision import rule_for, seeds_for
    from dagsim.experiment.store import Store

    _warn_of_changes(repeats, config, policies)
    if config.precision is not None and seeds is None:
        seeds = seeds_for(config, rule_for(config).start)
    plan = Plan.of(command, config, policies, seeds, about=about, label=label, name=output.name)
    check_plan(plan)
    if doubt := doubt_of(config):
        say(f"warning: {doubt}", err=True)
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
            from dagsim.experiment.precision import run_until_precise
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
