"""Fuzz the readers of traces: thousands of damaged samples per format, under limits of time and memory.

    python scripts/fuzz_readers.py --count 20000                    # all formats
    python scripts/fuzz_readers.py --format swf --first 1234 --count 1    # one case again

A case is a seed: every run makes the same cases. Prints each fault with its traceback and how to repeat it, then how
many cases were read and refused; exits 1 if there was a fault.
"""

from __future__ import annotations

import argparse
import faulthandler
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from traces.formats.fuzzing import SAMPLES, try_case  # noqa: E402

from dagsim.traces import READERS  # noqa: E402


class Hang(BaseException):
    """Raised when a case exceeds its time limit."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=2000, help="cases per format")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--format", choices=sorted(READERS.names()), action="append", help="only this one; repeatable")
    parser.add_argument("--seconds", type=float, default=5.0, help="limit of a case")
    parser.add_argument("--memory-mb", type=int, default=512, help="what cases may take on top of what is loaded")
    parser.add_argument("--faults", type=int, default=5, help="shown per format; the rest is counted")
    options = parser.parse_args()
    _limit_memory(options.memory_mb)
    signal.signal(signal.SIGALRM, _hangs)
    original, faults = ROOT / "workloads" / "samples", 0
    for format_ in options.format or READERS.names():
        mine = [sample for sample in SAMPLES if sample.format == format_]
        outcomes: Counter[str] = Counter()
        slowest, started = 0.0, time.perf_counter()
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "samples"
            shutil.copytree(original, folder)
            for seed in range(options.first, options.first + options.count):
                sample, began = mine[seed % len(mine)], time.perf_counter()
                faulthandler.dump_traceback_later(5 * options.seconds, exit=True)  # where Python cannot be interrupted
                signal.setitimer(signal.ITIMER_REAL, options.seconds)
                try:
                    outcomes[try_case(sample, seed, original, folder)] += 1
                except (Exception, Hang) as error:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    outcomes["faults"] += 1
                    if outcomes["faults"] <= options.faults:
                        _show(error, f"--format {format_} --first {seed} --count 1", sample.damaged)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    faulthandler.cancel_dump_traceback_later()
                slowest = max(slowest, time.perf_counter() - began)
        faults += outcomes["faults"]
        counts = ", ".join(f"{outcomes[name]:,} {name}" for name in ("read", "refused", "faults"))
        took = time.perf_counter() - started
        print(f"{format_}: {options.count:,} cases: {counts}; {took:.0f} s, the slowest {slowest:.2f} s", flush=True)
    return 1 if faults else 0


def _show(error: BaseException, again: str, file: str) -> None:
    lines = "".join(traceback.format_exception(error, limit=-6, chain=False))
    print(f"fault in {file}: scripts/fuzz_readers.py {again}\n{lines[-3000:]}", flush=True)


def _limit_memory(megabytes: int) -> None:
    with open("/proc/self/statm", encoding="ascii") as file:
        loaded = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (loaded + (megabytes << 20), resource.RLIM_INFINITY))


def _hangs(signum: int, frame: FrameType | None) -> None:
    raise Hang("took too long")


if __name__ == "__main__":
    raise SystemExit(main())
