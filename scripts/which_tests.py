"""Print the tests that run a line, quickest and nearest first.

    python scripts/which_tests.py dagsim/metrics/jct.py:40
    python -m pytest $(python scripts/which_tests.py dagsim/metrics/jct.py --files)

The map from lines to tests is kept in the folder ``--reach`` (``scripts/mutate.py``). The first call runs every test
once to make it, which takes tens of minutes; later calls run changed test files only.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from mutate import Reach, blocks_of, nearness, prepare, test_files


def tests_of(reach: Reach, place: str) -> list[str]:
    """Return the tests that run ``FILE`` or ``FILE:LINE``: those of the nearest folder first, then the quick ones."""
    file, _, line = place.partition(":")
    running = reach.running(file, [int(line)] if line else list(blocks_of(file)))
    return sorted(running, key=lambda test: (-nearness(file, test), reach.cpu_s[test], test))


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("place", metavar="FILE[:LINE]", help="a module, or a line of it")
    parser.add_argument("--files", action="store_true", help="print the test files only")
    parser.add_argument("--reach", type=Path, default=Path("reach"), help="folder of the maps of tests and lines")
    parser.add_argument("--processes", type=int, default=2, help="processes that measure tests")
    options = parser.parse_args()
    prepare()
    tests = tests_of(Reach.kept(options.reach, test_files(), options.processes), options.place)
    if not tests:
        print(f"no test runs {options.place}", file=sys.stderr)
        return 1
    shown = dict.fromkeys(test.partition("::")[0] for test in tests) if options.files else tests
    print(*shown, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
