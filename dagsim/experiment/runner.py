"""Running an experiment into a folder, to its end or until it is stopped."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from dagsim.config.schema import Config
from dagsim.experiment.folder import RunFolder, RunLine
from dagsim.experiment.labels import sample_of
from dagsim.experiment.run import Watch, evaluate
from dagsim.files import write_text
from dagsim.metrics import to_csv
from dagsim.metrics.standings import PolicyResult, standings

__all__ = ["run_into", "write_comparison"]


def run_into(
    folder: RunFolder,
    config: Config,
    policies: Sequence[str],
    watch: Watch | None = None,
    seeds: Sequence[int] | None = None,
) -> list[RunLine]:
    """Run the policies and keep each result in ``folder`` as soon as it is there; its state says how it ended.

    Raises:
        KeyboardInterrupt: The user stopped it; what was finished is kept.
        DagsimError: As ``evaluate``; what was finished is kept.
    """
    try:
        with _CtrlC() as ctrl_c:
            for result in evaluate(config, policies, watch, seeds):
                ctrl_c.hold()
                folder.add(result)
                ctrl_c.release()
    except KeyboardInterrupt:
        folder.finish("interrupted")
        raise
    except Exception as error:
        folder.finish("failed", f"{type(error).__name__}: {error}")
        raise
    folder.finish("done")
    lines = folder.lines()
    if len(policies) > 1:
        write_comparison(standings(lines, sample=sample_of(config)), folder.path / "comparison.csv")
    return lines


def write_comparison(ranked: Sequence[PolicyResult], path: Path) -> None:
    """Write the standings as CSV, whole or not at all.

    Raises:
        InputError: The file cannot be written.
    """
    rows = [standing.to_dict() for standing in ranked]
    table = {head: [row[head] for row in rows] for head in rows[0]} if rows else {}
    write_text(path, to_csv(table))


class _CtrlC:
    """Ctrl-C for as long as the block runs: held back while a result is written, and never lost.

    NumPy drops an exception that arises while it looks for attributes (of an enum, say), a KeyboardInterrupt included.
    So it is noted, too, and raised at the latest when the run is through. Off the main thread nothing happens.
    """

    def __init__(self) -> None:
        self._held = False
        self._pressed = False
        self._before: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def hold(self) -> None:
        """From now on only note it."""
        self._held = True

    def release(self) -> None:
        """Raise it again, at once if it was pressed meanwhile."""
        self._held = False
        self._raise_if_pressed()

    def _press(self, *_: object) -> None:
        self._pressed = True
        if not self._held:
            raise KeyboardInterrupt

    def _raise_if_pressed(self) -> None:
        if self._pressed:
            raise KeyboardInterrupt
