"""Trained agents as policies. An agent is identified by its algorithm, by the name of a shipped
agent, or by the kind of its file.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

from dagsim.errors import UnknownName
from dagsim.families.learning.algorithms import ALGORITHMS
from dagsim.family import added_names, family_entries
from dagsim.registry import arguments_of
from dagsim.specs import Spec
from dagsim.systems import DEFAULT_SYSTEM, all_systems
from dagsim.systems.seam import Policy, Scenario, System


def shipped_agents(system: System | type[System]) -> dict[str, Path]:
    """Return the checkpoints of the agents that dagsim ships for a system, by algorithm."""
    package = files("dagsim")
    paths = {name: package.joinpath(file) for name, file in system.agents.items()}
    for home, entry in family_entries("agents"):
        if system.system in entry.tags:
            paths[entry.name] = files(home).joinpath(str(entry.target))
    return {name: Path(str(path)) for name, path in paths.items()}


def shipped_agent(name: str, system: System | type[System]) -> Path:
    """Return the checkpoint of an agent that ships with dagsim.

    Raises:
        UnknownName: dagsim ships no agent with that name for that system.
    """
    agents = shipped_agents(system)
    if name not in agents:
        shipped = ", ".join(
            f"{agent} for {of!r}" for of, other in all_systems().items() for agent in shipped_agents(other)
        )
        raise UnknownName(f"dagsim has no agent {name!r} for the system {system.system!r}; available: {shipped}")
    return agents[name]


def agent_names() -> tuple[str, ...]:
    """Return the names of all agents: shipped agents, algorithms, and kinds of agent files
    (``loaders``)."""
    shipped = added_names("agents")
    return (*dict.fromkeys([*shipped, *ALGORITHMS.names()]), *added_names("loaders"))


def agent_of(scenario: Scenario, spec: Spec) -> Policy[Any, Any]:
    """Build the agent named in ``spec``, with the parameters given there in brackets.

    Raises:
        InputError: The agent's parameters or its checkpoint are invalid.
    """
    from dagsim.families.learning.agent_policy import load_agent

    name, params = spec

    def load(
        checkpoint: str | Path | None = None,
        sampled: bool = False,
        codec: str | None = None,
        net: str | None = None,
        beliefs: bool = False,
    ) -> Policy[Any, Any]:
        file = checkpoint or shipped_agent(name, scenario)
        return load_agent(file, sampled, scenario, codec=codec, net=net, beliefs=beliefs)

    def load_model(checkpoint: str, level: Any = "task_type") -> Policy[Any, Any]:
        from dagsim.families.learning.sb3 import sb3_policy

        return sb3_policy(scenario, Path(checkpoint), level)

    loader: Callable[..., Policy[Any, Any]] = load_model if name == "sb3" else load
    return loader(**arguments_of("agent", name, loader, params))


def newest_agent(algorithm: str, root: Path, system: str) -> Path | None:
    """Return the best agent of the newest training run below ``root`` with this algorithm and
    system. Return None if there is no such run.
    """
    trained = sorted(root.glob(f"*-train-{algorithm}-*/best.pt"), key=lambda path: path.parent.name, reverse=True)
    if not trained:
        return None
    from dagsim.families.learning.checkpoint_file import read_plain

    return next((path for path in trained if read_plain(path).get("system", DEFAULT_SYSTEM) == system), None)


def algorithm_of(path: Path) -> str:
    """Return the algorithm with which the agent in a file was trained.

    Raises:
        RunFolderError: The file is missing or damaged.
    """
    from dagsim.families.learning.checkpoint_file import read_plain

    return str(read_plain(path)["algorithm"])
