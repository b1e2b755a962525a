"""The family's policies play the schedules that were recorded."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.policy_pins import names_of_family, schedules, specs

PERIODS = "sched_interval_s=2,bf_interval_s=3,bf_resolution_s=1,calc_period_s=2,max_age_s=20,half_life_s=10"
"""Periods that suit cases of a minute."""
SETTINGS = [
    "",
    "order=basic",
    "algorithm=classic,damping=2",
    "bf_ties=fit",
    "gangs=distinct",
    "preempt=partition_prio",
]
SETTINGS += ["preempt=qos,requeue_delay_s=3", "kill=limit,over_time_s=1", "tres_gpus=500,tres_cpus=300,max_tres=true"]
SETTINGS += ["qos=1000,assoc=700,tres_memory=200,job_size=5000,favor_small=true", "relative_size=true,job_size=9000"]
SETTINGS += ["queue_depth=2,bf_max_job_test=1", "bf_window_s=5,bf_phase_s=1,calc_phase_s=1", "backfill=false"]
SETTINGS += ["place=best", "place=best,gangs=distinct", "bf_max_job_user=1", "bf_max_job_assoc=1,bf_max_job_part=1"]
SETTINGS += ["sched_min_interval_s=1,accrue_always=true", "fair_share=0,age=5000,partition=3"]
MORE = {"slurm-multifactor": [f"{PERIODS}{',' * bool(own)}{own}" for own in SETTINGS]}
FEW = {"slurm-multifactor": 12}
ALSO = (540, 670)
"""Cases in which the formula of fair share and the rule for ties matter."""


@pytest.mark.parametrize(("spec", "cases"), specs(names_of_family("slurm"), MORE, FEW))
def test_a_policy_plays_the_schedules_that_were_recorded(spec: str, cases: int, pinned: Callable[..., None]) -> None:
    pinned(spec, schedules(spec, cases, queues=True, also=ALSO))


def test_each_setting_changes_a_schedule_that_was_recorded() -> None:
    kept = json.loads(Path(__file__).with_suffix(".json").read_text())
    assert len({*kept.values()}) == len(kept)
