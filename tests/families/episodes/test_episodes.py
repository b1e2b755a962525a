"""Episodes in the compiled engine: copies of bytes that can be forked and recorded."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from dagsim.config.schema import load_config
from dagsim.errors import ConfigError
from dagsim.families.compiled import jit
from dagsim.families.compiled.choice import why_not_live
from dagsim.families.episodes.episode_state import EpisodeReward
from dagsim.families.episodes.side_by_side import CompiledEpisodes
from dagsim.families.learning.codecs.codec import CandidatesConfig
from dagsim.model import Cluster, Job, Task
from dagsim.systems.cluster.scenario import ClusterScenario, cluster_scenario_of

pytestmark = pytest.mark.timeout(600)  # the first run on a machine compiles

FIRST, SECOND, THIRD = (np.array([number]) for number in range(3))


def episodes(count: int, *settings: str, recorded: bool = True) -> CompiledEpisodes:
    few = load_config(None, ["workload=heterogeneous-dag", "workload.count=5", *settings])
    return CompiledEpisodes(cluster_scenario_of(few), count, CandidatesConfig(), EpisodeReward(), recorded=recorded)


def play(compiled: CompiledEpisodes, which: np.ndarray, choice: int) -> float:
    """Play an episode to its end by the same row everywhere, counted from the last one; the sum of rewards."""
    total, over = 0.0, False
    while not over:
        rows = len(compiled.observe(which).tokens)
        rewards, ends = compiled.advance(which, np.array([max(rows - 1 - choice, 0)]))
        total, over = total + rewards[0], bool(ends[0])
    return total


def test_a_fork_continues_as_its_original_and_changes_nothing_there() -> None:
    compiled = episodes(3)
    compiled.begin(FIRST, [2])
    for _ in range(4):
        compiled.advance(FIRST, np.array([0]))
    compiled.fork(0, 1)
    compiled.fork(0, 2)
    other, copy = play(compiled, SECOND, 2), play(compiled, THIRD, 1)
    assert play(compiled, FIRST, 1) == copy != other
    assert compiled.schedule(0).log == compiled.schedule(2).log != compiled.schedule(1).log


def test_a_batch_shows_each_episode_as_it_is_alone() -> None:
    compiled = episodes(3, recorded=False)
    compiled.begin(np.arange(3), [4, 5, 4])
    compiled.advance(SECOND, np.array([0]))
    alone = [compiled.observe(np.array([number])).tokens.copy() for number in range(3)]
    batch = compiled.observe(np.array([1, 0, 2]))
    for place, number in enumerate((1, 0, 2)):
        rows = batch.tokens[batch.first[place] : batch.first[place + 1]]
        assert rows.tobytes() == alone[number].tobytes()
    assert alone[0].tobytes() == alone[2].tobytes() != alone[1].tobytes()


def test_an_episode_keeps_its_arrays_while_those_of_others_are_freed_and_overwritten() -> None:
    compiled = episodes(2)
    compiled.begin(SECOND, [500])
    compiled.advance(SECOND, np.array([0]))
    totals = []
    for seed in range(70):  # more than the images that are kept, and of many sizes
        compiled.begin(FIRST, [seed])
        totals.append(play(compiled, FIRST, 1))
        gc.collect(0)
        overwritten = [np.full(size, 0xAB, np.uint8) for size in (1 << 12, 1 << 15, 1 << 18, 1 << 20)]
        del overwritten
    alone = episodes(2)
    alone.begin(SECOND, [500])
    alone.advance(SECOND, np.array([0]))
    assert play(compiled, SECOND, 1) == play(alone, SECOND, 1)
    assert compiled.schedule(1).log == alone.schedule(1).log
    for seed in (0, 33, 69):
        alone.begin(FIRST, [seed])
        assert play(alone, FIRST, 1) == totals[seed]


def test_an_episode_that_is_too_large_is_refused() -> None:
    jobs = [Job.single("j", Task("t", 1.0, instances=2**21, gpus=0.0, cpus=1.0))]
    compiled = CompiledEpisodes(ClusterScenario(Cluster.of({"V100": 1}), jobs), 1, CandidatesConfig(), EpisodeReward())
    with pytest.raises(ConfigError, match="2,097,152"):
        compiled.begin(FIRST, [0])


@pytest.mark.skipif(not jit.jitted(), reason="numba is not installed")
@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("engine=simpy", "asked for"),
        ("engine=auto", ""),
        ("failures=[{kind: node_failures, mean_up_s: 1e6, mean_down_s: 60}]", "failures"),
        ("network={kind: uniform, bandwidth_gb_s: 1.0}", "a network"),
    ],
)
def test_what_a_scenario_has_that_is_not_compiled_is_named(setting: str, reason: str) -> None:
    scenario = cluster_scenario_of(load_config(None, ["workload.count=3", setting]))
    assert reason in why_not_live(scenario)
    assert bool(why_not_live(scenario)) == bool(reason)
