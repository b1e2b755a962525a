"""Options that several commands take, in groups: ``expand_options`` gives a command those of the groups it names."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_type_hints

import typer

from dagsim.report.grid import TableFormat

__all__ = [
    "Algo",
    "ConfigFile",
    "EngineName",
    "Engines",
    "Experiment",
    "Jobs",
    "Json",
    "Name",
    "On",
    "Out",
    "Output",
    "Plots",
    "Quiet",
    "Resume",
    "Seed",
    "Seeds",
    "Settings",
    "SweepOutput",
    "TableLook",
    "TraceFlags",
    "Wide",
    "Within",
    "Workers",
    "expand_options",
]


class EngineName(StrEnum):
    """The engines, as typer wants them."""

    AUTO = "auto"
    SIMPY = "simpy"
    COMPILED = "compiled"


Algo = Annotated[
    str | None,
    typer.Option(
        "--algo", "-a", "--policy", metavar="NAME", help="Scheduler: name, name\\[param=value] or module:attr."
    ),
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
System = Annotated[
    str | None,
    typer.Option("--system", metavar="NAME", help="Simulated world (default: as configured; dagsim list systems)."),
]
Seeds = Annotated[int | None, typer.Option(min=1, help="Runs, each on a workload of its own (default: as configured).")]
Seed = Annotated[int | None, typer.Option(min=0, help="Root of all randomness (default: as configured).")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder that the run folder is made in.")]
Plots = Annotated[
    bool | None,
    typer.Option(
        "--plots/--no-plots",
        help="Draw the first run into the run folder, as dagsim plot does later (default: on a terminal).",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Processes (default: the cores); the results are the same with any number.")
]
Name = Annotated[str | None, typer.Option(metavar="NAME", help="Call it so, in tables and in the name of its folder.")]
On = Annotated[
    str, typer.Option(metavar="WHERE", help="local, local:N processes, ray or ray://HOST:PORT (dagsim list executors).")
]
Resume = Annotated[
    Path | None, typer.Option(metavar="RUN", help="Go on with a run that was stopped, as it was configured.")
]

Wide = Annotated[bool, typer.Option("--wide", help="Print every column, also where they need more than 80.")]
TableLook = Annotated[TableFormat, typer.Option("--table", help="Print tables as text, Markdown or LaTeX.")]


def fraction(text: str) -> float:
    """``2%`` or ``0.02`` as 0.02."""
    try:
        return float(text.rstrip().removesuffix("%")) / (100 if "%" in text else 1)
    except ValueError:
        raise typer.BadParameter(f"expected a percentage such as 2%, got {text!r}") from None


Within = Annotated[
    float | None,
    typer.Option(
        "--precision",
        metavar="2%",
        parser=fraction,
        help="Add seeds until the 95 % intervals of the ratios reach at most this far to either side.",
    ),
]

_TRACES = "Traces (workloads that are files)"
_NOT_READING = ("format", "cluster", "windows", "window_jobs")
"""Options of traces that are not those of their reading."""
WINDOW_JOBS = 1000
"""Jobs of a window unless said otherwise: longer windows help more than more of them."""


Engines = Annotated[
    EngineName | None,
    typer.Option("--engine", help="What simulates the GPU cluster: the same bytes from all (docs/engines.md)."),
]


class Experiment(NamedTuple):
    """Options of the experiment: a configuration and changes to it."""

    workload: Jobs = None
    config: ConfigFile = None
    set_: Settings = None
    system: System = None
    seeds: Seeds = None
    seed: Seed = None
    precision: Within = None
    measure: Annotated[
        str | None,
        typer.Option(metavar="FROM:TO", help="Count only these jobs by arrival, as 1000:-1000."),
    ] = None
    engine: Engines = None


class Output(NamedTuple):
    """Options of the output."""

    out: Out = Path("results")
    plots: Plots = None
    json_: Json = False
    quiet: Quiet = False
    wide: Wide = False
    table: TableLook = TableFormat.TEXT
    workers: Workers = None
    resume: Resume = None
    name: Name = None
    on: On = "local"

    @property
    def watched(self) -> bool:
        """Somebody looks on."""
        return not (self.quiet or self.json_)

    def where(self) -> str:
        """The executor, with its number of processes.

        Raises:
            InputError: There is no such executor, or ``--workers`` stands beside another than the local one.
        """
        from dagsim.errors import InputError
        from dagsim.experiment.executors import executor_for

        if self.workers is not None and self.on != "local":
            raise InputError(f"--workers {self.workers}: goes with --on local only, not with --on {self.on}")
        where = self.on if self.workers is None else f"local:{self.workers}"
        executor_for(where)
        return where


class SweepOutput(NamedTuple):
    """Options of where many runs happen, and of their output."""

    on: On = "local"
    name: Name = None
    out: Out = Path("results")
    json_: Json = False
    quiet: Quiet = False
    wide: Wide = False
    table: TableLook = TableFormat.TEXT

    @property
    def watched(self) -> bool:
        """Somebody looks on."""
        return not (self.quiet or self.json_)


class TraceFlags(NamedTuple):
    """Options of the reading of a trace and of its cluster."""

    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="Its format (default: recognised; dagsim list readers).",
            rich_help_panel=_TRACES,
        ),
    ] = None
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="trace|sized|YAML",
            help="The machines that the trace lists, a cluster sized to an offered load of 0.9, or that of a "
            "configuration (default: that of --config; else the trace's; else sized).",
            rich_help_panel=_TRACES,
        ),
    ] = None
    gpus_per_task: Annotated[
        float | None,
        typer.Option(
            help="GPUs that each instance of a CPU-only trace occupies (default: none).", rich_help_panel=_TRACES
        ),
    ] = None
    reference_gpu: Annotated[
        str | None,
        typer.Option(
            metavar="GPU",
            help="GPU type that durations were measured on (default: unknown).",
            rich_help_panel=_TRACES,
        ),
    ] = None
    load: Annotated[
        float | None,
        typer.Option(help="Offered load to scale the arrivals to (default: as traced).", rich_help_panel=_TRACES),
    ] = None
    time_scale: Annotated[
        float | None,
        typer.Option(help="Factor on the times between arrivals (default: 1).", rich_help_panel=_TRACES),
    ] = None
    start: Annotated[
        int | None, typer.Option(help="Jobs left out at the beginning (default: 0).", rich_help_panel=_TRACES)
    ] = None
    limit: Annotated[int | None, typer.Option(help="Max jobs kept (default: all).", rich_help_panel=_TRACES)] = None
    processors: Annotated[
        int | None,
        typer.Option(help="Processors of the machine, where the trace says none (SWF).", rich_help_panel=_TRACES),
    ] = None
    protocol: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Read it by the rules of a published evaluation (docs/traces.md).",
            rich_help_panel=_TRACES,
        ),
    ] = None
    map_: Annotated[
        str | None,
        typer.Option(
            "--map",
            metavar="OURS=THEIRS,...",
            help="Columns of a CSV or JSON lines that hold what.",
            rich_help_panel=_TRACES,
        ),
    ] = None
    timezone: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Time zone of dates that say none (default: UTC).", rich_help_panel=_TRACES),
    ] = None
    tenant: Annotated[
        str | None,
        typer.Option(
            metavar="user|account|partition", help="Owner of a job (default: account).", rich_help_panel=_TRACES
        ),
    ] = None
    demand: Annotated[
        str | None,
        typer.Option(
            metavar="allocated|requested",
            help="Resources that a job takes (default: allocated).",
            rich_help_panel=_TRACES,
        ),
    ] = None
    arrival: Annotated[
        str | None,
        typer.Option(
            metavar="ctime|qtime", help="Time that a job of PBS arrives at (default: ctime).", rich_help_panel=_TRACES
        ),
    ] = None
    mig: Annotated[bool, typer.Option("--mig", help="Take MIG slices as shares of a GPU.", rich_help_panel=_TRACES)] = (
        False
    )
    shards: Annotated[
        int | None, typer.Option(help="Shards of a GPU, where jobs ask for shards.", rich_help_panel=_TRACES)
    ] = None
    gpu_names: Annotated[
        str | None,
        typer.Option(
            metavar="a100=A100-80,...", help="GPU types that the site's names stand for.", rich_help_panel=_TRACES
        ),
    ] = None
    delimiter: Annotated[
        str | None,
        typer.Option(metavar="CHAR", help="The character between columns (default: found).", rich_help_panel=_TRACES),
    ] = None
    count_pull: Annotated[
        bool,
        typer.Option("--count-pull", help="Count the pull of a pod's image as work.", rich_help_panel=_TRACES),
    ] = False
    keep_partial: Annotated[
        bool,
        typer.Option(
            "--keep-partial",
            help="Keep what is usable of jobs that did not finish as a whole.",
            rich_help_panel=_TRACES,
        ),
    ] = False
    strict: Annotated[
        bool, typer.Option("--strict", help="Make the first dirty row an error.", rich_help_panel=_TRACES)
    ] = False

    windows: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Run on so many disjoint windows spread evenly over the trace (default: as many as seeds).",
            rich_help_panel=_TRACES,
        ),
    ] = None
    window_jobs: Annotated[
        int | None,
        typer.Option(min=2, help="Jobs of each window (default: 1000 with --windows).", rich_help_panel=_TRACES),
    ] = None

    def windowed(self) -> dict[str, int]:
        """The windows that were asked for, by the key of ``workload``."""
        jobs = self.window_jobs or (WINDOW_JOBS if self.windows else None)
        return {key: value for key, value in (("window", jobs), ("windows", self.windows)) if value is not None}

    def reading(self) -> dict[str, Any]:
        """The options of the reading that were given, by the field of ``TraceOptions`` that each sets."""
        given = {
            key.rstrip("_"): value for key, value in self._asdict().items() if value is not None and value is not False
        }
        return {key: value for key, value in given.items() if key not in _NOT_READING}


def expand_options(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command: every parameter that is a group of options becomes these options."""
    signature = inspect.signature(command, eval_str=True)
    groups = {name: each.annotation for name, each in signature.parameters.items() if _is_group(each.annotation)}
    parameters: list[inspect.Parameter] = []
    for name, each in signature.parameters.items():
        if name not in groups:
            parameters.append(each.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        hints = get_type_hints(each.annotation, include_extras=True)
        for field, default in each.annotation._field_defaults.items():
            keyword = inspect.Parameter.KEYWORD_ONLY
            parameters.append(inspect.Parameter(field, keyword, default=default, annotation=hints[field]))

    def spreading(**values: Any) -> None:
        made = {name: group(*(values.pop(field) for field in group._fields)) for name, group in groups.items()}
        command(**values, **made)

    spreading.__name__, spreading.__doc__, spreading.__module__ = command.__name__, command.__doc__, command.__module__
    spreading.__annotations__ = {each.name: each.annotation for each in parameters}
    spreading.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return spreading


def _is_group(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, tuple) and hasattr(annotation, "_field_defaults")
