"""What a policy, or a part of it such as a placement or an order, may state beside ``decide``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, ClassVar


class Statements:
    """The optional attributes of a policy, with the values that hold for a policy that does not
    have them. ``stated`` reads them; ``misspelt`` finds attributes that were probably meant as one.
    """

    name: ClassVar[str] = ""
    """The policy in tables and errors; by default its class."""
    clairvoyant: ClassVar[bool] = False
    """It reads facts that no real scheduler knows, such as true durations."""
    notes: ClassVar[Iterable[str]] = ()
    """Sentences about the run that are printed below its results."""
    outside_training: ClassVar[float | None] = None
    """Share of an agent's observations with a feature outside the range seen in training."""
    admits: ClassVar[bool] = False
    """It accepts and rejects jobs itself where the configuration asks for admission."""
    remembers: ClassVar[str] = ""
    """Facts about earlier jobs that it uses and that the log has, in words."""
    forgets: ClassVar[str] = ""
    """Facts that it keeps between decisions and that neither the log nor the cluster's state has,
    in words."""
    rehearses: ClassVar[bool] = True
    """Its memory at the beginning of a state follows from simulating the past of the state."""
    decides_at_once: ClassVar[bool] = False
    """It decides about all waiting jobs in each cycle, including those that can never start."""
    wait_rules: ClassVar[Callable[..., Any] | None] = None
    """Returns the rules by which a task waits, for ``why``."""
    outlook: ClassVar[Callable[..., Any] | None] = None
    """Returns the rules and the order of the waiting tasks at present."""
    beginning: ClassVar[Callable[..., Any] | None] = None
    """Returns the policy as it is at the beginning of a state, from the usage before it."""


_NAMES = [name for name in vars(Statements) if not name.startswith("_")]


def stated(part: object, name: str) -> Any:
    """Return what a policy or a part of it states under a name, or the value for those that do not.

    Raises:
        AttributeError: No such statement exists.
    """
    return getattr(part, name, getattr(Statements, name))


def misspelt(policy: object) -> dict[str, str]:
    """Return the public attributes of a policy whose names are almost those of a statement, with the
    name that was probably meant."""
    own = {name for name in dir(policy) if not name.startswith("_")} - set(_NAMES)
    near = {name: get_close_matches(name, _NAMES, n=1, cutoff=0.9) for name in sorted(own)}
    return {name: found[0] for name, found in near.items() if found}
