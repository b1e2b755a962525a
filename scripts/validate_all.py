"""Every validation against independent simulators, published tables and known optima, in one table.

    python scripts/validate_all.py --data DIR [--only NAME ...] [--json]
    python scripts/validate_all.py --data DIR --paper NAME

``DIR`` holds ``traces/`` and ``golden/``. Each validation calls the function that its own script prints
(``validate_<name>.py``). The table has, per figure, the expected value, ours, the difference, and ``MISS`` if that is
not within the tolerance. Exits with 1 if any figure misses.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any

import batch_loop
import command
import validate_bound
import validate_decima
import validate_fgd
import validate_gavel
import validate_goodput
import validate_pollux
import validate_ramp
import validate_readers
import validate_shockwave
import validate_sia
import validate_site
import validate_slurm
import validate_span
import validate_swf
import validate_tiresias
import validate_wfcommons
from fgd.nodes import read_nodes
from fgd.pods import read_pods
from rich.table import Table

from dagsim.families.benchmark import papers
from dagsim.families.benchmark.papers import PaperFigure
from dagsim.families.elastic.profiles import read_applications
from dagsim.report.terminal import console, counted
from dagsim.traces import open_trace
from dagsim.traces.source import Source


def bound(data: Path) -> Iterator[PaperFigure]:
    """Lower bounds beside enumerated optima and schedules of the kernel. Needs no data."""
    optima = list(validate_bound.against_optimum(range(200)))
    of = [check.ratio for check in optima if check.best]
    yield PaperFigure(f"{len(optima)} bounds of small instances: above the optimum", 0, _above(optima))
    yield PaperFigure(f"{len(of)} printed bounds of small instances: least share of the optimum", 1, min(of), 0.02)
    schedules = list(validate_bound.against_policies(range(1000)))
    yield PaperFigure(f"1,000 scenarios, {len(schedules):,} schedules: bounds above", 0, _above(schedules))


def _above(checks: Iterable[validate_bound.Check]) -> int:
    return sum(not check.holds for check in checks)


def decima(data: Path) -> Iterator[PaperFigure]:
    """Fair and FIFO on Spark executors: every job's completion time as spark-sched-sim has it."""
    for workload in sorted((data / "golden/decima").glob("*.workload.json.gz")):
        name = workload.name.removesuffix(".workload.json.gz")
        expected = command.read_json(workload.with_name(f"{name}.expected.json"))
        rows = validate_decima.replayed(workload)
        for policy in ("fair", "fifo"):
            jct_s = expected[policy]["jct_s"]
            largest = max(abs(one - other) for one, other in zip(rows[policy]["jct_s"], jct_s, strict=True))
            yield PaperFigure(f"{name}, {policy}: largest difference of {len(jct_s)} jobs (s)", 0, largest, 1e-6)
    drawn = validate_decima.drawn(data / "traces/tpch-decima")
    for (name, policy), mean_s in SPARK.items():
        got = fmean(drawn[name][policy].values())
        yield PaperFigure(f"{name}, {policy}: mean JCT of ten seeds, durations drawn (s)", mean_s, got, 0.05)


SPARK = {("W1", "fair"): 985.9, ("W1", "fifo"): 1347.7, ("W2", "fair"): 59.7, ("W2", "fifo"): 232.0}
"""Results of spark-sched-sim for seeds 1234 and 1 to 9."""


def fgd(data: Path) -> Iterator[PaperFigure]:
    """GPU allocation at 100 % load on openb, as published with FGD (ATC 2023)."""
    pods, nodes = (data / "traces/alibaba-gpu-v2023" / name for name in ("openb_pod_list_default.csv", NODES))
    rows = command.read_rows(data / "golden/fgd/allocation_default.csv")
    shares = validate_fgd.measured(read_pods(Source(pods)), read_nodes(Source(nodes), False))
    for policy, got in validate_fgd.rounded(shares).items():
        published = [float(row["100"]) for row in rows if row["sc_policy"].partition("-")[2] == policy]
        yield PaperFigure(f"{policy}: GPUs allocated at 100 % load (%)", fmean(published), got, 0.5)


def fgd_workloads(data: Path) -> Iterator[PaperFigure]:
    """The same on all 17 lists of pods. A list takes minutes."""
    folder = data / "traces/alibaba-gpu-v2023"
    nodes = read_nodes(Source(folder / NODES), False)
    for name, published in validate_fgd.PUBLISHED.items():
        path = next(folder.glob(f"openb_pod_list_{name}.csv*"))
        shares = validate_fgd.rounded(validate_fgd.measured(read_pods(Source(path)), nodes))
        for policy, expected in zip(validate_fgd.POLICIES, published, strict=True):
            title = f"{name}, {policy}: GPUs allocated at 100 % load (%)"
            yield PaperFigure(title, expected, shares[policy], validate_fgd.TOLERANCE)


