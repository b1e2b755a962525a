"""``dagsim eval`` and ``dagsim baseline``: schedulers on a workload."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dagsim.cli.app import app
from dagsim.cli.options import Algo, ConfigFile, Jobs, Json, Out, Plots, Quiet, Seed, Seeds, Settings
from dagsim.cli.shared import Output, configured, given, run_policies

__all__ = ["baseline", "evaluate"]


@app.command("eval")
def evaluate(
    algo: Algo = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The agent of --algo ppo, d3qn ... (default: the newest below results/)."),
    ] = None,
    workload: Jobs = None,
    config: ConfigFile = None,
    set_: Settings = None,
    seeds: Seeds = None,
    seed: Seed = None,
    out: Out = Path("results"),
    plots: Plots = True,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run one scheduler on several seeds: a table and a run folder.

    Example: dagsim eval --algo sjf --workload steady --set workload.load=0.7
    """
    from dagsim.experiment.agents import AGENTS, agent_spec

    if algo == "decima" and config is None:
        config = "spark"
    chosen = configured(config, set_, given(policy=algo, seeds=seeds, seed=seed), workload)
    if algo in AGENTS or checkpoint is not None:
        policy = agent_spec(chosen.policy, checkpoint, system=chosen.system.kind)
        chosen = chosen.model_copy(update={"policy": policy})
    run_policies("eval", chosen, (chosen.policy,), Output(out, plots, json_, quiet))


@app.command()
def baseline(
    algo: Annotated[
        list[str] | None, typer.Option("--algo", "-a", metavar="NAME", help="Only this scheduler; repeatable.")
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What the others are compared with (default: the configured policy)."),
    ] = None,
    workload: Jobs = None,
    config: ConfigFile = None,
    set_: Settings = None,
    seeds: Seeds = None,
    seed: Seed = None,
    out: Out = Path("results"),
    plots: Plots = True,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run every heuristic on the same seeds: one table, the best marked.

    Example: dagsim baseline --workload heterogeneous-dag --seeds 5
    """
    from dagsim.systems.cluster.policies import POLICIES

    chosen = configured(config, set_, given(policy=reference, seeds=seeds, seed=seed), workload)
    others = algo or POLICIES.names()
    policies = tuple(dict.fromkeys((chosen.policy, *others)))
    run_policies("baseline", chosen, policies, Output(out, plots, json_, quiet))
