"""Views in arrays, and choices as decisions."""

from __future__ import annotations

import numpy as np
import pytest

from dagsim.errors import ConfigError, IllegalDecision
from dagsim.families.ramp.api import (
    DDLS,
    ComputationGraph,
    Fabric,
    Memo,
    Op,
    Partition,
    Planner,
    Ramp,
    RampCodec,
    RampJob,
    RampKernel,
    RampObservation,
    RampView,
    Rules,
)
from dagsim.families.ramp.codecs import CONTEXT, JOB_FEATURES, ROW_FEATURES, TYPE_FEATURES, PartitionConfig


def row() -> ComputationGraph:
    ops = [Op("1", 1.0, 4.0, 8.0, 2.0), Op("2", 2.0, 1.0, 4.0, 1.0)]
    return ComputationGraph("row", ops, [(0, 1)])


def job(beta: float = 1.0, steps: int = 1, arrival_s: float = 0.0) -> RampJob:
    return RampJob(f"{beta}", row(), arrival_s, beta, steps)


def first_view(*jobs: RampJob, rules: Rules | None = None) -> RampView:
    planner = Planner(Fabric(Ramp(2, 2, 1)), rules or Rules(quantum_s=0.01, max_degree=4), memo=Memo())
    return next(RampKernel(jobs, planner).decisions())


POOL = (job(0.2, 1), job(1.0, 3))


def seen(view: RampView, **settings: object) -> RampObservation:
    observation = RampCodec(POOL, **settings).encode(view)  # type: ignore[arg-type]
    assert observation is not None
    return observation


def column(observation: RampObservation, name: str) -> list[float]:
    return [float(value) for value in observation.tokens[:, ROW_FEATURES.index(name)]]


def test_operations_of_both_passes_over_the_largest() -> None:
    assert seen(first_view(job())).ops.tolist() == [
        [0.25, 0.0, 1.0, 1.0, 0.0],
        [0.5, 0.0, 0.5, 0.0, pytest.approx(1 / 3)],
        [1.0, 1.0, 1.0, 1.0, 1.0],
        [0.25, 0.0, 0.5, 0.0, pytest.approx(2 / 3)],
    ]


def test_dependencies_carry_the_output_of_their_source() -> None:
    observation = seen(first_view(job()))
    assert (observation.sources.tolist(), observation.targets.tolist()) == ([0, 3, 1], [1, 2, 3])
    assert observation.deps.tolist() == [[1.0, 1.0], [0.5, 0.0], [0.5, 0.0]]


def test_the_job_lies_in_the_range_of_the_examples() -> None:
    context = dict(zip(CONTEXT, seen(first_view(job(0.6, 2))).context.tolist(), strict=True))
    assert context["beta"] == pytest.approx(0.5)
    assert context["raw_beta"] == pytest.approx(0.6)
    assert context["steps"] == pytest.approx(0.5)
    assert context["sequential_s"] == pytest.approx(0.5)  # 16 s between 8 and 24
    assert context["num_ops"] == 1.0  # the same for all
    assert context["mean_compute"] == pytest.approx((0.25 + 0.5 + 1 + 0.25) / 4)
    assert context["median_dep"] == 0.5
    assert context["mounted_workers"] == context["jobs_running"] == 0.0
    assert context["1 free in 1"] == context["4 free in 21"] == 1.0


def test_occupancy_is_seen_until_it_ends() -> None:
    planner = Planner(Fabric(Ramp(2, 2, 1)), Rules(quantum_s=0.01, max_degree=4), memo=Memo())
    conversation = RampKernel([job(), job(arrival_s=1.0)], planner).decisions()
    next(conversation)
    codec = RampCodec(POOL)
    observation = codec.encode(conversation.send([Partition(0, 2)]))  # for 4 s
    assert observation is not None
    at = dict(zip(CONTEXT, observation.context.tolist(), strict=True))
    assert (at["mounted_workers"], at["jobs_running"]) == (0.5, 0.25)
    assert (at["1 free in 2"], at["1 free in 5"]) == (0.5, 1.0)
    assert (at["4 free in 2"], at["4 free in 5"]) == (0.0, 1.0)
    assert observation.gpus.tolist() == [[1.0, 0.5, 1.0]]
    assert len(TYPE_FEATURES) == 3


def test_rows_say_what_they_would_come_to() -> None:
    view = first_view(job(1.0))
    codec = RampCodec(POOL)
    observation = codec.encode(view)
    assert observation is not None
    assert [way.degree for way in codec.ways] == [0, 1, 2, 4]
    assert column(observation, "turned away") == [1.0, 0.0, 0.0, 0.0]
    assert column(observation, "servers") == [0.0, 0.25, 0.5, 1.0]
    assert column(observation, "over acceptable")[1] == pytest.approx(1.0)
    outlook = view.outlook(2)
    assert outlook is not None
    assert column(observation, "over acceptable")[2] == pytest.approx(outlook.jct_s / 8)
    assert column(observation, "4 lost in 1")[1:] == [4.0, 4.0, 4.0]  # any job takes the only block of four
    assert column(observation, "4 scarcer in 1") == [0.0, 0.5, 0.5, 0.5]  # from 1/2 to 1


