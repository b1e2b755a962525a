"""The workloads that wait in a ClusterQueue."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TypeAlias

from dagsim.systems.cluster.policies.kueue.workloads import WorkloadState

_Entry: TypeAlias = tuple[float, float, str, int, WorkloadState]


class PendingQueue:
    """Workloads in the order of priority, creation and UID, and those that are set aside until quota is
    released. A workload that preempts others is *sticky* in BestEffortFIFO: it comes first.

    ``usage_of`` gives the past usage of a workload's LocalQueue, which then decides before all else.
    """

    def __init__(self, *, strict: bool, usage_of: Callable[[WorkloadState], float] | None = None) -> None:
        self.strict, self.usage_of = strict, usage_of
        self.aside: dict[str, WorkloadState] = {}
        self._sticky: WorkloadState | None = None
        self._entries: list[_Entry] = []
        self._waiting: dict[str, int] = {}
        """Numbers of the valid entries, by workload."""
        self._number = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def push(self, workload: WorkloadState) -> None:
        """Add a workload that can be tried; nothing happens if it waits already."""
        if workload.name in self._waiting:
            return
        self.aside.pop(workload.name, None)
        workload.where = "heap"
        self._number += 1
        self._waiting[workload.name] = self._number
        heappush(self._entries, (-workload.priority, workload.created, workload.uid, self._number, workload))

    def set_aside(self, workload: WorkloadState) -> None:
        """Keep a workload out until quota is released."""
        self._waiting.pop(workload.name, None)
        workload.where = "aside"
        self.aside[workload.name] = workload

    def stick(self, workload: WorkloadState) -> None:
        """Keep a workload first while it preempts others."""
        if not self.strict:
            self._sticky = workload

    def remove(self, workload: WorkloadState) -> None:
        """Forget a workload that was admitted or has gone."""
        self._waiting.pop(workload.name, None)
        self.aside.pop(workload.name, None)
        if self._sticky is workload:
            self._sticky = None

    def bring_back(self) -> bool:
        """Return all workloads that were set aside to the queue; True if there were any."""
        back = list(self.aside.values())
        for workload in back:
            self.push(workload)
        return bool(back)

    def pop(self) -> WorkloadState | None:
        """Take the head; None if nothing can be tried."""
        if not self._waiting:
            return None
        head = self._head()
        del self._waiting[head.name]
        head.where = ""
        return head

    def _head(self) -> WorkloadState:
        if self.usage_of is not None:
            usage_of, sticky = self.usage_of, self._sticky
            valid = [entry for entry in self._entries if self._waiting.get(entry[4].name) == entry[3]]
            self._entries = sorted(valid)
            return min(valid, key=lambda entry: (usage_of(entry[4]), entry[4] is not sticky, entry[:4]))[4]
        if self._sticky is not None and self._sticky.name in self._waiting:
            return self._sticky
        while True:
            _, _, _, number, head = self._entries[0]
            if self._waiting.get(head.name) == number:
                return head
            heappop(self._entries)

    def in_order(self) -> list[WorkloadState]:
        """Return all workloads that can be tried, heads first."""
        valid = [entry for entry in sorted(self._entries) if self._waiting.get(entry[4].name) == entry[3]]
        return [entry[4] for entry in valid]
