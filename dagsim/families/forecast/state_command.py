"""Run the site's own command at regular intervals, and keep its newest outputs."""

from __future__ import annotations

import json
import shlex
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from time import monotonic, time

from dagsim.errors import InputError
from dagsim.files import write_text

_LARGEST = 1 << 28
"""Maximum number of bytes that a command may print."""
_KEPT_SNAPSHOTS = 3


class StateCommand:
    """An object that runs the site's own command at regular intervals, without a shell. The output
    becomes the newest snapshot.
    """

    def __init__(self, command: str, every_s: float, folder: Path) -> None:
        """Split the command into words.

        Raises:
            InputError: The command is empty, or a quote is open.
        """
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise InputError(f"--command: {command!r} cannot be split into words: {error}") from None
        if not self._words:
            raise InputError("--command: the command is empty; example: --command 'squeue --json'")
        self._every_s, self._folder = every_s, folder
        self.error = ""
        """The reason that the last call gave no snapshot. It is empty if it gave one."""
        self.failures = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="snapshots", daemon=True)

    def start(self) -> None:
        """Run the command now and at regular intervals."""
        self._thread.start()

    def stop(self) -> None:
        """Stop running the command. If the command is running, wait at most a second for it."""
        self._stop.set()
        self._thread.join(1.0)

    def _run(self) -> None:
        while not self._stop.is_set():
            began_s = monotonic()
            self.call()
            self._stop.wait(max(0.0, self._every_s - (monotonic() - began_s)))

    def call(self) -> None:
        """Run the command once, for at most one interval, and keep its output if it is JSON."""
        name = self._words[0]
        try:
            done = subprocess.run(self._words, capture_output=True, timeout=self._every_s, stdin=subprocess.DEVNULL)
            text = done.stdout.decode("utf-8", "replace")
            if done.returncode:
                errors = done.stderr.decode("utf-8", "replace").strip().splitlines()
                problem = f"{name} ended with {done.returncode}{f': {errors[-1][:200]}' if errors else ''}"
            elif len(text) > _LARGEST:
                problem = f"{name} printed more than {_LARGEST:,} characters"
            else:
                problem = "" if isinstance(json.loads(text), dict) else f"{name} printed JSON that is not an object"
        except subprocess.TimeoutExpired:
            problem = f"{name} took longer than {self._every_s:g} s and was ended"
        except OSError as error:
            problem = f"{name} cannot be run: {error.strerror or error}"
        except ValueError:
            problem = f"{name} printed no JSON"
        if not problem:
            try:
                write_text(self._folder / f"{int(time() * 1000)}.json", text)
                self._forget()
            except InputError as error:
                problem = str(error)
        self.failures += bool(problem)
        self.error = problem

    def _forget(self) -> None:
        """Remove all but the last snapshots that this object has written."""
        own = sorted(path for path in self._folder.glob("*.json") if path.stem.isdigit() and len(path.stem) == 13)
        for path in own[:-_KEPT_SNAPSHOTS]:
            with suppress(OSError):
                path.unlink()
