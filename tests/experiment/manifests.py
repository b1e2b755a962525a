"""Commands that make run folders, and the manifests there."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

SMALL = ("--set", "workload.count=12", "--seeds", "1", "--no-plots")


def folder_in(root: Path) -> Path:
    (path,) = root.iterdir()
    return path


def manifest_of(folder: Path) -> dict[str, dict[str, dict[str, str]]]:
    text: dict[str, dict[str, dict[str, str]]] = json.loads((folder / "manifest.json").read_text())
    return text


def sha(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()
