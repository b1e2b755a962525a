"""The names by which users select policies. Only this module parses such names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from dagsim import services
from dagsim.family import added_names, refuse_missing
from dagsim.registry import Registry
from dagsim.specs import Spec
from dagsim.systems.seam import Scenario

PROGRAMS: Registry[Any] = Registry("program", group="dagsim.programs", method="decide")
"""Policies that talk to a scheduler in another program, by kind."""

_ADDRESSED = re.compile(r"((\w[\w-]*)(?:\[[^\]]*\])?)(?::(.*))?", re.DOTALL)
"""A name, perhaps with parameters, and the command, endpoint or file after a colon."""
_LABEL = re.compile(r"([^\W\d][\w .+-]*)=(.+)", re.DOTALL)


class PolicyKind(StrEnum):
    """The kinds of objects that the name of a policy can refer to."""

    NAMED = "policy"
    """A policy in a system's registry or in another package, or a trained agent, which is named by its algorithm."""
    MODEL = "model"
    """A trained agent in a file of another library."""
    PROGRAM = "program"
    """A scheduler in another program."""
    OWN = "own code"
    """A user's ``module:attr`` or ``path/to/file.py:attr``."""


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """A parsed name of a policy, such as ``sjf``, ``easy[strict=true]``, ``own.py:Mine[k=2]``,
    ``ppo``, ``sb3:model.zip``, ``exec:COMMAND``, ``batsim[start=...]:ENDPOINT`` or
    ``kube-scheduler[binary=PATH]``.
    """

    text: str
    """The name as the user wrote it, which labels cells, tables and folders."""
    kind: PolicyKind
    name: str
    """The entry in a registry, the algorithm of an agent, the kind of a program, or ``module:attr``."""
    params: Mapping[str, object]
    """The parameters in brackets."""
    address: str = ""
    """The command that starts a program, or the endpoint at which it listens."""

    @classmethod
    def parse(cls, text: str) -> PolicySpec:
        """Parse the name of a policy.

        Raises:
            ConfigError: Brackets or quotes do not match, or a parameter has no value.
            UnknownName: The name is that of a program, or of a kind of model, whose family is missing.
        """
        if (match := _ADDRESSED.fullmatch(text.strip())) is not None:
            call, kind, address = match.groups()
            if kind in PROGRAMS:
                name, params = Spec.parse(call)
                return cls(text, PolicyKind.PROGRAM, name, params, (address or "").strip())
            if address and kind in added_names("loaders"):
                name, params = Spec.parse(call)
                return cls(text, PolicyKind.MODEL, name, {"checkpoint": address.strip()} | params)
            if address is not None:
                for group in ("programs", "loaders"):
                    refuse_missing(group, kind)
        name, params = Spec.parse(text)
        return cls(text, PolicyKind.OWN if ":" in name else PolicyKind.NAMED, name, params)

    @property
    def call(self) -> Spec:
        """The name and the parameters as a ``Spec``, from which a registry creates the policy."""
        return Spec(self.name, dict(self.params))

    def with_checkpoint(self, path: Path) -> PolicySpec:
        """Return the same agent with a checkpoint from a file."""
        return PolicySpec.parse(str(Spec(self.name, {"checkpoint": str(path), **self.params})))

    def is_agent(self, scenario: Scenario) -> bool:
        """Return True if this is a trained agent. A name that also belongs to one of the system's
        own policies refers to that policy.
        """
        return self.kind is not PolicyKind.PROGRAM and self.name not in scenario.policies and self.names_agent()

    def names_agent(self) -> bool:
        """Return True if an agent has this name (see ``is_agent``)."""
        return self.kind in (PolicyKind.MODEL, PolicyKind.NAMED) and self.name in agent_names()

    def files(self) -> list[Path]:
        """Return the existing files that the parameters name. The address and the parameters of a
        program may be commands, so each of their words may also name a file.
        """
        values = [self.address, *self.params.values()]
        if self.kind is PolicyKind.PROGRAM:
            values += [word for value in values if isinstance(value, str) for word in value.split()]
        return named_files(dict.fromkeys(values))


def agent_names() -> tuple[str, ...]:
    """Return the names of all trained agents. The result is empty if the family that trains agents
    is missing."""
    return () if (known := services.names_of_agents.offered()) is None else known()


def named_files(values: Iterable[object]) -> list[Path]:
    """Return the existing files among the values of parameters."""
    return [Path(value) for value in values if isinstance(value, str) and value and Path(value).is_file()]


def labelled(text: str) -> tuple[str, str]:
    """Split a text such as ``Mine=ppo[checkpoint=best.pt]`` into the name for tables and the
    policy. If no name is given, the text of the policy is the name.
    """
    label = _LABEL.fullmatch(text.strip())
    return (text, text) if label is None else (label[1].strip(), label[2].strip())


def split_policies(texts: Iterable[str]) -> list[str]:
    """Split a list such as ``"sjf,easy[a=1,b=2]"`` at the commas outside brackets. Return each
    policy once, in order. The command of a program is not split.
    """
    flat: list[str] = []
    for text in texts:
        program = _ADDRESSED.fullmatch(text.strip())
        whole = program is not None and program[2] in PROGRAMS
        flat += [text] if whole else re.split(r",(?![^\[]*\])", text)
    return list(dict.fromkeys(filter(None, (part.strip() for part in flat))))
