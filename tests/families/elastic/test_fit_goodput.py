"""``scripts/fit_goodput.py``: the shipped models are what it fits."""

from __future__ import annotations

from pathlib import Path

import pytest
from fit_goodput import noise_of

from dagsim.families.elastic.goodput import fit_objective, fit_throughput
from dagsim.families.elastic.profiles import read_applications
from dagsim.families.elastic.tasks import SHIPPED_MODELS


@pytest.mark.data
def test_the_shipped_models_are_fits_of_the_measurements(data: Path) -> None:
    for name, profile in read_applications(data / "golden/elastic/inputs/pollux", ["ncf", "yolov3"]).items():
        shipped = SHIPPED_MODELS[name]
        fitted = fit_throughput(profile.measurements)  # the parameters differ between processors
        best = fit_objective(fitted, profile.measurements)
        assert fit_objective(shipped.throughput, profile.measurements) == pytest.approx(best, rel=2e-3)
        assert noise_of(profile) == pytest.approx(shipped.noise.variance, rel=1e-5)
