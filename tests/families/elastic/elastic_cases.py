"""A small application with times and gradients that can be computed by hand."""

from __future__ import annotations

import numpy as np

from dagsim.families.elastic.goodput import BatchLimits
from dagsim.families.elastic.profiles import Application, IterationTime, TrainingProfile
from dagsim.families.elastic.training_jobs import ElasticJob

__all__ = ["LIMITS", "job", "profile"]

LIMITS = BatchLimits(initial=10, largest=40, local_min=5, local_max=20)


def profile(name: str = "toy", epochs: int = 2) -> TrainingProfile:
    """A pass takes .01 s per sample; synchronising takes .02 or .03 s on a node, .1 s across two.

    Batches of 10 and 40 are validated. Without noise (variance 0) a larger batch makes no progress
    faster, so an epoch is 100 iterations of any batch.
    """
    placements = [
        (placement, IterationTime(0.01 * local + sync_s, sync_s), float(local))
        for placement, sync_s in (((1,), 0.0), ((2,), 0.02), ((3,), 0.03), ((1, 1), 0.1))
        for local in (5, 20)
    ]
    scalability = [(2.0, 4.0, local, 0.01 * local + 0.2, 0.2) for local in (5.0, 20.0)]
    rows = np.array([[100.0 * (epoch + 1), 100.0 * (epoch + 1), 2.0 + epoch, 0.0] for epoch in range(epochs)])
    noisy = rows.copy()
    noisy[:, 3] = 6.0
    return TrainingProfile(name, placements, scalability, {10: rows, 40: noisy}, Application(LIMITS, epochs, 30.0))


def job(name: str = "job", arrival_s: float = 0.0, replicas: int = 1, batch: int = 10, kind: str = "toy") -> ElasticJob:
    """A job of the small application."""
    return ElasticJob(name, profile(kind), arrival_s, replicas, batch)
