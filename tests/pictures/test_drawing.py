"""Pictures of a run of three jobs, checked by hand: every box, word and line that is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from PIL import ImageDraw

from dagsim.model import Cluster, Job, Node, Task, gpu_type
from dagsim.pictures import Scene
from dagsim.pictures.scene import Box, clock, layout
from dagsim.systems.cluster import ClusterKernel, Maintenance
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.policies import POLICIES

T4 = gpu_type("T4")
BLUE, ORANGE, GREEN = "#0072b2", "#e69f00", "#009e73"


class Pen:
    """Notes what is drawn, in pixels of the finished picture, which is half as large."""

    def __init__(self, *_: object) -> None:
        self.boxes: list[tuple[Any, ...]] = []
        self.words: dict[str, tuple[Any, ...]] = {}
        self.lines: list[tuple[Any, ...]] = []

    def rounded_rectangle(self, corners: Sequence[float], radius: float, fill: str) -> None:
        left, top, right, bottom = corners
        self.boxes.append((left / 2, top / 2, (right + 1) / 2, (bottom + 1) / 2, radius / 2, fill.lower()))

    def text(self, at: Sequence[float], text: str, colour: str, font: Any, anchor: str, stroke_width: float) -> None:
        self.words[text] = (at[0] / 2, at[1] / 2, font.size / 2, colour, anchor, stroke_width)

    def line(self, points: Any, fill: str, width: int = 0, joint: str | None = None) -> None:
        pairs = np.array(points, float).reshape(-1, 2) / 2
        self.lines.append((len(pairs), tuple(pairs[0]), tuple(pairs[-1]), fill.lower(), width / 2))


@pytest.fixture
def draw(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Draw a scene with a ``Pen``."""
    pens: list[Pen] = []

    def make(*_: object) -> Pen:
        pens.append(Pen())
        return pens[-1]

    monkeypatch.setattr(ImageDraw, "Draw", make)

    def draw_(scene: Scene, now_s: float, step_s: float = 0.0) -> Pen:
        scene.image(now_s, step_s)
        return pens[-1]

    return draw_


def scene() -> Scene:
    """``one`` starts on b, fails at 3 s when b goes down for a second, and runs on a until 13 s.
    ``half`` runs on half a GPU of a until 20 s. ``two`` waits from 1 s, and runs on a from 20 s to 24 s.
    """
    cluster = Cluster((Node("a", T4, 2), Node("c", None, 0, 4), Node("a-name-of-23-characters", T4, 1)))
    jobs = [
        Job.single("one", Task("t", 10.0)),
        Job.single("half", Task("t", 20.0, gpus=0.5)),
        Job.single("two", Task("t", 4.0, gpus=2), 1.0),
    ]
    kernel = ClusterKernel(cluster, jobs, Models(failures=(Maintenance((2,), 3.0, 4.0),)))
    return Scene(kernel.run(POLICIES.create("fifo")), "Three jobs")


# The largest cells, of 82 pixels, fit. A card has an edge of 4, a title of 14, and 4 between its cells; 8 lie between
# two cards. So a is 176 wide and begins at 200, b is 90 wide and begins at 384; both are 104 high and begin at 74.
CARDS = [(200, 74, 376, 178, 5, "#f1f3f5"), (384, 74, 474, 178, 5, "#f1f3f5")]
CELLS = [(204, 92, 286, 174), (290, 92, 372, 174), (388, 92, 470, 174)]
EMPTY = [(*cell, 3, "#dfe3e7") for cell in CELLS]


