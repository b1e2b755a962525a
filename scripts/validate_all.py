"""Every validation against independent simulators, published tables and known optima, in one table.

    python scripts/validate_all.py --data DIR [--only NAME ...] [--json]

``DIR`` holds ``traces/`` and ``golden/``. Each validation runs its own script with ``--json`` (``validate_<name>.py``).
Printed per figure: what was expected, what was got, the difference, and whether that is within the tolerance. Exits
with 1 if any figure misses.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from dagsim.report.terminal import console, counted

__all__ = ["VALIDATIONS", "Figure", "figures"]

SCRIPTS = Path(__file__).parent


class Figure(NamedTuple):
    """One figure of a validation."""

    validation: str
    name: str
    expected: float
    got: float
    tolerance: float = 1e-9
    """Of the difference, in the figure's own unit; 1e-9 of the expected value is always allowed for rounding."""

    @property
    def difference(self) -> float:
        """Got less expected."""
        return self.got - self.expected

    @property
    def holds(self) -> bool:
        """Whether it is within the tolerance."""
        return abs(self.difference) <= max(self.tolerance, 1e-9 * abs(self.expected))


def run(script: str, *args: object) -> Any:
    """What a script prints with ``--json``; a miss it reports itself is seen in the figures.

    Raises:
        RuntimeError: It could not do its work.
    """
    argv = [sys.executable, str(SCRIPTS / script), *map(str, args), "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or not done.stdout:
        raise RuntimeError(f"{script}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return json.loads(done.stdout)


def decima(data: Path) -> Iterator[Figure]:
    """Fair and FIFO on Spark executors: every job's completion time as spark-sched-sim has it."""
    for workload in sorted((data / "golden/decima").glob("*.workload.json.gz")):
        name = workload.name.removesuffix(".workload.json.gz")
        expected = json.loads(workload.with_name(f"{name}.expected.json").read_text())
        found = run("validate_decima.py", "--workload", workload)
        for policy in ("fair", "fifo"):
            jct_s = expected[policy]["jct_s"]
            largest = max(abs(one - other) for one, other in zip(found[policy]["jct_s"], jct_s, strict=True))
            yield Figure("decima", f"{name}, {policy}: largest difference of {len(jct_s)} jobs (s)", 0, largest, 1e-6)
    found = run("validate_decima.py", "--stochastic", "--profiles", data / "traces/tpch-decima")
    for (name, policy), mean_s in SPARK.items():
        got = fmean(found[name][policy].values())
        yield Figure("decima", f"{name}, {policy}: mean JCT of ten seeds, durations drawn (s)", mean_s, got, 0.05)


SPARK = {("W1", "fair"): 985.9, ("W1", "fifo"): 1347.7, ("W2", "fair"): 59.7, ("W2", "fifo"): 232.0}
"""What spark-sched-sim gives for seeds 1234 and 1 to 9."""


def fgd(data: Path) -> Iterator[Figure]:
    """GPU allocation at 100 % load on openb, as published with FGD (ATC 2023)."""
    pods, nodes = (data / "traces/alibaba-gpu-v2023" / name for name in ("openb_pod_list_default.csv", NODES))
    with (data / "golden/fgd/allocation_default.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    found = run("validate_fgd.py", "--pods", pods, "--nodes", nodes)
    for policy, got in found.items():
        known = [float(row["100"]) for row in rows if row["sc_policy"].partition("-")[2] == policy]
        yield Figure("fgd", f"{policy}: GPUs allocated at 100 % load (%)", sum(known) / len(known), got, 0.5)


NODES = "openb_node_list_gpu_node.csv"


def ramp(data: Path) -> Iterator[Figure]:
    """Look-aheads and episodes of ddls, piece by piece and job by job, and its constant degrees' blocking rates."""
    golden, graphs = data / "golden/ddls", data / "traces/pipedream"
    for row in run("validate_ramp.py", "--golden", golden, "--graphs", graphs):
        name = row["file"].removesuffix(".json.gz")
        yield Figure("ramp", f"{name}: {row['compared']} compared, differences", 0, float(bool(row["what"])))
    for beta, row in run("validate_ramp.py", "--table", "--streams", golden, "--graphs", graphs).items():
        name = f"beta {beta}, {row['degree']} ways: blocking rate"
        yield Figure("ramp", name, row["expected"], row["got"], 0.01)


def readers(data: Path) -> Iterator[Figure]:
    """Statistics of the traces as read."""
    for row in run("validate_readers.py", "--data", data / "traces"):
        name = f"{Path(row['file']).name.partition('.')[0]}: {row['statistic']}"
        yield Figure("readers", name, row["expected"], row["got"], 0.5 * 10 ** -row["digits"])


def rlscheduler(data: Path) -> Iterator[Figure]:
    """Bounded slowdowns on Lublin-1 as rerun, and on HPC2N as published (SC 2020, tables V and VI)."""
    golden = json.loads((data / "golden/swf/rlscheduler_lublin1.json").read_text())["Lublin-1"]["bsld"]
    found = run("validate_rlscheduler.py", "--trace", data / "traces/swf/lublin_256.swf.gz", "--processors", 256)
    for backfilling, means in found.items():
        for score, got in means.items():
            expected = golden[backfilling]["mean"][score]
            yield Figure("rlscheduler", f"{backfilling}, {score}: bounded slowdown", expected, got)
    trace = data / "traces/swf/HPC2N-2002-2.2-cln.swf.gz"
    found = run("validate_rlscheduler.py", "--trace", trace, "--processors", 240, "--first", 10_000)
    for backfilling, published in HPC2N.items():
        for score, expected in published.items():
            name = f"HPC2N, {backfilling}, {score}: bounded slowdown"
            yield Figure("rlscheduler", name, expected, found[backfilling][score], 0.005 + 1e-6)


HPC2N = {
    "bf0": {"FCFS": 297.18, "SJF": 157.71, "F1": 118.01},
    "bf1": {"FCFS": 127.38, "SJF": 122.04, "F1": 71.95},
}
"""The published cells, to their two digits."""


def slurm(data: Path) -> Iterator[Figure]:
    """Priorities and starts of real runs of Slurm 22.05 and 24.11, by the code of ``slurm-multifactor``."""
    for folder in sorted((data / "golden/slurm").iterdir()):
        if not (folder / "slurm.conf").exists():
            continue
        found = run("validate_slurm.py", "--run", folder)
        if priorities := found.get("priorities"):
            name = f"{folder.name.replace('-', ' ')}, {priorities['rows']} priorities"
            yield Figure("slurm", f"{name}: worst factor", 0, priorities["worst_factor"], 1e-5)
            yield Figure("slurm", f"{name}: wrong totals", 0, priorities["wrong_totals"])
            if (classic := priorities.get("worst_classic_fair_share")) is not None:
                yield Figure("slurm", f"{name}: worst classic fair share", 0, classic, 0.07)
        if starts := found.get("starts"):
            name = f"{folder.name.replace('-', ' ')}, {starts['jobs']} starts"
            yield Figure("slurm", f"{name}: out of order", 0, starts["order_differs"])
            yield Figure("slurm", f"{name}: median gap (s)", 0, starts["median_gap_s"], 2)
            yield Figure("slurm", f"{name}: worst gap (s)", 0, starts["worst_gap_s"], 6)


def span(data: Path) -> Iterator[Figure]:
    """The mean span on an infinite cluster of Alibaba 2018's jobs."""
    found = run("validate_span.py", "--trace", data / "traces/alibaba-v2018/batch_task_random6600.csv.gz")
    yield Figure("span", "random6600: jobs", 6535, found["jobs"])
    yield Figure("span", "random6600: mean span (s)", 95.4, found["mean_s"], 0.05)


def stg(data: Path) -> Iterator[Figure]:
    """Highest level first against the optima of the Standard Task Graph set."""
    for tasks, known in STG.items():
        folder = data / "traces/stg"
        found = run("validate_stg.py", "--graphs", folder / f"stg-{tasks}.tar.gz", "--optimal", folder / "optimal")
        for cores, (ratio, hits) in known.items():
            name = f"{tasks} tasks, {cores} cores"
            yield Figure("stg", f"{name}: mean ratio to the optimum", ratio, found[str(cores)]["mean_ratio"], 0.00005)
            yield Figure("stg", f"{name}: optima reached", hits, found[str(cores)]["hits"])
            yield Figure("stg", f"{name}: below the optimum", 0, found[str(cores)]["below_optimum"])


STG = {50: {2: (1.0073, 98), 4: (1.0115, 97), 8: (1.0125, 141), 16: (1.0, 180)}}
"""Per number of tasks and cores: what another program's highest level first gives."""


def swf(data: Path) -> Iterator[Figure]:
    """FCFS and EASY over all jobs: on KTH as an independent simulator has them, on CTC as a plain loop does."""
    with (data / "golden/swf/independent_kth.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    kth, ctc = (data / "traces/swf" / name for name in ("KTH-SP2-1996-2.1-cln.swf.gz", "CTC-SP2-1996-3.1-cln.swf.gz"))
    found = run("validate_swf.py", "--trace", kth, "--processors", 100)
    for row in rows:
        for name in ("mean_wait_s", "mean_bsld"):
            policy = row["scheduler"]
            if policy.lower() in found:
                yield Figure(
                    "swf", f"KTH, {policy}: {name}", float(row[f"all_jobs_{name}"]), found[policy.lower()][name]
                )

    found = run("validate_swf.py", "--trace", ctc, "--processors", 338)
    expected = run("batch_loop.py", "--trace", ctc, "--processors", 338)
    for policy, figures in expected.items():
        for name, value in figures.items():
            yield Figure("swf", f"CTC, {policy}: {name}", value, found[policy][name])
    yield Figure("swf", "CTC, fcfs: mean_bsld of a third simulator", 3667.849484, found["fcfs"]["mean_bsld"], 5e-7)
    yield Figure(
        "swf", "CTC, fcfs: mean_wait_s of a third simulator", 655535.575380, found["fcfs"]["mean_wait_s"], 5e-7
    )


def wfcommons(data: Path) -> Iterator[Figure]:
    """Workflows on an infinite cluster."""
    found = run("validate_wfcommons.py", "--traces", data / "traces/wfcommons")
    yield Figure("wfcommons", "workflows with tasks, edges and depth as counted", found["files"], found["same_shape"])
    yield Figure(
        "wfcommons", "largest difference to the critical path (s)", 0, found["largest_difference_s"], 0.05 + 1e-6
    )


VALIDATIONS: dict[str, Callable[[Path], Iterator[Figure]]] = {
    each.__name__: each for each in (readers, span, wfcommons, stg, swf, rlscheduler, fgd, decima, ramp, slurm)
}


def figures(data: Path, names: Iterable[str]) -> Iterator[Figure]:
    """The figures of the named validations."""
    for name in names:
        yield from VALIDATIONS[name](data)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder with traces/ and golden/")
    parser.add_argument("--only", nargs="+", choices=VALIDATIONS, default=list(VALIDATIONS), metavar="NAME")
    parser.add_argument("--json", action="store_true", help="print one JSON array")
    args = parser.parse_args()
    try:
        found = list(counted("validating", not args.json, "figures", every=1)(figures(args.data, args.only)))
    except (OSError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 2
    missed = [each for each in found if not each.holds]
    if args.json:
        print(json.dumps([{**each._asdict(), "difference": each.difference, "holds": each.holds} for each in found]))
    else:
        _print(found)
        print(f"{len(found)} figures, {len(missed)} missed")
    return 1 if missed else 0


def _print(found: list[Figure]) -> None:
    from rich.table import Table

    table = Table("validation", "figure")
    for head in ("expected", "got", "difference", ""):
        table.add_column(head, justify="right")
    for each in found:
        numbers = [f"{each.expected:,.10g}", f"{each.got:,.10g}", f"{each.difference:.3g}"]
        table.add_row(each.validation, each.name, *numbers, "" if each.holds else "MISS")
    console().print(table)


if __name__ == "__main__":
    sys.exit(main())