NODES = "openb_node_list_gpu_node.csv"


def gavel(data: Path) -> Iterator[PaperFigure]:
    """Gavel's simulator, job by job, with its own shares where they come from a linear program."""
    for path in sorted((data / validate_gavel.CELLS).glob("*.json.gz")):
        cell = command.read_json(path)
        if cell["policy"] in validate_gavel.PLAYED:
            jobs = validate_gavel.completed(cell, data / "golden/elastic/inputs")["jobs"]
            largest = validate_gavel.largest_difference(cell, jobs)
            name = f"{path.name.removesuffix('.json.gz')}: largest difference of {len(jobs)} jobs (s)"
            yield PaperFigure(name, 0, inf if largest is None else largest, 1e-6)


def tiresias(data: Path) -> Iterator[PaperFigure]:
    """Tiresias' own simulator: start, end, preemptions and promotions of every job."""
    inputs = data / "golden/elastic/inputs/tiresias"
    for path in sorted((data / "golden/elastic/tiresias").glob("*.csv")):
        jobs, nodes, schedule = path.stem.split("_")
        files = inputs / validate_tiresias.CELLS[jobs], inputs / f"c{nodes}.csv"
        rows = validate_tiresias.played(*files, schedule, inputs.parent)
        wrong = len(validate_tiresias.different(rows, path))
        yield PaperFigure(f"{path.stem}: jobs of {len(rows)} that differ", 0, wrong)


def goodput(data: Path) -> Iterator[PaperFigure]:
    """Pollux's goodput model at recorded points."""
    golden = data / "golden/elastic"
    rows = validate_goodput.compared(golden / "pollux/goodput_points.json.gz", golden / "inputs")
    yield PaperFigure(f"{rows.points} points: worst relative difference", 0, rows.worst_relative, 1e-9)
    yield PaperFigure("wrong integers", 0, rows.wrong_integers)
    yield PaperFigure("worst difference of a fit's objective", 0, rows.worst_fit, 1e-4)


def pollux(data: Path) -> Iterator[PaperFigure]:
    """Tiresias and Optimus in Pollux's simulator, job by job."""
    golden = data / "golden/elastic"
    profiles = read_applications(golden / "inputs")
    for policy in ("tiresias", "optimus"):
        for path in sorted(golden.glob(f"pollux/jobload_{policy}-*.json.gz")):
            load = path.name.removeprefix(f"jobload_{policy}-").removesuffix(".json.gz")
            prefix = "workloads" if load == "1.0" else f"workloads-{load}"
            for name, expected in command.read_json(path)["jcts"].items():
                workload = golden / f"inputs/pollux/workloads/{prefix}_{name}.csv.gz"
                jobs = validate_pollux.completion_times(workload, profiles, policy)
                figure = f"{policy}, load {load}, {name}: jobs of {len(jobs)} that differ"
                yield PaperFigure(figure, 0, validate_pollux.differing(jobs, expected))


def pollux_search(data: Path) -> Iterator[PaperFigure]:
    """Pollux's own policy, a random search: the mean of a workload within 5 %."""
    golden = data / "golden/elastic"
    expected = command.read_json(golden / "pollux/jobload_pollux-0.5.json.gz")["avgs"]["workload-3"]
    workload = golden / "inputs/pollux/workloads/workloads-0.5_workload-3.csv.gz"
    jobs = validate_pollux.completion_times(workload, read_applications(golden / "inputs"), "pollux")
    name = "load 0.5, workload-3: mean completion time (s)"
    yield PaperFigure(name, expected, fmean(jobs.values()), 0.05 * expected)


def shockwave(data: Path) -> Iterator[PaperFigure]:
    """Mean completion times of 120 jobs, measured on hardware; tolerance: the mean error of the authors' simulator."""
    golden = data / "golden/elastic"
    jobs = validate_shockwave.jobs_of(golden / "inputs")
    for policy in validate_shockwave.POLICIES:
        published = fmean(validate_shockwave.measured(golden / "shockwave", policy).values())
        got = fmean(validate_shockwave.completed(jobs, policy).values())
        tolerance = validate_shockwave.TOLERANCE * published
        yield PaperFigure(f"{policy}: mean completion time (s)", published, got, tolerance)


