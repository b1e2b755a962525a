"""Arrays and facts as one compressed text that a page carries and its browser unpacks.

The bytes: the length of the header (4 bytes, little endian), the header (JSON, blanks up to a multiple of 8), and the
arrays, each from a multiple of 8 on. The header holds the facts, and of each array its type, offset and length.
"""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import numpy as np

__all__ = ["Packer"]

_TYPES = {"f8": "Float64Array", "f4": "Float32Array", "i4": "Int32Array", "u1": "Uint8Array"}
_LEVEL = 6


class Packer:
    """Arrays by number, and facts that refer to them."""

    def __init__(self) -> None:
        self._arrays: list[tuple[str, bytes, int]] = []
        self._places: dict[tuple[str, bytes], int] = {}

    def add(self, values: Any, dtype: str) -> int:
        """Keep an array as f8, f4, i4 or u1, equal ones once; returns its number."""
        array = np.asarray(values, f"<{dtype}")
        data = array.tobytes()
        place = self._places.setdefault((dtype, data), len(self._arrays))
        if place == len(self._arrays):
            self._arrays.append((_TYPES[dtype], data, len(array)))
        return place

    def packed(self, facts: dict[str, Any]) -> str:
        """Everything as base64 of gzip; equal facts and arrays give equal text."""
        listed, offset = [], 0
        for kind, data, length in self._arrays:
            listed.append([kind, offset, length])
            offset += _padded(len(data))
        header = json.dumps({"facts": facts, "arrays": listed}, separators=(",", ":"), allow_nan=False).encode()
        header += b" " * (_padded(len(header) + 4) - len(header) - 4)
        body = b"".join(data + bytes(_padded(len(data)) - len(data)) for _, data, _ in self._arrays)
        whole = len(header).to_bytes(4, "little") + header + body
        return base64.b64encode(gzip.compress(whole, _LEVEL, mtime=0)).decode("ascii")


def _padded(length: int) -> int:
    return -(-length // 8) * 8
