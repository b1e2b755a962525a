"""``dagsim report`` and ``serve``: runs as a page, and in a browser while they are in progress."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dagsim.cli.app import app, say
from dagsim.cli.options import page_name
from dagsim.cli.telling import folders_with_runs
from dagsim.families.web import services


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders from any system.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            callback=page_name,
            help="File to write (default: report.html in the first folder).",
        ),
    ] = None,
) -> None:
    """Write runs to one HTML file with a verdict, Gantt chart, curves and tables. The file needs no
    web server and loads nothing else.

    Example: dagsim report results/20261120T193000Z-eval-sjf-s0-3fa9c1 -o report.html
    """
    from dagsim.experiment.store import Store
    from dagsim.families.web.document import write_page

    runs = folders_with_runs(runs)
    say(write_page([Store.open(run) for run in runs], out or runs[0] / "report.html"))


@app.command()
def serve(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="Folder that contains run folders.")] = Path(
        "results"
    ),
    host: Annotated[
        str, typer.Option(help="Address to serve from. Any address except loopback makes the runs visible to others.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to serve from. With 0, any free port is used.")
    ] = 8765,
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            "-c",
            metavar="YAML",
            help=("Configuration of the site whose snapshots are in RESULTS, for forecasts of its queue."),
        ),
    ] = None,
    history: Annotated[
        Path | None, typer.Option(metavar="LOG", help="Accounting records from sacct, used to calibrate the forecasts.")
    ] = None,
    policy: Annotated[
        str | None, typer.Option("--policy", "-a", metavar="NAME", help="Scheduler that the forecasts simulate.")
    ] = None,
    futures: Annotated[
        int,
        typer.Option(
            "--samples", min=1, max=1000, help="Number of possible futures that are simulated for each forecast."
        ),
    ] = 25,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Make a forecast for every new snapshot, and record the forecasts and outcomes."),
    ] = False,
    command: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="With --watch: command that prints the queue, such as squeue --json (run without a shell).",
        ),
    ] = None,
    every: Annotated[
        float | None,
        typer.Option(
            min=1.0,
            help=(
                "With --watch: seconds between two snapshots, which is also the time limit for a forecast "
                "(default: 60)."
            ),
        ),
    ] = None,
) -> None:
    """Show the runs in a folder in a browser: a list of the runs, a page for each run, and live
    progress.

    With --config, the folder may also contain snapshots of a queue (for example, squeue --json >
    results/now.json every minute). A page that updates itself shows forecasts from the newest
    snapshot, which are made in the same way as by dagsim eta.

    With --watch, forecasts are made for every new snapshot. The snapshots come from --command,
    which is run every --every seconds, or from another program. Forecasts and actual starts are
    appended to RESULTS/forecasts.jsonl. They are also served as /queue.json (for portals) and
    /metrics (for Prometheus); see docs/live.md. Without --watch, the server writes nothing. The
    server never contacts another host.

    Example: dagsim serve results
    """
    from dagsim.families.web.server import serve_folders

    site = None
    if config is not None:
        from dagsim.cli.configuring import configured
        from dagsim.config.bundled import find_config

        configured(config, None)  # report errors in the configuration now rather than later
        if history is not None and not history.exists():
            raise typer.BadParameter(f"{history}: no such file", param_hint="'--history'")
        services.queue_snapshots.required()
        site = find_config(config)
    elif history is not None or policy is not None:
        raise typer.BadParameter("--history and --policy can only be used with --config", param_hint="'--config'")
    if watch and site is None:
        raise typer.BadParameter("requires the configuration of the site (--config site.yaml)", param_hint="'--watch'")
    for option, value in (("--command", command), ("--every", every)):
        if value is not None and not watch:
            raise typer.BadParameter("can only be used with --watch", param_hint=f"'{option}'")
    if watch:
        results.mkdir(parents=True, exist_ok=True)
    asked = (command, every or 60.0) if watch else None
    snapshots = site and services.queue_snapshots(results, site, history, policy, futures, asked)
    serve_folders(results, host, port, lambda line: say(line), snapshots)
