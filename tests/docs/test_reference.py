"""The reference pages are made from the code, and have everything."""

from __future__ import annotations

import inspect
import json
from importlib import import_module
from pathlib import Path

import pytest
import reference
import typer

from dagsim.cli import app

ROOT = Path(__file__).parents[2]


def test_the_page_of_options_has_every_option_of_every_command() -> None:
    page = "\n".join(reference.options())
    root = typer.main.get_command(app)
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        if command.hidden or hasattr(command, "commands"):
            continue
        text = page.partition(f"## `dagsim {name}`\n")[2].partition("\n## ")[0]
        for parameter in command.params:
            if parameter.param_type_name == "option" and not parameter.hidden:
                assert all(f"`{option}`" in text for option in parameter.opts), (name, parameter.opts)


@pytest.mark.whole
def test_the_page_of_keys_has_every_key_of_the_schema() -> None:
    schema = json.loads((ROOT / "configs" / "dagsim.schema.json").read_text(encoding="utf-8"))
    page = "\n".join(reference.configuration())
    for part in (schema, *schema["$defs"].values()):
        assert all(f"| `{key}` |" in page for key in part.get("properties", {}))


def test_every_key_has_a_meaning() -> None:
    rows = [line.split(" | ") for line in reference.configuration() if line.startswith("| `")]
    assert [row[0] for row in rows if not row[3].strip() or "Raises:" in row[3]] == []


def test_the_page_of_python_has_every_public_name() -> None:
    page = "\n".join(reference.python_api())
    for name in ("simulate", "check_system", "Kernel", "JobFacts", "PolicyFailed", "ClusterView"):
        assert f"### `{name}`" in page


def test_the_page_of_metrics_has_every_metric() -> None:
    from dagsim.metrics import glossary

    page = "\n".join(reference.metrics())
    assert all(f"| `{term.name}` | {term.unit} |" in page for term in glossary())


def test_the_page_of_parameters_says_what_each_may_be_and_does() -> None:
    rows = [line for line in reference.parameters() if line.startswith("| `")]
    cells = [row.strip("| ").split(" | ") for row in rows]
    assert len(cells) > 50
    assert [row for row, parts in zip(rows, cells, strict=True) if len(parts) != 5] == []
    page = "\n".join(rows)
    assert "| `eft-wait` | `theta` | a number, 0 or more | `0.75` |" in page
    assert "| `qssf` | `memory` | a number, from 0 to 1 | `0.8` |" in page


_FILES = ("compare", "replay", "plan", "train")
"""Examples that need run folders, logs or minutes."""


@pytest.mark.parametrize("name", [name for name in reference.EXAMPLES if name not in _FILES])
def test_an_example_of_the_python_api_runs(name: str) -> None:
    exec(compile(reference.EXAMPLES[name], name, "exec"), {})


@pytest.mark.parametrize("name", _FILES)
def test_an_example_with_files_names_arguments_that_exist(name: str) -> None:
    compile(reference.EXAMPLES[name], name, "exec")


def test_an_example_elsewhere_is_there_and_uses_the_name() -> None:
    for name, place in reference.ELSEWHERE.items():
        assert name not in reference.EXAMPLES
        assert place in reference.EXAMPLES or name in (ROOT / "docs" / "reference" / place).read_text(encoding="utf-8")


def test_every_object_of_the_python_api_has_an_example() -> None:
    objects = [
        (name, getattr(module, name)) for module in map(import_module, reference.MODULES) for name in module.__all__
    ]
    names = {name for name, value in objects if inspect.isclass(value) or inspect.isfunction(value)}
    assert names <= reference.EXAMPLES.keys() | reference.ELSEWHERE.keys()
