"""``dagsim replay``: a real trace through a scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dagsim.cli.app import app
from dagsim.cli.options import Algo, ConfigFile, Json, Out, Plots, Quiet, Seed, Settings
from dagsim.cli.shared import Output, cluster_of, configured, given, run_policies

if TYPE_CHECKING:
    from dagsim.config.schema import Config, Setting

__all__ = ["replay"]


@app.command()
def replay(
    trace: Annotated[Path, typer.Option("--trace", "-t", help="The trace, as its publisher ships it.")],
    algo: Algo = None,
    format_: Annotated[
        str | None,
        typer.Option("--format", metavar="NAME", help="Its format (default: recognised; dagsim list readers)."),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="trace|sized|YAML",
            help="The machines that the trace lists, a cluster sized to an offered load of 0.9, or that of a "
            "configuration (default: that of --config; else the trace's; else sized).",
        ),
    ] = None,
    gpus_per_task: Annotated[
        float | None, typer.Option(help="GPUs that each instance of a CPU-only trace occupies (default: none).")
    ] = None,
    reference_gpu: Annotated[
        str | None, typer.Option(metavar="GPU", help="GPU type that durations were measured on (default: unknown).")
    ] = None,
    load: Annotated[
        float | None, typer.Option(help="Offered load to scale the arrivals to (default: as traced).")
    ] = None,
    time_scale: Annotated[float | None, typer.Option(help="Factor on the times between arrivals (default: 1).")] = None,
    start: Annotated[int | None, typer.Option(help="Jobs left out at the beginning (default: 0).")] = None,
    limit: Annotated[int | None, typer.Option(help="Jobs kept at most (default: all).")] = None,
    processors: Annotated[
        int | None, typer.Option(help="Processors of the machine, where the trace says none (SWF).")
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Read it by the rules of a published evaluation (docs/traces.md)."),
    ] = None,
    map_: Annotated[
        str | None,
        typer.Option("--map", metavar="OURS=THEIRS,...", help="Columns of a CSV or JSON lines that hold what."),
    ] = None,
    timezone: Annotated[
        str | None, typer.Option(metavar="NAME", help="Time zone of dates that say none (default: UTC).")
    ] = None,
    tenant: Annotated[
        str | None, typer.Option(metavar="user|account|partition", help="Who a job belongs to (default: account).")
    ] = None,
    demand: Annotated[
        str | None, typer.Option(metavar="allocated|requested", help="What a job takes (default: allocated).")
    ] = None,
    arrival: Annotated[
        str | None, typer.Option(metavar="ctime|qtime", help="When a job of PBS arrives (default: ctime).")
    ] = None,
    mig: Annotated[bool, typer.Option("--mig", help="Take MIG slices as shares of a GPU.")] = False,
    shards: Annotated[int | None, typer.Option(help="Shards of a GPU, where jobs ask for shards.")] = None,
    gpu_names: Annotated[
        str | None, typer.Option(metavar="a100=A100-80,...", help="What GPU types the site's names stand for.")
    ] = None,
    delimiter: Annotated[
        str | None, typer.Option(metavar="CHAR", help="The character between columns (default: found).")
    ] = None,
    count_pull: Annotated[bool, typer.Option("--count-pull", help="Count the pull of a pod's image as work.")] = False,
    keep_partial: Annotated[
        bool, typer.Option("--keep-partial", help="Keep what is usable of jobs that did not finish as a whole.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Make the first dirty row an error.")] = False,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="List every row that was dropped, and why, in this file.")
    ] = None,
    config: ConfigFile = None,
    set_: Settings = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs, each with other chance on the same jobs.")] = 1,
    seed: Seed = None,
    out: Out = Path("results"),
    plots: Plots = True,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Replay a real trace through a scheduler; its format is recognised.

    Example: dagsim replay --trace batch_task.csv.gz --algo sjf --limit 1000
    """
    from dagsim.config.schema import Setting

    settings = [Setting(f"--trace {trace}", "workload", {"kind": "trace", "path": str(trace), "format": format_})]
    options = {
        "gpus_per_task": gpus_per_task,
        "reference_gpu": reference_gpu,
        "load": load,
        "time_scale": time_scale,
        "start": start,
        "limit": limit,
        "processors": processors,
        "protocol": protocol,
        "map": map_,
        "timezone": timezone,
        "tenant": tenant,
        "demand": demand,
        "arrival": arrival,
        "mig": mig or None,
        "shards": shards,
        "gpu_names": gpu_names,
        "delimiter": delimiter,
        "count_pull": count_pull or None,
        "keep_partial": keep_partial or None,
        "strict": strict or None,
    }
    settings += given(**{f"workload.options.{key}": value for key, value in options.items()})
    settings += given(policy=algo, seeds=seeds, seed=seed)
    chosen = configured(config, set_, settings)
    described = config is not None or any(setting.startswith(("cluster", "gpu_types")) for setting in set_ or ())
    more = _cluster(chosen, cluster, described, quiet=quiet or json_)
    if more:
        chosen = configured(config, set_, [*settings, *more])
    if report is not None:
        _report(chosen, report, quiet=quiet or json_)
    run_policies("replay", chosen, (chosen.policy,), Output(out, plots, json_, quiet))


def _cluster(config: Config, cluster: str | None, described: bool, *, quiet: bool) -> Sequence[Setting]:
    """Settings for the cluster that was asked for; none where the configuration describes it."""
    from dagsim.config.schema import Setting, plain
    from dagsim.experiment.sizing import sized
    from dagsim.report.terminal import counted

    if cluster not in (None, "trace", "sized"):
        return cluster_of(cluster)
    if cluster is None and described:
        return []
    trace = config.trace()
    if cluster is None:
        cluster = "trace" if trace.lists_machines() else "sized"
    if cluster == "trace":
        return [Setting("--cluster trace", "cluster", {"name": "trace", "from_trace": True})]
    jobs = counted("sizing a cluster to the trace", wanted=not quiet)(trace.as_recorded().jobs())
    return [Setting("--cluster sized", "cluster", plain(sized(jobs, config.runtime)))]


def _report(config: Config, path: Path, *, quiet: bool) -> None:
    """Write what was dropped or tolerated, row by row."""
    from dagsim.files import write_text
    from dagsim.report.terminal import counted

    trace = config.trace().as_recorded(full_report=True)
    for _ in counted("listing dropped rows", wanted=not quiet)(trace.jobs()):
        pass
    write_text(path, "\n".join([f"# {trace.report}", *trace.report.details]) + "\n")
    if not quiet:
        typer.echo(f"{len(trace.report.details):,} rows listed in {path}")
