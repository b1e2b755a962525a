"""The reasons why a job waited, for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

from dagsim.metrics.why import WaitReasons
from dagsim.report.grid import Grid, printable
from dagsim.report.numbers import number
from dagsim.systems.cluster.waits import Causes, Stretch, causes_by_time

__all__ = ["why_lines", "why_tables"]

_WIDTH = 80


def why_lines(found: WaitReasons, run: str, bound: Sequence[Stretch] | None = None, unknown: str = "") -> Iterator[str]:
    """Sentences: how long it waited, and what kept it.

    Without ``bound`` (``unknown`` says why) that is told by GPUs and outages alone, as the log knows no more.
    """
    for line in _lines(found, run, bound, unknown):
        yield from wrap(printable(line), _WIDTH, subsequent_indent="  ") or [""]


def _lines(found: WaitReasons, run: str, bound: Sequence[Stretch] | None, unknown: str) -> Iterator[str]:
    who = f" of {found.tenant}" if found.tenant else ""
    yield f"{run}: job {found.job}{who}, {number(found.gpus)} GPUs, arrived at {number(found.arrival_s)} s"
    if found.start_s is None:
        yield f"It never started; it waited {number(found.wait_s)} s to the end of the log."
    elif not found.wait_s:
        yield f"It started at {number(found.start_s)} s and never waited."
    else:
        first = found.start_s - found.arrival_s
        text = f"It started at {number(found.start_s)} s, after {number(first)} s"
        rest = found.wait_s - first
        yield text + (f", and waited {number(rest)} s between its runs." if rest > 0 else ".")
    if found.stopped:
        yield f"Its runs were stopped {found.stopped} times."
    if bound is not None:
        yield from _shares([(_said(causes), seconds) for causes, seconds in causes_by_time(bound)], found.wait_s)
        return
    yield from _shares(sorted(found.blocked_s.items(), key=lambda pair: -pair[1]), found.wait_s)
    if found.wait_s:
        why = f": {unknown}" if unknown else ""
        yield f"(on {', '.join(found.types)}: where it ran; CPUs, memory and limits are not known here{why})"


def _shares(parts: Iterable[tuple[str, float]], wait_s: float) -> Iterator[str]:
    for what, seconds in parts:
        yield f"{100 * seconds / wait_s:5.1f} % of the wait ({number(seconds)} s): {what}"


def _said(causes: Causes) -> str:
    return "; and ".join(cause.what for cause in causes)


def why_tables(found: WaitReasons, count: int) -> Iterator[Grid]:
    """Tables of who held the GPUs meanwhile and who went first; at most ``count`` of each."""
    if found.holders:
        total = sum(holder.gpu_s for holder in found.holders)
        rows = [
            (
                holder.job,
                holder.tenant or "-",
                number(holder.gpus),
                number(holder.gpu_s),
                f"{100 * holder.gpu_s / total:.1f} %",
                "later" if holder.arrived_later else "before",
            )
            for holder in found.holders[:count]
        ]
        heads = ("job", "tenant", "GPUs", "GPU-seconds\nmeanwhile", "share", "arrived")
        yield Grid(_counted("Held the GPUs meanwhile", len(found.holders), count), heads, rows, (), (0, 1, 5))
    if found.overtakers:
        later = [
            (each.job, each.tenant or "-", number(each.gpus), number(each.arrival_s), number(each.start_s))
            for each in found.overtakers[:count]
        ]
        names = ("job", "tenant", "GPUs", "arrived\n(s)", "started\n(s)")
        yield Grid(_counted("Arrived later and went first", len(found.overtakers), count), names, later, (), (0, 1))


def _counted(what: str, there: int, shown: int) -> str:
    return f"{what}: {there:,} jobs" + (f", the first {shown}" if there > shown else "")
