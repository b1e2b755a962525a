"""Checkpoints, and the states of stopped runs, as flows: closed forms, shared links, and forks."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from support.scripted_policy import ends

from dagsim.families.fabric.collectives import StepTraffic
from dagsim.families.fabric.communication import ModelTraffic
from dagsim.families.fabric.shared_network import SharedNetwork
from dagsim.families.fabric.topologies import Island
from dagsim.families.fabric.usage import LinkTraffic
from dagsim.model import Cluster, Decision, Job, Kill, Kind, Migrate, Node, Preempt, Share, Start, Task, Wait, gpu_type
from dagsim.systems.cluster import ClusterKernel, ClusterView, Preemption
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.models.estimates import Estimates
from dagsim.systems.cluster.models.failures import FailureModel, FailureProcess, Maintenance, SpotCapacity
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.systems.cluster.network import Storage
from dagsim.testing.violations import as_recorded, violations

V100 = gpu_type("V100-16")
CLUSTER = Cluster(tuple(Node(name, V100, 4, memory_gb=64) for name in "abc"))
STORED = SharedNetwork(Island(rails=1, bandwidth_gb_s=1.0), Storage(("c",)))
EVERY_10 = Preemption(checkpoint_interval_s=10.0)


class Steps:
    """Plays decisions at their times, and starts each job on its nodes, each piece not before its time."""

    def __init__(self, nodes: dict[str, list[int]], at: dict[float, list[Decision]], again_s: dict[str, float]) -> None:
        self.nodes, self.at, self.again_s = nodes, dict(at), again_s

    def decide(self, view: ClusterView) -> Iterable[Decision]:
        yield from self.at.pop(view.now, ())
        times = [time_s for time_s in (*self.at, *self.again_s.values()) if time_s > view.now]
        if times:
            yield Wait(min(times))
        for task in view.ready:
            name = task.job.job.id
            if task.piece == 0 or view.now >= self.again_s.get(name, 0.0):
                on = self.nodes[name] if task.piece == 0 else self.nodes.get(f"{name}-again", self.nodes[name])
                if all(view.machines.list[node].up for node in on):
                    yield Start(task, tuple(Share(node, task.waiting // len(on)) for node in on))


def job(name: str, work: float = 30.0, memory_gb: float = 6.0, arrival_s: float = 0.0, instances: int = 1) -> Job:
    task = Task("t", work, instances, instances > 1, memory_gb=memory_gb, model="net")
    return Job.single(name, task, arrival_s)


class Played:
    """A simulation, also continued from forks at every tenth of its time."""

    def __init__(
        self,
        jobs: list[Job],
        nodes: dict[str, list[int]],
        preemption: Preemption = EVERY_10,
        at: dict[float, list[Decision]] | None = None,
        again_s: dict[str, float] | None = None,
        failures: Iterable[FailureModel] = (),
        network: SharedNetwork = STORED,
        traffic: ModelTraffic | None = None,
    ) -> None:
        self.jobs, self.traffic, self.network, self.preemption = jobs, traffic, network, preemption

        def play(until_s: float | None = None) -> ClusterKernel:
            kernel = ClusterKernel(
                CLUSTER,
                jobs,
                Models(network=network, preemption=preemption, communication=traffic, failures=[*failures]),
            )
            policy = Steps(nodes, at or {}, again_s or {})
            if until_s is not None:
                kernel.run(policy, until_s)
                kernel = kernel.fork()
            kernel.run(policy)
            return kernel

        self.kernel = play()
        self.log = [*self.kernel.schedule.log]
        for tenth in range(1, 10):
            assert [*play(self.log[-1].time_s * tenth / 10).schedule.log] == self.log
        seconds = (
            None if preemption.checkpoint_write_s else as_recorded
        )  # checkpoints of a fixed time are not in the log
        assert not violations(self.kernel.schedule, jobs, seconds=seconds, sharing=True)

    @property
    def ends(self) -> dict[str, float]:
        return ends(self.kernel)

    @property
    def written(self) -> list[tuple[float, float]]:
        """Time and GB of each row WRITTEN."""
        return [(row.time_s, row.value) for row in self.log if row.kind == Kind.WRITTEN]

    def sent_gb(self) -> dict[str, float]:
        usage = LinkTraffic(
            self.kernel.schedule, self.jobs, self.network, self.traffic, Recorded(), self.preemption
        ).links()
        for use in usage:
            for now in {start_s for start_s, *_ in use.traffic}:
                together = sum(bytes_s for start_s, end_s, bytes_s in use.traffic if start_s <= now < end_s)
                assert together <= use.link.bandwidth * (1 + 1e-9)
        return {use.link.name: round(use.bytes / 1e9, 6) for use in usage if use.bytes}


def test_a_run_pauses_for_its_checkpoints_but_not_for_one_at_its_end() -> None:
    # 6 GB at 1 GB/s after 10 and 20 of 30 s of work.
    played = Played([job("i")], {"i": [0]})
    assert played.ends == {"i": 30 + 2 * 6}
    assert played.written == [(16, 6.0), (32, 6.0)]
    rates = [(row.time_s, row.value) for row in played.log if row.kind == Kind.RATE]
    assert rates == [(0, 1.0), (10, 0.0), (16, 1.0), (26, 0.0), (32, 1.0)]
    assert played.sent_gb() == {"a.nic0.tx": 12.0, "c.nic0.rx": 12.0}


def test_two_runs_that_write_at_once_take_twice_as_long() -> None:
    assert Played([job("i"), job("j")], {"i": [0], "j": [1]}).ends == {"i": 54, "j": 54}
    # j writes 3 s later: i has sent 3 GB by then, and both share until i is done at 19, then j at 22; and again.
    played = Played([job("i"), job("j", arrival_s=3.0)], {"i": [0], "j": [1]})
    assert played.ends == {"i": 48, "j": 51}
    assert [time_s for time_s, _ in played.written] == [19, 22, 38, 41]
    assert played.sent_gb() == {"a.nic0.tx": 12.0, "b.nic0.tx": 12.0, "c.nic0.rx": 24.0}


def test_nothing_is_written_without_bytes_to_send_or_without_a_storage() -> None:
    assert Played([job("i", memory_gb=0.0)], {"i": [0]}).ends == {"i": 30}
    assert Played([job("i")], {"i": [2]}).ends == {"i": 30}  # it runs on the storage node
    for network in (SharedNetwork(STORED.topology), SharedNetwork(STORED.topology, Storage(("c",), checkpoints=False))):
        played = Played(
            [job("i")], {"i": [0]}, Preemption(checkpoint_interval_s=10.0, checkpoint_write_s=4.0), network=network
        )
        assert (played.ends, played.written) == ({"i": 38}, [])


def test_a_gang_stops_sending_while_it_writes() -> None:
    # Ring of two: 2 GB a step over each hop at 1 GB/s beside 1 s of compute. Each node writes 3 GB to c: 6 s.
    traffic = ModelTraffic(default=StepTraffic(2.0, 1.0, calls=0))
    played = Played([job("i", memory_gb=3.0, instances=2)], {"i": [0, 1]}, traffic=traffic)
    assert played.ends == pytest.approx({"i": 30 * 3 + 2 * 6})
    assert played.sent_gb() == pytest.approx(
        {"a.nic0.tx": 60 + 6, "b.nic0.tx": 60 + 6, "a.nic0.rx": 60, "b.nic0.rx": 60, "c.nic0.rx": 12}
    )


def test_a_write_slows_a_gang_on_the_same_nic_until_it_has_arrived() -> None:
    # The gang i sends 2 GB a step from b to a and back. j on a writes 6 GB from 10 s on, at .5 GB/s until 22: a step of
    # i takes 1 + 4 s meanwhile, else 1 + 2 s.
    traffic = ModelTraffic({"net": StepTraffic(2.0, 1.0, calls=0)})
    alone = Job.single("j", Task("t", 15.0, memory_gb=6.0, model="other"))
    played = Played([job("i", 10.0, 0.0, instances=2), alone], {"i": [0, 1], "j": [0]}, traffic=traffic)
    assert played.ends == pytest.approx({"i": 22 + (10 - 10 / 3 - 12 / 5) * 3, "j": 10 + 12 + 5})
    rows = [(row.kind, row.job) for row in played.log if row.time_s == 22]
    assert rows == [(Kind.WRITTEN, 1), (Kind.RATE, 1), (Kind.RATE, 0), (Kind.RATE, 0)]


def test_a_failure_loses_the_work_since_the_last_checkpoint_that_arrived() -> None:
    # At 13 the first one is under way: all is lost, and there is no state to read.
    down = Maintenance((0,), 13.0, 14.0)
    assert Played([job("i")], {"i": [0], "i-again": [1]}, failures=[down]).ends == {"i": 13 + 42}
    # At 25 the first 10 s are saved: 6 s to read them, 20 s of work with a checkpoint in between.
    down = Maintenance((0,), 25.0, 26.0)
    played = Played([job("i")], {"i": [0], "i-again": [1]}, failures=[down])
    assert played.ends == {"i": 25 + 6 + 20 + 6}
    assert played.sent_gb() == {"a.nic0.tx": 6.0, "b.nic0.tx": 6.0, "c.nic0.rx": 12.0, "c.nic0.tx": 6.0, "b.nic0.rx": 6}


def test_a_preempted_run_sends_its_state_and_waits_for_it_when_it_returns() -> None:
    # Preempted at 5, in the storage at 11; asked to start at 7, it reads it from 11 to 17.
    for again_s, starts_s in ((7.0, 11.0), (20.0, 20.0)):
        played = Played([job("i")], {"i": [0], "i-again": [1]}, Preemption(), {5.0: [Preempt(0)]}, {"i": again_s})
        assert played.ends == {"i": starts_s + 6 + 25}
        assert played.written == [(11, 6.0)]
        assert played.sent_gb() == {"a.nic0.tx": 6.0, "c.nic0.rx": 6.0, "c.nic0.tx": 6.0, "b.nic0.rx": 6.0}


def test_a_run_preempted_in_a_checkpoint_begins_to_send_its_state_again() -> None:
    # 3 of 6 GB are written from 10 to 13, then all from 13 to 19; read from 20 on; one more checkpoint at 36.
    played = Played([job("i")], {"i": [0]}, EVERY_10, {13.0: [Preempt(0)]}, {"i": 20.0})
    assert played.ends == {"i": 20 + 6 + 20 + 6}
    assert played.written == [(13, 3.0), (19, 6.0), (42, 6.0)]
    usage = LinkTraffic(played.kernel.schedule, played.jobs, STORED, None, Recorded(), EVERY_10).links()
    [sent] = [use.traffic for use in usage if use.link.name == "a.nic0.tx"]
    assert sent == [(10, 13, 1e9), (13, 19, 1e9), (36, 42, 1e9)]


def test_the_gpus_of_a_preempted_run_are_free_while_its_state_is_sent() -> None:
    # j starts where i stopped. Both states go to the storage at .5 GB/s until 17, then both are read until 29.
    jobs = [job("i"), job("j"), job("k", 3.0, 0.0, 5.0)]
    nodes = {"i": [0], "j": [1], "k": [0], "i-again": [0], "j-again": [1]}
    at: dict[float, list[Decision]] = {5.0: [Preempt(0), Preempt(1)]}
    played = Played(jobs, nodes, Preemption(), at, {"i": 6.0, "j": 6.0})
    assert played.ends == {"i": 29 + 25, "j": 29 + 25, "k": 8}


def test_a_run_that_moves_at_once_writes_nothing() -> None:
    played = Played([job("i")], {"i": [0]}, Preemption(restart_s=3), {5.0: [Migrate(0, (Share(1),))]})
    assert (played.ends, played.written) == ({"i": 5 + 6 + 3 + 25}, [])
    # Preempted on the move, at 7: its former node sends the state to the storage until 13; it is read until 19.
    at: dict[float, list[Decision]] = {5.0: [Migrate(0, (Share(1),))], 7.0: [Preempt(1)]}
    played = Played([job("i")], {"i": [0], "i-again": [1]}, Preemption(restart_s=3), at, {"i": 8.0})
    assert (played.ends, played.written) == ({"i": 19 + 3 + 25}, [(13, 6.0)])


def test_a_run_preempted_while_it_waits_for_its_state_waits_for_it_again() -> None:
    at: dict[float, list[Decision]] = {5.0: [Preempt(0)], 8.0: [Preempt(1)]}
    played = Played([job("i")], {"i": [0], "i-again": [1]}, Preemption(), at, {"i": 7.0})
    assert played.ends == {"i": 11 + 6 + 25}


def test_a_killed_job_stops_writing() -> None:
    # j shares the NIC of the storage with i until 8, when i is killed: 1.5 GB by then, 4.5 GB at 1 GB/s after that.
    at: dict[float, list[Decision]] = {5.0: [Preempt(0), Preempt(1)], 8.0: [Kill(0)]}
    played = Played([job("i"), job("j")], {"i": [0], "j": [1]}, Preemption(), at, {"i": 50.0, "j": 6.0})
    assert played.ends == {"j": 12.5 + 6 + 25}
    assert played.written == [(8, 1.5), (12.5, 6.0)]


class Spot(SpotCapacity):
    """Node a leaves at 15 s, with notice, for 100 s."""

    def start(self, nodes: int, seed: int) -> FailureProcess:
        process = super().start(nodes, seed)
        process.next_s = [15.0]  # type: ignore[attr-defined]
        return process


@pytest.mark.parametrize(
    ("notice_s", "interval_s", "end_s"),
    [
        (6.0, None, 15 + 6 + 6 + 15),  # the state arrives in time: 15 of 30 s of work are kept
        (5.0, None, 15 + 5 + 30),  # it does not, and there is no checkpoint
        (5.0, 8.0, 15 + 5 + 6 + 22 + 2 * 6),  # at 15 the checkpoint of 14 is the last one: 8 s of work
    ],
)
def test_a_run_with_notice_keeps_its_work_if_its_state_arrives_in_time(
    notice_s: float, interval_s: float | None, end_s: float
) -> None:
    spot = Spot(1e9, 1e9, notice_s, (0,))
    played = Played(
        [job("i")], {"i": [0], "i-again": [1]}, Preemption(checkpoint_interval_s=interval_s), failures=[spot]
    )  # fmt: skip
    assert played.ends == {"i": end_s}
    assert played.written[1 if interval_s else 0] == (15 + notice_s, min(notice_s, 6.0))


def test_a_job_killed_while_its_state_is_sent_does_not_return() -> None:
    spot = Spot(1e9, 1e9, 30.0, (0,))
    played = Played([job("i"), job("j")], {"i": [0], "j": [1]}, Preemption(), {17.0: [Kill(0)]}, failures=[spot])
    assert (played.ends, played.written) == ({"j": 30}, [(17, 2.0)])
    assert [row.kind for row in played.log if row.job == 0][-2:] == [Kind.REJECTED, Kind.WRITTEN]


def test_two_runs_with_notice_share_the_way_and_both_come_too_late() -> None:
    # 6 GB each at .5 GB/s take 12 s; one alone would have kept its work.
    late = Played([job("i"), job("j")], {"i": [0], "j": [0], "i-again": [1], "j-again": [1]}, Preemption(),
                  failures=[Spot(1e9, 1e9, 8.0, (0,))])  # fmt: skip
    assert late.ends == {"i": 15 + 8 + 30, "j": 15 + 8 + 30}
    assert late.written == [(23, 4.0), (23, 4.0)]


def test_a_fork_of_the_view_expects_the_states_under_way() -> None:
    forked: list[float] = []

    class Forking:
        def decide(self, view: ClusterView) -> Iterable[Decision]:
            for task in view.ready:
                if not task.piece:
                    yield Start(task, (Share(0),))
                elif view.now >= 7:
                    fork = view.fork()
                    fork.run(Steps({"i": [1]}, {}, {}))
                    forked.extend(row.time_s for row in fork.schedule.log if row.kind == Kind.COMPLETED)
                    yield Start(task, (Share(1),))
            if view.now == 5 and view.running:
                yield Preempt(0)
            if view.now < 7:
                yield Wait(5 if view.now < 5 else 7)

    ClusterKernel(CLUSTER, [job("i")], Models(network=STORED, preemption=EVERY_10)).run(Forking())
    assert forked == [11 + 6 + 25 + 2 * 6]


def test_a_fork_of_the_view_believes_the_estimate_of_a_run_that_still_sends_its_state() -> None:
    # The user claims 60 s for 30 s of work. After 15 s of it, node a leaves with notice; the state is sent until 21.
    # Nobody but the truth knows that half of the work is done: of the limit, what has not run is left, 45 s.
    ends: list[float] = []

    class Forking:
        def decide(self, view: ClusterView) -> Iterable[Decision]:
            for task in view.ready:
                yield Start(task, (Share(1 if task.piece else 0),))
            if view.now == 17:
                fork = view.fork()
                fork.run(Steps({"i": [0], "i-again": [1]}, {}, {}))
                ends.extend(row.time_s for row in fork.schedule.log if row.kind == Kind.COMPLETED)
            elif view.now < 17:
                yield Wait(17)

    claimed = Job.single("i", Task("t", 30.0, memory_gb=6.0, estimate=60.0))
    kernel = ClusterKernel(
        CLUSTER,
        [claimed],
        Models(
            network=STORED,
            preemption=Preemption(),
            estimates=Estimates("predicted"),
            failures=[Spot(1e9, 1e9, 30.0, (0,))],
        ),
    )
    kernel.run(Forking())
    assert ends == [21 + 6 + 45]


def test_a_run_that_fails_after_it_was_preempted_begins_again_without_its_state() -> None:
    # Its state is in the storage at 11 and on b at 26. Without checkpoints the failure at 30 loses all 30 s of work,
    # so that nothing is read for the third run.
    down = Maintenance((1,), 30.0, 31.0)
    at: dict[float, list[Decision]] = {5.0: [Preempt(0)]}
    played = Played([job("i")], {"i": [0], "i-again": [1]}, Preemption(), at, {"i": 20.0}, failures=[down])
    assert played.ends == {"i": 31 + 30}
    assert played.sent_gb() == {"a.nic0.tx": 6.0, "c.nic0.rx": 6.0, "c.nic0.tx": 6.0, "b.nic0.rx": 6.0}
