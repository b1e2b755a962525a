"""Statistics of real traces, as read, compared with those of their publishers and of an independent
count.

    python scripts/validate_readers.py --data DIR [--without TEXT ...] [--json]

``DIR`` holds the folders ``alibaba-v2017``, ``philly``, ``swf`` and so on, with the files as
published.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import command
from command import Say

from dagsim.experiment.trace_info import trace_info
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.traces.trace_file import TraceFile

__all__ = ["CHECKS", "Check", "checked"]


class Check(NamedTuple):
    """One statistic of one file."""

    file: str
    statistic: str
    """Path of keys in ``TraceInfo.to_dict()``."""
    expected: float
    digits: int = 0
    """Number of decimals that ``expected`` is rounded to."""


CHECKS = (
    Check("alibaba-v2017/batch_task.csv.gz", "read/rows", 80_553),
    Check("alibaba-v2018/batch_task_random6600.csv.gz", "read/rows", 25_196),
    Check("alibaba-v2018/batch_task_random6600.csv.gz", "jobs", 6_535),
    Check("alibaba-v2018/batch_task_random6600.csv.gz", "tasks", 24_729),
    Check("alibaba-v2018/batch_task_random6600.csv.gz", "critical_path_s/mean", 95.4, 1),
    Check("alibaba-v2018/batch_task_random6600.csv.gz", "critical_path_s/p50", 6),
    Check("alibaba-gpu-v2023/openb_pod_list_default.csv", "jobs", 8_152),
    Check("alibaba-gpu-v2023/openb_pod_list_default.csv", "gpus_per_instance/0", 1_088),
    Check("alibaba-gpu-v2023/openb_pod_list_default.csv", "gpus_per_instance/8", 44),
    Check("alibaba-gpu-v2023/openb_pod_list_default.csv", "gpus_per_instance/0.81", 1_078),
    Check("philly/philly_pollux.csv.gz", "jobs", 82_247),
    Check("philly/philly_pollux.csv.gz", "work/mean", 13_136),
    Check("philly/philly_pollux.csv.gz", "work/p50", 1_144),
    Check("philly/philly_pollux.csv.gz", "read/noted/rows that equal another (kept)", 65),
    Check("microsoft-itp-2021/raw-traces.tar.gz", "jobs", 69_351),
    Check("microsoft-itp-2021/raw-traces.tar.gz", "gpu_hours", 1_632_719.7, 1),
    Check("microsoft-itp-2021/raw-traces.tar.gz", "work/mean", 18_722),
    Check("microsoft-itp-2021/raw-traces.tar.gz", "work/p50", 10_537),
    Check("swf/HPC2N-2002-2.2-cln.swf.gz", "jobs", 202_871),
    Check("swf/HPC2N-2002-2.2-cln.swf.gz", "load/offered", 0.602, 3),
    Check("swf/HPC2N-2002-2.2-cln.swf.gz", "work/mean", 17_024),
    Check("swf/HPC2N-2002-2.2-cln.swf.gz", "work/p50", 2_873),
    Check("swf/HPC2N-2002-2.2-cln.swf.gz", "read/noted/that ran longer than requested", 14_817),
    Check("swf/CTC-SP2-1996-3.1-cln.swf.gz", "jobs", 77_222),
    Check("swf/CTC-SP2-1996-3.1-cln.swf.gz", "load/offered", 0.842, 3),
    Check("swf/KTH-SP2-1996-2.1-cln.swf.gz", "jobs", 27_992),
    Check("swf/KTH-SP2-1996-2.1-cln.swf.gz", "load/offered", 0.686, 3),
    Check("swf/KTH-SP2-1996-2.1-cln.swf.gz", "work/mean", 8_573),
    Check("swf/NASA-iPSC-1993-3.1-cln.swf.gz", "jobs", 18_239),
    Check("swf/NASA-iPSC-1993-3.1-cln.swf.gz", "load/offered", 0.466, 3),
    Check("swf/LLNL-Thunder-2007-1.1-cln.swf.gz", "read/rows", 121_039),
    Check("swf/LLNL-Thunder-2007-1.1-cln.swf.gz", "load/offered", 0.865, 3),
    Check("swf/lublin_256.swf.gz", "jobs", 10_000),
    Check("tpch-decima/tpch_dags.json.gz", "jobs", 154),
    Check("tpch-decima/tpch_dags.json.gz", "tasks", 1_414),
    Check("tpch-decima/tpch_dags.json.gz", "instances", 177_890),
)
"""Statistics from the publishers' pages, and from counts by another program."""


def checked(folder: Path, without: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield each check with its actual value. Each file is read once, except those whose name
    contains a text of ``without``.
    """
    for file in dict.fromkeys(check.file for check in CHECKS):
        if any(text in file for text in without):
            continue
        info = trace_info(TraceFile(str(folder / file)), Recorded()).to_dict()
        info["gpu_hours"] = info["gpu_work"] / 3600
        for check in CHECKS:
            if check.file == file:
                got: Any = info
                for name in check.statistic.split("/"):
                    got = got[name]
                yield {**check._asdict(), "got": got, "holds": abs(got - check.expected) <= 0.5 * 10**-check.digits}


def _work(options: Namespace, say: Say) -> list[dict[str, Any]]:
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
    sys.exit(main())
