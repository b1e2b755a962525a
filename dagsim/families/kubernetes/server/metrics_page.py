"""The page ``/metrics`` of a program, in the text format of Prometheus."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Iterable
from http.client import HTTPException, HTTPSConnection

from dagsim.model.arithmetic import ordered_sum


class Metrics:
    """The page ``/metrics`` of a program. It is read over HTTPS, without verifying the program's
    self-signed certificate."""

    def __init__(self, port: int) -> None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self._connection = HTTPSConnection("127.0.0.1", port, timeout=10, context=context)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    async def page(self) -> bytes | None:
        """Return the page, or None if the program does not answer."""
        return await asyncio.to_thread(self._page)

    def _page(self) -> bytes | None:
        for _ in range(2):  # try twice, because the program may have closed the connection since the last request
            try:
                self._connection.request("GET", "/metrics")
                answer = self._connection.getresponse()
                text = answer.read()
            except (OSError, HTTPException):
                self._connection.close()
                continue
            return text if answer.status == 200 else None
        return None


_LINE = re.compile(rb"(\w+)(?:\{([^}]*)\})? ([-+.\w]+)")
_LABEL = re.compile(rb'(\w+)="([^"]*)"')


def series(page: bytes, name: str) -> list[tuple[dict[str, str], float]]:
    """Return the labels and the value of each series of a metric. The name of a histogram needs its
    suffix, as in ``..._count``.
    """
    family = re.sub(r"_(count|sum)$", "", name)
    start = page.find(f"\n# TYPE {family} ".encode())
    if start < 0:
        return []
    end = page.find(b"\n#", start + 1)
    samples = []
    for line in page[start : end if end >= 0 else len(page)].split(b"\n"):
        if line.startswith(name.encode()) and (match := _LINE.fullmatch(line)) and match[1].decode() == name:
            labels = {key.decode(): value.decode() for key, value in _LABEL.findall(match[2] or b"")}
            samples.append((labels, float(match[3])))
    return samples


def summed(page: bytes, name: str, label: str = "", values: Iterable[str] = ()) -> float:
    """Return the sum of a metric's series, or of those whose label has one of the given values."""
    chosen = set(values)
    return ordered_sum(value for labels, value in series(page, name) if not label or labels.get(label) in chosen)
