"""The parts of slurm-multifactor, each by itself."""

from __future__ import annotations

from math import inf

import pytest

from dagsim.families.slurm.scheduler.backfill_cycle import BackfillTimes
from dagsim.families.slurm.scheduler.running_jobs import NodeSharing, NodeUsers
from dagsim.families.slurm.scheduler.slurm_rules import SlurmRules
from dagsim.families.slurm.scheduler.slurm_settings import SlurmSettings
from dagsim.families.slurm.scheduler.slurm_waits import rules_of_site
from dagsim.model import Cluster, Job, Node, NodePartition, QueueNode, QueueTree, Task, gpu_type
from dagsim.systems.cluster import ClusterKernel
from dagsim.systems.cluster.api import ClusterView
from dagsim.systems.cluster.models import Models

ADA, BO = NodeSharing("ada", False, False), NodeSharing("bo", False, False)
ALONE, OWN = NodeSharing("ada", True, False), NodeSharing("ada", False, True)


def test_exclusive_runs_hold_whole_nodes_until_they_end() -> None:
    users = NodeUsers()
    users.started((0, 2), ALONE)
    users.started((1,), BO)
    assert (users.busy, users.whole) == (0b111, 0b101)
    users.ended((0, 2), ALONE)
    assert (users.busy, users.whole, users.runs) == (0b010, 0, {1: 1})


@pytest.mark.parametrize(("by_user", "barred"), [(False, 0), (True, 0b010)])
def test_nodes_of_other_users_are_barred_for_a_job_that_shares_only_with_its_own(by_user: bool, barred: int) -> None:
    users = NodeUsers()
    users.started((0,), ADA)
    users.started((1,), BO)
    assert users.barred("ada", by_user=by_user) == barred
    assert not users.any_owned


def test_nodes_that_a_user_keeps_to_itself_are_barred_for_all_others() -> None:
    users = NodeUsers()
    users.started((0,), OWN)
    users.started((1,), ADA)
    assert users.any_owned
    assert (users.barred("bo", by_user=False), users.barred("ada", by_user=False)) == (0b01, 0)
    users.ended((0,), OWN)
    assert not users.any_owned
    assert users.runs == {1: 1}


def test_a_cycle_follows_a_change_at_once_but_not_within_the_interval() -> None:
    times = BackfillTimes(SlurmSettings(bf_interval_s=30.0), inf)
    assert times.is_due(5.0)
    times.begin(5.0)
    times.rested = True
    assert (times.tick_s(6.0), times.tick_s(100.0)) == (35.0, 100.0)
    times.rested = False  # while jobs wait for reservations, cycles keep their beat
    assert (times.tick_s(6.0), times.tick_s(100.0)) == (35.0, 125.0)


def test_a_cycle_without_waiting_jobs_sets_the_beat_of_the_next() -> None:
    times = BackfillTimes(SlurmSettings(bf_interval_s=30.0), inf)
    times.begin(0.0)
    times.idle(10.0)  # due at 30
    times.advance(40.0)
    assert times.rested
    assert times.tick_s(41.0) == 60.0


def test_the_interval_between_cycles_begins_when_a_cycle_ends() -> None:
    times = BackfillTimes(SlurmSettings(bf_interval_s=30.0, bf_cycle_s=0.5), inf)
    times.begin(0.0)
    assert (times.tick_s(6.0), times.tick_s(100.0)) == (30.5, 122.0)


def test_forecasts_run_cycles_less_and_less_often() -> None:
    times = BackfillTimes(SlurmSettings(bf_interval_s=30.0), 1000.0)
    times.begin(11_000.0)
    times.rested = True
    assert times.tick_s(11_000.0) == 12_000.0


def view_of(queues: QueueTree, jobs: list[Job]) -> ClusterView:
    nodes = tuple(Node(f"n{at}", gpu_type("V100"), 4, cpus=8) for at in range(3))
    view: ClusterView = next(ClusterKernel(Cluster(nodes), jobs, Models(queues=queues)).decisions())
    return view


def test_rules_give_each_task_its_partition_limit_and_starts_to_reserve() -> None:
    queues = QueueTree(partitions=(NodePartition("short", nodes=("n1", "n2"), max_time_s=50.0), NodePartition("long")))
    jobs = [Job.single("a", Task("t", 80.0, estimate=80.0), partition="short"), Job.single("b", Task("t", 80.0))]
    view = view_of(queues, jobs)
    rules = SlurmRules(view, kill="partition", distinct=False)
    first, second = view.jobs.values()
    rules.learn(view, first)
    assert rules.partition(first).name == "short"
    assert rules.partition(second).name == "short"  # it names none
    assert rules.longest_s(first.tasks[0], (0,)) == 50.0
    assert rules.questions(first.tasks[0], rules.partition(first)) == ((50.0, (0b110,)),)


def test_a_site_without_slurms_queues_has_none_of_its_rules() -> None:
    jobs = [Job.single("a", Task("t", 8.0))]
    assert rules_of_site(view_of(QueueTree(), jobs)) is None
    assert rules_of_site(view_of(QueueTree((QueueNode("lab"),)), jobs)) is not None
