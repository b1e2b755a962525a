"""A publisher on this machine: an HTTP server that answers as its test tells it to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@dataclass
class Publisher:
    """What the server has, how it behaves, and what it was asked."""

    content: bytes = b""
    ranges: bool = True
    cut_after: int | None = None  # bytes of a body before the connection breaks
    chunked: bool = False
    status: int = 200
    type_: str = "application/octet-stream"
    etag: str = ""
    lie_about_start: bool = False
    asked: list[str] = field(default_factory=list)  # the Range of each question, or empty
    port: int = 0

    def url(self, name: str = "trace.csv") -> str:
        return f"http://127.0.0.1:{self.port}/{name}"


@contextmanager
def publishing(publisher: Publisher) -> Iterator[Publisher]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            wanted = self.headers.get("Range", "")
            publisher.asked.append(wanted)
            self.close_connection = True
            if publisher.status != 200:
                self.send_error(publisher.status)
                return
            total = len(publisher.content)
            same = self.headers.get("If-Range", publisher.etag) == publisher.etag
            start = int(re.findall(r"\d+", wanted)[0]) if wanted and publisher.ranges and same else 0
            if start >= total > 0:
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{total}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206 if start else 200)
            if start:
                first_byte = 0 if publisher.lie_about_start else start
                self.send_header("Content-Range", f"bytes {first_byte}-{total - 1}/{total}")
            if publisher.etag:
                self.send_header("ETag", publisher.etag)
            self.send_header("Content-Type", publisher.type_)
            body = publisher.content[start:]
            if publisher.chunked:
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.wfile.write(b"%x\r\n" % len(body) + body[: publisher.cut_after])
                if publisher.cut_after is None:
                    self.wfile.write(b"\r\n0\r\n\r\n")
            else:
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: publisher.cut_after])

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    publisher.port = server.server_port
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield publisher
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
