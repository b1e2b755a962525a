"""``dagsim eval`` and ``dagsim baseline``: schedulers on a workload."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dagsim.cli.app import app
from dagsim.cli.options import Algo, Experiment, Output, TraceFlags, Windows, expand_options
from dagsim.cli.shared import experiment, resume_policies, run_policies

__all__ = ["baseline", "evaluate"]

MANY, SEEDS_OF_MANY = 10, 30
"""Tables of ``MANY`` policies or more use ``SEEDS_OF_MANY`` seeds by default: Holm's correction for
many comparisons costs power.
"""


@app.command("eval")
@expand_options
def evaluate(
    what: Experiment,
    trace: TraceFlags,
    output: Output,
    algo: Algo = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The agent of --algo ppo, d3qn ... (default: the newest below results/)."),
    ] = None,
    windows: Windows = None,
) -> None:
    """Run one scheduler on several seeds; print a table and write a run folder.

    Example: dagsim eval --algo sjf --workload steady --set workload.load=0.7
    """
    if output.resume is not None:
        resume_policies("eval", output, what, trace, algo=algo, checkpoint=checkpoint, windows=windows)
        return
    from dagsim.experiment.scenario import scenario_of
    from dagsim.experiment.simulate import agent_spec, is_agent

    if algo == "decima" and what.config is None and what.system is None:
        what = what._replace(config="spark")
    chosen = experiment(what, trace, algo, windows=windows, quiet=output.quiet or output.json_)
    repeats = algo is None and what.config is not None and Path(what.config, "manifest.json").is_file()
    if checkpoint is not None or (not repeats and is_agent(scenario_of(chosen), chosen.policy)):
        policy = agent_spec(chosen.policy, checkpoint, system=chosen.system_kind)
        chosen = chosen.model_copy(update={"policy": policy})
    run_policies("eval", chosen, (chosen.policy,), output, repeats=what.config)


@app.command()
@expand_options
def baseline(
    what: Experiment,
    trace: TraceFlags,
    output: Output,
    algo: Annotated[
        list[str] | None, typer.Option("--algo", "-a", metavar="NAME", help="Only this scheduler; repeatable.")
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Policy to compare the others with (default: the configured one)."),
    ] = None,
    windows: Windows = None,
) -> None:
    """Run every heuristic on the same seeds, and print one table with the best marked.

    Example: dagsim baseline --workload heterogeneous-dag --seeds 10
    """
    if output.resume is not None:
        resume_policies("baseline", output, what, trace, algo=algo, reference=reference, windows=windows)
        return
    from dagsim.experiment.scenario import scenario_of

    chosen = experiment(what, trace, reference, windows=windows, quiet=output.quiet or output.json_)
    others = algo or scenario_of(chosen).policies.names()
    policies = tuple(dict.fromkeys((chosen.policy, *others)))
    if len(policies) >= MANY and "seeds" not in chosen.model_fields_set:
        chosen = chosen.model_copy(update={"seeds": SEEDS_OF_MANY})
    run_policies("baseline", chosen, policies, output, repeats=what.config)
