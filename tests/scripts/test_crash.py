"""``scripts/crash.py`` in short: a few kills at random moments, and a few writes that fail."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import crash
import faults
import pytest
import torch
import typer

from dagsim.cli import app
from dagsim.families.learning.checkpoint_file import write_plain
from dagsim.traces.convert import targets


@pytest.mark.parametrize(("command", "workers", "kills"), [("eval", 2, 2), ("baseline", 1, 1)])
def test_killed_at_random_moments_nothing_is_lost(command: str, workers: int, kills: int, tmp_path: Path) -> None:
    outcome = crash.crash(command, kills, tmp_path, random.Random(7), workers)
    assert outcome.faults == []
    assert outcome.kills == kills
    assert outcome.resumed == kills - outcome.before_its_folder


@pytest.mark.parametrize(
    ("command", "step", "first"), [("eval", 20, 3), ("compare", 5, 1), ("trace sample", 4, 1), ("list", 1, 0)]
)
def test_a_write_or_an_output_step_that_fails_loses_no_result_and_leaves_no_half_file(
    command: str, step: int, first: int, tmp_path: Path
) -> None:
    outcome = faults.inject(command, tmp_path, step, first)
    assert outcome.faults == []
    assert outcome.kills >= 3
    assert outcome.resumed >= (3 if command == "eval" else 0)


def commands(command: Any, *words: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, *words, name)
    if not hasattr(command, "commands"):
        yield words, command


def test_faults_are_tried_in_every_command_option_and_format_that_writes() -> None:
    known = dict(commands(typer.main.get_command(app)))
    assert len(known) > 30
    tried: dict[tuple[str, ...], set[str]] = {words: set() for words in known}
    for words in faults.FAULTY.values():
        tried[words[: 2 if words[:2] in known else 1]].update(words)
    assert all(tried.values())
    writing = {
        (words, names)
        for words, command in known.items()
        for option in command.params
        if option.param_type_name == "option"
        and (names := tuple(option.opts)) != ("--long",)  # another log, which is written as the shorter one is
        and ("--out" in names or re.search(r"[Ww]rite|Draw|File for|Compare with|record the", option.help or ""))
    }
    into = {("workload", "save"), ("trace", "convert")}  # which take the file as an argument as well
    assert len(writing) > 35
    assert [one for one in sorted(writing) if one[0] not in into and not tried[one[0]] & set(one[1])] == []
    assert set(targets()) <= tried["trace", "convert"]


def test_a_full_disk_is_an_error_of_the_system_when_a_checkpoint_is_written() -> None:
    with pytest.raises(OSError, match="No space left"):
        write_plain(Path("/dev/full"), {"weights": torch.zeros(100_000)})
