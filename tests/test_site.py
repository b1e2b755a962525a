"""The documentation pages: everything is in the navigation, generated pages are complete, examples run."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import make_site
import pytest
import typer
import yaml

from dagsim import __version__
from dagsim.cli import app

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "docs" / "examples"
COMMANDS = re.findall(r"`(python [^`]+\.py)` \|$", (EXAMPLES / "README.md").read_text(encoding="utf-8"), re.MULTILINE)


def test_every_page_is_in_the_navigation_and_every_entry_is_a_page(tmp_path: Path) -> None:
    make_site.stage(tmp_path)
    listed = {name for names in make_site.sections(make_site.settings()).values() for name in names}
    assert {str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md")} <= listed
    assert all((tmp_path / "pages" / name).is_file() for name in listed)
    nav = yaml.safe_load((tmp_path / "mkdocs.yml").read_text())["nav"]
    assert listed == {name for section in nav[1:] for names in section.values() for name in names}
    assert json.loads((tmp_path / "pages" / "dagsim.schema.json").read_text())["properties"]


@pytest.mark.skipif(find_spec("mkdocs") is None, reason="MkDocs is not installed")
def test_mkdocs_builds_the_pages_without_a_warning(tmp_path: Path) -> None:
    assert make_site.main(str(tmp_path / "site")) == 0
    assert (tmp_path / "site" / "generated" / "options" / "index.html").is_file()


def test_the_page_of_options_has_every_option_of_every_command() -> None:
    page = "\n".join(make_site.options())
    root = typer.main.get_command(app)
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        if command.hidden or hasattr(command, "commands"):
            continue
        text = page.partition(f"## `dagsim {name}`\n")[2].partition("\n## ")[0]
        for parameter in command.params:
            if parameter.param_type_name == "option" and not parameter.hidden:
                assert all(f"`{option}`" in text for option in parameter.opts), (name, parameter.opts)


def test_the_page_of_keys_has_every_key_of_the_schema() -> None:
    schema = json.loads((ROOT / "configs" / "dagsim.schema.json").read_text(encoding="utf-8"))
    page = "\n".join(make_site.configuration())
    for part in (schema, *schema["$defs"].values()):
        assert all(f"| `{key}` |" in page for key in part.get("properties", {}))


def test_the_page_of_python_has_every_public_name() -> None:
    page = "\n".join(make_site.python_api())
    for name in ("simulate", "check_system", "Kernel", "JobFacts", "PolicyFailed", "ClusterView"):
        assert f"### `{name}`" in page


def test_five_examples_are_listed_and_exist() -> None:
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[([\w.]+)\]\(\1\)", text, re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".js", ".yaml"))
    assert len(listed) >= 5


@pytest.mark.parametrize("command", COMMANDS)
def test_an_example_in_python_runs(command: str) -> None:
    done = subprocess.run(
        [sys.executable, *shlex.split(command)[1:]], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "mean completion time" in done.stdout


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == __version__
