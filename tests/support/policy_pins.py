"""Schedules of policies on difficult random cases, in a form that can be recorded.

Times are rounded to nine digits, since the last ones depend on the processor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256

from dagsim.errors import Stalled
from dagsim.family import families
from dagsim.model import Caps, NodePartition, Qos, QueueNode, QueueTree
from dagsim.systems.cluster.policies import POLICIES
from dagsim.testing.cases import Case, random_case

MOST = 24
"""Number of cases, unless a policy takes long."""
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


def names_of_family(name: str, group: str = "policies") -> list[str]:
    """What a family adds to a registry, nothing if it is missing."""
    return [entry.name for entry in families()[name].adds.get(group, ())] if name in families() else []


def specs(
    names: Sequence[str], more: Mapping[str, Sequence[str]] = {}, few: Mapping[str, int] = {}
) -> list[tuple[str, int]]:
    """Each policy, also with other parameters, and the number of its cases."""
    assert not names or {*more, *few} <= {*names}
    written = [(name, spec) for name in names for spec in (name, *(f"{name}[{with_}]" for with_ in more.get(name, ())))]
    return [(spec, few.get(name, MOST)) for name, spec in written]


def placed(rules: Iterable[str]) -> list[tuple[str, int]]:
    """Some policies with each of these placement rules, and the number of their cases."""
    return [(f"{name}[placement={rule}]", MOST) for name in ("fifo", "easy", "srtf", "heft") for rule in rules]


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


def schedules(spec: str, cases: int, *, queues: bool = False, also: Sequence[int] = ()) -> str:
    """The digests of a policy's schedules, in queues or without: of the first cases, and of those with the seeds
    ``also``.
    """
    drawn = [random_case(seed) for seed in (*range(500, 500 + cases), *also)]
    return " ".join(outcome(spread(case) if queues else case, spec) for case in drawn)
