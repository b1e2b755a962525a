"""Rules for code from outside dagsim: how it is found by name, which file contains it, and when it
may be imported.

A name with a colon, ``module:attr`` or ``path/to/file.py:attr``, refers to code outside dagsim.
Importing such code runs it, so each command decides which names it accepts. These may be names on
the command line and in a file given to ``--config``. They may also be names in a run folder, if the
source file still has the SHA-256 that is recorded there. Python programs are not restricted,
because they run code anyway. See docs/security.md.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from dagsim.errors import CodeNotAllowed, UnknownName


class Allowed:
    """The names of code outside dagsim that a command may import. A new object allows no names.
    ``command_line`` contains the command's arguments.

    A name is allowed if it appears in text written by the user: the command line, or a file given
    to ``--config``.
    """

    def __init__(self, command_line: Iterable[str] = ()) -> None:
        self._command_line = tuple(command_line)
        self._texts: list[str] = []
        self._recorded: list[tuple[Path, Mapping[str, str]]] = []
        self.everything = False
        """True if every name is allowed (``--allow-code``)."""

    def trust_command_line(self) -> None:
        """Allow the names on the command line. Commands that run a user's own code call this."""
        self._texts += self._command_line

    def trust_values(self, value: object) -> None:
        """Allow every name in the keys and values of a YAML file that the user wrote."""
        if isinstance(value, Mapping):
            for key, part in value.items():
                self.trust_values(key)
                self.trust_values(part)
        elif isinstance(value, list | tuple):
            for part in value:
                self.trust_values(part)
        elif isinstance(value, str):
            self._texts.append(value)

    def trust_recorded(self, folder: Path, hashes: Mapping[str, str]) -> None:
        """Allow the names in a run folder whose source file has the SHA-256 in ``hashes``."""
        self._recorded.append((folder, hashes))

    def check(self, kind: str, name: str) -> None:
        """Check that code called ``name`` may be imported or, for ``exec:COMMAND``, run.

        Raises:
            CodeNotAllowed: The code may not be imported or run.
        """
        # In the YAML line "name: 1.0", the colon is not part of the name, because a space follows
        # it.
        whole_name = re.compile(rf"(?<![\w.]){re.escape(name)}(?![\w.]|:\S)")
        if self.everything or any(whole_name.search(text) for text in self._texts):
            return
        if _is_path(name) and _resolved(name) in map(_resolved, own_names(" ".join(self._texts))):
            return  # a configuration that was read from a file contains absolute paths
        reason = "not imported, because this command does not run code outside dagsim"
        for folder, hashes in self._recorded:
            recorded = hashes.get(name)
            if recorded is not None and recorded == source_sha256(name):
                return
            reason = f"named by {folder}, which " + (
                "did not record the SHA-256 of its source" if recorded is None else "recorded another SHA-256 for it"
            )
            reason += "; look at the code, then repeat the command with --allow-code"
        raise CodeNotAllowed(f"{kind} {name!r} is {reason} (docs/security.md)")


_allowed: Allowed | None = None


def allowed() -> Allowed | None:
    """Return the names that this process may import, or None if it may import any name, as in
    Python programs.
    """
    return _allowed


@contextmanager
def allow(names: Allowed) -> Iterator[Allowed]:
    """Restrict imports to ``names`` while the block is running."""
    # A context variable would not restrict the threads that are started inside the block.
    global _allowed
    before, _allowed = _allowed, names
    try:
        yield names
    finally:
        _allowed = before


def is_own(name: str) -> bool:
    """Return True if ``name`` refers to code outside dagsim (``module:attr`` or ``file.py:attr``)."""
    return ":" in name


def own_names(text: str) -> list[str]:
    """Return the names of code outside dagsim in ``text``. Each name may be followed by parameters
    in brackets.
    """
    names, end = [], 0
    for run in _RUN.finditer(text):
        attribute = _ATTRIBUTE.match(text, run.end()) if run[1] else None
        if attribute is None:
            continue
        module = text[max(run.start(), end) : run.end() - 1]
        if not module.endswith(".py"):
            tail = len(module) - _WORD.match(module[::-1]).end()  # type: ignore[union-attr]
            first = _LETTER.search(module, tail)
            module = module[first.start() :] if first else ""
        if module:
            names.append(f"{module}:{attribute[0]}")
            end = attribute.end()
    return names


