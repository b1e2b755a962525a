"""Common parts of the scripts: arguments, text or JSON, errors without traceback, exit status, readers of golden files,
CSV and Markdown tables.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from dagsim.errors import DagsimError, InputError
from dagsim.files import write_text

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when numpy is imported; as in the command line

T = TypeVar("T")
Options: TypeAlias = argparse.Namespace
Say: TypeAlias = Callable[[object], None]
"""Print a line, or a line for each of the figures of a mapping, unless JSON was asked for."""


def arguments(doc: str | None, *, out: bool = False) -> argparse.ArgumentParser:
    """Return a parser with the script's docstring and ``--json``; with ``out`` also ``--out FILE``."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    if out:
        parser.add_argument("--out", type=Path, help="write the JSON to this file")
    return parser


def numbers(text: str) -> list[int]:
    """Parse ``1,2,3``."""
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected whole numbers separated by commas, got {text!r}") from None


def at_least_one(text: str) -> int:
    """Parse a whole number of 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of 1 or more, got {text!r}")
    return int(text)


def lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text file, which may end in ``.gz``."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8", errors="replace") as file:
        yield from file


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file, which may end in ``.gz``."""
    return list(csv.DictReader(lines(path)))


def read_json(path: Path) -> Any:
    """The contents of a JSON file, which may end in ``.gz``.

    Raises:
        InputError: It cannot be read, or is not JSON.
    """
    try:
        return json.loads("".join(lines(path)))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error})") from None


@contextmanager
def reading(path: object, content: str) -> Iterator[None]:
    """Turn errors of reading a file, and of contents that are not ``content``, into an ``InputError``."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror or error}") from None
    except DagsimError:
        raise
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: not {content}: {error!r}") from error


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows with the same keys as CSV."""
    from dagsim.metrics import to_csv  # imports numpy

    write_text(path, to_csv({name: [row[name] for row in rows] for name in rows[0]} if rows else {}))


def markdown(head: Iterable[str], rows: Iterable[Iterable[object]], numbers: Iterable[int] = ()) -> Iterator[str]:
    """Format the lines of a Markdown table. The columns ``numbers`` are aligned right."""
    head, right = list(head), set(numbers)
    yield f"| {' | '.join(head)} |"
    yield f"| {' | '.join('---:' if place in right else '---' for place in range(len(head)))} |"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"


def run(
    parser: argparse.ArgumentParser,
    work: Callable[[Options, Say], T],
    holds: Callable[[T], bool] = lambda value: True,
    convert: Callable[[T], Any] = lambda value: value,
) -> int:
    """Parse, work and print. Return the exit status.

    Args:
        parser: Made by ``arguments``.
        work: Takes the options and a function that prints (``Say``); returns the value.
        holds: Returns True if the value is correct. The status is 1 if it is not, and 2 after an error.
        convert: Turns the value into the data of ``--json`` and ``--out``.
    """
    options = parser.parse_args()
    try:
        value = work(options, _silent if options.json else _print)
    except (DagsimError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(convert(value)))
    if getattr(options, "out", None) is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        write_text(options.out, json.dumps(convert(value), indent=1, ensure_ascii=False) + "\n")
    return 0 if holds(value) else 1


def _print(line: object) -> None:
    print("\n".join(_figures(line)) if isinstance(line, Mapping) else line, flush=True)


def _figures(figures: Mapping[Any, Any], of: str = "") -> Iterator[str]:
    """A line for each figure, and for each group of them that holds no other."""
    for key, value in figures.items():
        name = f"{of} {key}".lstrip()
        match value:
            case Mapping() if any(isinstance(part, Mapping) for part in value.values()):
                yield from _figures(value, name)
            case Mapping():
                yield f"{name}: {', '.join(f'{key} {_text(part)}' for key, part in value.items())}"
            case _:
                yield f"{name:34} {_text(value)}"


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _silent(line: object) -> None:
    pass
