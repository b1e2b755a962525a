"""The nodes of a kernel that are down, and the tasks that can therefore never start."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from dagsim.model import Kind
from dagsim.model.log import packed_row
from dagsim.systems.cluster.forks import AHEAD, COPIED, SAME, Forked
from dagsim.systems.cluster.models.failures import Outages, start_all
from dagsim.systems.cluster.models.kept_work import KeptWork
from dagsim.systems.cluster.resources.nodes import DemandClass
from dagsim.systems.cluster.resources.site import down_windows
from dagsim.systems.cluster.state import TaskState

if TYPE_CHECKING:
    from dagsim.systems.cluster.kernel import ClusterKernel

GONE = "the nodes that it needs have left permanently"
_OVER = "its reservation is over, or its nodes are drained for good"
"""Reasons why a task can never start."""
_DOWN, _UP, _FAILED = int(Kind.DOWN), int(Kind.UP), int(Kind.FAILED)


class DownNodes(Forked):
    """The failure processes of a kernel, and the nodes that they keep down. A process calls
    ``take_down`` and ``bring_up``. Several processes may keep a node down at the same time.
    """

    __slots__ = {
        "_keeping": COPIED,
        "_kernel": COPIED,
        "_lasting": SAME,
        "_processes": AHEAD,
        "count": SAME,
    }

    def __init__(self, kernel: ClusterKernel, names: list[str], origin_s: float) -> None:
        self._kernel = kernel
        self._keeping = [0] * len(names)
        """Number of failures that currently keep each node down."""
        self.count = 0
        """Number of nodes that are down."""
        self._lasting: int | None = None
        """The nodes that are up or will come back, as a bit set, or None if it has to be
        recomputed."""
        failures = list(kernel.models.failures)
        if kernel.queues is not None and kernel.queues.outages:
            failures.append(Outages(down_windows(kernel.queues, names, origin_s, kernel.now)))
        self._processes = start_all(failures, len(names), kernel.schedule.seed, kernel.now)

    @property
    def node_count(self) -> int:
        """Number of nodes in the cluster."""
        return len(self._keeping)

    @property
    def pending(self) -> bool:
        """True if a node that is down will come back."""
        return any(process.returning() for process in self._processes)

    def attach(self) -> None:
        """Start the failure processes on the kernel's clock. This is called at the beginning of a
        simulation and in each fork.
        """
        for failing in self._processes:
            for process in failing.processes(self._kernel.clock, self):
                self._kernel.clock.process(process)

    def is_down(self, node: int) -> bool:
        """Return True if at least one failure process currently keeps the node down."""
        return self._keeping[node] > 0

    def take_down(self, node: int, notice_s: float = 0.0) -> None:
        """Take a node down, unless it is down already. Its runs fail, but they keep their work if
        ``notice_s`` is long enough for writing a checkpoint. If the checkpoint is sent over the
        network, a later event determines whether it arrives in time.
        """
        kernel = self._kernel
        machine = kernel.machines.list[node]
        self._keeping[node] += 1
        self._lasting = None
        if self._keeping[node] > 1:
            return
        if machine.up:  # a node that is powered off has been taken down already
            kernel.machines.take_down(machine)
        self.count += 1
        kernel.wakes.tell_loss()
        kernel.record(packed_row(_DOWN, kernel.now, -1, -1, -1, node, 0, 0, 0.0))
        kernel.changed = True
        kept, by_network = kernel.preemption.kept_on_failure, kernel.life is not None and kernel.life.by_network
        if notice_s and (by_network or notice_s >= kernel.preemption.checkpoint_write_s):
            kept = KeptWork.ALL
        for run in [run for run in kernel.running.values() if node in run.nodes]:
            kernel.stop(run, _FAILED, kept, notice_s)
        if kernel.on_demand is not None:
            kernel.on_demand.fail(node)

    def bring_up(self, node: int) -> None:
        """Bring a node back, unless another failure process also keeps it down."""
        kernel, was = self._kernel, self._keeping[node]
        self._keeping[node] = max(0, was - 1)
        self._lasting = None
        if not was or self._keeping[node]:
            return
        if kernel.on_demand is None or kernel.on_demand.is_open(node):
            kernel.machines.bring_up(kernel.machines.list[node], kernel.now)
        self.count -= 1
        kernel.record(packed_row(_UP, kernel.now, -1, -1, -1, node, 0, 0, 0.0))
        kernel.changed = True
        if kernel.on_demand is not None:
            kernel.on_demand.repair(node)

    # Tasks that can never start.

    @property
    def may_be_lost(self) -> bool:
        """True if a node which is down may never come back. At a site, and in a fork without failure
        models, this is always possible.
        """
        at_site = self._kernel.machines.site is not None
        takes_for_good = (getattr(process, "takes_for_good", True) for process in self._processes)
        return at_site or not self._processes or any(takes_for_good)

    def withdraw(self) -> None:
        """Remove from the queue all tasks that can never start, because the nodes that they need
        have left permanently or because the site's rules forbid it. In the queue, these tasks would
        block others. Their jobs stay unfinished.
        """
        kernel, site = self._kernel, self._kernel.machines.site
        if self._lasting is None:
            self._lasting = self._bits_of_lasting()
        hopeless = kernel.machines.hopeless(kernel.now, self._lasting)
        stuck = [task for task in kernel.frontier.ready if self._least(task) in hopeless] if hopeless else []
        for task in stuck:
            closed = site is not None and not site.lasting(task.demand.terms, kernel.now)
            kernel.stuck.setdefault(task.job.number, _OVER if closed else GONE)
        if stuck:
            kernel.frontier.withdraw(stuck)

    def _bits_of_lasting(self) -> int:
        """Return the nodes that are up or will come back, as a bit set. A node comes back if every
        failure process that has taken it down also brings it back.
        """
        due = Counter(node for process in self._processes for node in process.returning())
        on_demand = self._kernel.on_demand
        due.update(() if on_demand is None else on_demand.returning())
        return sum(1 << node for node, count in enumerate(self._keeping) if due[node] == count)

    def _least(self, task: TaskState) -> DemandClass:
        """Return the smallest demand with which a task can start."""
        elastic = task.task.elastic
        if elastic is None:
            return task.demand
        return self._kernel.machines.compile(task.task.demand, elastic.least, task.demand.terms)
