"""``dagsim eta``: when waiting jobs will start."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

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
    from dagsim.forecast.live import Expected
    from dagsim.forecast.log import JobLog
    from dagsim.forecast.members import Forecaster
    from dagsim.forecast.rows import QueueLog

__all__ = ["print_eta"]


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
    _refuse(state is None, {"JOB": jobs, "--history": history})
    from dagsim.forecast.members import Forecaster

    if state is not None:
        _forecast(state, history, jobs or [], config, set_, seed, reading, algo, (futures, arrivals), json_, watched)
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
    if json_:
        typer.echo(json.dumps(tested.to_dict()))
    elif not quiet:
        _print(tested)


def _refuse(refused: bool, options: dict[str, object]) -> None:
    """Refuse options that would be ignored.

    Raises:
        BadParameter: One of them is given.
    """
    for name, value in options.items() if refused else ():
        if value:
            goes = "--state" if name in ("JOB", "--history") else "--backtest"
            raise typer.BadParameter(f"goes with {goes}", param_hint=f"'{name}'")


def _forecast(
    state: Path, history: Path | None, jobs: list[str], config: str | None, set_: list[str] | None, seed: int | None,
    reading: TraceFlags, algo: str | None, futures: tuple[int, int], json_: bool, watched: bool,
) -> None:  # fmt: skip
    """Forecast the jobs of a snapshot: print a first answer on a terminal, then the calibrated one."""
    from dagsim.config.schema import Setting
    from dagsim.errors import InputError
    from dagsim.experiment.scenario import cluster_scenario_of
    from dagsim.forecast.futures import Player
    from dagsim.forecast.live import expected
    from dagsim.forecast.log import read_sacct_log, read_snapshot
    from dagsim.forecast.members import Forecaster
    from dagsim.workload.load import accepting

    if config is None and reading.cluster is None:
        raise InputError("--state: the cluster is unknown; give --config site.yaml (dagsim site import makes it)")
    first = [Setting(f"--state {state}", "workload", {"kind": "trace", "path": str(state)})]
    chosen = experiment(Experiment(config=config, set_=set_, seed=seed), reading, first=first, quiet=not watched)
    scenario = cluster_scenario_of(chosen)
    log, t = read_snapshot(chosen.trace().open(scenario.cluster, scenario.runtime))
    if history is not None:
        log = log.beside(read_sacct_log(history, chosen.trace().options), t)
    log = replace(log, jobs=accepting(log.jobs, scenario.accept, scenario.runtime, scenario.cluster.gpu_types))
    policy = algo or (chosen.policy if chosen.queues is not None else _DEFAULT_POLICY)
    answers = expected(log, Forecaster(Player(scenario, policy, log), *futures, chosen.seed), t)
    shown: list[Expected] = []
    for number, answer in enumerate(answers):
        shown = [each for each in answer if not jobs or each.job in {job.partition("_")[0] for job in jobs}]
        if watched and not number and history is not None:
            if sys.stdout.isatty():
                _print_expected(shown, calibrated=False)
            typer.echo("calibrating by forecasts at earlier instants", err=True)
    if missing := sorted({job.partition("_")[0] for job in jobs} - {each.job for each in shown}):
        raise InputError(f"{state}: job {missing[0]} does not wait there, or can never start")
    if json_:
        typer.echo(json.dumps({"t": t, "jobs": [each.to_dict() for each in shown]}))
    elif watched:
        _print_expected(shown, calibrated=history is not None)


def _print_expected(rows: list[Expected], *, calibrated: bool) -> None:
    """Print a table of waiting jobs, the soonest first."""
    from rich.table import Table

    from dagsim.report.terminal import console

    table = Table("job", "user", "partition", "median", "90 %", "in 1 h", "in 24 h", "kind", box=None, pad_edge=False)
    for row in rows:
        low, middle, high = (_span(row.quantiles_s[place]) for place in (0, 9, 18))
        chances = [f"{100 * chance:.0f} %" for chance in (row.within_1h, row.within_24h)]
        table.add_row(row.job, row.user, row.partition, middle, f"{low} to {high}", *chances, row.waits_for)
    console().print(table)
    typer.echo(f"{len(rows):,} waiting jobs. These are chances, not promises (docs/forecast.md).")
    if not calibrated:
        typer.echo("not calibrated: without --history, neither run times nor earlier errors are known")


def _span(seconds: float) -> str:
    """A wait in words: 40 s, 12 min, 3.5 h, 2.1 d, or a week and more."""
    for unit, length_s, below_s in (("s", 1.0, 100.0), ("min", 60.0, 6000.0), ("h", 3600.0, 48 * 3600.0)):
        if seconds < below_s:
            return f"{seconds / length_s:.{0 if unit != 'h' else 1}f} {unit}"
    return "over a week" if seconds >= 6.9 * 86400 else f"{seconds / 86400:.1f} d"


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
    from dagsim.forecast.log import JobLog, read_sacct_log
    from dagsim.forecast.rows import read_queue_log
    from dagsim.traces import format_of
    from dagsim.workload.load import accepting

    scenario, file, queue = cluster_scenario_of(config), config.trace(), None
    policy = algo or (config.policy if config.queues is not None else _DEFAULT_POLICY)
    if (file.format or format_of(path, file.options)) == "sacct":
        log = read_sacct_log(path, file.options)
        listings = [each for name in _LISTINGS if (each := path / name).is_file()] if path.is_dir() else []
        queue = read_queue_log(listings[0]) if listings else None
    else:
        trace = file.open(scenario.cluster, scenario.runtime)
        jobs = trace.unscaled()
        start_s = None if algo is None else starts_by(scenario, algo, jobs)
        log = JobLog.of(jobs, trace.meta["origin_s"], start_s)
    log = replace(log, jobs=accepting(log.jobs, scenario.accept, scenario.runtime, scenario.cluster.gpu_types))
    return log, queue, Player(scenario, policy, log)


_DEFAULT_POLICY = "easy"
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


def _print(tested: Backtest) -> None:
    """Print the scores as a table: ours, the members and the baselines."""
    from rich.table import Table

    from dagsim.report.terminal import console

    scores = tested.to_dict()
    table = Table("", "coverage of 90 %", "CRPS", "median", "CRPS, each once", box=None, pad_edge=False)

    def add(name: str, entry: dict[str, Any]) -> None:
        point = len({entry["coverage_90"], 0.0}) == 1
        table.add_row(
            name,
            "-" if point else f"{entry['coverage_90']:.2f}",
            f"{entry['crps_log']:.2f}",
            f"{entry['median_abs_log']:.2f}",
            f"{entry['once']['crps_log']:.2f}",
        )

    add("forecast", scores)
    for name, kinds in scores["baselines"].items():
        for kind in ("raw", "calibrated"):
            add(f"{name.replace('_', ' and ' if name == 'limits_history' else ' of the ')}, {kind}", kinds[kind])
    console().print(table)
    typer.echo(
        f"{scores['n']:,} rows of {scores['submissions']:,} submissions at {scores['instants']:,} instants; "
        f"{scores['never_started']:,} rows never started. Errors are natural logarithms of 1 s + the wait."
    )
    for name, entry in scores["by_partition"].items():
        typer.echo(
            f"{'partition ' + name if name else 'all'}: coverage {entry['coverage_90']:.2f} of {entry['n']:,} rows"
        )
