"""A Kubernetes scheduler that runs next to the simulation: its process, its API server, and the
test for whether it is idle.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, TypeVar
from weakref import finalize

from dagsim.errors import ConfigError, PolicyFailed, UnknownName, require
from dagsim.families.kubernetes.server.api_server import ApiServer
from dagsim.families.kubernetes.server.metrics_page import Metrics
from dagsim.families.kubernetes.server.object_store import ObjectStore, Resource

_T = TypeVar("_T")
_GOODBYE_S = 2.0
_LAST_LINES = 12


def checked_program(kind: str, binary: str, timeout_s: float) -> str:
    """Check that a program exists, and return its path.

    Raises:
        ConfigError: No program is given, uvicorn is not installed, or ``timeout_s`` is not
            positive.
        UnknownName: The program does not exist.
    """
    require(0 < timeout_s < 1e6, f"{kind}: timeout_s must be a number of seconds above 0", timeout_s)
    if not binary:
        raise ConfigError(f"{kind}: the parameter binary is missing; expected {kind}[binary=PATH]")
    path = shutil.which(binary)
    if path is None:
        raise UnknownName(f"{kind}: there is no program {binary!r}")
    try:
        import uvicorn  # noqa: F401
    except ImportError:
        raise ConfigError(f"{kind} needs uvicorn; run pip install -e '.[kubernetes]' in the checkout") from None
    return path


class Beside:
    """A program and the API server for it, which runs in its own thread.

    ``arguments`` is a function that returns the command line. It is called with the URL of the
    server, and with a function that stores a document where the program can read it. Nothing is
    left behind when this process ends, however it ends: documents and the log are files without
    names, and on Linux the program ends together with this process.
    """

    def __init__(self, name: str, timeout_s: float, log_lines: int = _LAST_LINES) -> None:
        self.name, self.timeout_s, self._log_lines = name, timeout_s, log_lines
        self.store = ObjectStore()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the rest)
        self._open: list[Any] = []
        self._folder: str | None = None
        self.api = self.call(self._made())
        self.close = finalize(self, _end, self._loop, self._thread, self.api, self._open, self._log)

    async def _made(self) -> ApiServer:
        return ApiServer(self.store)

    def call(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Carry out ``work`` in the server's thread, where the store may be changed, and return the
        result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def start(self, arguments: Callable[[Callable[[str, Any], str], str], list[str]]) -> None:
        """Start the server and the program.

        Raises:
            PolicyFailed: The program cannot be started.
        """
        self.call(self._start(arguments))

    async def _start(self, arguments: Callable[[Callable[[str, Any], str], str], list[str]]) -> None:
        url = await self.api.start()
        handles: list[int] = []

        def document(name: str, content: Any) -> str:
            return self._document(name, content, handles)

        words = arguments(document, url)
        try:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                pass_fds=handles,
                # In a separate session, the program does not receive Ctrl-C. Instead, dagsim
                # receives it and stops the program.
                start_new_session=True,
                preexec_fn=_dies_with(os.getpid()) if sys.platform == "linux" else None,
            )
        except OSError as error:
            raise PolicyFailed(f"policy {self.name!r} cannot be started: {error.strerror or error}") from None
        self._open.append(self._process)
        for handle in handles:
            os.close(handle)

    def _document(self, name: str, content: Any, handles: list[int]) -> str:
        """Store a document as JSON, and return a path at which the program can read it."""
        text = json.dumps(content).encode()
        if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
            handle = os.memfd_create(name)
            os.write(handle, text)
            handles.append(handle)
            return f"/proc/self/fd/{handle}"
        if self._folder is None:
            folder = tempfile.TemporaryDirectory(prefix="dagsim-")
            self._open.append(folder)
            self._folder = folder.name
        path = Path(self._folder, name)
        path.write_bytes(text)
        return str(path)

    def held_port(self) -> int:
        """Reserve a port of this machine, so that no other process can take it before the program
        does. The program has to share this port (``SO_REUSEPORT``).
        """
        holder = socket.socket()
        self._open.append(holder)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", 0))
        port: int = holder.getsockname()[1]
        return port

    def metrics(self, port: int) -> Metrics:
        """Return the page with the program's metrics, which the program serves on a port."""
        page = Metrics(port)
        self._open.append(page)
        return page

    async def until(self, condition: Callable[[], bool], what: str, deadline: float) -> None:
        """Wait until ``condition`` is true. Only a request from the program can make it true.

        Raises:
            PolicyFailed: The program ended, or the deadline has passed.
        """
        while not condition():
            self.api.activity.clear()
            self.check(what, deadline)
            with suppress(TimeoutError):
                await asyncio.wait_for(self.api.activity.wait(), 0.2)

    def check(self, what: str, deadline: float) -> None:
        """Check that the program is running and that the deadline has not passed.

        Raises:
            PolicyFailed: The program ended, or the deadline has passed.
        """
        if self._process is not None and (code := self._process.poll()) is not None:
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            self.fail(how)
        if time.monotonic() > deadline:
            self.fail(f"{what} within {self.timeout_s:g} s")

    def fail(self, what: str) -> None:
        """Raise an error about the program. The message contains the end of the program's log."""
        self._log.flush()
        size = os.fstat(self._log.fileno()).st_size
        tail = os.pread(self._log.fileno(), 8000, max(0, size - 8000)).decode("utf-8", "replace")
        lines = "\n".join(tail.splitlines()[-self._log_lines :])
        unknown = sorted(path for path in self.api.asked if path.endswith("(404)"))
        missing = f"; it requested {', '.join(unknown[:5])}" if unknown else ""
        shown = f"\nThe end of its log:\n{lines}" if lines.strip() else ""
        now = self.store.now_s
        raise PolicyFailed(f"policy {self.name!r} at {now:g} s: the program {what}{missing}{shown}")

    async def ready(self, kinds: Iterable[Resource], deadline: float) -> None:
        """Wait until the program watches these kinds."""
        kinds = list(kinds)
        names = ", ".join(kind.plural for kind in kinds)
        await self.until(lambda: all(self.api.watched[kind] for kind in kinds), f"did not watch {names}", deadline)

    async def still(self, seconds: float, deadline: float) -> None:
        """Wait until, for a certain time, there has been no request and no change to an object."""
        while True:
            self.api.activity.clear()
            if not self.api.under_way:
                try:
                    await asyncio.wait_for(self.api.activity.wait(), seconds)
                except TimeoutError:
                    if not self.api.under_way:
                        return
            else:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.api.activity.wait(), 0.2)
            self.check("did not come to rest", deadline)


