"""The manifest of a run: versions, commit, platform, and the hash of its trace."""

from __future__ import annotations

import platform
import subprocess
from datetime import datetime
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

__all__ = ["READABLE", "SCHEMA", "code_commit", "file_hash", "manifest"]

SCHEMA = 2
"""The layout of run folders; 2 says where the rows of each run end, and which policies were to run."""

READABLE = (1, SCHEMA)
"""The layouts that can be read."""

_PACKAGES = ("dagsim", "numpy", "pandas", "pydantic", "scipy", "simpy", "torch", "gymnasium")


def manifest(
    command: str, created: datetime, config_sha256: str, seeds: tuple[int, ...], trace: Path | None
) -> dict[str, Any]:
    """The manifest of a run, as plain values for JSON."""
    return {
        "schema": SCHEMA,
        "command": command,
        "created": created.isoformat(timespec="seconds"),
        "seeds": list(seeds),
        "config_sha256": config_sha256,
        "trace": None if trace is None else {"path": str(trace), "sha256": file_hash(trace)},
        "git_commit": _commit(Path(__file__).parents[2]),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": {name: number for name in _PACKAGES if (number := _version(name))},
    }


def file_hash(path: Path) -> str:
    """SHA-256 of a file, or of a folder's files by name, as hex digits."""
    total = sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            with file.open("rb") as stream:
                while chunk := stream.read(1 << 20):
                    total.update(chunk)
    return total.hexdigest()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit(checkout: Path) -> str | None:
    """The commit that dagsim runs from, ``-dirty`` if files differ from it; ``None`` if it is no checkout."""
    return _git(checkout, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*") or None


def code_commit(checkout: Path) -> str | None:
    """The same, but ``-dirty`` only if the code differs: a script that makes a table writes into ``results/``."""
    commit = _git(checkout, "rev-parse", "HEAD")
    changed = _git(checkout, "status", "--porcelain", "--untracked-files=no", "--", "dagsim", "scripts", "configs")
    return commit and f"{commit}{'-dirty' if changed else ''}"


def _git(checkout: Path, *arguments: str) -> str | None:
    """The answer of git; ``None`` where it has none."""
    if not (checkout / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(checkout), *arguments], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
