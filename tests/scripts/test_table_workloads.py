"""``scripts/table_workloads.py``: the figures that presets are judged by."""

from __future__ import annotations

import numpy as np
import pytest
import table_workloads as judge

from dagsim.config.bundled import WORKLOADS
from dagsim.model import Job, Task
from dagsim.workload import Sessions


def test_a_poisson_process_is_not_dispersed_and_pairs_are() -> None:
    times = np.cumsum(np.random.default_rng(1).exponential(10.0, 40_000))
    assert judge.dispersion(times, 20) == pytest.approx(1, abs=0.1)
    assert judge.dispersion(np.repeat(times[:20_000], 2), 20) == pytest.approx(2, abs=0.25)  # pairs: twice the variance


def test_tau_is_1_for_one_order_and_minus_1_for_the_other() -> None:
    one = {policy: np.array([2.0**place, 3.0 * 2**place]) for place, policy in enumerate(judge.POLICIES)}
    other = {policy: 1 / values for policy, values in one.items()}
    first, second, *_ = judge.POLICIES
    swapped = one | {first: one[second], second: one[first]}
    assert judge.tau(one, one) == 1
    assert judge.tau(one, other) == -1
    assert judge.tau(one, swapped) == pytest.approx(1 - 2 / 45)  # one pair of 45


def test_statistics_of_a_few_jobs_are_those_by_hand() -> None:
    # 200 jobs an hour apart; every hundredth holds 4 GPUs for 1,000 s, all others one for 10 s.
    jobs = [
        Job.single(f"j{n}", Task("t", 1000.0 if n % 100 == 99 else 10.0, 4 if n % 100 == 99 else 1), 3600.0 * n)
        for n in range(200)
    ]
    statistics = judge.statistics(jobs)
    assert statistics["coefficient of variation of gaps"] == 0
    # The top 1 % are 10 jobs at least: two of 4,000 GPU-seconds and eight of 10.
    assert statistics["GPU-time of the top 1 % of jobs"] == pytest.approx(8080 / (8000 + 1980))
    assert statistics["correlation of log length and log GPUs"] == pytest.approx(1)


def test_the_plain_variant_has_the_same_jobs_one_by_one() -> None:
    fitted = WORKLOADS["like-itp"].workload
    assert isinstance(fitted, Sessions)
    jobs = judge.drawn(judge.plainly(fitted), 3000, 1)
    gaps = np.diff([job.arrival_s for job in jobs])
    assert gaps.std() / gaps.mean() == pytest.approx(1, abs=0.1)
    mean_jobs = sum(kind.share * kind.jobs.at((np.arange(999) + 0.5) / 999).mean() for kind in fitted.kinds)
    total = sum(kind.share for kind in fitted.kinds)
    assert 3600 / gaps.mean() == pytest.approx(fitted.rates.per_hour * mean_jobs / total, rel=0.06)
