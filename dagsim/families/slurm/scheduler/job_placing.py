"""The placement of a pending job by Slurm: which nodes the job may use now, and which of them it
takes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

from dagsim.families.slurm.scheduler.node_choice import NodeChoice, NodeLayout
from dagsim.families.slurm.scheduler.pending_jobs import PendingJob, may_fit
from dagsim.families.slurm.scheduler.running_jobs import NodeUsers
from dagsim.families.slurm.scheduler.slurm_rules import SlurmRules, user_of
from dagsim.families.slurm.scheduler.start_limits import StartLimits
from dagsim.model import Placement, Share
from dagsim.model.arithmetic import bits
from dagsim.systems.cluster.api import ClusterState, ClusterView, DemandClass, NodeState, TaskState


def usable_cpus(machine: NodeState, demand: DemandClass) -> int:
    """Return the free CPUs on a node for which there is also enough free memory, in millionths
    (``can_job_run_on_node`` in job_test.c).
    """
    if not (demand.cpus and demand.memory):
        return machine.cpus
    return min(machine.cpus, machine.memory * demand.cpus // demand.memory)


class JobPlacing:
    """Chooses nodes for pending jobs. It applies the site's rules and Slurm's rule for selecting
    nodes."""

    def __init__(self, rules: SlurmRules, limits: StartLimits, users: NodeUsers, choice: NodeChoice) -> None:
        self.choice = choice
        self.attracting: dict[int, int] = {}
        """The nodes of each magnetic reservation that is under way, as bit sets."""
        self._rules, self._limits, self._users = rules, limits, users

    def fit(self, machines: ClusterState, job: PendingJob, nodes: int, room: float) -> Placement | None:
        """Return a placement on ``nodes`` for the whole task, or for ``room`` independent instances."""
        demand = job.task.demand
        if not nodes or not may_fit(machines, demand):
            return None
        usable = nodes & self.usable(job)

        def candidates(types: tuple[int, ...]) -> int:
            nodes = 0
            for type_ in self._limits.allowed(job, types):
                nodes |= machines.candidate_set(demand, type_)
            return usable & nodes

        return self.first(job.task, candidates, lambda open_, _: self.on(machines, job, open_, room))

    def first(
        self,
        task: TaskState,
        candidates: Callable[[tuple[int, ...]], int],
        placed: Callable[[int, tuple[int, ...]], Placement | None],
    ) -> Placement | None:
        """Try each group of nodes that the task may combine, and return the placement whose first
        node comes first. ``candidates`` returns the nodes with the given GPU types, and ``placed``
        returns a placement on such nodes.
        """
        best: Placement | None = None
        for group in self._rules.groups(task):
            nodes = candidates(group.types) & group.nodes
            placement = placed(nodes, group.types) if nodes else None
            if placement is not None and (best is None or placement[0].node < best[0].node):
                best = placement
        return best

    def on(self, machines: ClusterState, job: PendingJob, nodes: int, room: float) -> Placement | None:
        """Return a placement on ``nodes``, which are nodes that the job may use now."""
        task, part, states = job.task, job.part, machines.list
        demand, choice = task.demand, self.choice
        # Most jobs can use the first node on which they fit, so do not examine all nodes.
        if choice.in_order and not (demand.gang or part.spreads):
            for node in chain(*map(bits, machines.awake_first(nodes))):
                if count := states[node].room(demand):
                    return (Share(node, int(min(count, task.waiting, room))),)
            return None
        rooms = {node: count for node in bits(nodes) if (count := states[node].room(demand))}
        open_ = sum([1 << node for node in rooms])
        free = {node: usable_cpus(states[node], demand) for node in rooms}
        if demand.gang:
            return choice.placement(open_, rooms, free, demand.gang, job.layout)
        chosen = choice.nodes(open_, rooms, free, 1, NodeLayout(spread=True, idlest=part.spreads))
        if not chosen:
            return None
        node = chosen.bit_length() - 1
        return (Share(node, int(min(rooms[node], task.waiting, room))),)

    def open_to(self, job: PendingJob) -> int:
        """Return the nodes in the partition of a pending job on which it may start, inside or
        outside of magnetic reservations. If such reservations attract a task, the task has a
        separate pending job for each of them."""
        nodes = self._rules.nodes[job.part.name]
        if job.attracted:
            return nodes & self.attracting.get(job.reservation, 0)
        if self.attracting and job.task.demand.terms is not None:
            for number in job.task.demand.terms.welcome:
                nodes &= ~self.attracting.get(number, 0)
        return nodes

    def usable(self, job: PendingJob) -> int:
        """Return the nodes in the job's partition that it may use, shared or exclusively."""
        nodes = self.open_to(job) & ~self._users.whole
        if job.alone:
            nodes &= ~self._users.busy
        return nodes & ~self.barred(job.task)

    def barred(self, task: TaskState) -> int:
        """Return the nodes that other users keep from the task: nodes that they use exclusively,
        or, if the task's user shares no nodes with other users, all nodes that they use.
        """
        by_user = self._rules.by_user(task.job)
        if not (by_user or self._users.any_owned):
            return 0
        return self._users.barred(user_of(task.job), by_user=by_user)

    def is_held_up(self, view: ClusterView, job: PendingJob, nodes: int) -> bool:
        """Return True if a job that does not fit on ``nodes`` blocks the jobs behind it in its
        partition.

        The job does not block them if it would not fit even if ``nodes`` were empty, because the
        remaining nodes of its partition are blocked or reserved (Slurm calls this
        ``ReqNodeNotAvail``, job_scheduler.c).
        """
        task, site = job.task, view.machines.site
        terms = task.demand.terms
        if nodes.bit_count() < self._rules.fewest_nodes(task):
            return True
        if terms is not None and site is not None:
            nodes &= site.open_between(terms, view.now, view.now + terms.limit_s)
        return bool(nodes & self._users.whole) or self._rules.holds(view, task, nodes)
