"""Ask dagsim's `kueue` and `kube-default` for decisions that the real programs took, and count the equal ones.

    python scripts/check_kubernetes.py FOLDER [FOLDER ...] [--json] [--only TEXT] [--every N] [--workers N]
                                       [--answers | --binary kube-scheduler]

Each state becomes the manifests that ``kubectl get -o json`` would give. The product's import reads
them, and the product's policy decides. The script prints the right, wrong and inexpressible
decisions of each family with their causes, and fails if a family is below its gate. ``--every N`` follows all recorded
choices, but asks only before each N-th. With ``--binary`` that
kube-scheduler itself plays the timelines in dagsim's simulated time; decisions of single pods are left out. With
``--answers`` the script compares what ``dagsim eta`` and ``why`` say about each waiting workload of a state with what
Kueue did, and with its message.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from kubernetes_golden import OWN, Format, Part, Verdict, Ways, kube, kueue

FORMATS: dict[str, Format] = {"kube": kube, "kueue": kueue}
OUTCOMES = ("right", "wrong", "not_expressible")


def documents(folder: Path) -> Iterator[tuple[Path, Any]]:
    """Yield each JSON file below the folder, compressed or not, with its content."""
    for file in _files(folder):
        yield file, _read(file)


def _files(folder: Path) -> list[Path]:
    return [file for file in sorted(folder.rglob("*.json*")) if file.name.endswith((".json", ".json.gz"))]


def _read(file: Path) -> Any:
    with (gzip.open if file.suffix == ".gz" else open)(file, "rt") as text:
        return json.load(text)


def verdicts(file: Path, part: Part, ways: Ways) -> Iterator[tuple[str, Verdict]]:
    """Yield the verdicts of a part of a file, each with the name of its format; none if the format is unknown."""
    document = _read(file)
    for name, form in FORMATS.items():
        if form.holds(document):
            for verdict in form.verdicts(file, document, part, ways):
                yield name, verdict


def _listed(file: Path, part: Part, ways: Ways) -> list[tuple[str, Verdict]]:
    return list(verdicts(file, part, ways))


class Count:
    """The verdicts of one family."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.causes: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self.gate = 0.0

    def add(self, verdict: Verdict) -> None:
        """Count a verdict."""
        self.outcomes[verdict.outcome] += 1
        self.gate = max(self.gate, verdict.gate)
        if verdict.outcome != "right":
            cause = f"{verdict.outcome.replace('_', ' ')}: {verdict.cause}"
            self.causes[cause] += 1
            self.examples.setdefault(cause, verdict.case)

    @property
    def share(self) -> float:
        """The share of right decisions."""
        return self.outcomes["right"] / self.outcomes.total()


def count(
    folders: Iterable[Path], only: str = "", *, every: int = 1, workers: int = 1, ways: Ways = OWN
) -> dict[str, dict[str, Count]]:
    """Count the verdicts of all files of a known format by format and family. ``only`` leaves out files whose path
    does not contain it. Several workers share the decisions of each file.
    """
    files = [file for folder in folders for file in _files(folder) if only in str(file)]
    parts = [Part(at * every, workers * every) for at in range(workers)]
    counts: dict[str, dict[str, Count]] = {name: {} for name in FORMATS}
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
        tasks = [(file, part, ways) for file in files for part in parts]
        shares = pool.map(_listed, *zip(*tasks, strict=True)) if workers > 1 and tasks else ()
        for name, verdict in chain.from_iterable(shares or (verdicts(*task) for task in tasks)):
            counts[name].setdefault(verdict.family, Count()).add(verdict)
    return counts


def report(counts: dict[str, dict[str, Count]]) -> None:
    """Print a table, and the causes below it."""
    print(f"{'':5} {'family':28} {'right':>7} {'wrong':>7} {'not expressible':>15} {'share':>9} {'gate':>7}")
    for name, families in counts.items():
        for family, one in families.items():
            right, wrong, other = (one.outcomes[outcome] for outcome in OUTCOMES)
            mark = "" if one.share >= one.gate else "  below its gate"
            print(f"{name:5} {family:28} {right:7,} {wrong:7,} {other:15,} {one.share:9.2%} {one.gate:7.1%}{mark}")
    for name, families in counts.items():
        for family, one in families.items():
            for cause, times in one.causes.most_common(12):
                print(f"{name} {family}: {times:,} x {cause} (as in {one.examples[cause]})")


def main() -> int:
    """Check the folders named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="+")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    parser.add_argument("--only", default="", metavar="TEXT", help="check files whose path contains this text")
    parser.add_argument("--binary", default="", metavar="PATH", help="a kube-scheduler that plays the timelines")
    parser.add_argument("--answers", action="store_true", help="judge eta and why on the states of Kueue")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="ask only before each N-th decision")
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count(), metavar="N", help="processes (default: %(default)s)"
    )
    arguments = parser.parse_args()
    for option in ("every", "workers"):
        if getattr(arguments, option) < 1:
            parser.error(f"--{option} must be at least 1, got {getattr(arguments, option)}")
    for folder in arguments.folder:
        if not folder.is_dir():
            parser.error(f"{folder} is not a folder")
    ways = Ways(arguments.binary, arguments.answers)
    counts = count(arguments.folder, arguments.only, every=arguments.every, workers=arguments.workers, ways=ways)
    if not any(counts.values()):
        parser.error(f"no file below {arguments.folder[0]} has one of the formats {', '.join(FORMATS)}")
    if arguments.json:
        rows = {
            name: {family: {outcome: one.outcomes[outcome] for outcome in OUTCOMES} for family, one in families.items()}
            for name, families in counts.items()
        }
        print(json.dumps(rows, indent=1))
    else:
        report(counts)
    return int(any(one.share < one.gate for families in counts.values() for one in families.values()))


if __name__ == "__main__":
    sys.exit(main())
