"""The clock: a SimPy environment that also takes absolute times, and the order of events within one
instant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from math import inf
from typing import Any

from simpy import Environment
from simpy.events import Event

FIRST = 0
"""The order of SimPy's own interrupts and of the starts of processes, before everything else."""
COMPLETIONS = 1
"""Ends of runs, transfers and set-ups come next in their instant."""
DISTURBANCES = 2
"""Repairs and failures come next."""
ARRIVALS = 3
"""Arriving jobs come last. After them the policy is asked."""


class Clock(Environment):
    """SimPy's environment with absolute times: ``now + (t - now)`` is not always ``t`` in floating
    point, but a job must arrive at exactly its own time.
    """

    def at(self, time_s: float, order: int, event: Event) -> None:
        """Schedule the triggered ``event`` at ``time_s``, with its ``order`` within the instant."""
        entry: Any = (time_s, order, next(self._eid), event)
        heappush(self._queue, entry)

    def keep(self, needed: Callable[[Event], bool]) -> None:
        """Remove the events that are not ``needed``: they will not happen. O(events)."""
        self._queue[:] = [entry for entry in self._queue if needed(entry[3])]
        heapify(self._queue)

    def not_before(self, time_s: float) -> None:
        """Postpone the events that are scheduled before ``time_s`` to this time. O(events)."""
        self._queue[:] = [(max(entry[0], time_s), *entry[1:]) for entry in self._queue]
        heapify(self._queue)

    @property
    def events(self) -> list[Any]:
        """The scheduled events as a heap, always the same list: time, order in the instant, number
        and event. The first one is the next. The kernel adds most events here, without a call.
        """
        return self._queue

    @property
    def numbers(self) -> Iterator[int]:
        """The numbers of the events to come."""
        return self._eid

    def settle(self) -> None:
        """Process all events of the next instant, including those they cause in that instant.

        This is ``Environment.step`` in a loop, without a call per event.
        """
        queue = self._queue
        self._now = now = queue[0][0]
        while True:
            event = heappop(queue)[3]
            callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]
            for callback in callbacks:
                callback(event)
            if not event._ok and not hasattr(event, "_defused"):
                raise event._value
            if not queue or queue[0][0] != now:
                break

    def scheduled(self) -> list[Event]:
        """All scheduled events, in the order in which they will happen."""
        return [event for *_, event in sorted(self._queue)]


class Timer(Event):
    """An event at an absolute time, with an order within its instant; at ``inf`` it never happens.
    Processes yield it.
    """

    def __init__(self, clock: Clock, time_s: float, order: int = COMPLETIONS, value: Any = None) -> None:
        # As Event.__init__ does, already triggered: one is made per arrival.
        self.env = clock
        self.callbacks = []
        self._ok = True
        self._value = value
        if time_s < inf:
            now = clock._now
            clock.at(time_s if time_s > now else now, order, self)