def test_what_would_be_too_slow_is_left_out() -> None:
    codec = RampCodec(POOL)
    assert codec.encode(first_view(job(0.6))) is not None
    assert [way.degree for way in codec.ways] == [0, 2, 4]
    assert codec.encode(first_view(job(0.01))) is None


def test_without_outlooks_rows_are_degrees_only() -> None:
    codec = RampCodec(POOL, outlooks=False)
    observation = codec.encode(first_view(job(0.01)))
    assert observation is not None
    assert [way.degree for way in codec.ways] == [0, 1, 2, 4]
    assert not np.delete(observation.tokens, [0, 3, 4], axis=1).any()
    assert not observation.context[len(JOB_FEATURES) :].any()  # when blocks become free is of the look-ahead, too
    assert codec.choice_of([Partition(0, 4)]) == 3
    assert codec.choice_of([Partition(0, 0)]) == 0


def test_without_outlooks_rows_are_what_the_rules_offer() -> None:
    planner = Planner(Fabric(Ramp(2, 2, 1)), DDLS.but(max_degree=4), memo=Memo())
    conversation = RampKernel([job(), job(arrival_s=0.1)], planner).decisions()
    next(conversation)
    view = conversation.send([Partition(0, 2)])
    codec = RampCodec(POOL, outlooks=False)
    codec.encode(view)
    assert tuple(way.degree for way in codec.ways) == view.degrees == (0, 1, 2)


def test_there_is_nothing_to_choose_where_nothing_fits() -> None:
    planner = Planner(Fabric(Ramp(2, 2, 1)), DDLS.but(max_degree=4), memo=Memo())
    conversation = RampKernel([job(), job(arrival_s=0.1)], planner).decisions()
    next(conversation)
    assert RampCodec(POOL).encode(conversation.send([Partition(0, 4)])) is None


def test_a_choice_is_a_row() -> None:
    view, codec = first_view(job()), RampCodec(POOL)
    codec.encode(view)
    assert codec.decode(view, 2) == (Partition(0, 2),)
    assert codec.decode(view, 0) == (Partition(0, 0),)
    assert codec.row_of(4) == 3
    assert codec.row_of(3) is None
    with pytest.raises(IllegalDecision, match="the choice must be from 0 to 3, got 4"):
        codec.decode(view, 4)


def test_blocks_are_chosen_with_the_degree() -> None:
    view, codec = first_view(job()), RampCodec(POOL, blocks=2)
    observation = codec.encode(view)
    assert observation is not None
    assert [way.degree for way in codec.ways] == [0, 1, 1, 2, 2, 4]
    (decision,) = codec.decode(view, 4)
    assert decision == Partition(0, 2, servers=codec.ways[4].servers)
    assert codec.choice_of([decision]) == 4
    assert codec.choice_of([Partition(0, 0)]) == codec.choice_of([]) == 0


def test_a_heuristics_decision_has_its_row() -> None:
    view, codec = first_view(job()), RampCodec(POOL)
    codec.encode(view)
    assert codec.choice_of([Partition(0, 2)]) == 2
    other = next(mask for mask in view.fabric.masks(2) if mask != codec.ways[2].servers)
    assert codec.choice_of([Partition(0, 2, servers=other)]) is None


def test_the_row_that_leaves_most_room_is_first() -> None:
    planner = Planner(Fabric(Ramp(4, 4, 1)), Rules(quantum_s=0.01, max_degree=4), memo=Memo())
    conversation = RampKernel([job(), job(arrival_s=0.1)], planner).decisions()
    corner = next(mask for mask in planner.fabric.masks(4) if mask == 0b110011)
    next(conversation)
    view = conversation.send([Partition(0, 4, servers=corner)])
    codec = RampCodec(POOL, blocks=1)
    codec.encode(view)
    best = codec.ways[codec.row_of(4) or 0].servers

    def fours_left(taken: int) -> int:
        return sum(1 for mask in planner.fabric.masks(4) if not mask & (taken | corner))

    assert fours_left(best) == max(fours_left(mask) for mask in planner.fabric.masks(4) if not mask & corner)


def test_the_features_have_names() -> None:
    observation, named = seen(first_view(job())), PartitionConfig().features
    for part in ("tokens", "context", "gpus", "ops", "deps"):
        assert getattr(observation, part).shape[-1] == len(named[part])
    assert set(JOB_FEATURES) <= set(named["context"])


def test_a_codec_needs_examples() -> None:
    with pytest.raises(ConfigError, match="needs example jobs to determine its ranges"):
        RampCodec().encode(first_view(job()))


def test_blocks_go_with_outlooks() -> None:
    with pytest.raises(ConfigError, match="blocks must be 0 or more, got -1"):
        PartitionConfig(blocks=-1)
    with pytest.raises(ConfigError, match="choosing blocks requires outlooks=true"):
        PartitionConfig(blocks=4, outlooks=False)


def test_all_features_lie_between_0_and_4() -> None:
    observation = seen(first_view(job(7.0, 50)), blocks=4)
    for part in (observation.ops, observation.deps, np.delete(observation.context, 5), observation.tokens):
        assert part.min() >= 0
        assert part.max() <= 4
