"""The scheduling policies for the GPU cluster, with one idea in each file, and the registry of all
of them.
"""

from __future__ import annotations

from dagsim.registry import Entry, Registry
from dagsim.systems.cluster.api import ClusterPolicy
from dagsim.systems.cluster.policies.placement import PLACEMENT_RULES, PlacementRule

__all__ = ["PLACEMENT_RULES", "POLICIES", "PlacementRule"]

_KNOWS = ("estimates",)
"""Tag of policies that use estimates. No built-in policy has the tag ``clairvoyant`` for policies
that read true durations; ``elastic`` marks policies that choose the GPUs of elastic tasks.
"""
_STOPS = ("preemptive",)
_COSTLY = ("estimates", "costly")

POLICIES: Registry[ClusterPolicy] = Registry(
    "policy",
    [
        Entry("fifo", ".orders:fifo", "first in, first out: a task that does not fit blocks all later tasks"),
        Entry("fifo-fit", ".orders:fifo_fit", "first in, first out, but tasks that do not fit are skipped"),
        Entry(
            "easy",
            ".backfilling:easy",
            "EASY backfilling: oldest task first, but later tasks may start if they do not delay the oldest one",
            _KNOWS,
        ),
        Entry("easy-sjf", ".backfilling:easy_sjf", "EASY, but the shortest task is backfilled first", _KNOWS),
        Entry(
            "easy-lxf",
            ".backfilling:easy_lxf",
            "EASY, but the task with the largest slowdown is backfilled first",
            _KNOWS,
        ),
        Entry(
            "conservative",
            ".conservative:Conservative",
            "conservative backfilling: a reservation for every task",
            _COSTLY,
        ),
        Entry("easy-events", ".backfilling:EasyEvents", "EASY with one scheduling pass per event, as in PYSS", _COSTLY),
        Entry(
            "committed",
            ".committed:Committed",
            "based on RLScheduler: picks one task and waits until it fits",
            _COSTLY,
        ),
        Entry("recorded", ".history:AsObserved", "starts tasks at the times and on the nodes recorded in the trace"),
        Entry("random", ".orders:RandomFeasible", "a random task among those that fit"),
        Entry(
            "sjf",
            ".orders:sjf",
            "shortest job first: of all tasks and GPU types that fit, the pair that takes the least time",
            _KNOWS,
        ),
        Entry("srtf", ".preemption:srtf", "shortest remaining time first", ("estimates", "preemptive")),
        Entry(
            "srsf", ".preemption:srsf", "smallest product of GPUs and remaining time first", ("estimates", "preemptive")
        ),
        Entry("round-robin", ".rounds:RoundRobin", "each task runs in turn for one time slice", _STOPS),
        Entry("las", ".attained:las", "least attained service (seconds) first, in rounds", _STOPS),
        Entry("2d-las", ".attained:las_2d", "least attained service (GPU-seconds) first, in rounds", _STOPS),
        Entry(
            "2d-gittins",
            ".attained:gittins_2d",
            "highest Gittins index first, computed from the sizes of past jobs",
            _STOPS,
        ),
        Entry("tiresias", ".attained:tiresias", "based on Tiresias: 2D-LAS in levels, with promotion", _STOPS),
        Entry("ljf", ".orders:ljf", "longest task first", _KNOWS),
        Entry("saf", ".orders:saf", "smallest product of GPUs and time first", _KNOWS),
        Entry(
            "wspt", ".orders:wspt", "weighted shortest processing time first: shortest time divided by weight", _KNOWS
        ),
        Entry("edf", ".orders:edf", "earliest deadline first"),
        Entry("llf", ".orders:llf", "least slack to the deadline first", _KNOWS),
        Entry("priority", ".orders:priority", "highest priority first, with optional ageing"),
        Entry("hrrn", ".orders:hrrn", "highest response ratio next", _KNOWS),
        Entry("wfp3", ".orders:wfp3", "largest (wait / r)^3 n first", _KNOWS),
        Entry("unicef", ".orders:unicef", "largest wait / (log2(n) r) first", _KNOWS),
        Entry(
            "tetris",
            ".job_orders:Tetris",
            "based on Tetris: best match of demand and free resources first, jobs with little remaining work preferred",
            _KNOWS,
        ),
        Entry("f1", ".orders:f1", "lowest log10(r) n + 870 log10(s) first", _KNOWS),
        Entry("f2", ".orders:f2", "lowest sqrt(r) n + 25600 log10(s) first", _KNOWS),
        Entry("f3", ".orders:f3", "lowest r n + 6860000 log10(s) first", _KNOWS),
        Entry("f4", ".orders:f4", "lowest r sqrt(n) + 530000 log10(s) first", _KNOWS),
        Entry("graham", ".orders:graham", "list scheduling: the first ready task of a given list"),
        Entry(
            "sjf-cp",
            ".job_orders:sjf_cp",
            "job with the least total work first, and within a job the task with the longest path",
            _KNOWS,
        ),
        Entry("scpt", ".job_orders:scpt", "job with the shortest remaining critical path first", _KNOWS),
        Entry("srpt-work", ".job_orders:srpt_work", "job with the least remaining work first", _KNOWS),
        Entry(
            "critical-path", ".orders:critical_path", "task with the longest path to the end of its job first", _KNOWS
        ),
        Entry("max-min-fair", ".shares:max_min_fair", "tenant with the fewest GPUs first"),
        Entry("weighted-fair", ".shares:weighted_fair", "GPUs in proportion to weight x work^alpha", _KNOWS),
        Entry("drf", ".shares:drf", "tenant with the smallest dominant share first"),
        Entry(
            "themis", ".orders:themis", "based on Themis: job with the largest finish-time ratio (rho) first", _KNOWS
        ),
        Entry(
            "qssf",
            ".history:Qssf",
            "based on Helios: shortest job first, with durations predicted from similar past tasks",
        ),
        Entry(
            "heft",
            ".planned:heft",
            "plans each job: task with the highest upward rank first, on the node where it finishes earliest",
            _KNOWS,
        ),
        Entry("cpop", ".planned:cpop", "plans each job, with all tasks on its critical path on one node", _KNOWS),
        Entry("peft", ".planned:peft", "plans each job: HEFT with a look-ahead", _KNOWS),
        Entry("dls", ".planned:dls", "plans each job: task with the highest dynamic level first", _KNOWS),
        Entry("min-min", ".batch_mode:min_min", "task with the earliest possible completion first", _COSTLY),
        Entry(
            "max-min", ".batch_mode:max_min", "task with the latest of the earliest possible completions first", _COSTLY
        ),
        Entry(
            "sufferage",
            ".batch_mode:sufferage",
            "first the task that would lose the most on its second-best GPU type",
            _COSTLY,
        ),
        Entry(
            "allox",
            ".look_ahead:AlloX",
            "based on AlloX: the assignment with the smallest sum of completion times",
            _COSTLY,
        ),
        Entry(
            "rollout",
            ".look_ahead:Rollout",
            "simulates a few candidate decisions in forked processes, and chooses the best one",
            _COSTLY,
        ),
        Entry(
            "plan-ahead",
            ".look_ahead:PlanAhead",
            "plans starts over several time slots with an integer program",
            _COSTLY,
        ),
        Entry(
            "energy-saver",
            ".power:EnergySaver",
            "uses the GPU type with the least energy within a bounded slowdown",
            _KNOWS,
        ),
        Entry(
            "cheap-hours",
            ".power:CheapHours",
            "lets tasks with slack wait for hours in which energy is cheaper",
            _KNOWS,
        ),
        Entry("power-cap", ".power:PowerCap", "shortest task first, with a limit on the power of all GPUs", _KNOWS),
        Entry(
            "eft-wait",
            ".look_ahead:EftWait",
            "shortest task first, but a task waits if it would end sooner on a faster GPU type",
            _KNOWS,
        ),
    ],
    group="dagsim.policies",
    home="dagsim.systems.cluster.policies",
    listing="dagsim list policies",
    method="decide",
)
"""Every policy by name; other packages add theirs through entry points in the group
``dagsim.policies``."""
