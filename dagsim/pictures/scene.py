"""Draw pictures of a schedule at a given time. A picture shows the waiting jobs, the GPUs of every
node, and the queue length and GPU use up to that time.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dagsim.metrics.columns import AnySchedule, Flags, Ints, columns
from dagsim.metrics.lanes import bars_of, lanes_of
from dagsim.metrics.utilization import gpus_held, jobs_waiting
from dagsim.model import Kind
from dagsim.pictures.colours import BLUE, GREY, INK, ORANGE, job_colour, readable_on

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

_ACROSS = 8
"""Maximum number of cells in a row of a card."""
_SIZES = (82, 72, 64, 58, 52, 46, 40, 34, 28, 24, 20, 16, 13, 11, 9, 7, 6, 5, 4, 3, 2, 1)
_GAP = 8
_TITLE = 14


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in pixels."""

    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True, slots=True)
class Layout:
    """The positions of the cards that represent nodes, and the edge length of the cells on them.
    Each cell represents a GPU.
    """

    cards: tuple[Box | None, ...]
    counts: tuple[int, ...]
    cell: int
    titled: bool

    def slot(self, node: int, first: float, last: float) -> Box | None:
        """Return the part of a cell that shows lanes ``first`` to ``last`` of a node. Cells are
        filled from the bottom.

        Both lanes must belong to the same GPU.
        """
        card = self.cards[node]
        if card is None:
            return None
        gpu = int(first + 1e-9)
        across = min(self.counts[node], _ACROSS)
        gap = _inner(self.cell)
        left = card.left + gap + gpu % across * (self.cell + gap)
        top = card.top + gap + (_TITLE if self.titled else 0) + gpu // across * (self.cell + gap)
        bottom = top + self.cell
        return Box(left, bottom - (last - gpu) * self.cell, left + self.cell, bottom - (first - gpu) * self.cell)


def layout(counts: Ints, area: Box) -> Layout:
    """Arrange the cards from left to right and from top to bottom, and make them as large as the
    area allows.
    """
    gpu_counts = tuple(int(count) for count in counts)
    for cell in _SIZES:
        titled = cell >= 16
        places = Layout(_placed(gpu_counts, area, cell, titled), gpu_counts, cell, titled)
        lowest = max((card.bottom for card in places.cards if card is not None), default=area.top)
        if lowest <= area.bottom:
            return places
    return places


def _placed(counts: tuple[int, ...], area: Box, cell: int, titled: bool) -> tuple[Box | None, ...]:
    cards: list[Box | None] = []
    gap = _GAP if cell >= 9 else 2
    left, top, tallest = area.left, area.top, 0.0
    for count in counts:
        if not count:
            cards.append(None)
            continue
        across, inner = min(count, _ACROSS), _inner(cell)
        wide = across * (cell + inner) + inner
        high = ceil(count / _ACROSS) * (cell + inner) + inner + (_TITLE if titled else 0)
        if left + wide > area.right and left > area.left:
            left, top, tallest = area.left, top + tallest + gap, 0.0
        cards.append(Box(left, top, left + wide, top + high))
        left, tallest = left + wide + gap, max(tallest, high)
    return tuple(cards)


def _inner(cell: int) -> int:
    return 4 if cell >= 16 else 2 if cell >= 6 else 0


WIDTH, HEIGHT = 960, 540
_FINE = 2
"""Pictures are first drawn larger by this factor and then reduced, so that edges are smooth."""
_GROUND, _CARD, _CELL, _DOWN = "#ffffff", "#f1f3f5", "#dfe3e7", "#b9b9b9"
_QUEUE = Box(20, 74, 168, 410)
_NODES = Box(200, 74, 940, 410)
_STRIP = Box(200, 436, 940, 508)
_BLOCK = 22
_MOST_POINTS = 370


class GpuPart(NamedTuple):
    """A part of a GPU that a run holds at a given time. Lanes are numbered from the first GPU of
    the node.
    """

    entry: int
    job: int
    node: int
    first: float
    last: float
    done: float
    """The fraction of the run's time that has elapsed, from 0 to 1."""


