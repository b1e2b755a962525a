"""Every policy plays the schedules that were recorded, on difficult random cases.

A number that changes anywhere in a policy, the kernel or a model shows as a difference here. Times are rounded to nine
digits, since the last ones depend on the processor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256

import pytest

from dagsim.errors import Stalled
from dagsim.model import Caps, NodePartition, Qos, QueueNode, QueueTree
from dagsim.systems.cluster.policies import PLACEMENT_RULES, POLICIES
from dagsim.testing.cases import Case, random_case

LEFT_OUT = ("recorded",)
"""It needs a trace."""
FEW = {
    "rollout": 6,
    "search": 6,
    "plan-ahead": 6,
    "gavel": 12,
    "gavel-events": 12,
    "slurm-multifactor": 12,
    "peft": 12,
    "dls": 12,
}
"""Number of cases of policies that take long."""
MORE = {
    "2d-gittins": ["quantum_s=2,history=[1,2,8]"],
    "allox": ["window=2"],
    "energy-saver": ["slowdown=1.05", "slowdown=4"],
    "plan-ahead": ["window=3,slots=2"],
    "power-cap": ["watts=300", "watts=900"],
    "priority": ["ageing=0.5"],
    "qssf": ["memory=0.2"],
    "tetris": ["srpt=0", "srpt=4"],
    "2d-las": ["quantum_s=2", "quantum_s=2,lead=0.5"],
    "committed": ["score=sjf", "score=f1,backfill=true"],
    "drf": ["by=job"],
    "eft-wait": ["theta=0.5", "order=work", "order=path,theta=0.8"],
    # Not min_total_duration_perf: which of several optima of its program the solver returns depends on the processor.
    "gavel": [f"policy={name},round_s=2,gap_s=5" for name in ("isolated", "fifo_perf")],
    "gavel-events": ["round_s=2", "round_s=3,objective=makespan", "round_s=3,objective=cost", "round_s=3,window=2"],
    "kueue": ["scoring=most", "gpu=2", "scoring=most,cpu=2,memory=30"],
    "kube-default": ["scoring=most", "gpu=2", "scoring=most,cpu=2,memory=30", "preempt=false"],
    "las": ["quantum_s=2", "quantum_s=2,lead=0.5"],
    "max-min-fair": ["by=job"],
    "rollout": ["base=sjf,width=2"],
    "round-robin": ["quantum_s=2"],
    "tiresias": ["quantum_s=1,thresholds=3", "quantum_s=2,thresholds=[2,6],promote=2"],
    "tiresias-events": ["limits=[3,9]", "schedule=dlas-gpu-2,limits=[2,9]", "schedule=shortest-gpu", "schedule=fjf"],
    "weighted-fair": ["alpha=-1", "alpha=0.5,by=tenant"],
}
SLURM = "sched_interval_s=2,bf_interval_s=3,bf_resolution_s=1,calc_period_s=2,max_age_s=20,half_life_s=10"
"""Periods that suit cases of a minute."""
SLURM_MORE = [
    "",
    "order=basic",
    "algorithm=classic,damping=2",
    "bf_ties=fit",
    "gangs=distinct",
    "preempt=partition_prio",
]
SLURM_MORE += ["preempt=qos,requeue_delay_s=3", "kill=limit,over_time_s=1", "tres_gpus=500,tres_cpus=300,max_tres=true"]
SLURM_MORE += ["qos=1000,assoc=700,tres_memory=200,job_size=5000,favor_small=true", "relative_size=true,job_size=9000"]
SLURM_MORE += ["queue_depth=2,bf_max_job_test=1", "bf_window_s=5,bf_phase_s=1,calc_phase_s=1", "backfill=false"]
SLURM_MORE += ["place=best", "place=best,gangs=distinct", "bf_max_job_user=1", "bf_max_job_assoc=2,bf_max_job_part=2"]
SLURM_MORE += ["sched_min_interval_s=1,accrue_always=true", "fair_share=0,age=5000,partition=3"]
QUEUES = QueueTree(
    (
        QueueNode(
            "lab",
            children=(
                QueueNode(
                    "u0", 2, users={"ann": 3}, limits=Caps(gpus=5), quota={"gpus": 3, "cpus": 9}, borrow={"gpus": 2}
                ),
                QueueNode("u1", 1, 4, user_limits=Caps(jobs=3), quota={"A100-40": 2, "T4": 2}, lend={"T4": 1}),
            ),
        ),
        QueueNode("u2", 3, quota={"gpus": 2, "memory_gb": 64}, reclaim="lower-priority", within="lower-priority"),
    ),
    (
        NodePartition("u0", tier=1, preempt="requeue", billing={"gpus": 2, "cpus": 0.5}),
        NodePartition("u1", priority=3, tier=2, max_time_s=9, default_time_s=6, limits=Caps(cpus=12)),
        NodePartition("u2", nodes=("n0", "n1"), tier=3, preempt="cancel", exclusive=True),
    ),
    (
        Qos("u0", 1, preempt="suspend"),
        Qos("u1", 5, 8, 2, limits=Caps(gpus=6), preempts=("u0",), preempt="requeue"),
        Qos("u2", 3, usage_factor=0.5, user_limits=Caps(jobs=2), account_limits=Caps(gpus=4), preempts=("u0",)),
    ),
)
"""Names are those of the cases' tenants, so that jobs are spread over accounts, partitions and qualities of service."""