def sia(data: Path) -> Iterator[PaperFigure]:
    """Sia's integer program, solved by GLPK there."""
    rows = validate_sia.optima(data / "golden/elastic/sia/ilp_instances.json.gz")
    largest = max(abs(ours - recorded) for ours, recorded in rows if recorded is not None)
    yield PaperFigure(f"largest difference of {len(rows)} optima", 0, largest, validate_sia.TOLERANCE)


def ramp(data: Path) -> Iterator[PaperFigure]:
    """Look-aheads and episodes of ddls, piece by piece and job by job, and its constant degrees' blocking rates."""
    golden, graphs = data / "golden/ddls", data / "traces/pipedream"
    for row in validate_ramp.golden(golden, graphs):
        name = row.file.removesuffix(".json.gz")
        yield PaperFigure(f"{name}: {row.compared} compared, differences", 0, float(bool(row.what)))
    for beta, rates in validate_ramp.constant_degrees(golden, graphs).items():
        name = f"beta {beta}, {rates['degree']} ways: blocking rate"
        yield PaperFigure(name, rates["expected"], rates["got"], 0.01)


def readers(data: Path) -> Iterator[PaperFigure]:
    """Statistics of the traces as read."""
    for row in validate_readers.checked(data / "traces"):
        name = f"{Path(row['file']).name.partition('.')[0]}: {row['statistic']}"
        yield PaperFigure(name, row["expected"], row["got"], 0.5 * 10 ** -row["digits"])


def rlscheduler(data: Path) -> Iterator[PaperFigure]:
    """Bounded slowdowns on Lublin-1 as rerun, and on HPC2N as published (SC 2020, tables V and VI)."""
    golden = command.read_json(data / "golden/swf/rlscheduler_lublin1.json")["Lublin-1"]["bsld"]
    log = data / "traces/swf/lublin_256.swf.gz"
    slowdowns = papers.sequence_slowdowns(papers.opened(log, 256, "rlscheduler"), log, 256)
    for backfilling, means in slowdowns.items():
        for score, expected in golden[backfilling]["mean"].items():
            yield PaperFigure(f"{backfilling}, {score}: bounded slowdown", expected, means[score])
    yield from _of_paper("rlscheduler", data)


def _of_paper(name: str, data: Path) -> Iterator[PaperFigure]:
    described = papers.paper(name)
    yield from described.figures(described.located(data / "traces"))


def slurm(data: Path) -> Iterator[PaperFigure]:
    """Priorities and starts of real runs of Slurm 22.05 and 24.11, by the code of ``slurm-multifactor``."""
    for folder in sorted((data / "golden/slurm").iterdir()):
        if not (folder / "slurm.conf").exists():
            continue
        parts = validate_slurm.measured(folder)
        if priorities := parts.get("priorities"):
            name = f"{folder.name.replace('-', ' ')}, {priorities['rows']} priorities"
            yield PaperFigure(f"{name}: worst factor", 0, priorities["worst_factor"], 1e-5)
            yield PaperFigure(f"{name}: wrong totals", 0, priorities["wrong_totals"])
            if (classic := priorities.get("worst_classic_fair_share")) is not None:
                yield PaperFigure(f"{name}: worst classic fair share", 0, classic, 0.07)
        if starts := parts.get("starts"):
            name = f"{folder.name.replace('-', ' ')}, {starts['jobs']} starts"
            yield PaperFigure(f"{name}: out of order", 0, starts["order_differs"])
            yield PaperFigure(f"{name}: median gap (s)", 0, starts["median_gap_s"], 2)
            yield PaperFigure(f"{name}: worst gap (s)", 0, starts["worst_gap_s"], 6)


def site(data: Path) -> Iterator[PaperFigure]:
    """Slurm sites, imported and replayed, against the waits of their logs; nothing is tuned."""
    for folder in sorted((data / "golden/slurm").glob("site-*")):
        waits = validate_site.fidelity(folder)
        name = f"{folder.name}, {waits['total']['jobs']} jobs"
        yield from (figure._replace(name=f"{name}: {figure.name}") for figure in validate_site.figures(waits))


def span(data: Path) -> Iterator[PaperFigure]:
    """Mean span of Alibaba 2018's jobs on an infinite cluster."""
    trace = open_trace(data / "traces/alibaba-v2018/batch_task_random6600.csv.gz")
    figures = validate_span.measured(validate_span.spans(trace.jobs()))
    yield PaperFigure("random6600: jobs", 6535, figures["jobs"])
    yield PaperFigure("random6600: mean span (s)", 95.4, figures["mean_s"], 0.05)


