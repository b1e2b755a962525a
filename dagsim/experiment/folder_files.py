"""Read, check and write the JSON files in run folders, and name the folders."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dagsim.errors import RunFolderError
from dagsim.files import parsed_json, replaced, why_unreadable, why_unwritable


def rename_free(folder: Path, wanted: Path, *, numbered: bool) -> Path | None:
    """Rename the folder to ``wanted``, and return its new path. If that name is taken, use the
    first free name of the form ``wanted-N`` if ``numbered`` is True. Otherwise, return None.
    """
    number = 1
    while True:
        path = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        try:
            if not path.exists() or not numbered:
                folder.rename(path)
                return path
        except OSError as error:  # another process has created ``path`` in the meantime
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            if not numbered:
                return None
        number += 1


def slug(text: str, most: int = 40) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.")[:most] or "run"


def value_in(line: Mapping[str, Any], key: str, file: str) -> Any:
    """Return the value of ``key`` in a line of ``file``, which is in a run folder.

    Raises:
        RunFolderError: The line has no such key.
    """
    if key not in line:
        raise RunFolderError(f"{file}: a line has no {key!r}, so another version of dagsim must have written the file")
    return line[key]


def check_shape(value: Any, shape: Any, where: object, *, inner: bool = False) -> None:
    """Check the types in a JSON file. A shape is a type, a list with one shape for all elements, or
    a mapping from keys to shapes, in which the key ``None`` represents every key. Null is allowed
    everywhere except in lists. Keys may be missing, except in an ``inner`` object.

    Raises:
        RunFolderError: A value has another type.
    """
    if isinstance(shape, type):
        right = isinstance(value, shape) and not (shape is int and isinstance(value, bool))
    else:
        right = isinstance(value, type(shape))
    if not right:
        raise RunFolderError(f"{where}: damaged: expected {_expected(shape)}, got {value!r:.60}")
    if isinstance(shape, list):
        for item in value:
            check_shape(item, shape[0], where)
    elif isinstance(shape, dict):
        for key in shape if inner else ():
            if key is not None:
                value_in(value, key, str(where))
        for key, part in value.items():
            of = shape.get(key, shape.get(None))
            if part is not None and of is not None:
                check_shape(part, of, f"{where}: {key}", inner=True)


def _expected(shape: Any) -> str:
    return {str: "a text", int: "a whole number", dict: "an object", list: "a list"}[
        shape if isinstance(shape, type) else type(shape)
    ]


def whole_lines(path: Path) -> list[bytes]:
    """Return the complete lines of a file, with line ends. An incomplete last line, which a stopped
    writer may have left, is omitted."""
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunFolderError(f"{path}: {why_unreadable(error)}") from None
    return lines if not lines or lines[-1].endswith(b"\n") else lines[:-1]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the JSON objects in a file that has one per line, ignoring an incomplete last line.

    Raises:
        RunFolderError: A line is not a JSON object. The message gives the number of the line.
    """
    values = []
    for number, line in enumerate(whole_lines(path), 1):
        try:
            value = parsed_json(line)
            if not isinstance(value, dict):
                raise ValueError(f"expected an object, got {value!r:.60}")
        except ValueError as error:  # this includes UnicodeDecodeError, a subclass of ValueError
            raise RunFolderError(
                f"{path}:{number}: damaged: this line is not valid JSON ({error}); restore the file, or run the "
                "command in command.txt again"
            ) from None
        values.append(value)
    return values


def json_line(value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"


def json_text(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"


def read_json_file(path: Path) -> Any:
    try:
        return parsed_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{path}: cannot be read as JSON ({error})") from None


def write_whole(path: Path, text: str, *, durable: bool = False) -> None:
    """Replace the file atomically, so that readers see either the old or the new text."""
    with replaced(path, durable=durable) as temporary:
        temporary.write_text(text, encoding="utf-8")


def overwrite(path: Path, text: str) -> None:
    """Overwrite the file in place. This works even on a full disk, which has no space for a second
    file.
    """
    with path.open("r+b") as file:
        file.write(text.encode())
        file.truncate()


def unwritable(path: Path, error: OSError) -> RunFolderError:
    return RunFolderError(f"{error.filename or path}: {why_unwritable(error)}")
