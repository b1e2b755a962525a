"""Gavel with leases, as on a real cluster, on small examples worked out by hand."""

from __future__ import annotations

import pytest

from dagsim.errors import ConfigError
from dagsim.families.elastic.batches import EpochTraining
from dagsim.families.gavel.deployed import DeployedGavel
from dagsim.model import Cluster, Elastic, Job, Node, Task, gpu_type
from dagsim.model.log import Kind
from dagsim.systems.cluster.scenario import ClusterScenario

V100 = gpu_type("V100")


def test_a_deployed_gavel_has_the_times_of_its_source_unless_told_otherwise():
    """Narayanan et al. 2020: rounds of two minutes, and 1000 s or more between two resets of the counts of time."""
    policy = DeployedGavel()
    assert (policy.round_s, policy.gap_s) == (120, 1000)


def _ends_s(gpus: int, *tasks: Task, arrive_s: tuple[float, ...] = (0.0, 0.0, 0.0)) -> list[float]:
    jobs = [Job.single(str(number), task, arrive_s[number]) for number, task in enumerate(tasks)]
    policy = DeployedGavel(round_s=20.0, save_s=2.0)
    schedule = ClusterScenario(Cluster((Node("n", V100, gpus),)), jobs).kernel(0).run(policy)
    ends = {row.job: row.time_s for row in schedule.log if row.kind == Kind.COMPLETED}
    return [ends[number] for number in range(len(jobs))]


def test_a_lease_goes_on_while_its_task_is_chosen_and_an_idle_gpu_starts_the_next_before_the_round():
    """Chosen at 10: b. At 32 b again, as a has had 20 s and b 10 s. At 52 b ends; a starts when its
    checkpoint is written, in the middle of the round.
    """
    assert _ends_s(1, Task("a", 30.0, 1), Task("b", 30.0, 1)) == pytest.approx([64.0, 52.0])


def test_a_batch_changes_with_the_next_start():
    """The batch changes at 12, after the middle of the round: the task starts again at 20."""
    training = EpochTraining(10, {0: 16, 4: 32}, {V100.name: {16: 2.5, 32: 1.0}}, 100.0)
    task = Task("a", training.alone_s(V100.name), 1, gang=True, elastic=Elastic(1, 1, training, 2.0))
    assert _ends_s(1, task) == pytest.approx([20.0 + 2.0 + 6.0])


def test_a_larger_task_moves_smaller_ones():
    """Chosen at 10, the gang takes the GPUs 0 and 1. The others stop at 20 and go on at 22."""
    gang = Task("gang", 10.0, 2, gang=True)
    ends_s = _ends_s(4, Task("a", 60.0, 1), Task("b", 60.0, 1), gang, arrive_s=(0.0, 0.0, 5.0))
    assert ends_s == pytest.approx([62.0, 62.0, 32.0])


def test_tasks_of_several_gpus_per_instance_are_refused():
    with pytest.raises(ConfigError, match="instances of 0/a need 2 GPUs each"):
        _ends_s(2, Task("a", 10.0, gpus=2))
