"""Trained agents by short names such as ``ppo``, ``decima`` or ``d3qn[checkpoint=FILE]``, usable as
policies.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from dagsim.errors import UnknownName
from dagsim.own_code import allowed
from dagsim.registry import Spec
from dagsim.systems.seam import Policy, Scenario

__all__ = ["agent_spec", "external_command", "is_agent", "make_policy", "shipped_agent"]

_SHIPPED = {
    ("cluster", "ppo"): ("ppo.pt", "results/agents/independent-0.9.pt"),
    ("spark", "decima"): ("decima.pt", "results/decima/w2.pt"),
    ("ramp", "ppo"): ("pac_ml.pt", "results/ramp/agents/plain-A-1.pt"),
}
"""The agents that come with dagsim, by system and name: the file in the package, and in a checkout."""


def is_agent(scenario: Scenario, spec: str) -> bool:
    """True if ``spec`` names a trained agent: an algorithm that trains one, or ``decima``. If a
    policy has the same name, the policy is meant.
    """
    if external_command(spec) is not None:
        return False
    name = Spec.parse(spec).name
    if ":" in name or name in scenario.policies:
        return False
    return name in _agents()


def _agents() -> tuple[str, ...]:
    from dagsim.agents.config import ALGORITHMS

    return ("decima", *ALGORITHMS.names())


def agent_spec(
    algo: str,
    checkpoint: Path | None = None,
    root: Path = Path("results"),
    system: str = "cluster",
    codec: str | None = None,
) -> str:
    """Return the policy that ``--algo ALGO`` names, with ``--checkpoint`` and ``--codec`` if they
    are given.

    The name of an algorithm stands for the agent of the newest training for ``system`` below
    ``root``, or else for the agent that comes with dagsim. Any other name is already a policy.

    Raises:
        UnknownName: The agent does not exist, or a checkpoint or codec is given for a policy that is not trained.
    """
    if algo not in _agents():
        for option, value in (("--checkpoint", checkpoint), ("--codec", codec)):
            if value is not None:
                raise UnknownName(f"{option} goes with --algo {', '.join(_agents())}, not with {algo!r}")
        return algo
    if checkpoint is None:
        checkpoint = _newest(algo, root, system)
    if checkpoint is not None:
        own = "" if codec is None else f',codec="{codec}"'
        return f'{algo}[checkpoint="{checkpoint}"{own}]'
    if (system, algo) not in _SHIPPED:
        raise UnknownName(
            f"no trained {algo} below {root}/ for the system {system!r}: train one (dagsim train --algo {algo}) or "
            "give --checkpoint"
        )
    return algo


def make_policy(scenario: Scenario, spec: str, seed: int | None = None) -> Policy[Any, Any]:
    """Return the heuristic or the trained agent that ``spec`` names.

    Raises:
        InputError: The policy does not exist, or its parameters or its checkpoint are wrong.
    """
    if (command := external_command(spec)) is not None:
        return _external(scenario, spec, *command)
    name = Spec.parse(spec).name
    if not is_agent(scenario, spec):
        heuristic: Policy[Any, Any] = scenario.policies.create(spec, **({} if seed is None else {"seed": seed}))
        return heuristic
    from dagsim.agents.checkpoint import load_agent
    from dagsim.registry import Entry, Registry

    def load(
        checkpoint: str | Path | None = None, sampled: bool = False, codec: str | None = None, net: str | None = None
    ) -> Policy[Any, Any]:
        path = checkpoint or shipped_agent(name, scenario.system)
        return load_agent(path, sampled, scenario.system, codec=codec, net=net)

    agents: Registry[Policy[Any, Any]] = Registry("agent", [Entry(name, load)])
    return agents.create(spec)


def external_command(spec: str) -> tuple[str, dict[str, object]] | None:
    """Return the command of ``exec:COMMAND``, a scheduler in another program, and the parameters in
    ``exec[...]:COMMAND``.

    Raises:
        ConfigError: The parameters cannot be read.
    """
    match = re.fullmatch(r"(exec(?:\[[^\]]*\])?):(.*)", spec.strip(), re.DOTALL)
    return None if match is None else (match[2].strip(), Spec.parse(match[1]).params)


def _external(scenario: Scenario, spec: str, command: str, params: dict[str, object]) -> Policy[Any, Any]:
    from dagsim.registry import Entry, Registry

    if (names := allowed()) is not None:
        names.check("policy", spec)
    if scenario.system != "cluster":
        raise UnknownName(f"policy {spec!r}: other programs can schedule the system 'cluster' only")
    target = "dagsim.systems.cluster.policies.external:External"
    programs: Registry[Any] = Registry("policy", [Entry("exec", target)])
    options = ",".join(f"{key}={value}" for key, value in params.items())
    program: Policy[Any, Any] = programs.create(f"exec[{options}]" if options else "exec", command=command)
    return program


def shipped_agent(name: str, system: str) -> Path:
    """Return the checkpoint of an agent that comes with dagsim.

    Raises:
        UnknownName: No agent of that name comes with dagsim for that system.
    """
    if (system, name) not in _SHIPPED:
        shipped = ", ".join(f"{agent} for {of!r}" for of, agent in _SHIPPED)
        raise UnknownName(f"no agent {name!r} for the system {system!r} comes with dagsim (there are {shipped})")
    inside, beside = _SHIPPED[system, name]
    package = Path(__file__).parents[1]
    return next(path for path in (package / inside, package.parent / beside) if path.exists())


def _newest(algo: str, root: Path, system: str) -> Path | None:
    """Return the best agent of the newest training of ``algo`` for ``system``."""
    trained = sorted(root.glob(f"*-train-{algo}-*/best.pt"), key=lambda path: path.parent.name, reverse=True)
    if not trained:
        return None
    from dagsim.agents.checkpoint import read_plain

    return next((path for path in trained if read_plain(path).get("system", "cluster") == system), None)
