"""The display of a training run's progress on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from dagsim.report.terminal import LINE_S

if TYPE_CHECKING:
    from dagsim.families.learning.training.trainer import Progress as TrainingProgress


@contextmanager
def training_progress(
    wanted: bool, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[TrainingProgress], None] | None]:
    """Show the progress of a training run on standard error, if ``wanted``. On a terminal, this is
    a bar. Otherwise, a line is printed from time to time.
    """
    if not wanted:
        yield None
        return
    if not sys.stderr.isatty():
        yield _training_lines(clock)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def tell(at: TrainingProgress) -> None:
            score = "" if at.ratio is None else f", {at.ratio:.4f} of the reference"
            bar.update(task, description=f"{at.what}{score}", completed=at.done, total=at.of)

        yield tell


def _training_lines(clock: Callable[[], float]) -> Callable[[TrainingProgress], None]:
    """Return a function that prints a line at most every ``LINE_S`` seconds. The line contains the
    remaining time, estimated from the speed of the current phase.
    """
    phase, phase_began, phase_done = "", clock(), 0
    printed = clock()

    def tell(at: TrainingProgress) -> None:
        nonlocal phase, phase_began, phase_done, printed
        now = clock()
        if (name := at.what.partition(":")[0]) != phase:
            phase, phase_began, phase_done = name, now, at.done
        if now - printed < LINE_S:
            return
        printed, steps = now, at.done - phase_done
        score = "" if at.ratio is None else f", {at.ratio:.4f} of the reference"
        left = f", {_clock(round((now - phase_began) / steps * (at.of - at.done)))} left" if steps else ""
        print(f"{at.what}: {at.done} of {at.of}{score}{left}", file=sys.stderr, flush=True)

    return tell


def _clock(seconds: int) -> str:
    """Format a time as hours, minutes and seconds: ``0:02:30``."""
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
