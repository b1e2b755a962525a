"""What becomes of the processes that a test starts, on Linux."""

from __future__ import annotations

from pathlib import Path


def alive(pid: int) -> bool:
    """Tell whether a process is there, and has not ended without being waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children(parent: int) -> list[int]:
    """The processes that a process has started, by any of its threads."""
    return [int(pid) for file in Path(f"/proc/{parent}/task").glob("*/children") for pid in file.read_text().split()]
