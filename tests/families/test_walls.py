"""The walls: the core imports no family, and a family imports only those that it needs."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer
from pydantic import TypeAdapter
from support.command_line import fine, invoke
from support.sources import PACKAGE, trees
from typer.testing import CliRunner

import dagsim.families
from dagsim import family, services
from dagsim.cli import app
from dagsim.cli.app import CommandGroup
from dagsim.config.bundled import shipped
from dagsim.config.yaml import read_yaml
from dagsim.errors import UnknownName
from dagsim.family import Family, all_names, families, names_of, refuse_missing
from dagsim.model import QueueTree
from dagsim.systems.cluster.policies import POLICIES

Edge = tuple[str, str]


TESTS = PACKAGE.parent / "tests"
ACROSS = {"cli/test_pinned_commands.py", "test_pinned_fields.py", "test_shipped_numbers.py"}
"""Tests that go over all commands, all classes and all shipped files, whoever defines them."""


@cache
def nodes_in(path: Path, root: Path = PACKAGE) -> list[ast.AST]:
    """All nodes of a module's syntax tree. Walking the trees takes most of the time of these tests."""
    return list(ast.walk(trees(root)[path]))


def imported_families(root: Path = PACKAGE) -> set[Edge]:
    """Pairs of a part (a family, or the file of the core) and a family that it imports, late or not."""
    edges = set()
    for path in trees(root):
        inside = path.relative_to(root).parts
        part = inside[1] if inside[0] == "families" and len(inside) > 2 else "/".join(inside)
        for node in nodes_in(path, root):
            names = []
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            edges |= {(part, name.split(".")[2]) for name in names if name.startswith("dagsim.families.")}
    return {(part, name) for part, name in edges if part != name}


def test_the_core_imports_no_family_and_a_family_only_those_that_it_needs() -> None:
    needs = {(name, need) for name, one in families().items() for need in one.needs}
    assert imported_families() == needs


def test_tests_of_the_core_import_no_family() -> None:
    elsewhere = ("families", "scripts", "docs", "rules", "support")
    importing = {part for part, _ in imported_families(TESTS) if "/" in part or part.endswith(".py")}
    assert {part for part in importing if not part.startswith(elsewhere)} == ACROSS


