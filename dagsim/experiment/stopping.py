"""Stop signals from outside: Ctrl-C, a batch system's SIGTERM, a terminal that closes (SIGHUP)."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self

from dagsim.processes import SIGNALS

__all__ = ["Stopped", "Stops", "exit_code"]


class Stopped(KeyboardInterrupt):
    """A stop by a signal other than Ctrl-C. Handlers of ``KeyboardInterrupt`` handle it too."""

    def __init__(self, number: int) -> None:
        super().__init__(number)  # NumPy rebuilds an exception from its arguments
        self.number = number


def exit_code(stop: KeyboardInterrupt) -> int:
    """128 plus the number of the signal, as in shells: 130 for Ctrl-C, 143 for SIGTERM, 129 for
    SIGHUP.
    """
    return 128 + (stop.number if isinstance(stop, Stopped) else signal.SIGINT)


class Stops:
    """Handles stop signals while the block runs: raised as ``KeyboardInterrupt``, held back on
    demand, never lost.

    NumPy drops an exception that is raised while it looks up attributes (of an enum, for example),
    even a KeyboardInterrupt. The signal is therefore also recorded, and raised at the latest by
    ``release``. A signal that the caller ignores (``nohup``) stays ignored. Outside the main thread
    this class does nothing.
    """

    def __init__(self) -> None:
        self._held = False
        self.heard: int | None = None
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
        """From now on, only record signals."""
        self._held = True

    def release(self) -> None:
        """Raise signals again; if one was recorded meanwhile, raise it at once."""
        self._held = False
        if self.heard is not None:
            raise _stop(self.heard)

    def _hear(self, number: int, _: FrameType | None) -> None:
        self.heard = number
        if not self._held:
            raise _stop(number)


def _stop(number: int) -> KeyboardInterrupt:
    return KeyboardInterrupt() if number == signal.SIGINT else Stopped(number)
