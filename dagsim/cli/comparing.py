"""``dagsim compare`` and ``why``: compare finished runs, and explain why a job waited."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dagsim.cli.app import app, say
from dagsim.cli.options import (
    Json,
    Settings,
    TableLook,
    Wide,
    fraction,
)
from dagsim.cli.telling import folders_with_runs
from dagsim.report.grid import TableFormat

if TYPE_CHECKING:
    from dagsim.experiment.cell_run import CellRun
    from dagsim.experiment.store import Store


@app.command("compare")
def compare_runs(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders that simulate the same jobs.")],
    reference: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Reference policy, with which the others are compared (default: the first)."),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="Metric by which the policies are ranked (default: the main metric of the system, such as jct_s.mean)."
        ),
    ] = None,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the table as CSV.")] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the ratios with their intervals.")] = None,
    precision: Annotated[
        float | None,
        typer.Option(
            metavar="2%",
            parser=fraction,
            help="Print how many seeds are needed so that no interval has a larger half-width than this.",
        ),
    ] = None,
    bound: Annotated[
        bool,
        typer.Option(
            "--bound",
            help=("Also show what fraction of the gap between the reference and a lower bound each policy closes."),
        ),
    ] = False,
    json_: Json = False,
    wide: Wide = False,
    table: TableLook = TableFormat.TEXT,
) -> None:
    """Compare finished runs, paired by seed. The table shows each policy's ratio to a reference
    with its 95% interval and a verdict.

    Example: dagsim compare results/RUN_A results/RUN_B --plot comparison.png
    """
    from dagsim.experiment.carry_out import write_comparison
    from dagsim.experiment.compare import paired_lines
    from dagsim.experiment.precision import looks_at
    from dagsim.experiment.scenario import metric_of, sample_of, workload_label
    from dagsim.experiment.store import Store
    from dagsim.metrics.paired import Precision
    from dagsim.metrics.standings import METHOD, standings
    from dagsim.report.comparison import comparison_table
    from dagsim.report.drawing import draw_comparison
    from dagsim.report.tables import run_notes
    from dagsim.report.terminal import show_grid

    folders = [Store.open(run) for run in folders_with_runs(runs)]
    lines, differences, missing = paired_lines(folders)
    for sentence in missing:
        say(f"warning: {sentence}", err=True)
    if len(names := {line.policy for line in lines}) == 1 and not bound:
        say(f"warning: nothing to compare: every run has the policy {names.pop()}; add a run of another one", err=True)
    workload, sample = workload_label(folders[0].config), sample_of(folders[0].config)
    metric = metric or metric_of(folders[0].config)
    ranked = standings(lines, metric, reference, sample)
    if csv is not None:
        write_comparison(ranked, csv)
    if plot is not None:
        draw_comparison(ranked, plot, metric, workload=workload)
    to_bound = _to_bound(folders[0], lines, differences, metric, reference, watched=not json_) if bound else {}
    if json_:
        shown: dict[str, Any] = {"metric": metric, "reference": reference or lines[0].policy, "method": METHOD}
        plain = [standing.to_dict() for standing in ranked]
        shown |= {"workload": workload, "standings": plain, "differences": differences, "missing": missing}
        say(json.dumps(shown | (_plain_shares(to_bound) if bound else {}) | {"notes": run_notes(lines)}))
        return
    show_grid(comparison_table(ranked, metric, workload=workload, wide=wide, to_bound=to_bound), table, wide=wide)
    if precision is not None:
        for name, look in looks_at(lines, Precision(precision, unit=sample), metric, reference).items():
            say(f"precision of {name}: {look}")
    for note in run_notes(lines):
        say(note)
    for difference in differences:
        say(f"differs: {difference}")


def _plain_shares(to_bound: Mapping[str, float]) -> dict[str, Any]:
    return {"share_of_the_way": {name: share if isfinite(share) else None for name, share in to_bound.items()}}


def _to_bound(
    folder: Store,
    lines: Sequence[CellRun],
    differences: Sequence[str],
    metric: str,
    reference: str | None,
    *,
    watched: bool,
) -> dict[str, float]:
    """Return, for each policy, which fraction of the gap between the reference policy and the lower
    bound it closes.
    """
    from dagsim import services
    from dagsim.errors import InputError
    from dagsim.report.terminal import counted

    if metric != "jct_s.mean":
        raise InputError(f"--bound: applies only to the metric jct_s.mean, not to {metric}")
    if differences:
        raise InputError(
            f"--bound: all runs must have the same cluster and models, but they differ in: {'; '.join(differences)}"
        )
    bounds = services.bounds_of_runs(folder.config, lines, counted("bounding", watched, "seeds", every=1))
    return services.shares_of_the_way(lines, bounds, reference)


@app.command()
def why(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[RUN] JOB",
            help="A run folder and one of its jobs: the job's id, or #N for job N in order of arrival, counted "
            "from 0. With --state, give only the job.",
        ),
    ],
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="SNAPSHOT",
            help="Explain why a job is waiting now. The file contains the output of squeue --json, qstat -f "
            "or kubectl get -o json.",
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            "-c",
            metavar="YAML",
            help="With --state: the configuration of the site (from dagsim site import).",
        ),
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option(
            metavar="LOG", help="With --state: accounting records from sacct, from which run times and usage are taken."
        ),
    ] = None,
    samples: Annotated[
        int,
        typer.Option(min=1, max=1000, help="With --state: number of simulations for each possible change to the job."),
    ] = 10,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            "-a",
            metavar="NAME",
            help="Policy whose run is explained (default: the first). With --state: the scheduler that the site uses.",
        ),
    ] = None,
    number: Annotated[
        int | None, typer.Option("--run", min=0, help="Number of the run, counted from 0 (default: the first).")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Maximum number of jobs in each list.")] = 10,
    set_: Settings = None,
    json_: Json = False,
    table: TableLook = TableFormat.TEXT,
) -> None:
    """Explain why a job waited: which resource, limit or rule it waited for, which jobs occupied
    the GPUs, and which jobs started before it.

    With --state now.json --config site.yaml, explain why a job in the queue is waiting now: what it
    is waiting for, which jobs are ahead of it, and which change would make it start sooner.

    Example: dagsim why results/RUN 1042
    """
    if state is not None:
        from dagsim import services
        from dagsim.cli.options import Experiment

        if number is not None or len(words) != 1:
            raise typer.BadParameter(
                "takes a single JOB, without a run folder and without --run", param_hint="'--state'"
            )
        experiment = Experiment(config=config, set_=set_)
        services.explain_waiting(words[0], state, history, experiment, policy, samples, top, table, as_json=json_)
        return
    if len(words) != 2:
        several = (
            f"; got {len(words)} arguments, perhaps because a pattern with * matched several folders"
            if len(words) > 2
            else ""
        )
        raise typer.BadParameter(
            f"give a run folder and the id of a job, as in dagsim why results/RUN job-17; for a job that is waiting "
            f"in a snapshot, give --state SNAPSHOT and the id of the job{several}",
            param_hint="'dagsim why'",
        )
    for name, value in {"--config": config, "--history": history, "--set": set_}.items():
        if value:
            raise typer.BadParameter("can only be used with --state", param_hint=f"'{name}'")
    _explain_run(Path(words[0]), words[1], policy, number, top, table, as_json=json_)


def _explain_run(
    run: Path, job: str, policy: str | None, number: int | None, top: int, table: TableFormat, *, as_json: bool
) -> None:
    """Explain the wait of a job in a run folder."""
    from dagsim.errors import InputError
    from dagsim.experiment.explained import explained_waits, obstacle
    from dagsim.experiment.store import Store
    from dagsim.metrics.columns import columns
    from dagsim.metrics.why import find_job, is_rejected, wait_reasons
    from dagsim.model.log import RejectReason
    from dagsim.report.tables import contradictions, why_lines, why_tables
    from dagsim.report.terminal import show_grid
    from dagsim.text import on_one_line

    folder = Store.open(run)
    place = _place(folder, policy, number)
    line = folder.line(place)
    schedule = folder.schedule(place)
    schedule_columns = columns(schedule)
    asked = find_job(schedule_columns, job)
    facts = {"run": str(folder.path), "policy": line.policy, "seed": line.seed}
    facts |= {"audit": line.workload["audit"]} if "audit" in line.workload else {}
    if not as_json:
        for sentence in contradictions([line.workload]):
            say(sentence)
    if is_rejected(schedule_columns, asked):
        jobs = schedule_columns.jobs
        never, reason = "", RejectReason(int(jobs.rejected[asked])).words
        with suppress(InputError):  # the trace with the job's request may be gone
            never = obstacle(folder, schedule, line.policy, asked)
        if as_json:
            say(json.dumps(facts | {"job": jobs.ids[asked], "rejected": reason, "never": never or None}))
            return
        say(f"{line.policy}, seed {line.seed}: job {on_one_line(jobs.ids[asked])} was rejected on arrival: {reason}")
        say(f"never: {never}" if never else "The run does not show what the job would have needed.")
        return
    reasons, bound, unknown = wait_reasons(schedule_columns, asked), None, ""
    try:
        bound = explained_waits(folder, schedule, line.policy)(asked, reasons.periods)
    except InputError as error:
        unknown = str(error)
    if as_json:
        causes = {
            "bound": None if bound is None else [cause.to_dict() for cause in bound],
            "not_known": unknown or None,
        }
        say(json.dumps(facts | reasons.to_dict() | causes))
        return
    for text in why_lines(reasons, f"{line.policy}, seed {line.seed}", bound, unknown):
        say(text)
    for grid in why_tables(reasons, top):
        show_grid(grid, table)


def _place(folder: Store, policy: str | None, number: int | None) -> int:
    """Return the number of the run that ``--policy`` or ``--run`` selects.

    Raises:
        InputError: The policy has no run, the folder contains no schedules, or both options are
            given.
    """
    from dagsim.errors import InputError
    from dagsim.experiment.store import is_sweep
    from dagsim.spelling import nearest

    if is_sweep(folder.path):
        raise InputError(
            f"{folder.path}: sweep, whatif and plan store no schedules, so run the simulation again with dagsim eval "
            "or dagsim replay"
        )
    if policy is not None and number is not None:
        raise InputError("why: --policy and --run both select the run, so give only one of them")
    if policy is None:
        return number or 0
    policies = [line.policy for line in folder.lines()]
    if policy not in policies:
        raise InputError(f"{folder.path}: no finished run of {policy!r}{nearest(policy, policies)}")
    return policies.index(policy)
