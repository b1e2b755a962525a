"""Policies: what decides. One idea per file; this is the list of them all."""

from __future__ import annotations

from dagsim.policies.placement import PLACEMENTS, Placing
from dagsim.registry import Entry, Registry
from dagsim.sim.policy import Policy

__all__ = ["PLACEMENTS", "POLICIES", "Placing"]

_KNOWS = ("clairvoyant",)
_STOPS = ("preemptive",)
_COSTLY = ("clairvoyant", "costly")

POLICIES: Registry[Policy] = Registry(
    "policy",
    [
        Entry("fifo", "dagsim.policies.orders:fifo", "oldest first; it blocks all behind it until it fits"),
        Entry("fifo-fit", "dagsim.policies.orders:fifo_fit", "oldest first among those that fit"),
        Entry("easy", "dagsim.policies.easy:easy", "oldest first; others may fill in behind its reservation", _KNOWS),
        Entry("easy-sjf", "dagsim.policies.easy:easy_sjf", "EASY, filling in the shortest first", _KNOWS),
        Entry("easy-lxf", "dagsim.policies.easy:easy_lxf", "EASY, filling in the most slowed down first", _KNOWS),
        Entry("conservative", "dagsim.policies.conservative:Conservative", "everybody has a reservation", _COSTLY),
        Entry(
            "easy-events",
            "dagsim.policies.easy_events:EasyEvents",
            "EASY, decided at every event as PYSS does",
            _COSTLY,
        ),
        Entry("committed", "dagsim.policies.committed:Committed", "RLScheduler's: one at a time, waited for", _COSTLY),
        Entry("random", "dagsim.policies.random_feasible:RandomFeasible", "anything that fits, uniformly"),
        Entry("sjf", "dagsim.policies.orders:sjf", "shortest pair of task and GPU type first", _KNOWS),
        Entry("srtf", "dagsim.policies.srtf:srtf", "shortest remaining time first", ("clairvoyant", "preemptive")),
        Entry("srsf", "dagsim.policies.srtf:srsf", "least GPUs x remaining time first", ("clairvoyant", "preemptive")),
        Entry("round-robin", "dagsim.policies.round_robin:RoundRobin", "everyone in turn for a slice", _STOPS),
        Entry("las", "dagsim.policies.attained:las", "least seconds of service first, in rounds", _STOPS),
        Entry("2d-las", "dagsim.policies.attained:las_2d", "least GPU-seconds of service first, in rounds", _STOPS),
        Entry(
            "2d-gittins", "dagsim.policies.gittins:gittins_2d", "likeliest to be done soonest, by past sizes", _STOPS
        ),
        Entry("tiresias", "dagsim.policies.attained:tiresias", "2D-LAS in levels, with promotion", _STOPS),
        Entry("ljf", "dagsim.policies.orders:ljf", "longest task first", _KNOWS),
        Entry("saf", "dagsim.policies.orders:saf", "smallest GPUs x time first", _KNOWS),
        Entry("wspt", "dagsim.policies.orders:wspt", "shortest per weight first", _KNOWS),
        Entry("edf", "dagsim.policies.deadlines:edf", "earliest deadline first"),
        Entry("llf", "dagsim.policies.deadlines:llf", "least slack to the deadline first", _KNOWS),
        Entry("priority", "dagsim.policies.waiting:priority", "highest priority first, ageing if asked"),
        Entry("hrrn", "dagsim.policies.waiting:hrrn", "highest response ratio next", _KNOWS),
        Entry("wfp3", "dagsim.policies.waiting:wfp3", "most (wait / r)^3 n first", _KNOWS),
        Entry("unicef", "dagsim.policies.waiting:unicef", "most wait / (log2(n) r) first", _KNOWS),
        Entry("tetris", "dagsim.policies.tetris:Tetris", "best aligned with what is free, less the work left", _KNOWS),
        Entry("f1", "dagsim.policies.fitted:f1", "fitted order of batch systems, log10(r) n + 870 log10(s)", _KNOWS),
        Entry("f2", "dagsim.policies.fitted:f2", "fitted, sqrt(r) n + 25600 log10(s)", _KNOWS),
        Entry("f3", "dagsim.policies.fitted:f3", "fitted, r n + 6860000 log10(s)", _KNOWS),
        Entry("f4", "dagsim.policies.fitted:f4", "fitted, r sqrt(n) + 530000 log10(s)", _KNOWS),
        Entry("graham", "dagsim.policies.graham:graham", "list scheduling: the first ready task of a given list"),
        Entry("sjf-cp", "dagsim.policies.job_orders:sjf_cp", "job with least work, its critical path first", _KNOWS),
        Entry("scpt", "dagsim.policies.job_orders:scpt", "job with the shortest path left first", _KNOWS),
        Entry("srpt-work", "dagsim.policies.job_orders:srpt_work", "job with the least work left first", _KNOWS),
        Entry("critical-path", "dagsim.policies.orders:critical_path", "longest path to the end first", _KNOWS),
        Entry("max-min-fair", "dagsim.policies.shares:max_min_fair", "who holds the fewest GPUs is next"),
        Entry("weighted-fair", "dagsim.policies.shares:weighted_fair", "GPUs by weight x work^alpha", _KNOWS),
        Entry("drf", "dagsim.policies.shares:drf", "who has the smallest dominant share is next"),
        Entry("themis", "dagsim.policies.waiting:themis", "who would end latest for its size is next", _KNOWS),
        Entry("qssf", "dagsim.policies.qssf:Qssf", "short by what alike tasks took before"),
        Entry("heft", "dagsim.policies.planned:heft", "each job planned: upward rank, earliest finish", _KNOWS),
        Entry("cpop", "dagsim.policies.planned:cpop", "each job planned: critical path on one node", _KNOWS),
        Entry("peft", "dagsim.policies.planned:peft", "each job planned: HEFT with a look ahead", _KNOWS),
        Entry("dls", "dagsim.policies.planned:dls", "each job planned: highest dynamic level first", _KNOWS),
        Entry("min-min", "dagsim.policies.batch_mode:min_min", "the task that can complete first", _COSTLY),
        Entry("max-min", "dagsim.policies.batch_mode:max_min", "the task that completes last at best", _COSTLY),
        Entry("sufferage", "dagsim.policies.batch_mode:sufferage", "who would lose most elsewhere", _COSTLY),
        Entry("allox", "dagsim.policies.allox:AlloX", "least sum of completion times, by assignment", _COSTLY),
        Entry(
            "gavel",
            "dagsim.policies.gavel:Gavel",
            "time on each type by a linear program, in rounds",
            ("clairvoyant", "preemptive", "costly"),
        ),
        Entry("rollout", "dagsim.policies.rollout:Rollout", "the best candidate of a few, tried in forks", _COSTLY),
        Entry("plan-ahead", "dagsim.policies.plan_ahead:PlanAhead", "starts now and later, by a program", _COSTLY),
        Entry("energy-saver", "dagsim.policies.power:EnergySaver", "least energy within a bounded slowdown", _KNOWS),
        Entry("power-cap", "dagsim.policies.power:PowerCap", "SJF under a cap on the watts drawn", _KNOWS),
        Entry(
            "eft-wait",
            "dagsim.policies.eft_wait:EftWait",
            "shortest first, unless waiting for a faster type ends sooner",
            ("clairvoyant",),
        ),
    ],
    group="dagsim.policies",
    listing="dagsim list policies",
)
"""Every policy by name; other packages add theirs by an entry point in the group ``dagsim.policies``."""
