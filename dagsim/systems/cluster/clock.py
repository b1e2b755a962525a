"""The clock of a simulation, and the order of simultaneous events. The clock is a SimPy environment
that also accepts absolute times. Only this module accesses private fields of SimPy.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf
from typing import Any

from simpy import Environment
from simpy.events import Event

FIRST = 0
"""SimPy's own interrupts and the starts of processes come before everything else."""
COMPLETIONS = 1
"""Ends of runs, transfers and set-ups come next."""
DISTURBANCES = 2
"""Repairs and failures come next."""
ARRIVALS = 3
"""Arriving jobs come last. After that, the policy is called."""


_FEW_EVENTS = 256
"""Number of events on the clock above which it is searched for disarmed ones."""


class Due(Event):
    """An event that happens when the clock reaches its time (``Clock.at``). Unlike other SimPy
    events, it does not have to be triggered first.
    """

    _ok = True
    _value = None


class Clock(Environment):
    """SimPy's environment with absolute times. A job must arrive at exactly the time in its record,
    but in floating point ``now + (t - now)`` does not always equal ``t``.
    """

    def __init__(self, now: float = 0.0) -> None:
        super().__init__(now)
        self._crowded = _FEW_EVENTS

    def at(self, time_s: float, order: int, event: Event) -> None:
        """Schedule the triggered ``event`` for ``time_s``. Its ``order`` ranks it among
        simultaneous events. Events with the same order happen in the order in which they were
        scheduled.
        """
        entry: Any = (time_s, order, next(self._eid), event)
        heappush(self._queue, entry)

    def settle(self) -> None:
        """Process all events at the next time. This includes events that these events cause at the
        same time.

        This does the same as a loop that calls ``Environment.step``, but saves one call per event.
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

    def scheduled(self) -> list[tuple[float, int, Event]]:
        """Return all events on the clock in the order in which they will happen. Each is a tuple of
        its time, its order at that time, and the event.
        """
        return [(time_s, order, event) for time_s, order, _, event in sorted(self._queue)]

    def tidy(self) -> None:
        """Remove events that no longer have callbacks (disarmed ``Due`` events) once they may make
        up half of all events. The average cost of a call is O(1).
        """
        if len(self._queue) > self._crowded:
            self._queue[:] = [entry for entry in self._queue if entry[3].callbacks or not isinstance(entry[3], Due)]
            heapify(self._queue)
            self._crowded = 2 * len(self._queue) + _FEW_EVENTS

    def drop(self, event: Event) -> None:
        """Remove an event from the clock. The cost is O(events)."""
        self._queue[:] = [entry for entry in self._queue if entry[3] is not event]
        heapify(self._queue)

    def not_before(self, time_s: float) -> None:
        """Postpone all events that are scheduled before ``time_s`` to ``time_s``. The cost is
        O(events).
        """
        self._queue[:] = [(max(entry[0], time_s), *entry[1:]) for entry in self._queue]
        heapify(self._queue)


class Timer(Due):
    """An event at an absolute time, with an order among simultaneous events. Processes yield it. If
    the time is ``inf``, it never happens.
    """

    def __init__(self, clock: Clock, time_s: float, order: int = COMPLETIONS, value: Any = None) -> None:
        self.env = clock
        self.callbacks = []
        self._value = value
        if time_s < inf:
            now = clock._now
            clock.at(time_s if time_s > now else now, order, self)