class Scene:
    """Pictures of one schedule. Each job has a colour. The blocks of a job move from the queue to
    its GPUs, and disappear when its runs end.
    """

    def __init__(self, source: AnySchedule, title: str = "") -> None:
        self._made = cols = columns(source)
        self._title = title
        lanes = lanes_of(cols)
        bars = bars_of(cols, lanes)
        self._entry, self._node = bars.run, cols.runs.node[bars.run]
        self._start_s, self._end_s = cols.runs.start_s[bars.run], cols.runs.end_s[bars.run]
        self._first, self._last = bars.top - lanes.first[self._node], bars.bottom - lanes.first[self._node]
        self._layout: Layout = layout(lanes.count, _NODES)
        self._waiting, self._held = jobs_waiting(cols), gpus_held(cols)
        gone_s = np.where(cols.jobs.accepted, cols.jobs.completed_s, cols.jobs.arrival_s)
        self._gone_s = np.where(np.isnan(gone_s), np.inf, gone_s)

    @property
    def span_s(self) -> tuple[float, float]:
        """The time of the first arrival, and the time at which the schedule ends."""
        return self._made.start_s, self._made.end_s

    def shares(self, now_s: float) -> list[GpuPart]:
        """Return the parts of GPUs that runs hold at a given time."""
        return self._shares((self._start_s <= now_s) & (self._end_s > now_s), now_s)

    def waiting(self, now_s: float) -> list[int]:
        """Return the jobs that are in the system without a current run, in order of arrival."""
        runs = self._made.runs
        running = np.zeros(len(self._made.jobs), bool)
        running[runs.job[(runs.start_s <= now_s) & (runs.end_s > now_s)]] = True
        here = (self._made.jobs.arrival_s <= now_s) & (self._gone_s > now_s) & ~running
        present = np.flatnonzero(here)
        jobs: list[int] = present[np.argsort(self._made.jobs.arrival_s[present], kind="stable")].tolist()
        return jobs

    def image(self, now_s: float, step_s: float = 0.0) -> Image:
        """Return the picture at a given time.

        ``step_s`` is the time between two consecutive pictures. If it is above 0, starts and ends
        of runs are shown as movements.
        """
        from PIL import Image, ImageDraw

        whole = Image.new("RGB", (WIDTH * _FINE, HEIGHT * _FINE), _GROUND)
        pen = ImageDraw.Draw(whole)
        queue = self.waiting(now_s)
        self._draw_words(pen, now_s, queue)
        self._draw_queue(pen, queue)
        self._draw_cards(pen, now_s)
        self._draw_strip(pen, now_s)
        flight_s = 3 * step_s
        started = (self._start_s <= now_s) & (self._end_s > now_s)
        flying = started & (self._start_s > now_s - flight_s) & (self._start_s > self._made.start_s)
        for share in self._shares(started & ~flying, now_s):
            self._draw_share(pen, share)
        for share in self._shares(flying, now_s):
            self._draw_flight(pen, share, (now_s - float(self._made.runs.start_s[share.entry])) / flight_s, queue)
        if flight_s:
            leaving = (self._end_s <= now_s) & (self._end_s > now_s - flight_s)
            leaving &= np.isin(self._made.runs.outcome[self._entry], (Kind.FINISHED,))
            for share in self._shares(leaving, now_s):
                self._draw_leaving(pen, share, (now_s - float(self._made.runs.end_s[share.entry])) / flight_s)
        return whole.reduce(_FINE)

    def array(self, now_s: float) -> np.ndarray:
        """Return the picture at a given time as an array, (height, width, 3) uint8."""
        return np.asarray(self.image(now_s))

    def _shares(self, chosen: Flags, now_s: float) -> list[GpuPart]:
        gpu_parts = []
        for bar in np.flatnonzero(chosen).tolist():
            entry, first, last = int(self._entry[bar]), float(self._first[bar]), float(self._last[bar])
            span_s = max(float(self._end_s[bar] - self._start_s[bar]), 1e-12)
            done = min(max((now_s - float(self._start_s[bar])) / span_s, 0.0), 1.0)
            gpu = int(first + 1e-9)
            while gpu < last - 1e-9:
                part = max(first, float(gpu)), min(last, gpu + 1.0)
                gpu_parts.append(GpuPart(entry, int(self._made.runs.job[entry]), int(self._node[bar]), *part, done))
                gpu += 1
        return gpu_parts

    def _draw_words(self, pen: ImageDraw, now_s: float, queue: list[int]) -> None:
        jobs = self._made.jobs
        done = int(np.count_nonzero(jobs.finished & (jobs.completed_s <= now_s)))
        running = int(np.count_nonzero((jobs.arrival_s <= now_s) & (self._gone_s > now_s))) - len(queue)
        self._text(pen, 20, 16, self._title or self._made.cluster.name, 20, bold=True)
        self._text(pen, 940, 18, clock(now_s - self._made.start_s), 18, anchor="ra", bold=True)
        self._text(pen, 20, 48, f"waiting: {len(queue):,} {'job' if len(queue) == 1 else 'jobs'}", 14, GREY)
        caption = f"running: {running:,}      done: {done:,} of {len(jobs):,}"
        if self._made.cluster.gpus:
            step = max(int(np.searchsorted(self._held.time_s, now_s, "right")) - 1, 0)
            held = float(self._held.value[step])
            caption = f"GPUs held: {held:,.4g} of {self._made.cluster.gpus:,}      {caption}"
        self._text(pen, 200, 48, caption, 14, GREY)

    def _draw_queue(self, pen: ImageDraw, queue: list[int]) -> None:
        room = self._room()
        for place, job in enumerate(queue[:room]):
            self._block(pen, self._place(place), job)
        if len(queue) > room:
            self._text(pen, _QUEUE.left, _QUEUE.bottom + 6, f"and {len(queue) - room:,} more", 12, GREY)

    def _draw_cards(self, pen: ImageDraw, now_s: float) -> None:
        outages = self._made.outages
        down = set(outages.node[(outages.start_s <= now_s) & (outages.end_s > now_s)].tolist())
        for node, card in enumerate(self._layout.cards):
            if card is None:
                continue
            self._box(pen, card, _DOWN if node in down else _CARD, round_=5)
            if self._layout.titled:
                most = max(int((card.right - card.left) / 6.2), 1)
                self._text(pen, card.left + 5, card.top + 2, self._made.cluster.nodes[node].name[-most:], 10, GREY)
            for gpu in range(self._layout.counts[node]):
                cell = self._layout.slot(node, gpu, gpu + 1)
                if cell is not None and node not in down:
                    self._box(pen, cell, _CELL, round_=3)

    def _draw_strip(self, pen: ImageDraw, now_s: float) -> None:
        """Draw the number of waiting jobs (orange) and the number of held GPUs (blue) up to
        ``now_s``.
        """
        start_s, end_s = self.span_s
        if not end_s > start_s:
            return
        if self._made.cluster.gpus:
            self._text(pen, _STRIP.left, _STRIP.bottom + 6, "GPUs held", 12, BLUE)
        self._text(pen, _STRIP.left + 84, _STRIP.bottom + 6, "jobs waiting", 12, "#a86f00")
        edges_s = np.linspace(start_s, end_s, _MOST_POINTS + 1)
        seen = max(int(np.searchsorted(edges_s, now_s, "right")) - 1, 0)
        waiting, held = self._waiting.binned(edges_s), self._held.binned(edges_s)
        curves = [(waiting, float(waiting.max()), ORANGE)]
        if self._made.cluster.gpus:
            curves.insert(0, (held, float(self._made.cluster.gpus), BLUE))
        x = np.linspace(_STRIP.left, _STRIP.right, _MOST_POINTS + 1)
        high = _STRIP.bottom - _STRIP.top
        for values, most, colour in curves:
            y = _STRIP.bottom - high * values / max(most, 1e-9)
            points = [(x[place] * _FINE, y[place] * _FINE) for place in range(min(seen + 1, len(y)))]
            if len(points) > 1:
                pen.line(points, fill=colour, width=2 * _FINE, joint="curve")
        pen.line([_STRIP.left * _FINE, _STRIP.bottom * _FINE, _STRIP.right * _FINE, _STRIP.bottom * _FINE], fill=_DOWN)
        now = _STRIP.left + (_STRIP.right - _STRIP.left) * min(max((now_s - start_s) / (end_s - start_s), 0.0), 1.0)
        pen.line([now * _FINE, _STRIP.top * _FINE, now * _FINE, _STRIP.bottom * _FINE], fill=GREY, width=_FINE)

    def _draw_share(self, pen: ImageDraw, share: GpuPart) -> None:
        box = self._layout.slot(share.node, share.first, share.last)
        if box is None:
            return
        colour = job_colour(share.job)
        self._box(pen, box, _hex(_mixed(colour, 0.45)), round_=3)
        done = Box(box.left, box.bottom - (box.bottom - box.top) * share.done, box.right, box.bottom)
        self._box(pen, done, _hex(colour), round_=3)
        if self._layout.cell >= 28 and share.last - share.first > 0.6:
            middle = (box.left + box.right) / 2, (box.top + box.bottom) / 2
            self._text(pen, *middle, str(share.job), 11, readable_on(colour), anchor="mm")

    def _draw_flight(self, pen: ImageDraw, share: GpuPart, way: float, queue: list[int]) -> None:
        """Draw a block on its way from the queue to its GPU."""
        target = self._layout.slot(share.node, share.first, share.last)
        if target is None:
            return
        ahead = int(np.searchsorted(self._made.jobs.arrival_s[queue], self._made.jobs.arrival_s[share.job]))
        self._block(pen, _between(self._place(min(ahead, self._room() - 1)), target, _eased(way)), share.job)

    def _draw_leaving(self, pen: ImageDraw, share: GpuPart, way: float) -> None:
        """Draw a block that shrinks at the place where its job ran."""
        box = self._layout.slot(share.node, share.first, share.last)
        if box is None:
            return
        shrunk = (1 - _eased(way)) / 2
        x, y = (box.left + box.right) / 2, (box.top + box.bottom) / 2
        wide, high = (box.right - box.left) * shrunk, (box.bottom - box.top) * shrunk
        if wide > 0.5:
            self._box(pen, Box(x - wide, y - high, x + wide, y + high), _hex(_mixed(job_colour(share.job), 0.8)), 3)

    def _room(self) -> int:
        across = int((_QUEUE.right - _QUEUE.left) // (_BLOCK + 4))
        return across * int((_QUEUE.bottom - _QUEUE.top) // (_BLOCK + 4))

    def _place(self, number: int) -> Box:
        across = int((_QUEUE.right - _QUEUE.left) // (_BLOCK + 4))
        left = _QUEUE.left + number % across * (_BLOCK + 4)
        top = _QUEUE.top + number // across * (_BLOCK + 4)
        return Box(left, top, left + _BLOCK, top + _BLOCK)

    def _block(self, pen: ImageDraw, box: Box, job: int) -> None:
        colour = job_colour(job)
        self._box(pen, box, _hex(colour), round_=4)
        asked = self._made.jobs.gpus[job]
        if asked >= 1 and box.right - box.left >= 16:
            middle = (box.left + box.right) / 2, (box.top + box.bottom) / 2
            self._text(pen, *middle, f"{asked:g}", 11, readable_on(colour), anchor="mm")

    def _box(self, pen: ImageDraw, box: Box, colour: str, round_: float = 0) -> None:
        corners = [box.left * _FINE, box.top * _FINE, box.right * _FINE - 1, box.bottom * _FINE - 1]
        if corners[2] <= corners[0] or corners[3] <= corners[1]:
            return
        radius = min(round_ * _FINE, (corners[2] - corners[0]) / 2, (corners[3] - corners[1]) / 2)
        pen.rounded_rectangle(corners, radius, fill=colour)

    def _text(
        self,
        pen: ImageDraw,
        x: float,
        y: float,
        text: str,
        size: int,
        colour: str = INK,
        anchor: str = "la",
        *,
        bold: bool = False,
    ) -> None:
        from PIL import ImageFont

        thick = _FINE / 4 if bold else 0
        pen.text((x * _FINE, y * _FINE), text, colour, ImageFont.load_default(size * _FINE), anchor, stroke_width=thick)


def clock(time_s: float) -> str:
    """Format a duration for people, for example ``2 d 3 h``, ``14 min`` or ``3.2 s``."""
    if time_s < 180:
        return f"{time_s:.1f} s"
    minutes = int(time_s // 60)
    if minutes < 120:
        return f"{minutes} min"
    if minutes < 72 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes // 1440} d {minutes // 60 % 24} h"


def _eased(way: float) -> float:
    return way * way * (3 - 2 * way)


def _between(one: Box, other: Box, way: float) -> Box:
    mixed = [a + (b - a) * way for a, b in zip(_edges(one), _edges(other), strict=True)]
    return Box(*mixed)


def _edges(box: Box) -> tuple[float, float, float, float]:
    return box.left, box.top, box.right, box.bottom


def _mixed(colour: tuple[float, float, float], white: float) -> tuple[float, float, float]:
    red, green, blue = (part + (1 - part) * white for part in colour)
    return red, green, blue


def _hex(colour: tuple[float, float, float]) -> str:
    return "#" + "".join(f"{round(255 * part):02x}" for part in colour)
