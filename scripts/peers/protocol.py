"""What a peer reads and writes: jobs in, completion times and CPU seconds out. Only the standard library."""

from __future__ import annotations

import json
from array import array
from pathlib import Path


def read(path: str) -> tuple[list[float], list[float], int]:
    """Arrivals and durations in seconds, and the number of GPUs: float64 numbers, the GPUs first."""
    numbers = array("d", Path(path).read_bytes())
    count = (len(numbers) - 1) // 2
    return numbers[1 : count + 1].tolist(), numbers[count + 1 :].tolist(), int(numbers[0])


def write(path: str, ends: list[float], cpu_s: float) -> None:
    """When each job ended, and the CPU seconds of the simulation alone."""
    Path(path).write_text(json.dumps({"ends": ends, "cpu_s": cpu_s}), encoding="utf-8")