def test_a_still_picture_shows_queue_cards_and_runs(draw: Any) -> None:
    pen = draw(scene(), 5.0)
    assert pen.boxes == [
        (20, 74, 42, 96, 4, GREEN),  # two waits
        *(CARDS[0], EMPTY[0], EMPTY[1], CARDS[1], EMPTY[2]),
        # one has run for 2 of 10 s: a fifth of the cell of 82 is full, the rest is 45 % white
        (*CELLS[1], 3, "#73b1d5"),
        (290, pytest.approx(174 - 82 / 5), 372, 174, 3, BLUE),
        # half has run for 5 of 20 s, in the lower half of its cell
        (204, 133, 286, 174, 3, "#f1ca73"),
        (204, pytest.approx(174 - 41 / 4), 286, 174, 3, ORANGE),
    ]
    assert pen.words == {
        "Three jobs": (20, 16, 20, "#222222", "la", 0.5),
        "5.0 s": (940, 18, 18, "#222222", "ra", 0.5),
        "waiting: 1 job": (20, 48, 14, "#6b6b6b", "la", 0),
        "GPUs held: 1.5 of 3      running: 2      done: 0 of 3": (200, 48, 14, "#6b6b6b", "la", 0),
        "2": (31, 85, 11, "#ffffff", "mm", 0),
        "a": (205, 76, 10, "#6b6b6b", "la", 0),
        "of-23-characters"[-14:]: (389, 76, 10, "#6b6b6b", "la", 0),  # 90 pixels have room for 14 letters
        "GPUs held": (200, 514, 12, "#0072B2", "la", 0),
        "jobs waiting": (284, 514, 12, "#a86f00", "la", 0),
        "0": (331, 133, 11, "#ffffff", "mm", 0),
    }


def test_the_strip_shows_the_past_in_370_steps_of_two_pixels(draw: Any) -> None:
    pen = draw(scene(), 5.0)
    held, waiting, ground, now = pen.lines
    # 5 of 24 s: 77 whole steps and the next point. 1.5 of 3 GPUs are half of the 72 pixels above 508.
    assert held == (78, (200, 472), (354, pytest.approx(472)), BLUE, 2)
    assert waiting == (78, (200, 508), (354, 436), ORANGE, 2)  # at most one job waits, from 1 s on
    assert ground == (2, (200, 508), (940, 508), "#b9b9b9", 0)
    assert now == (2, (pytest.approx(200 + 740 * 5 / 24), 436), (pytest.approx(200 + 740 * 5 / 24), 508), "#6b6b6b", 1)
    before, after = draw(scene(), -1.0), draw(scene(), 99.0)
    assert (before.lines[-1][1], after.lines[-1][1]) == ((200, 436), (940, 436))
    assert [len(draw(scene(), now_s).lines) for now_s in (-1.0, 0.01, 0.1)] == [2, 2, 4]  # no line has one point


def test_a_node_that_is_down_is_grey_and_has_no_cells(draw: Any) -> None:
    pen = draw(scene(), 3.5)
    assert pen.boxes[1:5] == [CARDS[0], EMPTY[0], EMPTY[1], (*CARDS[1][:5], "#b9b9b9")]
    assert draw(scene(), 4.0).boxes[4:6] == [CARDS[1], EMPTY[2]]  # up again


def test_blocks_fly_to_their_gpus_and_shrink_as_they_leave(draw: Any) -> None:
    pen = draw(scene(), 21.0, 1.0)  # a movement takes three steps; one is over
    eased = (1 / 3) ** 2 * (3 - 2 / 3)
    flying = [[a + (b - a) * eased for a, b in zip((20, 74, 42, 96), cell, strict=True)] for cell in CELLS[:2]]
    left = (1 - eased) / 2
    assert pen.boxes[5:] == [
        *((*map(pytest.approx, box), 4, GREEN) for box in flying),
        (
            *map(pytest.approx, (245 - 82 * left, 153.5 - 41 * left, 245 + 82 * left, 153.5 + 41 * left)),
            *(3, "#faeccc"),  # 80 % white
        ),
    ]
    assert pen.words["2"][:2] == pytest.approx(((flying[1][0] + flying[1][2]) / 2, (flying[1][1] + flying[1][3]) / 2))
    assert "waiting: 0 jobs" in pen.words
    assert "GPUs held: 2 of 3      running: 1      done: 2 of 3" in pen.words
    still = draw(scene(), 23.0, 1.0)  # three steps after the start nothing moves
    assert [box[:4] for box in still.boxes[5:]] == [
        *(CELLS[0], (204, pytest.approx(92 + 82 / 4), 286, 174)),
        *(CELLS[1], (290, pytest.approx(92 + 82 / 4), 372, 174)),
    ]
    # Runs that start with the picture are there at once; a run that failed leaves without a movement.
    assert len(draw(scene(), 0.5, 1.0).boxes) == len(CARDS) + len(CELLS) + 4
    assert len(draw(scene(), 4.5, 0.1).boxes) == len(draw(scene(), 4.5).boxes)


