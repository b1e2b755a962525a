"""Commands of dagsim, run in this process: a process of its own takes longer to start than most of them run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import typer
from typer.testing import CliRunner, Result

from dagsim.cli import app


def invoke(*words: object, columns: int | None = None) -> Result:
    """Run a command, however it ends; what it does not catch goes on. Texts are ``columns`` wide if that is given."""
    env = {"COLUMNS": str(columns)} if columns else None
    return CliRunner().invoke(app, [str(word) for word in words], env=env, catch_exceptions=False)


def fine(*words: object, columns: int | None = None) -> Result:
    """Run a command that ends without an error."""
    result = invoke(*words, columns=columns)
    assert result.exit_code == 0, result.output
    return result


def json_of(*words: object) -> Any:
    """What a command says with ``--json``."""
    return json.loads(fine(*words, "--json").stdout)


def commands(group: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield every command with its words, or those below a group."""
    group = typer.main.get_command(app) if group is None else group
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command
