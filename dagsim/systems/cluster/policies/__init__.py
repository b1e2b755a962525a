"""Policies: what decides. One idea per file; this is the list of them all."""

from __future__ import annotations

from dagsim.registry import Entry, Registry
from dagsim.systems.cluster.api import ClusterPolicy
from dagsim.systems.cluster.policies.placement.rule import PLACEMENT_RULES, PlacementRule

__all__ = ["PLACEMENT_RULES", "POLICIES", "PlacementRule"]

_KNOWS = ("clairvoyant",)
_STOPS = ("preemptive",)
_COSTLY = ("clairvoyant", "costly")

POLICIES: Registry[ClusterPolicy] = Registry(
    "policy",
    [
        Entry("fifo", ".orders.static:fifo", "oldest first; it blocks all behind it until it fits"),
        Entry("fifo-fit", ".orders.static:fifo_fit", "oldest first among those that fit"),
        Entry("easy", ".backfilling.easy:easy", "oldest first; others may fill in behind its reservation", _KNOWS),
        Entry("easy-sjf", ".backfilling.easy:easy_sjf", "EASY, filling in the shortest first", _KNOWS),
        Entry("easy-lxf", ".backfilling.easy:easy_lxf", "EASY, filling in the most slowed down first", _KNOWS),
        Entry("conservative", ".backfilling.conservative:Conservative", "everybody has a reservation", _COSTLY),
        Entry(
            "easy-events", ".backfilling.easy_events:EasyEvents", "EASY, decided at every event as PYSS does", _COSTLY
        ),
        Entry("committed", ".backfilling.committed:Committed", "RLScheduler's: one at a time, waited for", _COSTLY),
        Entry("recorded", ".orders.observed:AsObserved", "when and where the trace says that it started"),
        Entry("random", ".orders.random_feasible:RandomFeasible", "anything that fits, uniformly"),
        Entry("sjf", ".orders.static:sjf", "shortest pair of task and GPU type first", _KNOWS),
        Entry("srtf", ".preemptive.srtf:srtf", "shortest remaining time first", ("clairvoyant", "preemptive")),
        Entry("srsf", ".preemptive.srtf:srsf", "least GPUs x remaining time first", ("clairvoyant", "preemptive")),
        Entry("round-robin", ".preemptive.round_robin:RoundRobin", "everyone in turn for a slice", _STOPS),
        Entry("las", ".preemptive.attained:las", "least seconds of service first, in rounds", _STOPS),
        Entry("2d-las", ".preemptive.attained:las_2d", "least GPU-seconds of service first, in rounds", _STOPS),
        Entry("2d-gittins", ".preemptive.gittins:gittins_2d", "likeliest to be done soonest, by past sizes", _STOPS),
        Entry("tiresias", ".preemptive.attained:tiresias", "2D-LAS in levels, with promotion", _STOPS),
        Entry("ljf", ".orders.static:ljf", "longest task first", _KNOWS),
        Entry("saf", ".orders.static:saf", "smallest GPUs x time first", _KNOWS),
        Entry("wspt", ".orders.static:wspt", "shortest per weight first", _KNOWS),
        Entry("edf", ".orders.deadlines:edf", "earliest deadline first"),
        Entry("llf", ".orders.deadlines:llf", "least slack to the deadline first", _KNOWS),
        Entry("priority", ".orders.aging:priority", "highest priority first, ageing if asked"),
        Entry("hrrn", ".orders.aging:hrrn", "highest response ratio next", _KNOWS),
        Entry("wfp3", ".orders.aging:wfp3", "most (wait / r)^3 n first", _KNOWS),
        Entry("unicef", ".orders.aging:unicef", "most wait / (log2(n) r) first", _KNOWS),
        Entry("tetris", ".orders.tetris:Tetris", "best aligned with what is free, less the work left", _KNOWS),
        Entry("f1", ".orders.fitted:f1", "fitted order of batch systems, log10(r) n + 870 log10(s)", _KNOWS),
        Entry("f2", ".orders.fitted:f2", "fitted, sqrt(r) n + 25600 log10(s)", _KNOWS),
        Entry("f3", ".orders.fitted:f3", "fitted, r n + 6860000 log10(s)", _KNOWS),
        Entry("f4", ".orders.fitted:f4", "fitted, r sqrt(n) + 530000 log10(s)", _KNOWS),
        Entry("graham", ".orders.graham:graham", "list scheduling: the first ready task of a given list"),
        Entry("sjf-cp", ".orders.by_job:sjf_cp", "job with least work, its critical path first", _KNOWS),
        Entry("scpt", ".orders.by_job:scpt", "job with the shortest path left first", _KNOWS),
        Entry("srpt-work", ".orders.by_job:srpt_work", "job with the least work left first", _KNOWS),
        Entry("critical-path", ".orders.static:critical_path", "longest path to the end first", _KNOWS),
        Entry("max-min-fair", ".fair.shares:max_min_fair", "who holds the fewest GPUs is next"),
        Entry("weighted-fair", ".fair.shares:weighted_fair", "GPUs by weight x work^alpha", _KNOWS),
        Entry("drf", ".fair.shares:drf", "who has the smallest dominant share is next"),
        Entry("themis", ".orders.aging:themis", "who would end latest for its size is next", _KNOWS),
        Entry("qssf", ".orders.qssf:Qssf", "short by what alike tasks took before"),
        Entry("heft", ".planning.planned:heft", "each job planned: upward rank, earliest finish", _KNOWS),
        Entry("cpop", ".planning.planned:cpop", "each job planned: critical path on one node", _KNOWS),
        Entry("peft", ".planning.planned:peft", "each job planned: HEFT with a look ahead", _KNOWS),
        Entry("dls", ".planning.planned:dls", "each job planned: highest dynamic level first", _KNOWS),
        Entry("min-min", ".planning.batch_mode:min_min", "the task that can complete first", _COSTLY),
        Entry("max-min", ".planning.batch_mode:max_min", "the task that completes last at best", _COSTLY),
        Entry("sufferage", ".planning.batch_mode:sufferage", "who would lose most elsewhere", _COSTLY),
        Entry("allox", ".planning.allox:AlloX", "least sum of completion times, by assignment", _COSTLY),
        Entry(
            "gavel",
            ".fair.gavel:Gavel",
            "time on each type by a linear program, in rounds",
            ("clairvoyant", "preemptive", "costly"),
        ),
        Entry("rollout", ".planning.rollout:Rollout", "the best candidate of a few, tried in forks", _COSTLY),
        Entry("plan-ahead", ".planning.plan_ahead:PlanAhead", "starts now and later, by a program", _COSTLY),
        Entry("energy-saver", ".orders.power:EnergySaver", "least energy within a bounded slowdown", _KNOWS),
        Entry("power-cap", ".orders.power:PowerCap", "SJF under a cap on the watts drawn", _KNOWS),
        Entry(
            "slurm-multifactor",
            ".production.slurm:SlurmMultifactor",
            "Slurm: multifactor priority, main loop and backfill",
            ("clairvoyant", "preemptive", "costly"),
        ),
        Entry("kueue", ".production.kueue:Kueue", "Kueue: quotas, borrowing and reclaim in cohorts", _STOPS),
        Entry("kube-default", ".production.kube:KubeDefault", "Kubernetes: by priority, on the best node", _STOPS),
        Entry(
            "eft-wait",
            ".planning.eft_wait:EftWait",
            "shortest first, unless waiting for a faster type ends sooner",
            ("clairvoyant",),
        ),
    ],
    group="dagsim.policies",
    home="dagsim.systems.cluster.policies",
    listing="dagsim list policies",
)
"""Every policy by name; other packages add theirs by an entry point in the group ``dagsim.policies``."""
