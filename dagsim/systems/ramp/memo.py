"""The memo: what look-aheads gave, by a key that says all they depend on. Kernels share it, processes a file of it."""

from __future__ import annotations

import json
from collections.abc import Hashable
from hashlib import blake2b
from pathlib import Path

from dagsim.errors import RunFolderError
from dagsim.files import write_text
from dagsim.systems.ramp.lookahead import StepTime

__all__ = ["SHARED", "Memo"]

_VERSION = 1


class Memo:
    """Steps by key. The key holds the graph's digest, the pieces, the pattern of the blocks, fabric, rules and orders.

    Two jobs of one key take equally long to the last bit, wherever they run: the memo never changes a result.
    """

    def __init__(self, limit: int = 1_000_000) -> None:
        self.limit = limit
        self._steps: dict[str, StepTime] = {}
        self._names: dict[Hashable, str] = {}
        self.hits = 0
        self.misses = 0

    def get(self, key: Hashable) -> StepTime | None:
        """The value kept for the key."""
        step = self._steps.get(self._name(key))
        if step is None:
            self.misses += 1
        else:
            self.hits += 1
        return step

    def put(self, key: Hashable, step: StepTime) -> None:
        """Keep a step; the oldest goes where there are more than ``limit``."""
        if len(self._steps) >= self.limit:
            del self._steps[next(iter(self._steps))]
        self._steps[self._name(key)] = step

    def save(self, path: Path) -> None:
        """Write all steps to ``path`` (JSON), together with those that another process wrote there meanwhile.

        Raises:
            RunFolderError: What is there is not a memo of this version.
            InputError: The file cannot be written.
        """
        if path.is_file():
            self.load(path)
        steps = {name: list(step) for name, step in sorted(self._steps.items())}
        write_text(path, json.dumps({"version": _VERSION, "steps": steps}))

    def load(self, path: Path) -> None:
        """Add the steps that ``save`` wrote.

        Raises:
            RunFolderError: ``path`` is missing, damaged, or of another version.
        """
        try:
            said = json.loads(path.read_text(encoding="utf-8"))
            found = {str(name): StepTime(*step) for name, step in said["steps"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunFolderError(f"{path}: not a readable memo of look-aheads ({error})") from None
        if said.get("version") != _VERSION:
            raise RunFolderError(f"{path}: a memo of version {said.get('version')!r}; this dagsim reads {_VERSION}")
        self._steps = found | self._steps

    def _name(self, key: Hashable) -> str:
        """The key's fingerprint, the same in every process."""
        known = self._names.get(key)
        if known is None:
            if len(self._names) >= self.limit:
                self._names.clear()
            known = self._names[key] = blake2b(repr(key).encode(), digest_size=16).hexdigest()
        return known

    def __len__(self) -> int:
        return len(self._steps)


SHARED = Memo()
"""The memo of this process, which kernels use unless they are given another."""
