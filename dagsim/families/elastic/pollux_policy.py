"""Pollux's policy, which searches for the best allocation of equal nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from dagsim.errors import ConfigError
from dagsim.families.elastic.genetic import EqualNodes, PolluxSearch
from dagsim.families.elastic.resized_tasks import ResizedTask, held_gpus
from dagsim.families.elastic.resizing import Resizing
from dagsim.model import Decision, Placement, Share
from dagsim.systems.cluster.api import ClusterView, TaskState


class Pollux(Resizing):
    """Every ``interval_s`` seconds, the policy runs Pollux's search for the allocation with the
    best mean speed-up (``PolluxSearch``; Qiao et al., OSDI 2021).

    The policy supports only elastic tasks (the key ``elastic``) on equal nodes. A task whose nodes
    change is restarted. The search runs for ``generations`` generations with ``population``
    candidates each, and draws random numbers from ``seed``. If ``renew_s`` is above 0, the search
    only runs every ``renew_s`` seconds, and after a task has arrived, has ended or may have more
    GPUs than before. The policy is preemptive. It is based on Pollux, and
    ``scripts/validate_pollux.py`` checks its mean results.

    Raises:
        ConfigError: The interval is not positive; or, during a simulation, there are other tasks or
            unequal nodes, which the policy does not support.
    """

    def __init__(
        self,
        interval_s: float = 60.0,
        generations: int = 50,
        population: int = 100,
        seed: int = 0,
        renew_s: float = 0.0,
    ) -> None:
        super().__init__("pollux", interval_s, renew_s)
        self._search = PolluxSearch(seed, population, generations)

    def _state(self, view: ClusterView, tasks: Sequence[ResizedTask]) -> object:
        return super()._state(view, tasks), [task.arrival_s < view.now for task in tasks]

    def _allocate(self, view: ClusterView, tasks: list[ResizedTask]) -> Iterator[Decision]:
        cluster = equal_nodes(view)
        _refuse_levels("pollux", [task.piece for task in tasks])
        if any(run.task.training is None for run in view.running.values() if run.gpus):
            raise ConfigError(
                "pollux cannot mix elastic tasks with other tasks; make all tasks elastic with elastic: "
                "{default: by-size}"
            )
        [gpu] = {type_ for machine in view.machines.list if (type_ := view.gpu_types[machine.type]) is not None}
        jobs = {str(task.order): _Searched(task, gpu.name) for task in tasks}
        cluster.allocations = {
            str(task.order): [node for node, count in held_gpus(task.run) for _ in range(count)]
            for task in tasks
            if task.run is not None
        }
        allocations = self._search.allocate(int(view.now), jobs, cluster)
        changed: dict[int, Placement | None] = {}
        for task in tasks:
            nodes = allocations.get(str(task.order), [])
            nodes = nodes if len(nodes) >= task.elastic.least else []
            if nodes != cluster.allocations.get(str(task.order), []):
                changed[task.order] = tuple([Share(node, len(list(group))) for node, group in groupby(nodes)])
        yield from self._tasks.change(view, tasks, changed)


class _Searched:
    """The properties of a task that ``PolluxSearch`` uses."""

    def __init__(self, task: ResizedTask, gpu: str) -> None:
        self._task = task
        self.arrival_s, self.restarts, self.limits = task.arrival_s, task.restarts, task.limits
        self.goodput = task.training.model(gpu)
        self.largest_measured = max(task.training.largest_measured, task.elastic.least // 2)

    def most_replicas(self, batch: int) -> int:
        """Return the maximum number of GPUs for a batch."""
        return self._task.most_replicas(batch)


def _refuse_levels(policy: str, tasks: Iterable[TaskState]) -> None:
    """Reject tasks whose GPUs must be close together in the network."""
    for task in tasks:
        if task.demand.terms is not None and task.demand.terms.domains:
            request = task.job.job.request
            raise ConfigError(
                f"{policy} does not support topologies, but job {task.job.job.id!r} requires nodes of one "
                f"{request.level if request else 'level'} (request: level); use sia or elastic-eft-wait, "
                "or set level_required: false"
            )


def equal_nodes(view: ClusterView) -> EqualNodes:
    """Return the nodes of the cluster for a policy that needs nodes of one size and type.

    Raises:
        ConfigError: The nodes differ.
    """
    sizes = {(machine.gpus, machine.type) for machine in view.machines.list}
    if len(sizes) != 1:
        counts = sorted({gpus for gpus, _ in sizes})
        kinds = "several GPU types" if len(counts) == 1 else f"nodes of {counts} GPUs"
        raise ConfigError(f"this policy needs nodes of one size and GPU type, got {kinds}")
    return EqualNodes(len(view.machines.list), sizes.pop()[0])
