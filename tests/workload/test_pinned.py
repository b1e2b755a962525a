"""Every generator draws the workloads that were recorded, so that none changes unseen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.pinning import digest, plain

import dagsim.workload
from dagsim.config.schema import load_config
from dagsim.model import Cluster
from dagsim.model.streams import stream
from dagsim.systems.cluster.models.runtime import Recorded, Throughput
from dagsim.workload import arrivals, distributions, shapes, sizes, workload_info
from dagsim.workload.fitting import columns_of, fit_sessions
from dagsim.workload.load import offered_load
from dagsim.workload.presets import PRESETS
from dagsim.workload.synthetic import Synthetic

CLUSTER = Cluster.of({"A100-40": 8, "V100-16": 8, "T4": 16})
THROUGHPUT = Throughput(missing="flops")
POINTS = distributions.Quantiles(((0, 1), (0.3, 2), (0.9, 50), (1, 400)))
DISTRIBUTIONS = [
    distributions.Constant(2.5),
    distributions.Uniform(2, 9),
    distributions.Whole(3, 11),
    distributions.LogUniform(2, 300),
    distributions.LogNormal(3, 0.7),
    distributions.LogNormal(3, 1.5, 1, 20),
    distributions.Pareto(2, 1.1),
    distributions.Pareto(2, 1.1, 50),
    distributions.Choice((1, 2, 8)),
    distributions.Choice((1, 2, 8), (0.2, 0.5, 0.9)),
    POINTS,
    replace(POINTS, whole=True),
    distributions.Mixture((distributions.Part(0.8, distributions.Uniform()), distributions.Part(0.4, POINTS))),
]
SHAPES = [
    shapes.Single(),
    shapes.Alibaba(),
    shapes.Chain((1, 5)),
    shapes.ForkJoin(),
    shapes.ForkJoin((1, 4), (2, 3)),
    shapes.MapReduce(),
    shapes.MapReduce((1, 3), (2, 3), (1, 3)),
    shapes.Layered(),
    shapes.Layered((1, 4), (2, 5), 0.2),
    shapes.RandomDag(),
    shapes.RandomDag(0.4, (1, 12), (1, 4)),
]
ARRIVALS = [
    arrivals.Poisson(),
    arrivals.Bursty(),
    arrivals.Bursty(2, 0.5, 0.1),
    arrivals.Diurnal(),
    arrivals.Diurnal(5, 3600, 600),
    arrivals.Batch(),
]
SIZES = [
    sizes.Independent(),
    sizes.Independent(
        gang=False,
        instances=distributions.Whole(1, 3),
        gpus=distributions.Choice((0.25, 1, 2)),
        cpus=distributions.Whole(0, 4),
        memory_gb=distributions.Uniform(1, 5),
        models=(),
        requested_factor=distributions.Uniform(0.5, 3),
    ),
    sizes.Correlated(),
    sizes.Correlated(longest=500, most_gpus=4, gpus_follow=0.2, top_priority=3, priority_follows=0.9),
]
FITTED = [path.stem for path in sorted((Path(dagsim.workload.__file__).parent / "fitted").glob("*"))]
Pinned = Callable[[str, Any], None]


def named(value: Any) -> str:
    """A short key: the class and the values of the fields that are numbers."""
    numbers = [getattr(value, field.name) for field in fields(value)]
    return " ".join(
        [type(value).__name__, *(str(number) for number in numbers if isinstance(number, int | float | tuple))]
    )


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=named)
def test_a_distribution_draws_what_was_recorded(distribution: Any, pinned: Pinned) -> None:
    pinned(named(distribution), plain(distribution.draw(stream(3, "draws"), 12)))


@pytest.mark.parametrize("shape", SHAPES, ids=named)
def test_a_shape_draws_what_was_recorded(shape: Any, pinned: Pinned) -> None:
    pinned(named(shape), [digest(shape.draw(stream(seed, "shapes"), 40)) for seed in range(3)])


def smaller(workload: Any, count: int) -> Any:
    return replace(workload, count=count, measure=None)


def drawn(workload: Any, runtime: Any = THROUGHPUT) -> list[str]:
    return [digest(list(workload.jobs(CLUSTER, runtime, seed))) for seed in (0, 7)]


@pytest.mark.parametrize("rule", [*ARRIVALS, *SIZES], ids=named)
def test_a_workload_is_drawn_as_recorded(rule: Any, pinned: Pinned) -> None:
    key = "sizes" if rule in SIZES else "arrivals"
    workload = Synthetic(
        30, 0.7, slack=distributions.Uniform(1, 4), tenants=("a", "b"), shape=shapes.Layered(), **{key: rule}
    )
    pinned(named(rule), drawn(workload))
    pinned(
        f"{named(rule)} expected", drawn(replace(workload, load_mode="expected", output_gb=distributions.LogNormal()))
    )


@pytest.mark.parametrize("name", [*PRESETS, *FITTED])
def test_a_shipped_workload_is_drawn_as_recorded(name: str, pinned: Pinned) -> None:
    workload = smaller(load_config(None, [f"workload={name}"]).workload, 60)
    jobs = list(workload.jobs(CLUSTER, THROUGHPUT, 5))
    pinned(name, {"jobs": drawn(workload), "load": plain(offered_load(jobs, CLUSTER, THROUGHPUT, whole=True))})
    pinned(f"{name} info", plain(workload_info(jobs)))


@pytest.mark.parametrize("name", ["heterogeneous", *FITTED])
def test_a_workload_is_fitted_as_recorded(name: str, pinned: Pinned) -> None:
    workload = smaller(load_config(None, [f"workload={name}"]).workload, 1500)
    jobs = list(workload.jobs(CLUSTER, Recorded(), 2))
    fit = fit_sessions(columns_of(jobs))
    pinned(f"fit {name}", digest(fit))
    pinned(f"jobs of the fit {name}", drawn(replace(fit, count=50), Recorded()))


def test_rates_are_drawn_as_recorded(pinned: Pinned) -> None:
    rates = arrivals.Rates(3, tuple(range(24)), (1, 2, 1, 1, 1, 0, 0), (arrivals.Swing(0.5, 6), arrivals.Swing(1, 48)))
    weeks = rates.weeks(lambda name: stream(4, name))
    pinned("rates", [digest(next(weeks)) for _ in range(3)])
    assert np.isfinite(next(weeks)).all()