def _dies_with(parent: int) -> Callable[[], None]:
    """Return a function to call in a new process. It makes the process end together with its
    parent, however the parent ends (Linux).
    """
    library = ctypes.CDLL(None)

    def set_signal() -> None:
        library.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os._exit(1)  # the parent ended before prctl was called, so no signal would come

    return set_signal


def _end(
    loop: asyncio.AbstractEventLoop, thread: threading.Thread, api: ApiServer, opened: list[Any], log: IO[bytes]
) -> None:
    """Stop the program, the server and their thread."""
    for one in opened:
        if isinstance(one, subprocess.Popen):
            with suppress(OSError):
                one.terminate()
    for one in opened:
        if isinstance(one, subprocess.Popen):
            try:
                one.wait(_GOODBYE_S)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()
        elif isinstance(one, socket.socket | Metrics):
            one.close()
        else:
            one.cleanup()
    log.close()

    async def stop() -> None:
        api.stop()
        # let the loop run once, so that the transports close, which ends the watches
        await asyncio.sleep(0)
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        _, pending = await asyncio.wait(rest, timeout=_GOODBYE_S / 2) if rest else (rest, ())
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        loop.stop()

    if loop.is_running():
        asyncio.run_coroutine_threadsafe(stop(), loop)
        thread.join(_GOODBYE_S)
    if not loop.is_running():
        loop.close()


def kubeconfig(url: str) -> Mapping[str, Any]:
    """Return the configuration that a client needs to find the server."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "dagsim",
        "clusters": [{"name": "dagsim", "cluster": {"server": url}}],
        "users": [{"name": "dagsim", "user": {"token": "none"}}],
        "contexts": [{"name": "dagsim", "context": {"cluster": "dagsim", "user": "dagsim"}}],
    }
