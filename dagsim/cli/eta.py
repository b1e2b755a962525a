"""``dagsim eta``: when waiting jobs will start."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain
from math import inf, nan
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from dagsim.cli.app import app
from dagsim.cli.inputs import import_site
from dagsim.cli.options import (
    Algo,
    ConfigFile,
    Experiment,
    Json,
    Quiet,
    Seed,
    Settings,
    TraceFlags,
    Workers,
    expand_options,
)
from dagsim.cli.shared import experiment

if TYPE_CHECKING:
    from dagsim.config.schema import Config
    from dagsim.forecast.backtest import Backtest
    from dagsim.forecast.futures import Player
    from dagsim.forecast.live import Expected, ExpectedShape
    from dagsim.forecast.log import JobLog
    from dagsim.forecast.members import Forecaster
    from dagsim.forecast.rows import QueueLog
    from dagsim.report.grid import Grid

__all__ = ["print_eta"]

T = TypeVar("T")


@app.command("eta")
@expand_options
def print_eta(
    reading: TraceFlags,
    jobs: Annotated[
        list[str] | None, typer.Argument(metavar="JOB...", help="Jobs or arrays to show (default: all).")
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(metavar="SNAPSHOT", help="What runs and waits now: squeue --json, or kubectl get pods -o json."),
    ] = None,
    history: Annotated[
        Path | None, typer.Option(metavar="LOG", help="Accounting of sacct, for run times, waits and calibration.")
    ] = None,
    backtest: Annotated[
        Path | None,
        typer.Option(metavar="LOG|DIR", help="Forecast at past instants of this log, and score the forecasts."),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Time between the instants, such as 1h (default: about 70 of them)."),
    ] = None,
    oracle: Annotated[
        bool, typer.Option("--oracle", help="Use the true run times and arrivals: what the policy alone costs.")
    ] = False,
    algo: Algo = None,
    config: ConfigFile = None,
    set_: Settings = None,
    seed: Seed = None,
    futures: Annotated[int, typer.Option(min=1, max=1000, help="Number of futures without arrivals.")] = 25,
    job: Annotated[
        str | None,
        typer.Option(
            metavar="KEY=VALUE,...",
            help="Ask for a planned job: gpus, type, nodes, cpus, memory, limit, partition, user, account, qos.",
        ),
    ] = None,
    shapes: Annotated[
        bool, typer.Option("--shapes", help="With --job: which size, type or partition would start or end soonest.")
    ] = False,
    page: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the forecasts or scores as a page.")] = None,
    arrivals: Annotated[
        int, typer.Option(min=0, max=1000, help="Number of futures with arrivals, which cost most.")
    ] = 0,
    workers: Workers = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Forecast when waiting jobs will start, as distributions, and check such forecasts on a log.

    A folder of Slurm's files (docs/forecast.md) gives site, log and listings of the queue. For other
    logs, --algo makes the starts those of a scheduler, which is then known.

    Without a log, --state forecasts the jobs that wait now; --history calibrates these forecasts.

    Example: dagsim eta --backtest sacct.txt --cluster cluster.yaml --algo easy --every 2h
    """
    watched = not (quiet or json_)
    if (backtest is None) == (state is None):
        raise typer.BadParameter("give either --state SNAPSHOT or --backtest LOG|DIR", param_hint="'--state'")
    _refuse(backtest is None, {"--every": every, "--oracle": oracle, "--from": reading.from_, "--until": reading.until})
    _refuse(state is None, {"JOB": jobs, "--history": history, "--job": job, "--shapes": shapes})
    if shapes and job is None:
        raise typer.BadParameter("goes with --job, such as gpus=8,limit=12h", param_hint="'--shapes'")
    from dagsim.forecast.members import Forecaster

    if state is not None:
        _forecast(
            state, history, jobs or [], job, shapes, page, config, set_, seed, reading, algo, (futures, arrivals),
            json_, watched,
        )  # fmt: skip
        return
    assert backtest is not None
    with TemporaryDirectory() as scratch:
        chosen = _configured(backtest, config, Path(scratch), set_, seed, reading, quiet=not watched)
    log, queue, player = _log(chosen, backtest, algo)
    forecaster = Forecaster(player, futures, arrivals, chosen.seed, oracle)
    period = [_instant(chosen, name, text, log) for name, text in (("from", reading.from_), ("until", reading.until))]
    tested = _tested(
        log, queue, forecaster, period, None if every is None else _instant(chosen, "every", every), watched, workers
    )
    if page is not None or json_ or not quiet:
        scores = tested.to_dict()
    if page is not None:
        from dagsim.report.page.forecasting import backtest_page

        _write(page, backtest_page(f"{backtest.name}: forecasts and what came true", scores))
    if json_:
        typer.echo(json.dumps(scores))
    elif not quiet:
        from dagsim.report.forecast import backtest_grid, backtest_sentences
        from dagsim.report.terminal import show_grid

        typer.echo(backtest_sentences(scores)[0])
        show_grid(backtest_grid(scores))


