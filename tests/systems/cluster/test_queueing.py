"""Queueing theory: what long runs must come to, within four standard errors by batch means."""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt

import numpy as np

from dagsim.metrics import jct
from dagsim.model import Cluster, Job, Node, Task, gpu_type
from dagsim.systems.cluster import ClusterKernel
from dagsim.systems.cluster.policies import POLICIES

COUNT = 25_000
BATCHES = 25


def times_in_system(gpus: int, gaps: np.ndarray, services: np.ndarray) -> np.ndarray:
    def jobs() -> Iterator[Job]:
        for number, (at, service) in enumerate(zip(np.cumsum(gaps).tolist(), services.tolist(), strict=True)):
            yield Job.single(str(number), Task("t", service), at)

    cluster = Cluster((Node("n", gpu_type("T4"), gpus),))
    return jct(ClusterKernel(cluster, jobs()).run(POLICIES.create("fifo")))


def assert_mean(samples: np.ndarray, expected: float) -> None:
    batches = samples[COUNT // 10 :].reshape(BATCHES, -1).mean(axis=1)
    error = batches.std(ddof=1) / sqrt(BATCHES)
    assert error < 0.1 * expected
    assert abs(batches.mean() - expected) < 4 * error


def test_one_server_exponential_service() -> None:
    # M/M/1, lambda = 0.5, mu = 1: E[T] = 1 / (mu - lambda) = 2.
    rng = np.random.default_rng(1)
    assert_mean(times_in_system(1, rng.exponential(2, COUNT), rng.exponential(1, COUNT)), 2.0)


def test_one_server_constant_service() -> None:
    # M/D/1, rho = 0.5: E[W] = rho / (2 (1 - rho)) = 0.5.
    rng = np.random.default_rng(2)
    services = np.ones(COUNT)
    assert_mean(times_in_system(1, rng.exponential(2, COUNT), services) - services, 0.5)


def test_two_servers() -> None:
    # M/M/2, lambda = mu = 1: Erlang C = 1/3, E[T] = 1 + (1/3) / (2 - 1) = 4/3.
    rng = np.random.default_rng(3)
    assert_mean(times_in_system(2, rng.exponential(1, COUNT), rng.exponential(1, COUNT)), 4 / 3)


def test_pollaczek_khinchine() -> None:
    # Means 0.5 and 3 with odds 4 : 1: E[S] = 1, E[S^2] = 2 (0.8 x 0.25 + 0.2 x 9) = 4; lambda = 0.5:
    # E[W] = lambda E[S^2] / (2 (1 - rho)) = 0.5 x 4 / (2 x 0.5) = 2.
    rng = np.random.default_rng(4)
    services = rng.exponential(np.where(rng.random(COUNT) < 0.8, 0.5, 3.0))
    assert_mean(times_in_system(1, rng.exponential(2, COUNT), services) - services, 2.0)
