"""The clock of a simulation: which of its events comes next."""

from __future__ import annotations

from dagsim.systems.cluster.clock import Clock, Timer


def test_events_that_are_postponed_keep_the_order_of_simultaneous_events() -> None:
    """At 5 s the orders decide, although the event of order 2 was due before the others."""
    clock = Clock()
    happened: list[int] = []
    for time_s, order in ((1.0, 2), (2.0, 0), (3.0, 1), (9.0, 0)):
        Timer(clock, time_s, order, order).callbacks.append(lambda event: happened.append(event.value))
    clock.not_before(5.0)
    assert clock.peek() == 5.0
    clock.settle()
    assert happened == [0, 1, 2]
    assert clock.peek() == 9.0
