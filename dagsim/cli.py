"""The ``dagsim`` command: parse, call, print.

Whatever is slow to import is imported inside the command that needs it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from dagsim.errors import DagsimError, InputError

if TYPE_CHECKING:
    from dagsim.experiment.config import Config, Setting
    from dagsim.experiment.folder import RunFolder, RunLine

__all__ = ["app", "main"]


class _Guarded(typer.core.TyperGroup):
    """Says what the user did wrong in plain words instead of a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except DagsimError as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(2 if isinstance(error, InputError) else 1) from None


app = typer.Typer(
    cls=_Guarded,
    help="Simulate DAG jobs on heterogeneous GPU clusters, and say which scheduler is better.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
config_app = typer.Typer(help="Show, check and describe configurations.", no_args_is_help=True)
workload_app = typer.Typer(help="Look at workloads.", no_args_is_help=True)
app.add_typer(config_app, name="config")
app.add_typer(workload_app, name="workload")

Algo = Annotated[
    str | None,
    typer.Option("--algo", "-a", metavar="NAME", help="Scheduler: name, name\\[param=value] or module:attr."),
]
ConfigFile = Annotated[
    str | None,
    typer.Option("--config", "-c", metavar="YAML", help="A file, a run folder, or a name of `dagsim list configs`."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="Change one key of the configuration; repeatable."),
]
Jobs = Annotated[
    str | None,
    typer.Option("--workload", "-w", metavar="NAME", help="Jobs: a name of `dagsim list workloads`, or a file."),
]
Seeds = Annotated[int | None, typer.Option(min=1, help="Runs, each on a workload of its own (default: as configured).")]
Seed = Annotated[int | None, typer.Option(min=0, help="Root of all chance (default: as configured).")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder that the run folder is made in.")]
Plots = Annotated[bool, typer.Option(help="Draw the first run into the run folder.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]


def main() -> None:
    """The entry point."""
    sys.path.append(str(Path.cwd()))  # where --algo my_module:MyPolicy is looked for, last
    app()


def _version(wanted: bool) -> None:
    if wanted:
        import dagsim

        typer.echo(f"dagsim {dagsim.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


# Running.


@app.command("eval")
def evaluate(
    algo: Algo = None,
    workload: Jobs = None,
    config: ConfigFile = None,
    set_: Settings = None,
    seeds: Seeds = None,
    seed: Seed = None,
    out: Out = Path("results"),
    plots: Plots = True,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run one scheduler on several seeds: a table and a run folder.

    Example: dagsim eval --algo sjf --workload steady --set workload.load=0.7
    """
    chosen = _config(config, set_, _given(policy=algo, seeds=seeds, seed=seed), workload)
    _run("eval", chosen, (chosen.policy,), _Output(out, plots, json_, quiet))


@app.command()
def baseline(
    algo: Annotated[
        list[str] | None, typer.Option("--algo", "-a", metavar="NAME", help="Only this scheduler; repeatable.")
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What the others are compared with (default: the configured policy)."),
    ] = None,
    workload: Jobs = None,
    config: ConfigFile = None,
    set_: Settings = None,
    seeds: Seeds = None,
    seed: Seed = None,
    out: Out = Path("results"),
    plots: Plots = True,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run every heuristic on the same seeds: one table, the best marked.

    Example: dagsim baseline --workload heterogeneous-dag --seeds 5
    """
    from dagsim.policies import POLICIES

    chosen = _config(config, set_, _given(policy=reference, seeds=seeds, seed=seed), workload)
    others = algo or POLICIES.names()
    policies = tuple(dict.fromkeys((chosen.policy, *others)))
    _run("baseline", chosen, policies, _Output(out, plots, json_, quiet))


@app.command()
def replay(
    trace: Annotated[Path, typer.Option("--trace", "-t", help="The trace, as its publisher ships it.")],
    algo: Algo = None,
    format_: Annotated[
        str | None,
        typer.Option("--format", metavar="NAME", help="Its format (default: recognised; dagsim list readers)."),
    ] = None,
    cluster: Annotated[str | None, typer.Option(metavar="YAML", help="Configuration to take the cluster from.")] = None,
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
    strict: Annotated[bool, typer.Option("--strict", help="Make the first dirty row an error.")] = False,
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
    from dagsim.experiment.config import Setting

    settings = [Setting(f"--trace {trace}", "workload", {"kind": "trace", "path": str(trace), "format": format_})]
    options = {
        "gpus_per_task": gpus_per_task,
        "reference_gpu": reference_gpu,
        "load": load,
        "time_scale": time_scale,
        "start": start,
        "limit": limit,
        "strict": strict or None,
    }
    settings += _given(**{f"workload.options.{key}": value for key, value in options.items()})
    if cluster is not None:
        settings += _cluster_of(cluster)
    chosen = _config(config, set_, [*settings, *_given(policy=algo, seeds=seeds, seed=seed)])
    _run("replay", chosen, (chosen.policy,), _Output(out, plots, json_, quiet))


@app.command()
def plot(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    number: Annotated[
        int | None,
        typer.Option("--run", min=0, help="Which of its runs, counted from 0 (default: a comparison, or the first)."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for the plots (default: plots/ in the run folder).")
    ] = None,
) -> None:
    """Draw a run again: Gantt chart, completion times, utilisation and queue over time, priorities.

    Example: dagsim plot results/20261120T193000Z-eval-sjf-s0-3fa9c1
    """
    from dagsim.experiment.folder import RunFolder
    from dagsim.experiment.session import draw

    for path in draw(RunFolder.open(run), number, out):
        typer.echo(path)


class What(StrEnum):
    """What can be listed."""

    policies = "policies"
    placements = "placements"
    gpus = "gpus"
    workloads = "workloads"
    configs = "configs"
    readers = "readers"


@app.command("list")
def list_(
    what: Annotated[What, typer.Argument(metavar="WHAT", help=f"One of {', '.join(What)}.", show_choices=False)],
    json_: Json = False,
) -> None:
    """List what there is to choose from.

    Example: dagsim list policies
    """
    from dagsim.experiment.listing import listing
    from dagsim.experiment.terminal import show

    show(*listing(what.value), as_json=json_)


# Configurations.


@config_app.command("show")
def config_show(config: ConfigFile = None, set_: Settings = None) -> None:
    """Print the whole configuration, defaults included, as YAML.

    Example: dagsim config show --set cluster.groups.0.count=4
    """
    from dagsim.experiment.config import dump_config

    typer.echo(dump_config(_config(config, set_)), nl=False)


@config_app.command("check")
def config_check(
    files: Annotated[
        list[str], typer.Argument(metavar="YAML...", help="Files, run folders, or names of `dagsim list configs`.")
    ],
) -> None:
    """Check configurations; every fault is named with its line, key and remedy.

    Example: dagsim config check my.yaml
    """
    from dagsim.errors import ConfigError
    from dagsim.experiment.run import check

    faults = []
    for file in files:
        try:
            config = _config(file, None)
            check(config, (config.policy,))
        except InputError as error:
            faults.append(str(error))
        else:
            typer.echo(f"{file}: fine")
    if faults:
        raise ConfigError("\n".join(faults))


@config_app.command("schema")
def config_schema() -> None:
    """Print the JSON schema of configurations, for editors.

    Example: dagsim config schema > dagsim.schema.json
    """
    from dagsim.experiment.config import json_schema

    typer.echo(json.dumps(json_schema(), indent=2))


# Workloads.


@workload_app.command("info")
def workload_info(
    workload: Annotated[str, typer.Argument(help="A name of `dagsim list workloads`, or a file.")],
    config: ConfigFile = None,
    set_: Settings = None,
    seed: Seed = None,
    json_: Json = False,
) -> None:
    """Say what a workload is like: sizes, shapes, arrivals, and the load it offers.

    Example: dagsim workload info heterogeneous-dag
    """
    from dagsim.experiment.report import info_tables, workload_notes
    from dagsim.experiment.source import Supply
    from dagsim.experiment.terminal import console
    from dagsim.workload import workload_info

    chosen = _config(config, set_, _given(seed=seed), workload)
    cluster = chosen.build_cluster()
    supply = Supply(chosen.workload, cluster, chosen.runtime, chosen.seed)
    info = workload_info(supply.jobs(), cluster, chosen.runtime)
    if json_:
        typer.echo(json.dumps({"workload": workload, "cluster": str(cluster), **info.to_dict(), **supply.facts()}))
        return
    console().print(*info_tables(info), sep="\n")
    for note in (f"on {cluster}", *workload_notes([supply.facts()])):
        typer.echo(note)


@workload_app.command("save")
def workload_save(
    workload: Annotated[str, typer.Argument(help="A name of `dagsim list workloads`, or a file.")],
    path: Annotated[Path, typer.Argument(help="The file to write: JSON Lines, compressed if it ends in .gz.")],
    config: ConfigFile = None,
    set_: Settings = None,
    seed: Seed = None,
) -> None:
    """Write the jobs of a workload to a file, to be replayed anywhere.

    Example: dagsim workload save steady steady.jsonl.gz --seed 3
    """
    from dagsim.experiment.config import plain
    from dagsim.experiment.source import Supply
    from dagsim.workload import write_jobs

    chosen = _config(config, set_, _given(seed=seed), workload)
    supply = Supply(chosen.workload, chosen.build_cluster(), chosen.runtime, chosen.seed)
    meta = {key: plain(getattr(chosen, key)) for key in ("workload", "runtime", "cluster", "seed")}
    typer.echo(f"{write_jobs(path, supply.jobs(), meta)} jobs written to {path}")


# What the commands share.


class _Output(NamedTuple):
    """What is to be written where."""

    root: Path
    plots: bool
    json: bool
    quiet: bool


def _config(
    file: str | None, settings: Iterable[str] | None, given: Iterable[Setting] = (), workload: str | None = None
) -> Config:
    """The configuration in ``file``, with another workload, then ``--set``, then the other options."""
    from dagsim.experiment.config import Setting, load_config
    from dagsim.experiment.shipped import find_config

    jobs = [] if workload is None else [Setting(f"--workload {workload}", "workload", workload)]
    return load_config(None if file is None else find_config(file), [*jobs, *(settings or ()), *given])


def _given(**options: Any) -> list[Setting]:
    """Settings from the options that were given, by the key that each sets."""
    from dagsim.experiment.config import Setting

    return [Setting(f"{_option(key)} {value}", key, value) for key, value in options.items() if value is not None]


def _option(key: str) -> str:
    return "--algo" if key == "policy" else f"--{key.rpartition('.')[2].replace('_', '-')}"


def _cluster_of(file: str) -> list[Setting]:
    """The cluster of another configuration, as settings."""
    from dagsim.experiment.config import Setting, plain

    source, other = f"--cluster {file}", _config(file, None)
    return [Setting(source, key, plain(getattr(other, key))) for key in ("cluster", "gpu_types")]


def _run(command: str, config: Config, policies: Sequence[str], output: _Output) -> None:
    """Run the policies into a new folder, print what came out, and draw it."""
    from dagsim.experiment.folder import RunFolder
    from dagsim.experiment.run import check
    from dagsim.experiment.session import draw, run_into
    from dagsim.experiment.terminal import progress

    check(config, policies)
    label = policies[0] if len(policies) == 1 else f"{len(policies)}-policies"
    folder = RunFolder.create(output.root, command, config, argv=["dagsim", *sys.argv[1:]], label=label)
    try:
        with progress(wanted=not (output.quiet or output.json)) as watch:
            lines = run_into(folder, config, policies, watch)
    except KeyboardInterrupt:
        typer.echo(f"interrupted: {len(folder.lines())} finished runs are kept in {folder.path}", err=True)
        raise typer.Exit(130) from None
    if output.json:
        typer.echo(json.dumps(folder.to_dict()))
    elif not output.quiet:
        _print(folder, lines)
    if output.plots:
        draw(folder)


def _print(folder: RunFolder, lines: Sequence[RunLine]) -> None:
    from dagsim.experiment.report import comparison_table, summary_table, workload_notes
    from dagsim.experiment.terminal import console

    many = len({line.policy for line in lines}) > 1
    console().print(comparison_table(lines) if many else summary_table(lines))
    for note in workload_notes([line.workload for line in lines]):
        typer.echo(note)
    typer.echo(f"run folder: {folder.path}")


# Traces.

trace_app = typer.Typer(help="Convert traces.", no_args_is_help=True)
app.add_typer(trace_app, name="trace")


@trace_app.callback()
def _traces() -> None:
    pass


@trace_app.command("convert")
def convert_trace(
    path: Annotated[Path, typer.Argument(metavar="IN", help="The trace, as its publisher ships it.")],
    to: Annotated[Path, typer.Argument(metavar="OUT", help="A file called .jsonl or .jsonl.gz.")],
    format_: Annotated[str | None, typer.Option("--format", help="Its format (default: recognised).")] = None,
) -> None:
    """Rewrite a trace of any format as JSON Lines."""
    from dagsim.experiment.traces.convert import convert

    typer.echo(str(convert(path, to, format_)))
