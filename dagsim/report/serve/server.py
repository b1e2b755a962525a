"""The server itself: a socket of this machine, until somebody stops it."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from pathlib import Path

from dagsim.errors import InputError
from dagsim.report.serve.guard import is_loopback
from dagsim.report.serve.results import Results

__all__ = ["serve_folders"]


def serve_folders(root: Path, host: str, port: int, tell: Callable[[str], None]) -> None:
    """Show the run folders below ``root`` at ``host`` and ``port`` (0: any that is free), until Ctrl-C.

    ``tell`` is given a line for people once it can be asked.

    Raises:
        InputError: The folder is missing, the packages are, or the address cannot be had.
    """
    results = Results(root)
    try:
        import uvicorn

        from dagsim.report.serve.app import application
    except ImportError as error:
        raise InputError(f"dagsim serve needs {error.name}: pip install 'dagsim[page]'") from None
    listening = _bound(host, port)
    shown = f"[{host}]" if ":" in host else host
    stopped: list[Callable[[], bool]] = []
    app = application(results, host, lambda: bool(stopped and stopped[0]()))
    settings = uvicorn.Config(
        app, lifespan="off", log_level="critical", server_header=False, timeout_graceful_shutdown=2
    )
    server = uvicorn.Server(settings)
    stopped.append(lambda: server.should_exit)
    tell(f"http://{shown}:{listening.getsockname()[1]}/ shows {root}; Ctrl-C ends it")
    if not is_loopback(host):
        tell(f"warning: whoever reaches {host} can read all runs below {root}")
    try:
        server.run(sockets=[listening])
    except KeyboardInterrupt:
        pass  # asked to stop, and stopped
    finally:
        listening.close()


def _bound(host: str, port: int) -> socket.socket:
    """A socket at that address, for this process alone."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise InputError(f"--host {host}: no address of this machine ({error})") from None
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise InputError(f"port {port} of {host} is in use; --port names another, 0 any that is free") from None
        raise InputError(f"{host}, port {port}: cannot be served from: {error.strerror}") from None
    return listening
