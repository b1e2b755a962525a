"""The process of a program that schedules, and its answers in error messages."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from contextlib import suppress

from dagsim.errors import ConfigError, UnknownName, require

_SHOWN = 200


def program_words(kind: str, command: str, example: str, timeout_s: float) -> list[str]:
    """Split the command in a policy of this ``kind`` into its program and arguments, without a shell.

    Raises:
        ConfigError: The command is empty or its quotes do not match, or ``timeout_s`` is not
            positive.
        UnknownName: The program does not exist.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"{kind}: cannot read the command {command!r}: {error}") from None
    if not words:
        raise ConfigError(f"{kind}: the command is empty; expected a program and its arguments, as in {example}")
    require(0 < timeout_s < 1e6, f"{kind}: timeout_s must be a number of seconds above 0", timeout_s)
    if shutil.which(words[0]) is None:
        raise UnknownName(f"{kind}: there is no program {words[0]!r}")
    return words


def end_program(process: subprocess.Popen[bytes]) -> None:
    """End the program: close its input, and kill it if it does not end within a second."""
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            if pipe is not None:
                pipe.close()
    try:
        process.wait(1.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def shown(answer: object) -> str:
    """Return a program's answer for an error message, shortened to 200 characters."""
    text = repr(answer)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
