"""``scripts/check_site.py``: policies on random sites, whose rules are read a second time."""

from __future__ import annotations

import secrets

import check_site

from dagsim.model import Cluster, Job, Node, Request, Task, TaskGraph, gpu_type
from dagsim.model.log import Kind
from dagsim.model.queues import NodeOutage, QueueTree
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.seam import drive


def test_random_sites_keep_their_rules() -> None:
    """A part of scripts/check_site.py: some policies on sites that are new each time, with rules read a second time."""
    policies = [spec for spec in check_site.specs() if spec.partition("[")[0] not in check_site.SKIPPED]
    first = secrets.randbelow(10**9)
    print(f"first seed {first}")
    some = [policies[(first + place) % len(policies)] for place in range(40)]
    wrong = [
        f"check_site.py --cases 1 --from {seed} --policy {spec!r}: {messages}"
        for spec, seed, messages in check_site.check(len(some), first, some)
        if messages
    ]
    assert not wrong, "\n".join(wrong)


def test_the_judge_of_random_sites_knows_who_could_start() -> None:
    """Two nodes with ``a`` of the V100 leave one for good, and the T4 with ``a`` is of another type."""
    kinds = [("V100-16", ("a",)), ("V100-16", ("a",)), ("V100-16", ()), ("T4", ("a",))]
    nodes = tuple([Node(f"n{at}", gpu_type(kind), 1, 8, 8, features=of) for at, (kind, of) in enumerate(kinds)])
    outages = (NodeOutage(("n1",), 5.0, None, "down"),)
    pair = TaskGraph((Task("t", 4.0, 2, gang=True, gpus=1),))
    left = [Job("pair", pair, 6.0, request=Request(constraint=words)) for words in ("a*2", "a", "[a|b]", "a*1", "")]
    verdicts = []
    for job in left:
        site = check_site.Site(Cluster(nodes), QueueTree(outages=outages), [job])
        schedule = drive(ClusterScenario(site.cluster, [job], queues=site.queues).kernel(0), POLICIES.create("fifo"))
        judge = check_site.Judge(site, "fifo")
        assert judge.read(schedule) == []
        verdicts.append((Kind.COMPLETED in [row.kind for row in schedule.log], judge.could_start(job, 10.0, outages)))
    assert verdicts == [(False, False)] * 3 + [(True, True)] * 2