def specs() -> Iterator[tuple[str, int]]:
    """Each policy, each with other parameters and placements, and the number of its cases."""
    for name in POLICIES.names():
        if name not in LEFT_OUT:
            yield name, FEW.get(name, 24)
            yield from ((f"{name}[{more}]", FEW.get(name, 24)) for more in MORE.get(name, ()))
    for name in ("fifo", "easy", "srtf", "heft"):
        yield from ((f"{name}[placement={rule}]", 24) for rule in PLACEMENT_RULES.names())
    yield from ((f"slurm-multifactor[{SLURM}{',' * bool(more)}{more}]", 12) for more in SLURM_MORE)


def spread(case: Case) -> Case:
    """The case with queues. Only jobs whose node names the partition knows can use it."""
    jobs = [
        replace(job, account=job.tenant, user="ann" if at % 2 else "bob", partition=job.tenant, qos=f"u{at % 4}")
        for at, job in enumerate(case.jobs)
    ]
    nodes = {node.name for node in case.cluster.nodes}
    partitions = tuple(
        replace(part, nodes=tuple(name for name in part.nodes if name in nodes)) for part in QUEUES.partitions
    )
    cluster = replace(
        case.cluster, nodes=tuple(replace(node, weight=1 + at % 2) for at, node in enumerate(case.cluster.nodes))
    )
    return replace(
        case, cluster=cluster, jobs=jobs, models=case.models | {"queues": replace(QUEUES, partitions=partitions)}
    )


def outcome(case: Case, spec: str) -> str:
    """A digest of the log, or of the error with which the case ends."""
    kernel = case.kernel()
    try:
        kernel.run(case.admitting(POLICIES.create(spec, seed=case.seed)), until_s=500)
    except Stalled as error:
        return sha256(str(error).encode()).hexdigest()[:8]
    rows = [tuple(f"{x:.9g}" if isinstance(x, float) else x for x in row) for row in kernel.schedule.log.since(0)]
    return sha256(repr(rows).encode()).hexdigest()[:8]


@pytest.mark.parametrize(("spec", "cases"), list(specs()))
def test_a_policy_plays_the_schedules_that_were_recorded(spec: str, cases: int, pinned: Callable[..., None]) -> None:
    queued = spec.startswith(("slurm", "kueue"))
    drawn = [random_case(seed) for seed in range(500, 500 + cases)]
    pinned(spec, " ".join(outcome(spread(case) if queued else case, spec) for case in drawn))


def test_every_policy_is_pinned() -> None:
    assert set(LEFT_OUT) < set(POLICIES.names())
    assert set(FEW) | set(MORE) <= set(POLICIES.names())
