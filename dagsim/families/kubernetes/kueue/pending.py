"""The workloads waiting in a ClusterQueue."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from typing import TypeAlias

from dagsim.families.kubernetes.kueue.workloads import WorkloadState

_Entry: TypeAlias = tuple[float, float, str, str, int, WorkloadState]
"""Negative priority, creation time, UID, name, and the order of arrival. No two workloads have the
same order of arrival, so the workload itself is never compared."""


class PendingQueue:
    """Waiting workloads, in order of priority, creation time and UID, and workloads that are set
    aside until quota is released. With BestEffortFIFO, a workload that is preempting others is
    *sticky*: it remains the head of its queue.

    ``usage_of`` returns the past usage of a workload's LocalQueue. If it is given, this usage comes
    before all other criteria.
    """

    def __init__(self, *, strict: bool, usage_of: Callable[[WorkloadState], float] | None = None) -> None:
        self.strict, self.usage_of = strict, usage_of
        self.aside: dict[str, WorkloadState] = {}
        self._sticky: WorkloadState | None = None
        self._entries: list[_Entry] = []
        """In order; entries before ``_start``, and entries that are not ``_waiting``, are finished."""
        self._start = 0
        self._waiting: set[int] = set()
        """The orders of arrival of those that wait."""

    def __len__(self) -> int:
        return len(self._waiting)

    def push(self, workload: WorkloadState) -> None:
        """Add a workload that can be tried, unless it waits already."""
        if workload.arrived not in self._waiting:
            self.aside.pop(workload.name, None)
            workload.where = "heap"
            self._waiting.add(workload.arrived)
            insort(self._entries, _entry(workload), lo=self._start)

    def set_aside(self, workload: WorkloadState) -> None:
        """Set a workload aside until quota is released."""
        self._waiting.discard(workload.arrived)
        workload.where = "aside"
        self.aside[workload.name] = workload

    def stick(self, workload: WorkloadState) -> None:
        """Keep a workload at the head while it preempts others."""
        if not self.strict:
            self._sticky = workload

    def remove(self, workload: WorkloadState) -> None:
        """Remove a workload that was admitted or deleted."""
        self._waiting.discard(workload.arrived)
        self.aside.pop(workload.name, None)
        if self._sticky is workload:
            self._sticky = None

    def bring_back(self) -> bool:
        """Put all workloads that were set aside back into the queue. Return True if any were put
        back.
        """
        if not self.aside:
            return False
        for workload in self.aside.values():
            workload.where = "heap"
        self._entries = self._entries[self._start :] + [_entry(workload) for workload in self.aside.values()]
        self._entries.sort()  # fast, because the list usually consists of two sorted parts
        self._start = 0
        self._waiting.update([workload.arrived for workload in self.aside.values()])
        self.aside.clear()
        return True

    def peek(self) -> WorkloadState | None:
        """Return the head, or None if no workload can be tried."""
        waiting = self._waiting
        if not waiting:
            return None
        if self.usage_of is not None:
            usage_of, sticky = self.usage_of, self._sticky
            heads = [entry for entry in self._entries[self._start :] if entry[4] in waiting]
            return min(heads, key=lambda entry: (usage_of(entry[5]), entry[5] is not sticky, entry[:5]))[5]
        if self._sticky is not None and self._sticky.arrived in waiting:
            return self._sticky
        entries, start = self._entries, self._start
        while entries[start][4] not in waiting:
            start += 1
        self._start = start
        if start > 1000 and start > len(entries) // 2:
            del entries[:start]
            self._start = 0
        return self._entries[self._start][5]

    def pop(self) -> WorkloadState | None:
        """Remove and return the head, or return None if no workload can be tried."""
        head = self.peek()
        if head is not None:
            self._waiting.remove(head.arrived)
            head.where = ""
        return head

    def in_order(self) -> list[WorkloadState]:
        """Return all workloads that can be tried, with the head first."""
        waiting = [entry[5] for entry in self._entries[self._start :] if entry[4] in self._waiting]
        return list(dict.fromkeys(waiting))


def _entry(workload: WorkloadState) -> _Entry:
    return (-workload.priority, workload.created, workload.uid, workload.name, workload.arrived, workload)
