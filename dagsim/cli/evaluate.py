"""``dagsim eval`` and ``dagsim baseline``: schedulers on a workload."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dagsim.cli.app import app
from dagsim.cli.options import Algo, Experiment, Output, TraceFlags, spread
from dagsim.cli.shared import experiment, resume_policies, run_policies

__all__ = ["baseline", "evaluate"]


@app.command("eval")
@spread
def evaluate(
    what: Experiment,
    trace: TraceFlags,
    output: Output,
    algo: Algo = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The agent of --algo ppo, d3qn ... (default: the newest below results/)."),
    ] = None,
) -> None:
    """Run one scheduler on several seeds: a table and a run folder.

    Example: dagsim eval --algo sjf --workload steady --set workload.load=0.7
    """
    if output.resume is not None:
        resume_policies("eval", output, what, trace, algo=algo, checkpoint=checkpoint)
        return
    from dagsim.experiment.agents import agent_spec

    policy = None if algo is None and checkpoint is None else agent_spec(algo or "", checkpoint)
    chosen = experiment(what, trace, policy, quiet=output.quiet or output.json_)
    run_policies("eval", chosen, (chosen.policy,), output)


@app.command()
@spread
def baseline(
    what: Experiment,
    trace: TraceFlags,
    output: Output,
    algo: Annotated[
        list[str] | None, typer.Option("--algo", "-a", metavar="NAME", help="Only this scheduler; repeatable.")
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What the others are compared with (default: the configured policy)."),
    ] = None,
) -> None:
    """Run every heuristic on the same seeds: one table, the best marked.

    Example: dagsim baseline --workload heterogeneous-dag --seeds 5
    """
    if output.resume is not None:
        resume_policies("baseline", output, what, trace, algo=algo, reference=reference)
        return
    from dagsim.experiment.scenario import scenario_of

    chosen = experiment(what, trace, reference, quiet=output.quiet or output.json_)
    others = algo or scenario_of(chosen).policies.names()
    policies = tuple(dict.fromkeys((chosen.policy, *others)))
    run_policies("baseline", chosen, policies, output)
