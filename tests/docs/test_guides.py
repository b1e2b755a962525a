"""Guides show what their commands print."""

from __future__ import annotations

from pathlib import Path

import make_guides
import pytest


@pytest.mark.parametrize("name", make_guides.GUIDES)
def test_a_guide_shows_what_its_commands_print(name: str, tmp_path: Path) -> None:
    text = (make_guides.ROOT / name).read_text(encoding="utf-8")
    assert make_guides.renewed(text, tmp_path) == text, f"run scripts/make_guides.py {name}"


def test_a_command_that_fails_stops_the_guide(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no such file"):
        make_guides.renewed("```console\n$ dagsim eval --config gone.yaml\n```", tmp_path)


def test_files_of_a_guide_are_there_for_its_commands_and_output_is_put_below(tmp_path: Path) -> None:
    guide = (
        "<!-- file: a.yaml -->\n```yaml\nseeds: 2\n```\n\n```console\n$ dagsim config check a.yaml\nold output\n```\n"
    )
    assert make_guides.renewed(guide, tmp_path) == guide.replace("old output", "a.yaml: fine")
