"""Pollux's search on clusters where the best allocation is known."""

from __future__ import annotations

import numpy as np
import pytest
from families.elastic.elastic_cases import job
from pollux.stepped_cluster import SteppedCluster

from dagsim.errors import ConfigError
from dagsim.families.elastic.genetic import PolluxSearch


def test_every_limit_of_an_allocation_holds() -> None:
    cluster = SteppedCluster(
        [job(name, arrival_s=at) for name, at in (("a", 0), ("b", 10), ("c", 70), ("d", 80), ("e", 90))],
        PolluxSearch(seed=1, population=20, generations=10),
        nodes=2,
        gpus_per_node=2,
    )
    largest: dict[str, int] = {}
    while any(state.end_s is None for state in cluster.jobs.values()):
        cluster.step()
        used = np.bincount([node for nodes in cluster.allocations.values() for node in nodes], minlength=2)
        assert (used <= 2).all()
        assert sum(len(set(nodes)) > 1 for nodes in cluster.allocations.values()) <= 1
        for name, nodes in cluster.allocations.items():
            assert len(nodes) <= max(2 * largest.get(name, 0), 1)
            largest[name] = max(largest.get(name, 0), len(nodes))


def test_as_many_jobs_as_gpus_get_one_each() -> None:
    jobs = [job(name) for name in "abcd"]
    cluster = SteppedCluster(jobs, PolluxSearch(population=30, generations=30), nodes=2, gpus_per_node=2)
    cluster.step()
    assert sorted(len(nodes) for nodes in cluster.allocations.values()) == [1, 1, 1, 1]


def test_a_seed_gives_the_same_schedule() -> None:
    ends = [
        SteppedCluster(
            [job(name) for name in "abc"], PolluxSearch(3, population=10, generations=5), nodes=1, gpus_per_node=2
        ).run()
        for _ in range(2)
    ]
    assert ends[0] == ends[1]


@pytest.mark.parametrize("name", ["population", "generations"])
def test_a_search_without_candidates_or_generations_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"pollux: {name} must be positive, got 0"):
        PolluxSearch(**{name: 0})
