"""Services: the functions that families offer are those that their callers declare."""

import importlib
import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest
from support.sources import PACKAGE

from dagsim import services
from dagsim.errors import UnknownName
from dagsim.family import families, family_entries
from dagsim.services import FamilyService
from dagsim.systems.cluster import services as cluster_services

OF_FAMILIES = [
    importlib.import_module(f"dagsim.families.{name}.services")
    for name in families()
    if (PACKAGE / "families" / name / "services.py").exists()
]
DECLARED = {
    name: one
    for module in (services, cluster_services, *OF_FAMILIES)
    for name, one in vars(module).items()
    if isinstance(one, FamilyService)
}
OFFERED = {entry.name for _, entry in family_entries("services")}


def offers() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for home, entry in family_entries("services"):
        module, _, attr = entry.target.partition(":")
        assert entry.name not in found, "two families offer it"
        found[entry.name] = getattr(importlib.import_module(home + module), attr)
    return found


def agrees(declared: Any, offered: Any) -> bool:
    """Whether two annotations, as they are written, are equal where the core can name the type."""
    if "Any" in str(declared) or offered is inspect.Signature.empty:
        return True
    return re.sub("Function|_F", "", str(declared)) == re.sub("Function|_F", "", str(offered))


@pytest.mark.whole
def test_each_declared_service_is_offered_and_each_offered_one_is_declared() -> None:
    assert {*DECLARED} == OFFERED


def test_one_family_or_the_core_declares_a_service() -> None:
    places = [
        name for module in (services, cluster_services, *OF_FAMILIES) for name in vars(module) if name in DECLARED
    ]
    assert len(places) == len(DECLARED)


@pytest.mark.parametrize("name", sorted(OFFERED & {*DECLARED}))
def test_a_function_has_the_signature_under_which_it_is_called(name: str) -> None:
    declared, offered = (inspect.signature(one) for one in (DECLARED[name], offers()[name]))
    for mine, theirs in zip(declared.parameters.values(), offered.parameters.values(), strict=True):
        assert (mine.name, mine.kind) == (theirs.name, theirs.kind)
        assert (mine.default is mine.empty) == (theirs.default is theirs.empty)
        assert agrees(mine.annotation, theirs.annotation), mine.name
    assert agrees(declared.return_annotation, offered.return_annotation)


def test_a_service_of_a_missing_family_names_it(without_families: Callable[..., None]) -> None:
    without_families("learning")
    assert services.names_of_agents.offered() is None
    assert services.names_of_agents.missing() == "belongs to the family learning, which this installation lacks"
    with pytest.raises(UnknownName, match="'names_of_agents' belongs to the family learning"):
        services.names_of_agents()