def words_in(path: Path) -> set[str]:
    """The strings in a module."""
    return {node.value for node in nodes_in(path) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def called_services(path: Path) -> set[str]:
    """The services that a module calls."""
    attributes = [node for node in nodes_in(path) if isinstance(node, ast.Attribute)]
    return {one.attr for one in attributes if isinstance(one.value, ast.Name) and one.value.id == "services"}


def read_groups(path: Path) -> set[str]:
    """The groups of entries that a module reads, in a registry or directly."""
    groups = set()
    for call in [node for node in nodes_in(path) if isinstance(node, ast.Call)]:
        named = {word.arg: word.value for word in call.keywords}
        if isinstance(call.func, ast.Name) and call.func.id == "family_entries":
            named["group"] = call.args[0]
        if isinstance(group := named.get("group"), ast.Constant):
            groups.add(str(group.value).removeprefix("dagsim."))
    return groups


def modules_of(name: str) -> list[Path]:
    return [path for path in trees() if path.relative_to(PACKAGE).parts[:2] == ("families", name)]


@pytest.mark.whole
def test_a_family_declares_whose_services_it_calls_and_whose_groups_it_extends() -> None:
    offering = {entry.name: name for name, one in families().items() for entry in one.adds.get("services", ())}
    reading = {group: name for name in families() for path in modules_of(name) for group in read_groups(path)}
    for name, one in families().items():
        known = {offering[word] for path in modules_of(name) for word in called_services(path) if word in offering}
        known |= {reading[group] for group in one.adds if group in reading}
        assert not {*one.uses} & {*one.needs}, name
        assert known - {name, *one.needs} <= {*one.uses}, name
        words = {word for path in modules_of(name) for word in words_in(path)}
        named = {
            other
            for other, its in families().items()
            if words & {entry.name for group in ("policies", "readers", "systems") for entry in its.adds.get(group, ())}
        }
        assert {*one.uses} <= known | named, name


def systems_of_configurations(words: set[str]) -> set[str]:
    """The systems in the configurations whose folder, such as ``bench/``, is among the words of a family."""
    folders = tuple(word for word in words if word.endswith("/"))
    paths = [path for name, path in shipped("configs").items() if name.startswith(folders)]
    parts = [read_yaml(path).value.get("system") for path in paths]
    return {part["kind"] if isinstance(part, dict) else part for part in parts if part is not None}


@pytest.mark.whole
def test_a_family_declares_whose_systems_it_and_its_configurations_name() -> None:
    offering = {entry.name: name for name, one in families().items() for entry in one.adds.get("systems", ())}
    for name, one in families().items():
        words = {word for path in modules_of(name) for word in words_in(path)}
        named = {offering[word] for word in words | systems_of_configurations(words) if word in offering}
        assert named - {name} <= {*one.needs, *one.uses}, name


@pytest.mark.whole
def test_the_architecture_page_shows_all_edges() -> None:
    page = (PACKAGE / "ARCHITECTURE.md").read_text(encoding="utf-8")
    head, *rows = page.partition("<!-- families:")[2].partition("```\n")[2].partition("```")[0].splitlines()
    begins = [head.index(word) for word in ("family", "needs", "uses")]
    cells = [[row[begin:end].split() for begin, end in zip(begins, [*begins[1:], None], strict=True)] for row in rows]
    drawn = {name: (tuple(needs), tuple(uses)) for [name], needs, uses in cells}
    assert drawn == {name: (one.needs, one.uses) for name, one in families().items() if one.needs or one.uses}


def test_no_word_of_the_core_names_a_module_of_a_family() -> None:
    core = [path for path in trees() if "families" not in path.relative_to(PACKAGE).parts]
    strays = [path for path in core if "dagsim.families." in path.read_text() and path.name != "family.py"]
    assert not strays


def test_every_folder_states_its_family_and_every_target_exists() -> None:
    folders = {path.name for path in Path(dagsim.families.__file__).parent.iterdir() if (path / "__init__.py").exists()}
    assert set(families()) == folders
    for name, one in families().items():
        assert one.summary
        for entries in one.adds.values():
            for entry in entries:
                module, colon, attr = entry.target.partition(":")
                if not colon:  # a file, such as the weights of an agent
                    assert (PACKAGE / "families" / name / module).exists()
                    continue
                if module.endswith(".torchrl_env") and find_spec("torchrl") is None:
                    continue  # it needs an extra that the tests do not install
                home = importlib.import_module(f"dagsim.families.{name}{module}")
                assert hasattr(home, attr), (name, entry.name)


def test_the_recorded_names_are_those_of_the_families() -> None:
    recorded, present = all_names(), {name: names_of(family) for name, family in families().items()}
    assert {name: recorded.get(name) for name in present} == present, "run scripts/make_families.py"


def test_a_name_of_a_missing_family_is_refused_with_its_family(without_families: Callable[..., None]) -> None:
    without_families("bounds", "benchmark")
    with pytest.raises(UnknownName, match="'bound' belongs to the family bounds, which this installation lacks"):
        refuse_missing("commands", "bound")
    with pytest.raises(UnknownName, match="belongs to the family bounds"):
        services.bounds_of_runs.required()
    refuse_missing("commands", "eval")
    refuse_missing("policies", "gavel")


def test_an_unknown_policy_of_a_missing_family_names_it(without_families: Callable[..., None]) -> None:
    without_families(*families(), registries=(POLICIES,))
    with pytest.raises(UnknownName, match="'gavel' belongs to the family gavel"):
        POLICIES.create("gavel[policy=fifo]")


def test_a_key_of_a_missing_family_names_it(without_families: Callable[..., None]) -> None:
    without_families(*families())
    with pytest.raises(ValueError, match=r"the key 'queues\.kueue' belongs to the family kubernetes"):
        TypeAdapter(QueueTree).validate_python({"kueue": {}})
    assert TypeAdapter(QueueTree).validate_python({}).kueue is None


def test_a_command_below_another_of_a_missing_family_names_it(without_families: Callable[..., None]) -> None:
    without_families(*families())
    root, trace = typer.Typer(cls=CommandGroup), typer.Typer(cls=CommandGroup)
    trace.command("info")(lambda: None)
    root.add_typer(trace, name="trace")
    root.command("list")(lambda: None)
    done = CliRunner().invoke(root, ["trace", "anonymise"])
    assert done.exit_code == 2
    assert "'trace anonymise' belongs to the family site, which this installation lacks" in done.output


def test_a_family_whose_needs_are_missing_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {"one": Family("one"), "two": Family("two", needs=("gone",)), "three": Family("three", needs=("two",))}
    modules = [type("Module", (), {"name": name, "ispkg": True}) for name in kept]
    monkeypatch.setattr(family, "iter_modules", lambda path: modules)
    monkeypatch.setattr(
        family, "import_module", lambda name: type("M", (), {"__path__": [], "FAMILY": kept.get(name.split(".")[-2])})
    )
    assert list(families.__wrapped__()) == ["one"]


def test_a_command_that_nobody_has_is_refused_as_before() -> None:
    assert "there is no command 'bounds'" in invoke("bounds").output


def test_each_family_adds_the_commands_that_it_declares() -> None:
    declared, added = {}, {}
    for name, one in families().items():
        for command, module in one.commands.items():
            declared.setdefault(f"dagsim.families.{name}{module}", set()).add(command.split()[0])
    for command in typer.main.get_command(app).commands.values():
        for part in (command, *getattr(command, "commands", {}).values()):
            module = getattr(part.callback, "__module__", "")
            if module.startswith("dagsim.families."):
                added.setdefault(module, set()).add(command.name)
    assert added == declared


def test_a_command_of_a_new_family_stands_after_those_that_the_core_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("dagsim.cli.app"), "ORDER", ("list", "eval"))  # all others are new
    fine("--help")
    assert "there is no command" in invoke("wrong").output


def test_names_of_a_family_are_unique() -> None:
    names = all_names()
    for group in {group for one in names.values() for group in one} - {"agents"}:  # one of a name for each system
        listed = [name for one in names.values() for name in one.get(group, ())]
        assert len(listed) == len(set(listed)), group
