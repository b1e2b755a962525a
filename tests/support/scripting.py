"""Runs scripts in this process: a process of its own takes longer to import torch than most of them run."""

from __future__ import annotations

import sys
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from io import StringIO
from typing import NamedTuple

import pytest

__all__ = ["Done", "run_script"]


class Done(NamedTuple):
    """A script that has ended, with what it printed."""

    returncode: int
    stdout: str
    stderr: str


def run_script(name: str, *arguments: object) -> Done:
    """Call ``main`` of ``scripts/NAME.py`` with these arguments; an exception that it does not catch goes on."""
    stdout, stderr = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(stdout), redirect_stderr(stderr):
        patch.setattr(sys, "argv", [f"{name}.py", *map(str, arguments)])
        try:
            code = import_module(name).main()
        except SystemExit as ended:
            code = ended.code
    return Done(int(code or 0), stdout.getvalue(), stderr.getvalue())
