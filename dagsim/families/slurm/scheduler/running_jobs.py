"""Current runs as Slurm's scheduler sees them: which users are on each node, and when time limits
expire."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from dagsim.families.slurm.scheduler.run_table import RunTable
from dagsim.model import Decision, Kill, NodePartition, Placement, Qos, RejectReason, Start
from dagsim.systems.cluster.api import ClusterView, Run, TaskState

LATE_S = 1e-6
"""Times that differ by no more than this are treated as equal."""


class RunFacts(NamedTuple):
    """The facts about a run that the scheduler needs until the run ends."""

    job: int
    partition: str
    qos: str
    nodes: tuple[int, ...]
    started_s: float
    limit_ends_s: float
    suspended_s: float = 0.0
    """For how long the run had been suspended when the scheduler was last told."""


class NodeSharing(NamedTuple):
    """The way in which a run shares its nodes with other runs."""

    user: str
    alone: bool
    """True if it shares them with no other job."""
    by_user: bool
    """True if it shares them only with other jobs of its user."""


class NodeUsers:
    """The users of each node. The object can be deep-copied. A start or an end takes O(nodes of the
    run)."""

    def __init__(self) -> None:
        self.runs: dict[int, int] = {}
        """Number of runs on each node that has any."""
        self.whole = 0
        """The nodes that exclusive runs hold, as a bit set."""
        self._users: dict[int, dict[str, int]] = {}
        """Runs of each user by node."""
        self._owned: dict[int, dict[str, int]] = {}
        """Of these, the runs that share their nodes only with others of their user."""

    def started(self, nodes: Sequence[int], sharing: NodeSharing) -> None:
        """Add a run on some nodes."""
        user = sharing.user
        for node in nodes:
            self.runs[node] = self.runs.get(node, 0) + 1
            self.whole |= (1 << node) if sharing.alone else 0
            for table in (self._users, self._owned) if sharing.by_user else (self._users,):
                users = table.setdefault(node, {})
                users[user] = users.get(user, 0) + 1

    def ended(self, nodes: Sequence[int], sharing: NodeSharing) -> None:
        """Remove a run from its nodes."""
        user = sharing.user
        for node in nodes:
            self.runs[node] -= 1
            if not self.runs[node]:
                del self.runs[node]
                self.whole &= ~(1 << node)
            for table in (self._users, self._owned) if sharing.by_user else (self._users,):
                table[node][user] -= 1
                if not table[node][user]:
                    del table[node][user]
                if not table[node]:
                    del table[node]

    @property
    def busy(self) -> int:
        """The nodes with runs, as a bit set."""
        return sum([1 << node for node in self.runs])

    @property
    def any_owned(self) -> bool:
        """True if some run shares its nodes only with other runs of the same user."""
        return bool(self._owned)

    def barred(self, user: str, *, by_user: bool) -> int:
        """Return the nodes that other users keep from a user, as a bit set. These are the nodes
        that other users hold exclusively, or, with ``by_user``, all nodes that they use.
        """
        tables = self._users if by_user else self._owned
        others = {node for node, users in tables.items() if {*users} - {user}}
        others |= {node for node, users in self._owned.items() if user not in users}
        return sum([1 << node for node in others])


class RunningJobs:
    """The runs in progress with their time limits, and whether anything has changed since the last
    backfill cycle. The object can be deep-copied."""

    def __init__(self, nodes: int) -> None:
        self.facts: dict[int, RunFacts] = {}
        self.latest_s: dict[int, float] = {}
        """Time of the latest start of each job."""
        self.table = RunTable(nodes)
        self.users = NodeUsers()
        self._starting: tuple[TaskState, NodePartition] | None = None
        """The task that was started last, and its partition."""
        self.changed = True
        """True if a backfill cycle could have a different result from the last one."""
        self._deadlines: list[tuple[float, int, float]] = []
        """When runs exceed their limits, and for how long each had been suspended by then."""
        self._booting: dict[int, tuple[float, float]] = {}
        """The limits of runs whose nodes boot: what the scheduler expects, and after which the job is killed."""

    def start(self, task: TaskState, part: NodePartition, placement: Placement) -> Start:
        """Return the start of a task, and remember its partition, which the run does not state."""
        self._starting = task, part
        return Start(task, placement)

    def started_in(self, run: Run) -> NodePartition | None:
        """Return the partition in which a new run was started. Return None if the scheduler has not
        started it.
        """
        return self._starting[1] if self._starting is not None and self._starting[0] is run.task else None

    def started(
        self, run: Run, now: float, rules: tuple[NodePartition, Qos], limits: tuple[float, float], sharing: NodeSharing
    ) -> None:
        """Add a run with the partition and the QOS whose rules it follows. ``limits`` contains the
        time limit that the scheduler expects, and the time after which the job is killed.
        """
        part, qos = rules
        limit_s, kill_s = limits
        begins_s = now
        if run.boots:  # the time limit counts from the moment when the nodes have booted
            begins_s = now + run.setup_s
            self._booting[run.id] = limits
        self.table.started(run, begins_s + limit_s)
        self.facts[run.id] = RunFacts(run.job.number, part.name, qos.name, run.nodes, now, begins_s + limit_s)
        self.latest_s[run.job.number] = now
        self.users.started(run.nodes, sharing)
        if kill_s < inf and not run.boots:
            heappush(self._deadlines, (now + kill_s, run.id, 0.0))
        self.changed = True

    def rated(self, run: Run, now: float) -> bool:
        """Start the time limit of a run whose nodes have now booted, or extend it by the time for
        which the run was suspended. Return True if the nodes have now booted.
        """
        kept = self.facts[run.id]
        if run.suspended_since_s is not None or run.suspended_s > kept.suspended_s:
            self.table.freed(run.nodes)
            self.changed = True
            if (paused_s := run.suspended_s - kept.suspended_s) > 0:
                ends_s = kept.limit_ends_s + paused_s
                self.table.move(run, ends_s)
                self.facts[run.id] = kept._replace(limit_ends_s=ends_s, suspended_s=run.suspended_s)
        if run.id not in self._booting or run.boots:
            return False
        limit_s, kill_s = self._booting.pop(run.id)
        self.table.move(run, now + limit_s)
        self.facts[run.id] = self.facts[run.id]._replace(limit_ends_s=now + limit_s)
        if kill_s < inf:
            heappush(self._deadlines, (now + kill_s, run.id, run.suspended_s))
        return True

    def ended(self, run: Run, sharing: NodeSharing) -> None:
        """Record that a run has ended."""
        self.table.ended(run)
        self.users.ended(self.facts.pop(run.id).nodes, sharing)
        self._booting.pop(run.id, None)
        self.changed = True

    def end_by(self, run: Run, until_s: float) -> None:
        """Record that a run is expected to end at a time other than its limit."""
        self.table.move(run, until_s)
        self.changed = True

    def next_deadline_s(self) -> float:
        """Return the next time at which some run exceeds its limit."""
        return self._deadlines[0][0] if self._deadlines else inf

    def kill_late(self, view: ClusterView) -> Iterator[Decision]:
        """Kill the jobs that have exceeded their time limits."""
        while self._deadlines and self._deadlines[0][0] <= view.now + LATE_S:
            due_s, run, paused_s = heappop(self._deadlines)
            kept = self.facts.get(run)
            if kept is None:
                continue
            held = view.running[run]
            if held.suspended_since_s is not None or held.suspended_s > paused_s:
                since_s = held.suspended_since_s
                later_s = held.suspended_s - paused_s + (0.0 if since_s is None else max(1.0, view.now - since_s))
                heappush(self._deadlines, (due_s + later_s, run, held.suspended_s))
                continue
            # Another task of the same job has just started, so check the limit again in a second.
            if self.latest_s.get(kept.job, -inf) >= view.now:
                heappush(self._deadlines, (view.now + 1.0, run, held.suspended_s))
                return
            yield Kill(kept.job, RejectReason.TIME_LIMIT)