def stg(data: Path) -> Iterator[PaperFigure]:
    """Highest level first against the optima of the Standard Task Graph set."""
    yield from _of_paper("stg", data)


def swf(data: Path) -> Iterator[PaperFigure]:
    """FCFS and EASY over all jobs: KTH against an independent simulator, CTC against a plain loop."""
    rows = command.read_rows(data / "golden/swf/independent_kth.csv")
    kth, ctc = (data / "traces/swf" / name for name in ("KTH-SP2-1996-2.1-cln.swf.gz", "CTC-SP2-1996-3.1-cln.swf.gz"))
    ours = validate_swf.measured(papers.opened(kth, 100), 100)
    for row in rows:
        means = ours.get(row["scheduler"].lower(), {})
        for name in ("mean_wait_s", "mean_bsld") if means else ():
            yield PaperFigure(f"KTH, {row['scheduler']}: {name}", float(row[f"all_jobs_{name}"]), means[name])
    ours = validate_swf.measured(papers.opened(ctc, 338), 338)
    for policy, figures in batch_loop.measured(ctc, 338).items():
        for name, value in figures.items():
            yield PaperFigure(f"CTC, {policy}: {name}", value, ours[policy][name])
    for name, value in {"mean_bsld": 3667.849484, "mean_wait_s": 655535.575380}.items():
        yield PaperFigure(f"CTC, fcfs: {name} of a third simulator", value, ours["fcfs"][name], 5e-7)


def wfcommons(data: Path) -> Iterator[PaperFigure]:
    """Workflows on an infinite cluster."""
    ours = validate_wfcommons.measured(data / "traces/wfcommons")
    yield PaperFigure("workflows with tasks, edges and depth as counted", ours["files"], ours["same_shape"])
    largest_s = ours["largest_difference_s"]
    yield PaperFigure("largest difference to the critical path (s)", 0, largest_s, 0.05 + 1e-6)


VALIDATIONS: dict[str, Callable[[Path], Iterator[PaperFigure]]] = {
    validation.__name__: validation
    for validation in (
        *(bound, readers, span, wfcommons, stg, swf, rlscheduler, fgd, decima, ramp, slurm, site),
        *(goodput, pollux, pollux_search, sia, gavel, tiresias),
    )
}


PAPERS: dict[str, Callable[[Path], Iterator[PaperFigure]]] = {
    "decima": decima,
    "fgd": fgd_workloads,
    "gavel": gavel,
    "pac-ml": ramp,
    "pollux": pollux,
    "shockwave": shockwave,
    "sia": sia,
    "tiresias": tiresias,
}
"""The validations that ``dagsim paper`` prints."""


def figures(data: Path, names: Iterable[str]) -> Iterator[tuple[str, PaperFigure]]:
    """The figures of the named validations, each with the name of its validation."""
    for name in names:
        for figure in VALIDATIONS[name](data):
            yield name, figure


def _work(options: command.Options, say: command.Say) -> list[tuple[str, PaperFigure]]:
    if options.paper:
        for figure in PAPERS[options.paper](options.data):
            say(json.dumps(figure))
        return []
    counting = counted("validating", not options.json, "figures", every=1)
    rows = list(counting(figures(options.data, options.only)))
    table = Table("validation", "figure")
    for head in ("expected", "got", "difference", ""):
        table.add_column(head, justify="right")
    for name, row in rows:
        numbers = [f"{row.published:,.10g}", f"{row.here:,.10g}", f"{row.difference:.3g}"]
        table.add_row(name, row.name, *numbers, "" if row.holds else "MISS")
    if not options.json:
        console().print(table)
    say(f"{len(rows)} figures, {sum(not row.holds for _, row in rows)} missed")
    return rows


def _plain(validation: str, row: PaperFigure) -> dict[str, Any]:
    figures = {"expected": row.published, "got": row.here, "tolerance": row.tolerance, "difference": row.difference}
    return {"validation": validation, "name": row.name, **figures, "holds": row.holds}


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder with traces/ and golden/")
    parser.add_argument("--only", nargs="+", choices=VALIDATIONS, default=list(VALIDATIONS), metavar="NAME")
    parser.add_argument("--paper", choices=PAPERS, metavar="NAME", help="print a paper's figures, one per line")
    return command.run(
        parser,
        _work,
        holds=lambda rows: all(row.holds for _, row in rows),
        convert=lambda rows: [_plain(name, row) for name, row in rows],
    )


if __name__ == "__main__":
    raise SystemExit(main())
