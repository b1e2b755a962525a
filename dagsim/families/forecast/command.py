"""``dagsim eta``: when waiting jobs will start."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer

from dagsim.cli.app import app, say
from dagsim.cli.configuring import audited, experiment, trace_at, with_own_site
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
    page_name,
)
from dagsim.families.forecast import services
from dagsim.text import count_of

if TYPE_CHECKING:
    from dagsim.config.schema import Config
    from dagsim.families.forecast.job_log import JobLog
    from dagsim.families.forecast.live import IsDue, Prospect
    from dagsim.report.grid import Grid, TableFormat

T = TypeVar("T")


_State = Annotated[
    Path | None,
    typer.Option(
        metavar="SNAPSHOT",
        help="File with the running and waiting jobs, from squeue --json or kubectl get pods -o json.",
    ),
]
_History = Annotated[
    Path | None,
    typer.Option(metavar="LOG", help="Accounting records from sacct, used for run times, waits and calibration."),
]
_Backtest = Annotated[
    Path | None,
    typer.Option(metavar="LOG|DIR", help="Make forecasts at past times in this log, and score them."),
]
_Since = Annotated[
    str | None,
    typer.Option(
        "--forecast-from",
        metavar="WHEN",
        help="With --backtest: time of the first forecast, given as a date or as a time after the first job (7d).",
    ),
]
_Until = Annotated[
    str | None,
    typer.Option("--forecast-until", metavar="WHEN", help="With --backtest: time of the last forecast."),
]
_OF_BACKTESTS = ("--interval", "--oracle", "--forecast-from", "--forecast-until")
_Every = Annotated[
    str | None,
    typer.Option(
        "--interval",
        metavar="TIME",
        help=("With --backtest: time between forecasts, such as 1h (default: about 70 forecasts)."),
    ),
]
_Oracle = Annotated[
    bool,
    typer.Option(
        "--oracle",
        help=(
            "Use the true run times and arrivals, so that the only remaining error is the error of the policy model."
        ),
    ),
]
_Jobs = Annotated[list[str] | None, typer.Argument(metavar="JOB", help="Jobs or arrays to show (default: all).")]
_Job = Annotated[
    str | None,
    typer.Option(
        metavar="KEY=VALUE,...",
        help="Forecast a job that has not been submitted yet: gpus, type, nodes, cpus, memory, time_limit, "
        "partition, user, account, qos.",
    ),
]
_Alternatives = Annotated[
    bool,
    typer.Option(
        "--alternatives",
        help="With --job: show with which size, GPU type or partition the job would start or end soonest.",
    ),
]
_Page = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", callback=page_name, help=("Write the forecasts or scores to an HTML page.")),
]
_Samples = Annotated[
    int, typer.Option("--samples", min=1, max=1000, help="Number of simulations without future arrivals.")
]
_SamplesWithArrivals = Annotated[
    int,
    typer.Option(
        "--samples-with-arrivals",
        min=0,
        max=1000,
        help=("Number of simulations with future arrivals. These simulations take most of the time."),
    ),
]


@app.command("eta")
@partial(expand_options, leave_out=("from_", "until"))
def print_eta(
    reading: TraceFlags, jobs: _Jobs = None, state: _State = None, history: _History = None,
    backtest: _Backtest = None, since: _Since = None,
    until: _Until = None, every: _Every = None, oracle: _Oracle = False, policy: Algo = None,
    config: ConfigFile = None, set_: Settings = None, seed: Seed = None, samples: _Samples = 25, job: _Job = None,
    alternatives: _Alternatives = False, page: _Page = None, samples_with_arrivals: _SamplesWithArrivals = 0,
    workers: Workers = None,
    json_: Json = False, quiet: Quiet = False,
) -> None:  # fmt: skip
    """Forecast when waiting jobs will start, or check such forecasts on a log.

    Each forecast is a distribution of possible start times. With --state, forecast when the jobs
    that are waiting now will start. With --history, these forecasts are calibrated.

    With --backtest, make forecasts at past times in a log, and compare them with the actual starts.
    If you give a folder with Slurm's files (docs/forecast.md), the site, the log and listings of
    the queue are read from it. For any other log, --policy simulates the log under a scheduler and
    forecasts the starts in this simulation. In this case, the scheduler is known exactly.

    Example: dagsim eta --backtest sacct.txt --cluster cluster.yaml --policy easy --interval 2h
    """
    if backtest is not None and state is not None:
        raise typer.BadParameter(
            "--state and --backtest cannot be combined: --state makes forecasts now, --backtest at past times"
        )
    if backtest is None and state is None:
        raise typer.BadParameter(
            "dagsim eta: give --state SNAPSHOT to forecast now, or --backtest LOG|DIR to check past forecasts"
        )
    _refuse(
        backtest is None, {"--interval": every, "--oracle": oracle, "--forecast-from": since, "--forecast-until": until}
    )
    _refuse(state is None, {"JOB": jobs, "--history": history, "--job": job, "--alternatives": alternatives})
    if alternatives and job is None:
        raise typer.BadParameter(
            "can only be used with --job, such as gpus=8,time_limit=12h", param_hint="'--alternatives'"
        )
    if page is not None and (reason := services.page_of_parts.missing()):
        raise typer.BadParameter(f"no page can be written, because the writer of pages {reason}", param_hint="'--html'")
    experiment_of = Experiment(config=config, set_=set_, seed=seed)
    asked = _Asked(experiment_of, reading, policy, samples, samples_with_arrivals, _Output(page, json_, quiet))
    try:
        if state is not None:
            _forecast(asked, state, history, jobs or [], job, alternatives=alternatives)
        elif backtest is not None:
            _backtest(asked, backtest, _Times(since, until, every), workers, oracle=oracle)
    except KeyboardInterrupt:
        say("interrupted: nothing was written", err=True)
        raise


class _Output(NamedTuple):
    """The destination of the results: a page, JSON or the terminal."""

    page: Path | None
    json: bool
    quiet: bool

    @property
    def watched(self) -> bool:
        """True if progress is shown to a user."""
        return not (self.quiet or self.json)


class _Asked(NamedTuple):
    """The options that forecasts now and at past times have in common."""

    experiment: Experiment
    reading: TraceFlags
    policy: str | None
    samples: int
    samples_with_arrivals: int
    output: _Output


class _Times(NamedTuple):
    """The times of forecasts in a backtest, as stated."""

    since: str | None
    until: str | None
    every: str | None


def _refuse(refused: bool, options: dict[str, object]) -> None:
    """Reject options that would be ignored.

    Raises:
        BadParameter: One of these options is given.
    """
    for name, value in options.items() if refused else ():
        if value:
            goes = "--backtest" if name in _OF_BACKTESTS else "--state"
            raise typer.BadParameter(f"can only be used with {goes}", param_hint=f"'{name}'")


def _forecast(
    asked: _Asked, state: Path, history: Path | None, jobs: list[str], plan: str | None, *, alternatives: bool
) -> None:
    """Forecast the jobs of a snapshot, or a planned job. If progress is shown, also show
    preliminary answers.
    """
    from dagsim.families.forecast.planned_jobs import PlannedJob, shapes_of
    from dagsim.families.forecast.question import Question, is_idle
    from dagsim.families.forecast.texts import queue_grid, shapes_grid, shapes_sentences, without_grid, without_sentence
    from dagsim.report.terminal import show_grid
    from dagsim.systems.cluster.knowledge import Knowledge

    output = asked.output
    if is_idle(state):
        say("nothing runs or waits, so a job that fits starts immediately", err=True)
        if output.json:
            say(json.dumps({"jobs": [], "idle": True}))
        return
    config = _of_snapshot(state, asked.experiment, asked.reading, watched=output.watched)
    question = Question.read(config, state, history, asked.policy, asked.samples, asked.samples_with_arrivals)
    names = {job.partition("_")[0] for job in jobs}
    planned_job = None if plan is None else PlannedJob.parse(plan, question.scenario)
    audit = audited(config, told=output.watched)
    kind = "queue" if history is None else "forecast"
    knowledge = str(Knowledge(kind, 0.0, len(question.log), int(question.log.limited.sum()), of_log=True))
    remarks = [*audit.sentences(), *question.remarks, *audit.sentences(urgent=False), knowledge]
    for remark in question.remarks:
        say(f"{state.name}: {remark}", err=True)
    answers: dict[str, Prospect[Any]] = {}
    if planned_job is not None:
        wanted = shapes_of(planned_job, question.scenario) if alternatives else [planned_job]
        answers["planned"] = _refined(lambda early: question.shapes(wanted, early), shapes_grid, output.watched)
    if plan is None or names or output.page is not None:
        answers["jobs"] = queue = _refined(lambda early: question.answers(names, early), queue_grid, output.watched)
        if queue.without:
            say(f"{state.name}: {without_sentence(queue.without)}", err=True)
    if output.page is not None:
        from dagsim.families.forecast.forecast_page import queue_page
        from dagsim.files import write_text

        title = f"{state.name}: when jobs start"
        write_text(output.page, queue_page(title, answers["jobs"], answers.get("planned"), remarks=remarks))
    if output.json:
        basis = {"audit": audit.to_dict(), "knowledge": knowledge, "t": question.t, "seed": config.seed}
        say(json.dumps(basis | _as_dict(answers)))
    elif output.watched:
        if "planned" in answers:
            show_grid(shapes_grid(answers["planned"]))
            say(*shapes_sentences(answers["planned"].rows))
        if "jobs" in answers and (names or plan is None):
            show_grid(queue_grid(answers["jobs"]))
            if answers["jobs"].without:
                show_grid(without_grid(answers["jobs"].without))
        say(knowledge)


def _as_dict(answers: Mapping[str, Prospect[Any]]) -> dict[str, Any]:
    """Return the forecasts as plain values for JSON."""
    latest, *_ = answers.values()
    rows = {name: [row.to_dict() for row in answer.rows] for name, answer in answers.items()}
    if "jobs" in answers:
        rows["no_forecast"] = [job.to_dict() for job in answers["jobs"].without]
    return {"futures": latest.futures, "instants": latest.instants, "jobs": []} | rows


def explain_waiting(
    job: str, state: Path, history: Path | None, asked: Experiment, policy: str | None, samples: int, top: int,
    table: TableFormat, *, as_json: bool,
) -> None:  # fmt: skip
    """Print why a job of a snapshot is waiting (``dagsim why --state``)."""
    from dagsim.errors import InputError
    from dagsim.families.forecast.explanation import explain_wait
    from dagsim.families.forecast.question import Question, is_idle
    from dagsim.families.forecast.texts import why_grids, why_sentences
    from dagsim.report.terminal import show_grid

    if is_idle(state):
        raise InputError(f"{state}: the snapshot contains no running or waiting jobs, so job {job} is not waiting")
    config = _of_snapshot(state, asked, TraceFlags(), watched=False)
    audit = audited(config, told=not as_json)
    question = Question.read(config, state, history, policy, samples, 0)
    answer = explain_wait(question, job, samples)
    if as_json:
        say(json.dumps({"audit": audit.to_dict(), "t": question.t, "remarks": question.remarks, **answer.to_dict()}))
        return
    for remark in [*audit.sentences(urgent=False), *question.remarks]:
        say(f"{state.name}: {remark}", err=True)
    for sentence in why_sentences(answer):
        say(sentence)
    for grid in why_grids(answer, top):
        show_grid(grid, table)


def _refined(
    ask: Callable[[IsDue | None], Iterable[Prospect[T]]], grid: Callable[[Prospect[T]], Grid], watched: bool
) -> Prospect[T]:
    """Return the last of several increasingly accurate answers. If progress is shown, a terminal
    displays each answer until the next one is ready. Without a terminal, each answer is described
    by a line on standard error.
    """
    from rich.live import Live

    from dagsim.families.forecast.texts import basis
    from dagsim.report.terminal import console

    answers = ask(_doubled_and_second() if watched else None)
    if watched and sys.stdout.isatty():
        with Live(console=console(), transient=True) as live:
            for latest in answers:
                live.update(grid(latest), refresh=True)
        return latest
    for number, latest in enumerate(answers, 1):
        if watched:
            say(f"forecast {number}: {count_of(len(latest.rows), 'job')}, from {basis(latest)}", err=True)
    return latest


def _doubled_and_second() -> IsDue:
    """Return a function that decides when to show an answer. Since the last answer (or the start),
    a second must have passed and the number of futures must have doubled. At least three futures
    are required.
    """
    latest_s, latest = monotonic(), 0

    def is_due(count: int) -> bool:
        nonlocal latest_s, latest
        if count < max(3, 2 * latest) or monotonic() < latest_s + 1.0:
            return False
        latest_s, latest = monotonic(), count
        return True

    return is_due


def _backtest(asked: _Asked, path: Path, times: _Times, workers: int | None, *, oracle: bool) -> None:
    """Forecast at past times in a log, and score the forecasts."""
    from dagsim.experiment.executors import cores
    from dagsim.families.forecast.backtest import instants_of, read_backtest, run_backtest
    from dagsim.families.forecast.members import Forecaster
    from dagsim.report.terminal import counted
    from dagsim.systems.cluster.knowledge import Knowledge

    output = asked.output
    with TemporaryDirectory() as scratch:
        config = _configured(path, asked.experiment, Path(scratch), asked.reading, watched=output.watched)
    audit = audited(config, told=output.watched)
    log, queue, player = read_backtest(config, path, asked.policy)
    forecaster = Forecaster(player, asked.samples, asked.samples_with_arrivals, config.seed, oracle)
    since_s = _instant(config, "forecast-from", times.since, log)
    until_s = _instant(config, "forecast-until", times.until, log)
    every_s = _instant(config, "interval", times.every)
    instants = instants_of(
        log, queue, -inf if since_s is None else since_s, inf if until_s is None else until_s, every_s
    )
    progress = counted(f"forecasting at {len(instants):,} forecast times", output.watched, "done", every=1)
    test = run_backtest(log, queue, forecaster, instants, workers or cores(), progress)
    wanted = output.page is not None or not output.quiet or output.json
    knowledge = str(Knowledge("forecast", 0.0, len(log), int(log.limited.sum()), of_log=True))
    scores = {"audit": audit.to_dict(), "knowledge": knowledge, **test.to_dict()} if wanted else {}
    if output.page is not None:
        from dagsim.families.forecast.forecast_page import backtest_page
        from dagsim.files import write_text

        write_text(output.page, backtest_page(f"{path.name}: forecasts and outcomes", scores))
    if output.json:
        say(json.dumps(scores))
    elif not output.quiet:
        from dagsim.families.forecast.texts import backtest_grid, backtest_sentences, parts_grids
        from dagsim.report.terminal import show_grid

        say(backtest_sentences(scores)[0])
        show_grid(backtest_grid(scores))
        for grid in parts_grids(scores):
            show_grid(grid)
        say(knowledge)


def _of_snapshot(state: Path, asked: Experiment, reading: TraceFlags, *, watched: bool) -> Config:
    """Return a configuration whose workload is the snapshot. It comes from ``--config``. Without
    this option, it is made from the site that the snapshot itself describes, as Kueue's objects do.

    Raises:
        InputError: The cluster is unknown.
    """
    from dagsim.config.yaml import Option, Setting
    from dagsim.errors import InputError
    from dagsim.families.forecast.question import workload_of

    first = [Setting(Option.of("--state", state), "workload", workload_of(state))]
    with TemporaryDirectory() as scratch:
        asked = with_own_site(state, asked, reading, Path(scratch), told=True)
        if asked.config is None and reading.cluster is None:
            raise InputError("--state: the cluster is unknown; give --config site.yaml (from dagsim site import)")
        return experiment(asked, reading, first=first, watched=watched)


def _configured(path: Path, asked: Experiment, scratch: Path, reading: TraceFlags, *, watched: bool) -> Config:
    """Return the configuration for the log. It comes from ``--config`` or, without this option,
    from the site's files in the folder.
    """
    if path.is_dir():
        asked = with_own_site(path, asked, reading, scratch, told=False)
    return experiment(asked, reading, first=trace_at(path, "--backtest"), watched=watched, invented=False)


def _instant(config: Config, name: str, text: str | None, log: JobLog | None = None) -> float | None:
    """Parse a time on the log's clock or, without a log, a time span in seconds."""
    from dagsim.traces.fields import instant_s

    if text is None:
        return None
    origin_s = 0.0 if log is None else float(log.submit_s[0])
    seconds = instant_s(name, text, origin_s, config.trace().options.zone())
    if log is None and seconds <= 0:
        raise typer.BadParameter(f"expected a time such as 1h, got {text!r}", param_hint=f"'--{name}'")
    return origin_s + seconds
