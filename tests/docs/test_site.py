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
import yaml

from dagsim import __version__

ROOT = Path(__file__).parents[2]
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


@pytest.mark.skipif(find_spec("properdocs") is None, reason="ProperDocs is not installed")
def test_properdocs_builds_the_pages_without_a_warning(tmp_path: Path) -> None:
    assert make_site.main(str(tmp_path / "site")) == 0
    assert (tmp_path / "site" / "docs" / "reference" / "commands" / "index.html").is_file()


def test_five_examples_are_listed_and_exist() -> None:
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[([\w.]+)\]\(\1\)", text, re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".js", ".yaml"))
    assert len(listed) >= 5


@pytest.mark.parametrize("command", COMMANDS)
def test_an_example_in_python_runs(command: str) -> None:
    if "optuna" in command:
        pytest.importorskip("optuna")
    done = subprocess.run(
        [sys.executable, *shlex.split(command)[1:]], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.search("mean completion time|times (eft-wait|sjf)", done.stdout)


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == __version__
