"""``dagsim eval``, ``baseline`` and ``replay``: run schedulers on a workload or on a real trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dagsim.cli.app import app, say
from dagsim.cli.configuring import experiment, trace_at, with_series
from dagsim.cli.options import (
    Algo,
    ConfigFile,
    EnergySeries,
    Experiment,
    Output,
    Seed,
    Settings,
    TraceFlags,
    Windows,
    expand_options,
)
from dagsim.cli.running import resume_policies, run_policies
from dagsim.cli.telling import tell
from dagsim.errors import UnknownName
from dagsim.text import count_of

if TYPE_CHECKING:
    from dagsim.config.schema import Config

MANY, SEEDS_OF_MANY = 10, 30
"""Tables with at least ``MANY`` policies use ``SEEDS_OF_MANY`` seeds by default, because Holm's
correction for many comparisons reduces the power of each.
"""


@app.command("eval")
@expand_options
def evaluate(
    what: Experiment,
    trace: TraceFlags,
    output: Output,
    energy: EnergySeries,
    policy: Algo = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=(
                "Checkpoint of the trained agent, for --policy ppo, d3qn and so on (default: the newest one in "
                "results/, or else the agent that ships with dagsim)."
            ),
        ),
    ] = None,
    windows: Windows = None,
) -> None:
    """Run one scheduler on several seeds, print a table and write a run folder.

    Example: dagsim eval --policy sjf --workload steady --set workload.load=0.7
    """
    if output.resume is not None:
        options = {"policy": policy, "checkpoint": checkpoint, "windows": windows}
        tell(resume_policies("eval", output, what, trace, energy, **options), output)
        return
    from dagsim.experiment.scenario import scenario_of
    from dagsim.experiment.simulate import agent_spec, only_system_of
    from dagsim.systems.policy_spec import PolicySpec, labelled

    name, policy = (None, None) if policy is None else labelled(policy)
    if what.config is None and what.system is None and (only := only_system_of(policy)):
        what = what._replace(config=only)
    chosen = with_series(experiment(what, trace, policy, windows=windows, watched=output.watched), *energy)
    repeats = policy is None and what.config is not None and Path(what.config, "manifest.json").is_file()
    if checkpoint is not None or (not repeats and PolicySpec.parse(chosen.policy).is_agent(scenario_of(chosen))):
        system = chosen.whole_system
        agent = agent_spec(chosen.policy, checkpoint, system=system, hidden=system.hides_durations)
        chosen = chosen.model_copy(update={"policy": agent})
    named = chosen.policy if name == policy else f"{name}={chosen.policy}"
    tell(run_policies("eval", chosen, (named,), output, repeats=what.config), output)


@app.command()
@expand_options
def baseline(
    what: Experiment,
    trace: TraceFlags,
    output: Output,
    energy: EnergySeries,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-a",
            metavar="NAME",
            help="Run only this scheduler (repeatable). Write Mine=NAME to call it Mine in all results.",
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Reference policy, with which the others are compared (default: as configured)."
        ),
    ] = None,
    windows: Windows = None,
) -> None:
    """Run every heuristic on the same seeds, and print one table sorted from best to worst.

    Example: dagsim baseline --workload heterogeneous-dag --seeds 10
    """
    if output.resume is not None:
        options = {"policy": policy, "reference": reference, "windows": windows}
        tell(resume_policies("baseline", output, what, trace, energy, **options), output)
        return
    from dagsim.experiment.scenario import scenario_of
    from dagsim.systems.policy_spec import labelled, split_policies

    policy = None if policy is None else split_policies(policy)
    named = dict(map(labelled, policy or ()))
    name, against = (None, None) if reference is None else labelled(reference)
    chosen = experiment(what, trace, named.get(str(name), against), windows=windows, watched=output.watched)
    chosen = with_series(chosen, *energy)
    others = policy or scenario_of(chosen).policies.names()
    first = chosen.policy if name is None or name == chosen.policy else f"{name}={chosen.policy}"
    policies = tuple(dict.fromkeys((first, *others)))
    if len(policies) >= MANY and "seeds" not in chosen.model_fields_set:
        chosen = chosen.model_copy(update={"seeds": SEEDS_OF_MANY})
    tell(run_policies("baseline", chosen, policies, output, repeats=what.config), output)


@app.command("replay")
@expand_options
def replay_trace(
    reading: TraceFlags,
    output: Output,
    energy: EnergySeries,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace", "-t", help="The trace: a published file, or your own table. Required unless you give --resume."
        ),
    ] = None,
    policy: Algo = None,
    dropped: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write every dropped row, with the reason, to this file.")
    ] = None,
    config: ConfigFile = None,
    set_: Settings = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Number of runs of the same jobs, each with a different seed (default: 1)."),
    ] = None,
    seed: Seed = None,
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Also run this scheduler, and compare --policy with it (default with --blocks: fifo)."
        ),
    ] = None,
    windows: Windows = None,
    blocks: Annotated[
        int | None,
        typer.Option(
            min=2,
            max=100,
            help="Add a confidence interval for the ratio, computed from this many blocks of consecutive jobs.",
        ),
    ] = None,
) -> None:
    """Replay a real trace under a scheduler. The format of the trace is detected automatically.

    A single trace is only one sample, so there is no interval and no verdict. To get them, divide
    the trace into windows (--windows) or blocks (--blocks).

    Example: dagsim replay --trace batch_task.csv.gz --policy sjf --max-jobs 1000
    """
    what = Experiment(config=config, set_=set_, seeds=seeds, seed=seed)
    if output.resume is not None:
        options: dict[str, object] = {"trace": trace, "policy": policy, "dropped": dropped, "windows": windows}
        options |= {"reference": reference, "blocks": blocks}
        tell(resume_policies("replay", output, what, reading, energy, **options), output)
        return
    if trace is None:
        raise typer.BadParameter("dagsim replay: give --trace FILE, or --resume RUN to continue a run")
    chosen = experiment(what, reading, policy, windows=windows, first=trace_at(trace), watched=output.watched)
    chosen = with_series(chosen, *energy)
    if dropped is not None:
        _list_dropped(chosen, dropped, watched=output.watched)
    if reference is not None:
        from dagsim.experiment.simulate import check

        try:
            check(chosen, (reference,))
        except UnknownName as error:
            raise UnknownName(f"--reference: {error}") from None
    against = reference or (None if blocks is None else "fifo")
    if blocks is not None and against == chosen.policy:
        raise typer.BadParameter(
            f"--blocks: {against} would be compared with itself, so name another policy with --reference"
        )
    if blocks is not None and chosen.trace().window is not None:
        raise typer.BadParameter("--blocks: cannot be combined with --windows, which already provides intervals")
    policies = (chosen.policy,) if against is None else tuple(dict.fromkeys((against, chosen.policy)))
    about = None if blocks is None else {"blocks": blocks}
    tell(run_policies("replay", chosen, policies, output, about=about, repeats=config), output)


def _list_dropped(config: Config, path: Path, *, watched: bool) -> None:
    """Write one line for each row of the trace that was dropped or was accepted despite a fault."""
    from dagsim.files import write_text
    from dagsim.report.terminal import counted

    trace = config.trace().as_recorded(full_report=True)
    for _ in counted("listing dropped rows", wanted=watched)(trace.jobs()):
        pass
    write_text(path, "\n".join([f"# {trace.report}", *trace.report.details]) + "\n")
    if watched:
        say(f"{count_of(len(trace.report.details), 'row')} listed in {path}")
