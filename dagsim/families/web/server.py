"""The server: a local socket, and the security rules for every response."""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeAlias

from dagsim.errors import InputError
from dagsim.families.web.folder_pages import Results


def serve_folders(root: Path, host: str, port: int, tell: Callable[[str], None], snapshots: Any = None) -> None:
    """Serve the run folders below ``root`` at ``host`` and ``port`` (0: any free port) until
    Ctrl-C. If ``snapshots`` are given (``services.queue_snapshots``), also serve their forecasts.

    ``tell`` receives a line of text for the user when the server is ready.

    Raises:
        InputError: The folder or a package is missing, or the address is not available.
    """
    results = Results(root, snapshots)
    try:
        import uvicorn

        from dagsim.families.web.asgi import Connection, application
    except ImportError as error:
        raise InputError(f"dagsim serve needs {error.name}; run pip install -e '.[serve]' in the checkout") from None
    listening = _bound(host, port)
    shown = f"[{host}]" if ":" in host else host
    stopped: list[Callable[[], bool]] = []
    app = application(results, host, lambda: bool(stopped and stopped[0]()))
    settings = uvicorn.Config(
        app,
        http=Connection,
        lifespan="off",
        log_level="critical",
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    server = uvicorn.Server(settings)
    stopped.append(lambda: server.should_exit)
    tell(f"http://{shown}:{listening.getsockname()[1]}/ shows {root}; Ctrl-C ends it")
    if not is_loopback(host):
        tell(f"warning: everyone who can reach {host} can read all runs below {root}")
    if snapshots is not None and snapshots.journal is not None:
        snapshots.watch()
    try:
        server.run(sockets=[listening])
    except KeyboardInterrupt:
        pass  # Ctrl-C was pressed, so the server has stopped
    finally:
        listening.close()
        if snapshots is not None:
            snapshots.close()


def _bound(host: str, port: int) -> socket.socket:
    """Return a socket at that address, for this process alone."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise InputError(f"--host {host}: not an address on this machine ({error})") from None
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise InputError(
                f"port {port} of {host} is already in use; choose another with --port (0: any free port)"
            ) from None
        raise InputError(f"{host}, port {port}: cannot be used: {error.strerror}") from None
    return listening


AsgiMessage: TypeAlias = MutableMapping[str, Any]
Asgi: TypeAlias = Callable[
    [AsgiMessage, Callable[[], Awaitable[AsgiMessage]], Callable[[AsgiMessage], Awaitable[None]]], Awaitable[None]
]

LOOPBACK = ("127.0.0.1", "localhost", "::1")

_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_POLICY = b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""Content-Security-Policy of responses that set none."""


class Guard:
    """A wrapper around an application. It allows only requests that read, checks the ``Host``
    header, and limits what a browser may load.

    A web site can make its own name point to this machine (DNS rebinding). Its requests have that
    name as ``Host`` and are rejected.
    """

    def __init__(self, app: Asgi, bound_to: str) -> None:
        self._app = app
        self._open = not is_loopback(bound_to)
        self._names = {*LOOPBACK, bound_to.lower(), *([socket.gethostname().lower()] if self._open else [])}

    async def __call__(
        self,
        scope: AsgiMessage,
        receive: Callable[[], Awaitable[AsgiMessage]],
        send: Callable[[AsgiMessage], Awaitable[None]],
    ) -> None:
        if scope["type"] != "http":
            return
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or not self._knows(host_of(hosts[0].decode("latin-1"))):
            await _refuse(send, 421, "this server has another name\n")
        elif scope["method"] not in ("GET", "HEAD"):
            await _refuse(send, 405, "read only: GET and HEAD\n", [(b"allow", b"GET, HEAD")])
        else:
            await self._app(scope, receive, _sealed(send))

    def _knows(self, host: str) -> bool:
        return host in self._names or (self._open and _is_address(host))


_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\s:,\[\]]*))(?::[0-9]*)?|([0-9a-f:]+)")
"""Matches an address in brackets or a name, each with or without a port, or a bare IPv6 address."""


def host_of(header: str) -> str:
    """Return the name in a ``Host`` header without its port. The result is empty if the header is
    not a single host."""
    match = _HOST.fullmatch(header.strip().lower())
    return "" if match is None else next((name for name in match.groups() if name), "")


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach the address."""
    return host in LOOPBACK or (_is_address(host) and ip_address(host).is_loopback)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _sealed(send: Callable[[AsgiMessage], Awaitable[None]]) -> Callable[[AsgiMessage], Awaitable[None]]:
    async def with_headers(message: AsgiMessage) -> None:
        if message["type"] == "http.response.start":
            mine = list(message.get("headers", ()))
            if not any(name.lower() == b"content-security-policy" for name, _ in mine):
                mine.append((b"content-security-policy", _POLICY))
            message = {**message, "headers": [*mine, *_HEADERS]}
        await send(message)

    return with_headers


async def _refuse(
    send: Callable[[AsgiMessage], Awaitable[None]], status: int, text: str, more: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    sealed = _sealed(send)
    headers = [(b"content-type", b"text/plain; charset=utf-8"), *more]
    await sealed({"type": "http.response.start", "status": status, "headers": headers})
    await sealed({"type": "http.response.body", "body": text.encode()})