# A single pattern for the whole name would take quadratic time on a long text without a colon.
_RUN = re.compile(r"[^\s\[\]=,:'\"]+(:?)")
_ATTRIBUTE = re.compile(r"[A-Za-z_][\w.]*")
_WORD = re.compile(r"[\w.]*")
_LETTER = re.compile(r"[A-Za-z_]")
_BY_PATH: dict[Path, str] = {}
"""The name in ``sys.modules`` of each module that was imported by path, keyed by file."""


def attribute(name: str) -> Any:
    """Import the object at ``module:attr`` or ``file.py:attr``. ``attr`` may contain dots.

    Raises:
        ModuleNotFoundError, AttributeError: There is no such module or attribute.
        UnknownName: There is no such file.
    """
    module, _, attributes = name.rpartition(":") if _is_path(name) else name.partition(":")
    value: object = _module_at(Path(module)) if _is_path(name) else import_module(module)
    for part in attributes.split("."):
        value = getattr(value, part)
    return value


def _is_path(name: str) -> bool:
    return name.rpartition(":")[0].endswith(".py")


def _resolved(name: str) -> tuple[Path | None, str]:
    """Return the absolute path of the file in ``name``, with links resolved, and the attribute in
    it.
    """
    path, _, attr = name.rpartition(":")
    return (Path(path).expanduser().resolve() if _is_path(name) else None), attr


def _module_at(path: Path) -> object:
    """Import the file ``path`` as a module, unless it has already been imported.

    The module is named after the file, and the file's folder is added to the search path, so that
    worker processes can import the module again.
    """
    file = path.expanduser().resolve()
    if (loaded := _loaded(file)) is not None:
        return sys.modules[loaded]
    if not file.is_file():
        raise UnknownName(f"{path}: there is no such file")
    other = PathFinder.find_spec(file.stem)
    is_free = file.stem not in sys.modules and (other is None or other.origin == str(file))
    name = file.stem if is_free else f"{file.stem}_{sha256(str(file).encode()).hexdigest()[:8]}"
    spec = spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    _BY_PATH[file] = name
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    return module


def _loaded(file: Path) -> str | None:
    """Return the name of the module that was imported from ``file``. Return None if there is no
    such module, or if another file has been imported under its name since then.
    """
    name = _BY_PATH.get(file, "")
    return name if getattr(sys.modules.get(name), "__file__", None) == str(file) else None


def name_of(cls: type) -> str:
    """Return the name by which a class can be found again: ``file.py:Class`` if it was imported by
    path, otherwise ``module:Class``.
    """
    by_name = {name: str(file) for file, name in _BY_PATH.items() if _loaded(file) is not None}
    return f"{by_name.get(cls.__module__, cls.__module__)}:{cls.__qualname__}"


def source_file(name: str) -> Path | None:
    """Return the file that contains the code called ``name``, or None if there is no source file.
    Nothing is imported.
    """
    if _is_path(name):
        file = Path(name.rpartition(":")[0]).expanduser()
        return file if file.is_file() else None
    spec: ModuleSpec | None = None
    parts = name.partition(":")[0].split(".")
    # importlib.util.find_spec is not used here, because it would import the parent packages
    for count in range(1, len(parts) + 1):
        folders = None if spec is None else list(spec.submodule_search_locations or ())
        spec = PathFinder.find_spec(".".join(parts[:count]), folders)
        if spec is None:
            return None
    return Path(spec.origin) if spec is not None and spec.origin and Path(spec.origin).is_file() else None


def source_sha256(name: str) -> str | None:
    """Return the SHA-256 of the file that contains ``name``, as hex digits, or None if there is no
    such file."""
    file = source_file(name)
    return None if file is None else sha256(file.read_bytes()).hexdigest()
