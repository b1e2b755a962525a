"""Run the commands of guides in ``docs/`` and write what they print below them.

    python scripts/make_guides.py [docs/tutorial.md ...]

In a guide, ``<!-- file: lab.yaml -->`` before a block of code makes a file of it, and each line ``$ dagsim ...`` in
a block marked ``console`` is run in one folder that is empty at first. Times of folders and of the clock are made
equal, so that the page changes only if the program does.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
GUIDES = (
    "docs/tutorial.md",
    "docs/workloads.md",
    "docs/forecast.md",
    "docs/forecast-accuracy.md",
    "docs/operators-sample.md",
    "docs/kubernetes.md",
)
WIDTH = 100
_BLOCK = re.compile(r"(?:<!-- file: (\S+) -->\n)?```(\w*)\n(.*?)```", re.DOTALL)
_CLOCKS = (
    (re.compile(r"\d{8}T\d{6}Z(-[\w-]+)-[0-9a-f]{6}"), r"20260101T120000Z\1-0a1b2c"),  # the time, and a hash
    (re.compile(r"(?m)^(?:simulating .* of \d+ runs?|forecasting at .*) done\n"), ""),
    (re.compile(r"(?m)^forecast \d+: .*\n"), ""),  # how many early forecasts there are depends on the machine
    (re.compile(r"(?m)[ \t]+$"), ""),
)


def steady(text: str) -> str:
    """Return a text without what differs from run to run, and without spaces at ends of lines."""
    for pattern, instead in _CLOCKS:
        text = pattern.sub(instead, text)
    return text


def output_of(command: str, folder: Path) -> str:
    """Run a command of dagsim in a folder, and return what it prints to a terminal of ``WIDTH`` columns.

    Raises:
        RuntimeError: It ends with an error.
    """
    words = [
        word
        for pattern in shlex.split(command, comments=True)[1:]
        for word in (sorted(path.relative_to(folder).as_posix() for path in folder.glob(pattern)) or [pattern])
    ]
    # Without DAGSIM_WARM=0, the first long run on a machine says that it compiles the fast engine.
    environment = {**os.environ, "COLUMNS": str(WIDTH), "PYTHONPATH": str(ROOT), "DAGSIM_WARM": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "dagsim", *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{command}\n{done.stdout}")
    return steady(done.stdout).strip("\n")


def renewed(text: str, folder: Path) -> str:
    """Return the text of a guide with the output of its commands, run in ``folder``."""

    def block(match: re.Match[str]) -> str:
        name, language, body = match.groups()
        if name:
            (folder / name).write_text(body, encoding="utf-8")
        if language != "console":
            return match[0]
        commands = [line for line in body.splitlines() if line.startswith("$ ")]
        return "```console\n" + "\n".join(_shown(commands, folder)) + "\n```"

    return _BLOCK.sub(block, text)


def _shown(commands: list[str], folder: Path) -> Iterator[str]:
    for line in commands:
        yield line
        if line.startswith("$ dagsim ") and (output := output_of(line.removeprefix("$ "), folder)):
            yield output


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("guides", nargs="*", type=Path, default=[ROOT / name for name in GUIDES])
    for guide in parser.parse_args().guides:
        with tempfile.TemporaryDirectory() as folder:
            text = guide.read_text(encoding="utf-8")
            guide.write_text(renewed(text, Path(folder)), encoding="utf-8")


if __name__ == "__main__":
    main()
