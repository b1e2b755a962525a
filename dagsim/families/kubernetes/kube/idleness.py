"""Determine when the real kube-scheduler is idle, so that simulated time may advance."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import NamedTuple

from dagsim.families.kubernetes.server.api_resources import NODES, PODS
from dagsim.families.kubernetes.server.metrics_page import Metrics, series, summed
from dagsim.families.kubernetes.server.object_store import ObjectChange, ObjectKey
from dagsim.families.kubernetes.server.patches import field as value_at
from dagsim.families.kubernetes.server.program import Beside
from dagsim.model.arithmetic import ordered_sum

_PATIENCE_S = 0.5
"""Seconds of real time without a change after which the program is considered idle, even if its
metrics are inconsistent.
"""


class _Account(NamedTuple):
    """Numbers of unfinished items: attempts that have begun but not ended, changes that were sent
    but not handled, and preemptions that have begun but not ended."""

    attempts: float
    unhandled: float
    preemptions: float


class Idleness:
    """Determines when kube-scheduler is idle, based on its requests and its own metrics.

    First, kube-scheduler must have decided on every new pod. Second, the metrics must be
    consistent: the program has handled all changes that were sent to it, no pod is active, being
    bound or being preempted, and as many attempts have finished as pods have entered the queue. If
    the metrics remain inconsistent, half a second without any change counts as idle. For a
    scheduler without such metrics, ``still_s`` is used instead.
    """

    def __init__(self, beside: Beside, still_s: float) -> None:
        self._beside, self._still_s = beside, still_s
        self.metrics: Metrics | None = None
        self._has_metrics = True
        self._sent = Counter[str]()
        self._nominations = 0
        self._slack = _Account(0.0, 0.0, 0.0)

    def sent(self, change: ObjectChange) -> None:
        """Count how many events a change causes in kube-scheduler."""
        bound = bool(value_at(change.object, "spec.nodeName"))
        was_bound = bool(value_at(change.old, "spec.nodeName")) if change.old else bound
        if change.resource == PODS:
            if change.event == "MODIFIED" and bound and not was_bound:
                self._sent["AssignedPodAdd"] += 1
            elif change.event == "ADDED":
                self._sent["AssignedPodAdd" if bound else "UnschedulablePodAdd"] += 1
            elif change.event == "DELETED" and bound:
                self._sent["AssignedPodDelete"] += 1
            elif change.event == "MODIFIED" and bound:
                self._sent["AssignedPodUpdate"] += 1
            nominated = value_at(change.object, "status.nominatedNodeName")
            if nominated and change.source and nominated != value_at(change.old, "status.nominatedNodeName"):
                self._nominations += 1
        elif change.resource == NODES:
            self._sent[{"ADDED": "NodeAdd", "MODIFIED": "NodeUpdate", "DELETED": "NodeDelete"}[change.event]] += 1

    async def reset(self) -> None:
        """Record the current numbers, as the baseline that an idle program returns to."""
        for _ in range(10):
            if (account := await self._account()) is not None:
                self._slack = account[0]
                return
            await asyncio.sleep(0.05)
        self._has_metrics = False

    async def wait(self, undecided: set[ObjectKey]) -> None:
        """Wait until kube-scheduler is idle."""
        beside = self._beside
        deadline = time.monotonic() + beside.timeout_s
        await beside.until(lambda: not undecided and not beside.api.under_way, "left pods without a verdict", deadline)
        if not self._has_metrics:
            await beside.still(self._still_s, deadline)
            return
        version, since, pause = -1, 0.0, 0.0005
        while True:
            account = await self._account()
            now = time.monotonic()
            if not undecided and not beside.api.under_way and account is not None:
                state, busy = account
                if not busy and state == self._slack:
                    return
                if beside.store.version != version:
                    version, since = beside.store.version, now
                elif not busy and now - since > _PATIENCE_S:
                    self._slack = state
                    return
            beside.check("did not come to rest", deadline)
            beside.api.activity.clear()
            try:
                await asyncio.wait_for(beside.api.activity.wait(), pause)
            except TimeoutError:
                pause = min(2 * pause, 0.02)

    async def _account(self) -> tuple[_Account, bool] | None:
        """Return the numbers of unfinished items according to the metrics, and whether any work is
        in progress. Return None if the metrics cannot be read."""
        assert self.metrics is not None
        page = await self.metrics.page()
        if page is None:
            return None
        active = summed(page, "scheduler_pending_pods", "queue", ("active",))
        entered = summed(page, "scheduler_queue_incoming_pods_total", "queue", ("active",))
        attempts = entered - active - summed(page, "scheduler_schedule_attempts_total")
        handled = {
            labels.get("event", ""): value
            for labels, value in series(page, "scheduler_event_handling_duration_seconds_count")
        }
        handled["NodeUpdate"] = ordered_sum(value for event, value in handled.items() if "NodeAnnotation" in event)
        unhandled = ordered_sum(count - handled.get(event, 0.0) for event, count in self._sent.items())
        preemptions = self._nominations - summed(page, "scheduler_preemption_goroutines_execution_total")
        busy = (
            active
            + summed(page, "scheduler_pending_pods", "queue", ("backoff",))
            + summed(page, "scheduler_goroutines")
            + summed(page, "scheduler_pending_async_api_calls")
        )
        return _Account(attempts, unhandled, preemptions), busy > 0
