"""Views in arrays, and choices as decisions."""

from __future__ import annotations

import numpy as np
import pytest

from dagsim.errors import ConfigError, IllegalDecision
from dagsim.systems.ramp import (
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
    RampView,
    Rules,
)
from dagsim.systems.ramp.codecs.partition import DEGREE_FEATURES, JOB_FEATURES


def row() -> ComputationGraph:
    ops = [Op("1", 1.0, 4.0, 8.0, 2.0), Op("2", 2.0, 1.0, 4.0, 1.0)]
    return ComputationGraph("row", ops, [(0, 1)])


def job(beta: float = 1.0, steps: int = 1, arrival_s: float = 0.0) -> RampJob:
    return RampJob(f"{beta}", row(), arrival_s, beta, steps)


def first_view(*jobs: RampJob, rules: Rules | None = None) -> RampView:
    planner = Planner(Fabric(Ramp(2, 2, 1)), rules or Rules(quantum_s=0.01, max_degree=4), memo=Memo())
    return next(RampKernel(jobs, planner).decisions())


POOL = (job(0.2, 1), job(1.0, 3))


def test_operations_of_both_passes_over_the_largest() -> None:
    seen = RampCodec(POOL, 4).encode(first_view(job()))
    assert seen is not None
    assert seen.ops.tolist() == [
        [0.25, 0.0, 1.0, 1.0, 0.0],
        [0.5, 0.0, 0.5, 0.0, pytest.approx(1 / 3)],
        [1.0, 1.0, 1.0, 1.0, 1.0],
        [0.25, 0.0, 0.5, 0.0, pytest.approx(2 / 3)],
    ]


def test_dependencies_carry_the_output_of_their_source() -> None:
    seen = RampCodec(POOL, 4).encode(first_view(job()))
    assert seen is not None
    assert (seen.sources.tolist(), seen.targets.tolist()) == ([0, 3, 1], [1, 2, 3])
    assert seen.deps.tolist() == [[1.0, 1.0], [0.5, 0.0], [0.5, 0.0]]


def test_the_job_lies_in_the_range_of_its_pool() -> None:
    seen = RampCodec(POOL, 4).encode(first_view(job(0.6, 2)))
    assert seen is not None
    found = dict(zip(JOB_FEATURES, seen.job.tolist(), strict=True))
    assert found["beta"] == pytest.approx(0.5)
    assert found["raw_beta"] == pytest.approx(0.6)
    assert found["steps"] == pytest.approx(0.5)
    assert found["sequential_s"] == pytest.approx(0.5)  # 16 s between 8 and 24
    assert found["num_ops"] == 1.0  # the same for all
    assert found["mean_compute"] == pytest.approx((0.25 + 0.5 + 1 + 0.25) / 4)
    assert found["median_dep"] == 0.5
    assert found["mounted_workers"] == found["jobs_running"] == 0.0


def test_occupancy_is_seen() -> None:
    planner = Planner(Fabric(Ramp(2, 2, 1)), Rules(quantum_s=0.01, max_degree=4), memo=Memo())
    conversation = RampKernel([job(), job(arrival_s=0.1)], planner).decisions()
    next(conversation)
    seen = RampCodec(POOL, 4).encode(conversation.send([Partition(0, 2)]))
    assert seen is not None
    assert seen.job[-2:].tolist() == [0.5, 0.25]
    assert seen.mask.tolist() == [1, 1, 1, 0, 0]


def test_degrees_say_what_they_would_come_to() -> None:
    seen = RampCodec(POOL, 4).encode(first_view(job(0.6)))
    assert seen is not None
    assert seen.degrees.shape == (5, len(DEGREE_FEATURES))
    assert seen.degrees[3].tolist() == [0.0] * 5
    offered, in_time, over, servers, left = seen.degrees[1].tolist()
    assert (offered, in_time, servers, left) == (1.0, 0.0, 0.25, 0.5)
    assert over == pytest.approx(1 / 0.6)
    assert seen.degrees[2, 1] == 1.0
    assert seen.degrees[4, 3:].tolist() == [1.0, 0.0]


def test_outlooks_can_be_left_out() -> None:
    seen = RampCodec(POOL, 4, outlooks=False).encode(first_view(job(0.6)))
    assert seen is not None
    assert not seen.degrees[:, 1:].any()


def test_there_is_nothing_to_choose_where_nothing_fits() -> None:
    planner = Planner(Fabric(Ramp(2, 2, 1)), DDLS.but(max_degree=4), memo=Memo())
    conversation = RampKernel([job(), job(arrival_s=0.1)], planner).decisions()
    next(conversation)
    assert RampCodec(POOL, 4).encode(conversation.send([Partition(0, 4)])) is None


def test_a_choice_is_a_degree() -> None:
    view = first_view(job())
    assert RampCodec(POOL, 4).decode(view, np.int64(2)) == (Partition(0, 2),)
    with pytest.raises(IllegalDecision, match="job 0 cannot be split 3 ways now; offered: 0, 1, 2, 4"):
        RampCodec(POOL, 4).decode(view, 3)


def test_padded_arrays_have_one_shape_and_the_true_counts() -> None:
    seen = RampCodec(POOL, 4).encode(first_view(job()))
    assert seen is not None
    padded = seen.padded(6, 5)
    assert padded["ops"].shape == (6, 5)
    assert padded["counts"].tolist() == [4, 3]
    assert not padded["deps"][3:].any()
    with pytest.raises(ConfigError, match="4 operations and 3 dependencies does not fit into max_ops=3"):
        seen.padded(3, 5)


def test_a_codec_needs_a_pool_and_room_for_every_degree() -> None:
    with pytest.raises(ConfigError, match="needs jobs to take its ranges from"):
        RampCodec(())
    with pytest.raises(ConfigError, match="made for max_degree=2"):
        RampCodec(POOL, 2).encode(first_view(job()))


def test_all_features_lie_between_0_and_2() -> None:
    seen = RampCodec(POOL, 4).encode(first_view(job(7.0, 50)))
    assert seen is not None
    for part in (seen.ops, seen.deps, np.delete(seen.job, 5), seen.degrees):
        assert part.min() >= 0
        assert part.max() <= 2
