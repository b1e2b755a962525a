"""Read every trace below a folder, and print for each what was kept, dropped and noted.

    python scripts/read_all_traces.py DIR [--markdown | --json]

Files that no reader accepts are listed with the error.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

from dagsim.errors import InputError
from dagsim.traces import open_trace

_NO_DATA = (".md", ".html", ".sha256")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    style = parser.add_mutually_exclusive_group()
    style.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    style.add_argument("--markdown", action="store_true", help="a Markdown table")
    chosen = parser.parse_args()
    rows, refused = [], []
    for path in _files(chosen.folder):
        name = path.relative_to(chosen.folder).as_posix()
        try:
            rows.append({"file": name, **_read(path)})
        except InputError as error:
            why = str(error).replace(f"{chosen.folder}/", "").removeprefix(f"{name}: ").partition("; name one of")[0]
            refused.append({"file": name, "why": why})
    if chosen.json:
        print(json.dumps({"read": rows, "refused": refused}, indent=1))
    else:
        _print(rows, refused, "| " if chosen.markdown else "")


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix not in _NO_DATA and not path.name.startswith((".", "LICENSE")):
            yield path


def _read(path: Path) -> dict[str, Any]:
    started = perf_counter()
    trace = open_trace(path)
    for _ in trace.jobs():
        pass
    return {"format": trace.format, **trace.report.to_dict(), "seconds": round(perf_counter() - started, 2)}


def _print(rows: list[dict[str, Any]], refused: list[dict[str, str]], edge: str) -> None:
    heads = ("file", "format", "rows", "kept", "jobs", "dropped", "noted", "seconds")
    print(_line(heads, edge))
    if edge:
        print(_line(["---"] * len(heads), edge))
    for row in rows:
        print(_line([_text(row[head]) for head in heads], edge))
    print(f"\n{len(rows)} files read; {len(refused)} taken by no reader:\n")
    for each in refused:
        print(f"- {each['file']}: {each['why']}")


def _line(cells: Any, edge: str) -> str:
    return f"{edge}{' | '.join(cells)}{' |' if edge else ''}"


def _text(found: Any) -> str:
    if isinstance(found, dict):
        return ", ".join(f"{count:,} {reason}" for reason, count in found.items()) or "-"
    return f"{found:,}" if isinstance(found, int) else str(found)


if __name__ == "__main__":
    main()