def _refuse(refused: bool, options: dict[str, object]) -> None:
    """Refuse options that would be ignored.

    Raises:
        BadParameter: One of them is given.
    """
    for name, value in options.items() if refused else ():
        if value:
            goes = "--backtest" if name in ("--every", "--oracle", "--from", "--until") else "--state"
            raise typer.BadParameter(f"goes with {goes}", param_hint=f"'{name}'")


def _forecast(
    state: Path, history: Path | None, jobs: list[str], plan: str | None, shapes: bool, page: Path | None,
    config: str | None, set_: list[str] | None, seed: int | None, reading: TraceFlags, algo: str | None,
    futures: tuple[int, int], json_: bool, watched: bool,
) -> None:  # fmt: skip
    """Forecast the jobs of a snapshot, or a planned one: on a terminal, a first answer comes before
    the calibrated one.
    """
    from dagsim.config.schema import Setting
    from dagsim.errors import InputError
    from dagsim.forecast.live import Question, is_idle, workload_of
    from dagsim.forecast.planned import PlannedJob, shapes_of
    from dagsim.report.forecast import queue_grid, shapes_grid, shapes_sentences
    from dagsim.report.terminal import show_grid

    if config is None and reading.cluster is None:
        raise InputError("--state: the cluster is unknown; give --config site.yaml (dagsim site import makes it)")
    if is_idle(state):
        typer.echo("nothing runs or waits: a job that fits starts at once", err=True)
        if json_:
            typer.echo(json.dumps({"jobs": [], "idle": True}))
        return
    first = [Setting(f"--state {state}", "workload", workload_of(state))]
    chosen = experiment(Experiment(config=config, set_=set_, seed=seed), reading, first=first, quiet=not watched)
    question = Question.read(chosen, state, history, algo, *futures)
    for remark in question.remarks:
        typer.echo(f"{state.name}: {remark}", err=True)
    names = {job.partition("_")[0] for job in jobs}

    def chosen_rows(answer: list[Expected]) -> list[Expected]:
        return [row for row in answer if not names or row.job in names]

    rows: list[Expected] = []
    planned: list[ExpectedShape] = []
    is_calibrated = history is not None
    if plan is not None:
        job = PlannedJob.parse(plan, question.scenario)
        wanted = shapes_of(job, question.scenario) if shapes else [job]
        answers = question.shapes(wanted)
        planned = _refined(answers, watched, lambda answer, last: shapes_grid(answer, calibrated=last), is_calibrated)
    if plan is None or names or page is not None:
        several = chain([question.first()] if watched else [], question.answers())
        refined = _refined(
            several, watched, lambda answer, last: queue_grid(chosen_rows(answer), calibrated=last), is_calibrated
        )
        rows = chosen_rows(refined)
    if missing := sorted(names - {row.job for row in rows}):
        raise InputError(f"{state}: job {missing[0]} does not wait there, or can never start")
    if page is not None:
        from dagsim.report.page.forecasting import queue_page

        _write(
            page,
            queue_page(
                f"{state.name}: when jobs start", rows, planned, calibrated=is_calibrated, remarks=question.remarks
            ),
        )
    if json_:
        answer = {"t": question.t, "jobs": [row.to_dict() for row in rows]}
        if plan is not None:
            answer["planned"] = [shape.to_dict() for shape in planned]
        typer.echo(json.dumps(answer))
    elif watched:
        if planned:
            show_grid(shapes_grid(planned, calibrated=is_calibrated))
            typer.echo("\n".join(shapes_sentences(planned)))
        if names or plan is None:
            show_grid(queue_grid(rows, calibrated=is_calibrated))


def _refined(answers: Iterable[list[T]], watched: bool, grid: Callable[[list[T], bool], Grid], more: bool) -> list[T]:
    """The last of several answers, each better than the one before. A terminal shows each of them
    until the next comes; standard error counts them otherwise.
    """
    from rich.live import Live

    from dagsim.report.terminal import console

    latest: list[T] = []
    if watched and sys.stdout.isatty():
        with Live(console=console(), transient=True) as live:
            for latest in answers:
                live.update(grid(latest, False), refresh=True)
        return latest
    for number, latest in enumerate(answers, 1):
        if watched and more:
            typer.echo(f"answer {number}: {len(latest):,} jobs; a better one follows", err=True)
    return latest


def _write(page: Path, text: str) -> None:
    """Write a page.

    Raises:
        InputError: It cannot be written.
    """
    from dagsim.errors import InputError
    from dagsim.files import write_text

    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        write_text(page, text)
    except OSError as error:
        raise InputError(f"{page}: cannot be written: {error.strerror or error}") from None


