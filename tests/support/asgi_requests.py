"""Requests to an ASGI application, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote


class Answer:
    """What a server has answered so far."""

    def __init__(self) -> None:
        self.status, self.body = 0, b""
        self.headers: dict[str, str] = {}

    @property
    def text(self) -> str:
        return self.body.decode()


Enough = Callable[[Answer], bool]


def ask(
    app: Any, path: str, *, method: str = "GET", host: str = "127.0.0.1:8765", enough: Enough = lambda answer: False
) -> Answer:
    """Send one request, with its path as it stands on the wire; ``enough`` ends one whose answer does not end."""
    raw, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": unquote(raw),
        "raw_path": raw.encode(),
        "query_string": query.encode(),
        "headers": [(b"host", host.encode())] if host else [],
        "http_version": "1.1",
        "scheme": "http",
        "root_path": "",
    }
    answer, done = Answer(), asyncio.Event()

    async def receive() -> dict[str, str]:
        await done.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
        else:
            answer.body += message.get("body", b"")
            if not message.get("more_body") or enough(answer):
                done.set()

    async def main() -> None:
        await asyncio.wait_for(app(scope, receive, send), 20)

    asyncio.run(main())
    return answer
