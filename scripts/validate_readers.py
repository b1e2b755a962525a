"""Statistics of real traces, as read, compared with those of their publishers and of an independent
count (``results/validation/published.csv``).

    python scripts/validate_readers.py --data DIR [--without TEXT ...] [--json]

``DIR`` holds the folders ``alibaba-v2017``, ``philly``, ``swf`` and so on, with the files as
published.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import command

from dagsim.experiment.trace_info import trace_info
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.traces.trace_file import TraceFile

PUBLISHED = Path(__file__).parent.parent / "results" / "validation" / "published.csv"
"""Statistics from the publishers' pages, and from counts by another program."""


CHECKS: list[dict[str, Any]] = [
    {**row, "expected": json.loads(row["expected"]), "digits": int(row["digits"])}
    for row in command.read_rows(PUBLISHED)
]
"""A statistic of a file each: ``statistic`` is a path of keys in ``TraceInfo.to_dict()``, and ``expected`` is rounded
to ``digits`` decimals.
"""


def checked(folder: Path, without: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield each check with its actual value. Each file is read once, except those whose name
    contains a text of ``without``.
    """
    for file in dict.fromkeys(check["file"] for check in CHECKS):
        if any(text in file for text in without):
            continue
        info = trace_info(TraceFile(str(folder / file)), Recorded()).to_dict()
        info["gpu_hours"] = info["gpu_work"] / 3600
        for check in CHECKS:
            if check["file"] == file:
                got: Any = info
                for name in check["statistic"].split("/"):
                    got = got[name]
                holds = abs(got - check["expected"]) <= 0.5 * 10 ** -check["digits"]
                yield {**check, "got": got, "holds": holds}


def _work(options: command.Options, say: command.Say) -> list[dict[str, Any]]:
    rows = list(checked(options.data, options.without))
    for row in rows:
        mark = "" if row["holds"] else "   MISS"
        say(f"{row['file']}, {row['statistic']}: {row['expected']:,} expected, {row['got']:,.6g} got{mark}")
    return rows


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the traces")
    parser.add_argument("--without", nargs="+", default=[], metavar="TEXT", help="leave out files of such names")
    return command.run(parser, _work, holds=lambda rows: all(row["holds"] for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