def _configured(
    path: Path, config: str | None, scratch: Path, set_: list[str] | None, seed: int | None, reading: TraceFlags,
    *, quiet: bool,
) -> Config:  # fmt: skip
    """The configuration of the log: that of ``--config``, else that of a folder's site files."""
    from dagsim.config.schema import Setting
    from dagsim.traces.site_import import read_site
    from dagsim.traces.slurm_site import site_files

    if config is None and path.is_dir() and read_site(site_files([path])) is not None:
        config = str(scratch / "site.yaml")
        import_site([path], Path(config), quiet=True)
    first = [Setting(f"--backtest {path}", "workload", {"kind": "trace", "path": str(path)})]
    reading = reading._replace(from_=None, until=None)  # instants of forecasts, not of the log
    return experiment(Experiment(config=config, set_=set_, seed=seed), reading, first=first, quiet=quiet)


def _log(config: Config, path: Path, algo: str | None) -> tuple[JobLog, QueueLog | None, Player]:
    """The log, its listings of the queue if a folder has them, and a player of its futures."""
    from dagsim.experiment.scenario import cluster_scenario_of
    from dagsim.forecast.futures import Player, starts_by
    from dagsim.forecast.live import policy_of
    from dagsim.forecast.log import JobLog, read_sacct_log
    from dagsim.forecast.rows import read_queue_log
    from dagsim.traces import format_of
    from dagsim.traces.formats.swf import waits_s
    from dagsim.workload.accept import accepting

    scenario, file, queue = cluster_scenario_of(config), config.trace(), None
    policy = algo or policy_of(config)
    if (file.format or format_of(path, file.options)) == "sacct":
        log = read_sacct_log(path, file.options)
        listings = [each for name in _LISTINGS if (each := path / name).is_file()] if path.is_dir() else []
        queue = read_queue_log(listings[0]) if listings else None
    else:
        trace = file.open(scenario.cluster, scenario.runtime)
        jobs = trace.unscaled()
        start_s = None if algo is None else starts_by(scenario, algo, jobs)
        if algo is None and trace.format == "swf" and (waits := waits_s(trace.source)):
            start_s = jobs.arrival_s + [waits.get(id, nan) for id in jobs.ids.tolist()]
        log = JobLog.of(jobs, trace.meta["origin_s"], start_s)
    log = replace(log, jobs=accepting(log.jobs, scenario.accept, scenario.runtime, scenario.cluster.gpu_types))
    return log, queue, Player(scenario, policy, log)


_LISTINGS = ("squeue.tsv.gz", "squeue.tsv")


def _instant(config: Config, name: str, text: str | None, log: JobLog | None = None) -> float | None:
    """An instant on the log's clock, or without a log a time span in seconds."""
    from dagsim.traces.fields import instant_s

    if text is None:
        return None
    origin_s = 0.0 if log is None else float(log.submit_s[0])
    seconds = instant_s(name, text, origin_s, config.trace().options.zone())
    if log is None and seconds <= 0:
        raise typer.BadParameter(f"expected a time such as 1h, got {text!r}", param_hint=f"'--{name}'")
    return origin_s + seconds


def _tested(
    log: JobLog, queue: QueueLog | None, forecaster: Forecaster, period: list[float | None], every_s: float | None,
    watched: bool, workers: int | None,
) -> Backtest:  # fmt: skip
    """Forecast at all instants, with progress."""
    from dagsim.errors import InputError
    from dagsim.forecast.backtest import Backtest, Forecasts, instants_of, played, played_in_processes
    from dagsim.report.terminal import counted

    since_s, until_s = (-inf if period[0] is None else period[0]), (inf if period[1] is None else period[1])
    instants = instants_of(log, queue, since_s, until_s, every_s)
    if not instants:
        raise InputError("no instant to forecast at: nothing is submitted between --from and --until")
    count = min(workers or os.cpu_count() or 1, len(instants))
    told = counted(f"forecasting at {len(instants):,} instants", watched, "done", every=1)
    made = (
        played(log, queue, forecaster, instants)
        if count == 1
        else played_in_processes(log, queue, forecaster, instants, count)
    )
    several = sorted(told(made), key=lambda each: each.t[0] if len(each.t) else -inf)
    several = [each for each in several if len(each.t)]
    if not several:
        raise InputError(f"no job waits at any of the {len(instants):,} instants")
    tested = Backtest(Forecasts.joined(several), log)
    if not tested.counted.any():
        raise InputError(
            "no forecast is scored: scores begin after a tenth of the instants and 40 starts of forecast jobs, "
            "and end an hour before the last submission"
        )
    return tested
