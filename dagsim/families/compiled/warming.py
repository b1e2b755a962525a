"""Background compilation while a run uses SimPy. The next run, or the next cell of this run, can
then use compiled code.

    python -m dagsim.families.compiled.warming POLICY

The compiling process uses only idle processor time. Only one such process runs per machine and
version of dagsim. Its standard input is a pipe from the run that started it, so the process ends
together with that run. A run that ends normally first writes a byte to the pipe, which lets the
compilation finish. A run that is killed or stopped does not write this byte.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

from dagsim.errors import ConfigError
from dagsim.families.compiled import jit, services
from dagsim.files import Lock
from dagsim.stops import was_stopped
from dagsim.systems.policy_spec import PolicySpec

EPISODES = "episodes"
"""Used instead of the name of a policy for environments."""

OFF = "DAGSIM_WARM"
"""The environment variable that keeps runs from starting a compilation if its value is 0."""

_started: dict[str, subprocess.Popen[bytes] | None] = {}


def warm_beside(policy: str) -> bool:
    """Start a process that compiles what a policy (or ``EPISODES``) needs. Return True if this call
    or an earlier one has started such a process."""
    name = PolicySpec.parse(policy).name
    if name not in _started:
        _started[name] = None
        if os.environ.get(OFF, "1") != "0" and _writable() and _lock().is_free():
            with suppress(OSError):
                _started[name] = subprocess.Popen(
                    [sys.executable, "-m", __name__, policy],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
    return _started[name] is not None


@atexit.register
def _let_go() -> None:
    """Allow compilations to finish, unless this run was stopped."""
    for process in filter(None, _started.values()):
        if process.stdin is None:
            continue
        with suppress(OSError):  # writing fails if the process has already ended
            if not was_stopped():
                process.stdin.write(b".")
            process.stdin.close()
        # Mark the server as finished, because Python warns about child processes that outlive it.
        process.returncode = 0


def has_failed() -> bool:
    """Return True if the last compilation beside a run could not import numba."""
    return _failure().exists()


def _failure() -> Path:
    return jit.folder() / "failure"


def _lock() -> Lock:
    return Lock(jit.folder() / "warming")


def _writable() -> bool:
    with suppress(OSError):
        jit.folder().mkdir(parents=True, exist_ok=True)
        return os.access(jit.folder(), os.W_OK)
    return False


def _give_way() -> None:
    """Make this process run only when the processor is otherwise idle."""
    with suppress(OSError, AttributeError):
        os.nice(19)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _end_with_run() -> None:
    """End this process when the run ends, unless the run has allowed the compilation to finish."""
    if not sys.stdin.buffer.read(1):
        os._exit(1)


def compile_for(policy: str) -> int:
    """Compile what a policy needs, unless another process is doing so."""
    from dagsim.families.compiled.choice import plan_for, why_broken
    from dagsim.families.compiled.drive import compile_loop
    from dagsim.systems.cluster.models.kept_work import Preemption

    _give_way()
    threading.Thread(target=_end_with_run, daemon=True).start()
    lock = _lock()
    if not lock.claim():
        return 0
    try:
        if why := why_broken():
            _failure().write_text(why)
            return 1
        _failure().unlink(missing_ok=True)
        if policy == EPISODES:
            services.compile_episodes()
        else:
            compile_loop(plan_for(policy, Preemption()))
    except (ConfigError, OSError):
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(compile_for(sys.argv[1]))
