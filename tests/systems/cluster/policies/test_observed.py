"""The recorded policy gives back the schedule that a log shows."""

from __future__ import annotations

from systems.cluster.policies.observed import replayed, spans_of

from dagsim.model import Cluster, Job, Kind, Node, Task, gpu_type


def test_jobs_start_when_and_where_they_were_seen_to() -> None:
    nodes = tuple(Node(name, gpu_type(gpu), 2) for name, gpu in (("fast", "A100-40"), ("slow", "T4")))
    jobs = [
        Job.single("a", Task("t", 10), observed_start_s=7, observed_nodes=("slow",)),
        Job.single("b", Task("t", 10), observed_start_s=3, observed_nodes=("elsewhere",)),
        Job.single("c", Task("t", 10), arrival_s=5),
    ]
    assert spans_of(replayed(Cluster(nodes), jobs)) == {
        "a": [(7, 17, "slow")],
        "b": [(3, 13, "fast")],  # on no node of the cluster: by best fit
        "c": [(5, 15, "fast")],  # nothing was observed
    }


def test_a_gang_is_spread_as_it_was() -> None:
    cluster = Cluster(tuple(Node(f"n{n}", gpu_type("T4"), 4) for n in range(3)))
    job = Job.single("a", Task("t", 10, instances=4, gang=True), observed_start_s=1, observed_nodes=("n1", "n2"))
    assert spans_of(replayed(cluster, [job])) == {"a": [(1, 11, "n1"), (1, 11, "n2")]}


def test_what_finds_no_room_starts_late_and_oldest_first() -> None:
    jobs = [Job.single(f"j{n}", Task("t", 10), observed_start_s=n) for n in range(3)]
    spans = spans_of(replayed(Cluster.of({"T4": 1}, per_node=1), jobs))
    assert [spans[f"j{n}"][0][0] for n in range(3)] == [0, 10, 20]


def test_a_gang_that_does_not_spread_evenly_fills_one_node_after_the_other() -> None:
    # n0 has one GPU free when "a" starts, n1 has three: two each do not fit
    nodes = tuple(Node(name, gpu_type("T4"), gpus) for name, gpus in (("n0", 2), ("n1", 3)))
    jobs = [
        Job.single("first", Task("t", 10), observed_start_s=0, observed_nodes=("n0",)),
        Job.single("a", Task("t", 10, instances=4, gang=True), observed_start_s=1, observed_nodes=("n0", "n1")),
    ]
    schedule = replayed(Cluster(nodes), jobs)
    held = [(row.node, row.instances) for row in schedule.log if row.kind == Kind.STARTED and row.job == 1]
    assert held == [(0, 1), (1, 3)]
