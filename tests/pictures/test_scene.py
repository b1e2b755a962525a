from __future__ import annotations

import numpy as np
import pytest

from dagsim.metrics.columns import columns
from dagsim.metrics.utilization import jobs_waiting
from dagsim.model import Cluster, Job, Node, Task, gpu_type
from dagsim.pictures import Scene
from dagsim.pictures.scene import Box, layout
from dagsim.systems.cluster.kernel import ClusterKernel
from dagsim.systems.cluster.policies import POLICIES


@pytest.fixture(scope="module")
def schedule():
    rng = np.random.default_rng(1)
    jobs = [
        Job.single(f"j{n}", Task("t", float(rng.exponential(60.0)), gpus=float(rng.choice([0.5, 1, 2]))), 5.0 * n)
        for n in range(40)
    ]
    cluster = Cluster((Node("a", gpu_type("T4"), 3), Node("b", gpu_type("V100-16"), 2)))
    return ClusterKernel(cluster, jobs).run(POLICIES.create("fifo"))


@pytest.mark.parametrize("share", [0.1, 0.35, 0.6, 0.9])
def test_the_scene_shows_what_is_held_and_who_waits(schedule, share: float) -> None:
    scene, cols = Scene(schedule), columns(schedule)
    start_s, end_s = scene.span_s
    now_s = start_s + share * (end_s - start_s)
    runs = cols.runs
    held = runs.held[(runs.start_s <= now_s) & (runs.end_s > now_s)].sum()
    assert sum(part.last - part.first for part in scene.shares(now_s)) == pytest.approx(held)
    waiting = jobs_waiting(cols)
    assert len(scene.waiting(now_s)) == waiting.value[np.searchsorted(waiting.time_s, now_s, "right") - 1]


def test_a_gpu_is_filled_by_the_share_of_the_time_that_is_over() -> None:
    cluster = Cluster((Node("a", gpu_type("T4"), 1),))
    scene = Scene(ClusterKernel(cluster, [Job.single("j", Task("t", 10.0))]).run(POLICIES.create("fifo")))
    end_s = scene.span_s[1]
    (half,) = scene.shares(end_s / 2)
    assert half[1:] == (0, 0, 0.0, 1.0, pytest.approx(0.5))
    blue = []
    for part in (0.25, 0.5, 0.75):
        cell = scene.array(part * end_s)[80:300, 200:600].astype(int)
        blue.append((abs(cell - [0, 114, 178]).sum(axis=2) < 30).sum())
    assert blue[1] / blue[0] == pytest.approx(2, rel=0.1)
    assert blue[2] / blue[0] == pytest.approx(3, rel=0.1)


def test_moving_blocks_change_only_the_picture(schedule) -> None:
    scene = Scene(schedule)
    now_s = sum(scene.span_s) / 2
    still, moving = np.asarray(scene.image(now_s)), np.asarray(scene.image(now_s, 20.0))
    assert still.shape == moving.shape == (540, 960, 3)
    assert (still != moving).any()
    assert (np.asarray(scene.image(now_s)) == still).all()


@pytest.mark.parametrize("counts", [[1], [8] * 4, [4] * 100, [2] * 1000, [0, 3, 0], [64]])
def test_every_gpu_has_a_cell_of_its_own_inside_the_area(counts: list[int]) -> None:
    area = Box(200, 74, 940, 410)
    grid = layout(np.array(counts), area)
    cells = [grid.slot(node, gpu, gpu + 1) for node, count in enumerate(counts) for gpu in range(count)]
    assert len({(cell.left, cell.top) for cell in cells}) == sum(counts)
    assert all(area.left <= cell.left and cell.right <= area.right + 1 for cell in cells)
    assert all(area.top <= cell.top and cell.bottom <= area.bottom + 1 for cell in cells)
