"""Terminal output: tables on standard output, progress on standard error."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from dagsim.report.grid import Grid, TableFormat, plain_text
from dagsim.text import count_of, on_one_line

if TYPE_CHECKING:
    from dagsim.experiment.carry_out import RunProgress, Watch

T = TypeVar("T")

_WIDTH, _WIDE = 80, 320
"""The width of tables if there is no terminal, and of tables with ``--wide``."""


LINE_S = 30.0
"""The number of seconds between two progress lines if standard error is not a terminal."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise the error again, so that it is handled like an error in other output. By default,
        rich would exit.
        """
        raise


def console(*, wide: bool = False) -> Console:
    """Return a console for standard output. If ``wide`` is True, the console ignores the width of
    the terminal. If the output is not a terminal, the width is taken from ``COLUMNS``.
    """
    return _Console(width=_WIDE if wide else None if sys.stdout.isatty() or _columns() else _WIDTH)


def _columns() -> bool:
    return os.environ.get("COLUMNS", "").isdigit()


def show_grid(grid: Grid, look: TableFormat = TableFormat.TEXT, *, wide: bool = False) -> None:
    """Print a table as text, Markdown or LaTeX."""
    if look is TableFormat.TEXT:
        console(wide=wide).print(grid)
    else:
        print(grid.shown(look))


def show(heads: Sequence[str], rows: Iterable[Sequence[Any]], as_json: bool) -> None:
    """Print rows as a table that fits the width of the terminal, or as one JSON array of objects.

    The first column contains names, which are never cut or broken. If the output goes to a pipe,
    each row is one line.
    """
    if as_json:
        print(json.dumps([dict(zip(heads, row, strict=True)) for row in rows]))
        return
    cells = [[on_one_line(plain_text(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    if not sys.stdout.isatty() and not _columns():
        for row in (heads, *cells):
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        return
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False, show_edge=False)
    for place, head in enumerate(heads):
        table.add_column(Text(head), no_wrap=not place, min_width=widths[0] if not place else None, overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    console().print(table)


@contextmanager
def progress(wanted: bool, *, every_run: bool = False) -> Iterator[Watch | None]:
    """If ``wanted`` is True, show the progress of a plan on standard error, as a bar on a terminal
    and otherwise as occasional lines. If ``every_run`` is True, also print a line whenever a run
    begins.
    """
    if not wanted:
        yield None
        return
    if not sys.stderr.isatty():
        yield _plan_lines(every_run=every_run)
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def watch(step: RunProgress) -> None:
            jobs = f", {count_of(step.jobs, 'job')}" if step.jobs else ""
            text = f"{step.policy}, seed {step.seed}{jobs}"
            bar.update(task, description=on_one_line(text), completed=step.done, total=step.runs)

        yield watch


def _plan_lines(*, every_run: bool) -> Watch:
    """Return a function that prints a line of progress every 30 s and, if ``every_run`` is True,
    whenever a run begins.
    """
    last_s, last = time.monotonic(), ""

    def watch(step: RunProgress) -> None:
        nonlocal last_s, last
        now_s, run = time.monotonic(), f"{step.policy}, seed {step.seed}"
        if now_s - last_s >= LINE_S or (every_run and run != last):
            done = f"{step.done} of {count_of(step.runs, 'run')} done"
            tell_progress(f"simulating {run}: {count_of(step.jobs, 'job')} so far; {done}")
            last_s, last = now_s, run

    return watch


def counted(what: str, wanted: bool, unit: str = "jobs", every: int = 1000) -> Callable[[Iterable[T]], Iterator[T]]:
    """Return a function that yields the items it is given. If ``wanted`` is True, it also shows
    their number on standard error: on a terminal in a single line, and otherwise in a new line
    every 30 s.
    """

    def telling(items: Iterable[T]) -> Iterator[T]:
        if not sys.stderr.isatty():
            latest_s = time.monotonic()
            for count, item in enumerate(items):
                if count % every == 0 and time.monotonic() - latest_s >= LINE_S:
                    latest_s = time.monotonic()
                    tell_progress(f"{what}: {count:,} {unit}")
                yield item
            return
        columns = (TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=None)
            for count, item in enumerate(items):
                if count % every == 0:
                    bar.update(task, description=f"{what}: {count:,} {unit}")
                yield item

    return telling if wanted else iter


@contextmanager
def downloading(wanted: bool) -> Iterator[Callable[[str, int, int | None], None] | None]:
    """If ``wanted`` is True and standard error is a terminal, show a progress bar for each downloaded file."""
    if not (wanted and sys.stderr.isatty()):
        yield None
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def tell(name: str, done: int, of: int | None) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(on_one_line(name), total=of, completed=done)
            bar.update(tasks[name], completed=done)

        yield tell


def tell_progress(text: str) -> None:
    """Print a line of progress to standard error."""
    print(on_one_line(text), file=sys.stderr, flush=True)
