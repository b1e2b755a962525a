"""Signals that stop a command."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self

SIGNALS = tuple(
    number for name in ("SIGINT", "SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None
)
"""Signals that ask a run to stop."""


class Stopped(KeyboardInterrupt):
    """The exception for a stop signal other than Ctrl-C. It is a ``KeyboardInterrupt``, so code
    that handles Ctrl-C handles it as well.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)  # NumPy re-creates exceptions from ``args``, which must therefore contain the number
        self.number = number


def exit_code(stop: KeyboardInterrupt) -> int:
    """Return the exit code for a stop: 128 plus the number of the signal, as in shells. It is 130
    for Ctrl-C, 143 for SIGTERM and 129 for SIGHUP.
    """
    return 128 + (stop.number if isinstance(stop, Stopped) else signal.SIGINT)


_stopped = threading.Event()


def was_stopped() -> bool:
    """Return True if a signal has asked this process to stop."""
    return _stopped.is_set()


class Stops:
    """A context manager for stop signals. In its block, each signal is raised as a
    ``KeyboardInterrupt``. Signals can be held back for a time, and no signal is lost.

    NumPy drops any exception raised while it looks up attributes (of an enum, for example), even a
    KeyboardInterrupt. Each signal is therefore also recorded, and is raised by ``release`` at the
    latest. A signal that the caller has ignored (``nohup``) stays ignored. Outside the main thread
    this class does nothing.
    """

    def __init__(self) -> None:
        self._held = False
        self.received: int | None = None
        """The number of the last signal."""
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def hold(self) -> None:
        """Hold back signals: record them, but do not raise them."""
        self._held = True

    def release(self) -> None:
        """Raise signals again. If one was recorded in the meantime, raise it immediately."""
        self._held = False
        if self.received is not None:
            raise _stop(self.received)

    def _hear(self, number: int, _: FrameType | None) -> None:
        self.received = number
        _stopped.set()
        if not self._held:
            raise _stop(number)


def _stop(number: int) -> KeyboardInterrupt:
    return KeyboardInterrupt() if number == signal.SIGINT else Stopped(number)