def test_a_long_queue_has_rows_of_five_and_ends_with_a_number(draw: Any) -> None:
    cluster = Cluster((Node("n", T4, 1),))
    jobs = [Job.single(str(at), Task("t", 1.0, gpus=1 if at else 0.5), 0.0) for at in range(63)]
    pen = draw(Scene(ClusterKernel(cluster, jobs).run(POLICIES.create("fifo"))), 0.5)
    assert pen.boxes[59][:4] == (20 + 4 * 26, 74 + 11 * 26, 20 + 4 * 26 + 22, 74 + 11 * 26 + 22)
    assert pen.boxes[5][:4] == (20, 74 + 26, 42, 74 + 48)
    assert pen.words["and 2 more"] == (20, 416, 12, "#6b6b6b", "la", 0)
    assert "waiting: 62 jobs" in pen.words
    assert "0" not in pen.words  # half a GPU has no room for the number of its job


def test_a_cluster_without_gpus_shows_cores_and_jobs(draw: Any) -> None:
    jobs = [Job.single(name, Task("t", 2.0, gpus=0, cpus=1)) for name in "ab"]
    pen = draw(Scene(ClusterKernel(Cluster((Node("c", None, 0, 1),)), jobs).run(POLICIES.create("fifo"))), 1.0)
    words = {"cluster", "1.0 s", "waiting: 1 job", "running: 1      done: 0 of 2", "jobs waiting", "c", "0"}
    assert set(pen.words) == words
    assert [line[3] for line in pen.lines] == [ORANGE, "#b9b9b9", "#6b6b6b"]


def test_cards_stand_in_rows_and_cells_in_rows_of_eight() -> None:
    area = Box(200, 74, 940, 410)
    three = layout(np.array([4, 4, 4]), area)  # each 4 x 86 + 4 wide: two side by side
    assert (three.cell, three.titled) == (82, True)
    assert three.cards == (Box(200, 74, 548, 178), Box(556, 74, 904, 178), Box(200, 186, 548, 290))
    nine = layout(np.array([0, 9]), area)
    assert nine.cards == (None, Box(200, 74, 892, 264))
    assert nine.slot(1, 8, 8.5) == Box(204, 219, 286, 260)
    assert nine.slot(0, 0, 1) is None
    # 23 rows of 9 cards, 11 high and 2 apart, are the first that fit: no titles, 2 pixels between cells
    many = layout(np.array([8] * 200), area)
    assert (many.cell, many.titled) == (7, False)
    assert many.cards[9] == Box(200, 87, 274, 98)
    assert many.slot(9, 7, 8) == Box(265, 89, 272, 96)
    tiny = layout(np.array([8] * 1000), area)  # 21 to a row, 48 rows of 6 pixels; cells of 5 would need 411 pixels
    assert (tiny.cell, tiny.cards[999]) == (4, Box(608, 356, 640, 360))
    assert layout(np.array([8] * 20_000), area).cell == 1  # as small as it gets, and more than fits


@pytest.mark.parametrize(
    ("time_s", "text"),
    {
        **{0.0: "0.0 s", 179.94: "179.9 s", 180.0: "3 min", 7199.0: "119 min", 7200.0: "2 h 00 min"},
        **{4319 * 60.0: "71 h 59 min", 4320 * 60.0: "3 d 0 h", 90 * 3600.0 - 1: "3 d 17 h"},
    }.items(),
)
def test_the_clock_is_for_people(time_s: float, text: str) -> None:
    assert clock(time_s) == text
