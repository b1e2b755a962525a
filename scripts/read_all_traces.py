"""Read every trace below a folder, and print a Markdown table of the rows that were kept, dropped and noted.

    python scripts/read_all_traces.py DIR [--json]

Files that no reader accepts are listed with the error.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import command

from dagsim.errors import InputError
from dagsim.traces import open_trace

HEADS = ("file", "format", "rows", "kept", "jobs", "dropped", "noted", "seconds")


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        is_data = path.suffix not in (".md", ".html", ".sha256") and not path.name.startswith((".", "LICENSE"))
        if is_data and path.is_file():
            yield path


def _read(path: Path) -> dict[str, Any]:
    started = perf_counter()
    trace = open_trace(path)
    for _ in trace.jobs():
        pass
    return {"format": trace.format, **trace.report.to_dict(), "seconds": round(perf_counter() - started, 2)}


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{count:,} {reason}" for reason, count in value.items()) or "-"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _work(options: command.Options, say: command.Say) -> dict[str, Any]:
    rows, refused = [], []
    for path in _files(options.folder):
        name = path.relative_to(options.folder).as_posix()
        try:
            rows.append({"file": name, **_read(path)})
        except InputError as error:
            why = str(error).replace(f"{options.folder}/", "").removeprefix(f"{name}: ").partition("; name one of")[0]
            refused.append({"file": name, "why": why})
    say("\n".join(command.markdown(HEADS, ([_text(row[head]) for head in HEADS] for row in rows))))
    say(f"\n{len(rows)} files read; {len(refused)} taken by no reader:\n")
    for row in refused:
        say(f"- {row['file']}: {row['why']}")
    return {"read": rows, "refused": refused}


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("folder", type=Path)
    return command.run(parser, _work)


if __name__ == "__main__":
    raise SystemExit(main())
