"""The connection to a scheduler that uses Batsim's protocol: messages over ZeroMQ, and the program's
process.
"""

from __future__ import annotations

import json
import socket
import subprocess
import time
from contextlib import suppress
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from dagsim.errors import PolicyFailed
from dagsim.families.programs.process import end_program, shown
from dagsim.files import Lock, parsed_json

_POLL_MS = 100
_GOODBYE_MS = 500


class BatsimPeer:
    """The connection to a scheduler, and the scheduler's process if dagsim has started it."""

    def __init__(self, name: str, endpoint: str, timeout_s: float, argv: list[str] | None) -> None:
        self.name, self.timeout_s = name, timeout_s
        self._program: subprocess.Popen[bytes] | None = None
        self._turn: Lock | None = None
        self._may_send = False
        if argv is None:
            self._turn = _turn_at(endpoint)
        elif endpoint.endswith(":*"):
            endpoint = f"{endpoint[:-1]}{_free_port()}"
        self.endpoint = endpoint
        self._zmq = import_module("zmq")
        self._context = self._zmq.Context()
        self._socket = self._context.socket(self._zmq.REQ)
        self._socket.linger = 0
        try:
            if argv is not None:
                words = [word.replace("{endpoint}", endpoint) for word in argv]
                self._program = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
            self._socket.connect(endpoint)
        except (OSError, self._zmq.ZMQError) as error:
            self.close()
            raise PolicyFailed(f"policy {name!r} cannot be started: {error.strerror or error}") from None

    def exchange(self, message: dict[str, Any]) -> Any:
        """Send a message and return the reply.

        Raises:
            PolicyFailed: The scheduler ended, did not reply in time, or its reply is not JSON.
        """
        self._may_send = False
        self._socket.send_string(json.dumps(message, allow_nan=False))
        deadline = time.monotonic() + self.timeout_s
        while not self._socket.poll(_POLL_MS):
            if self._program is not None and self._program.poll() is not None:
                raise PolicyFailed(f"ended with exit code {self._program.returncode}")
            if time.monotonic() > deadline:
                raise PolicyFailed(f"gave no reply at {self.endpoint} within {self.timeout_s:g} s")
        text = self._socket.recv()
        self._may_send = True
        try:
            return parsed_json(text)
        except ValueError:
            raise PolicyFailed(f"replied {shown(text)}, which is not JSON") from None

    def close(self) -> None:
        """Close the connection, end the process and release the lock. This method may be called
        twice."""
        if not self._socket.closed:
            if self._may_send:  # the simulation stopped early, so tell the waiting scheduler to exit
                message = json.dumps({"now": 0.0, "events": [batsim_event(0.0, "SIMULATION_ENDS", {})]})
                self._socket.linger = _GOODBYE_MS
                with suppress(self._zmq.ZMQError):
                    self._socket.send_string(message, self._zmq.NOBLOCK)
            self._socket.close()
            self._context.term()
        if self._program is not None:
            end_program(self._program)
        if self._turn is not None:
            self._turn.release()
            _HELD.discard(self.endpoint)
            self._turn = None


_HELD: set[str] = set()
"""Endpoints that this process uses."""


def _turn_at(endpoint: str) -> Lock:
    """Wait until no other process of this user communicates with the scheduler at ``endpoint``,
    because the messages of two simulations would be mixed up.

    Raises:
        PolicyFailed: Another simulation in this process uses the endpoint.
    """
    if endpoint in _HELD:
        raise PolicyFailed(f"batsim: another simulation in this process is using {endpoint} (docs/reference/batsim.md)")
    key = sha256(f"{Path.home()} {endpoint}".encode()).hexdigest()[:16]
    lock = Lock(Path(gettempdir()) / f"dagsim-batsim-{key}.lock")
    while not lock.claim():
        time.sleep(_POLL_MS / 1000)
    _HELD.add(endpoint)
    return lock


def _free_port() -> int:
    """Return a port on this machine that is currently unused."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def batsim_event(time_s: float, type_: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return an event of a message."""
    return {"timestamp": time_s, "type": type_, "data": data}
