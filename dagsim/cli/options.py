"""Groups of options that several commands share. ``expand_options`` adds a group's options to a
command.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_type_hints

import typer

from dagsim.report.grid import TableFormat
from dagsim.specs import scalar
from dagsim.spelling import choices

if TYPE_CHECKING:
    from dagsim.config.yaml import Setting


def _experiment(*names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel="Experiment", **more)


def _output(*names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel="Output", **more)


def _of_trace(*names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel="Traces (workloads that are files)", **more)


def fraction(text: str) -> float:
    """Convert ``2%``, ``2`` or ``0.02`` to 0.02. A number of 1 or more counts as a percentage."""
    try:
        value = float(text.rstrip().removesuffix("%"))
    except ValueError:
        raise typer.BadParameter(f"expected a percentage such as 2%, got {text!r}") from None
    value /= 100 if "%" in text or value >= 1 else 1
    if not 0 < value < 1:
        raise typer.BadParameter(f"must be above 0% and below 100%, got {text.strip()}")
    return value


_SEVERAL = {
    "eval": "dagsim baseline --policy {}",
    "replay": "dagsim whatif --policy {}",
}
"""For each command that runs one scheduler, the command that compares several."""


def refuse_several(ctx: typer.Context, policies: Sequence[str]) -> None:
    """Reject several schedulers for a command that runs only one.

    Raises:
        BadParameter: Always.
    """
    command = ctx.info_name or ""
    parts = (" --policy " if command == "eval" else ",").join(policies)
    hint = f"; to compare them: {_SEVERAL[command].format(parts)}" if command in _SEVERAL else ""
    raise typer.BadParameter(
        f"{command} runs a single scheduler, got {' and '.join(policies)}{hint}", ctx, param_hint="'--policy'"
    )


def _one_scheduler(ctx: typer.Context, text: str | None) -> str | None:
    """Return the scheduler after checking that only one is given."""
    from dagsim.systems.policy_spec import split_policies

    if text is not None and len(names := split_policies([text])) > 1:
        refuse_several(ctx, names)
    return text


Algo = Annotated[
    str | None,
    typer.Option(
        "--policy",
        "-a",
        metavar="NAME",
        callback=_one_scheduler,
        help="Scheduler: name, name\\[param=value] or module:attr.",
    ),
]
ConfigFile = Annotated[
    str | None,
    _experiment(
        "--config",
        "-c",
        metavar="YAML",
        help="A configuration file, a run folder, or a name from `dagsim list configs`.",
    ),
]
Settings = Annotated[
    list[str] | None,
    _experiment("--set", "-s", metavar="KEY=VALUE", help="Change one key of the configuration (repeatable)."),
]
WorkloadName = Annotated[
    str | None,
    _experiment("--workload", "-w", metavar="NAME", help="Jobs: a name from `dagsim list workloads`, or a file."),
]
SystemName = Annotated[
    str | None,
    _experiment(
        "--system",
        metavar="NAME",
        help=("Kind of system to simulate, from dagsim list systems (default: as configured)."),
    ),
]
Seeds = Annotated[
    int | None,
    _experiment(min=1, help="Number of seeds. Each seed is one run with its own workload (default: as configured)."),
]
Seed = Annotated[
    int | None, _experiment(min=0, help="First seed (default: as configured). The seeds determine all random numbers.")
]
Within = Annotated[
    float | None,
    _experiment(
        "--precision",
        metavar="2%",
        parser=fraction,
        help=(
            "Keep adding seeds until the 95% confidence intervals of the ratios extend at most this far to either "
            "side. 2% may be given as 2%, 2 or 0.02."
        ),
    ),
]
Out = Annotated[Path, _output("--out", "-o", help="Folder in which the run folder is created.")]
OutFile = Annotated[Path | None, _output("--out", "-o", metavar="FILE", help="The file to write.")]
Plots = Annotated[
    bool | None,
    _output(
        "--plots/--no-plots",
        help=(
            "Draw the first run like dagsim plot, and store the plots in the run folder (default: only if the "
            "output is a terminal)."
        ),
    ),
]
Json = Annotated[bool, _output("--json", help="Print one JSON object instead of a table.")]
Quiet = Annotated[bool, _output("--quiet", "-q", help="Print only errors.")]
Workers = Annotated[
    int | None, _output(min=1, help="Number of processes (default: one per core). It does not affect the results.")
]
Name = Annotated[str | None, _output(metavar="NAME", help="Name of the run, used in tables and for its folder.")]
On = Annotated[
    str,
    _output(
        "--executor",
        metavar="WHERE",
        help=(
            "Where to run the simulations: local, local:N (N processes), ray, ray://HOST:PORT or slurm (dagsim list "
            "executors)."
        ),
    ),
]
Resume = Annotated[Path | None, _output(metavar="RUN", help="Continue an interrupted run with its own configuration.")]
Wide = Annotated[bool, _output("--wide", help="Print every column, even if the table is wider than 80 characters.")]
TableLook = Annotated[TableFormat, _output("--table", help="Print tables as text, Markdown or LaTeX.")]


TraceFormat = Annotated[
    str | None,
    _of_trace(
        "--format",
        metavar="NAME",
        help="Format of the trace, from dagsim list readers (default: detected automatically).",
    ),
]
TraceMap = Annotated[
    str | None,
    _of_trace(
        "--map", metavar="OURS=THEIRS,...", help="Which columns of a CSV or JSON Lines file contain dagsim's fields."
    ),
]


def page_name(path: Path | None) -> Path | None:
    """Return the file to which a command writes a page, after checking the end of its name.

    Raises:
        BadParameter: The name does not end in ``.html``.
    """
    if path is not None and path.suffix not in (".html", ".htm"):
        raise typer.BadParameter(f"{path}: the name of a page must end in .html")
    return path


def one_output(argument: Path | None, option: Path | None) -> Path:
    """Return the output file, which is given either as the last argument or as the value of ``--out``.

    Raises:
        BadParameter: Neither or both are given.
    """
    path = argument or option
    if path is None:
        raise typer.BadParameter("give the file to write, either as OUT or with --out FILE", param_hint="'OUT'")
    if argument and option:
        raise typer.BadParameter(f"give one file to write, got OUT {argument} and --out {option}", param_hint="'OUT'")
    return path


class WindowCount(NamedTuple):
    """The number of windows to take from a trace, and the number of jobs in each. Longer windows
    improve the results more than additional windows.
    """

    windows: int
    jobs: int = 1000

    @classmethod
    def parse(cls, text: str) -> WindowCount:
        """Parse ``30`` or ``30x1000``."""
        match = re.fullmatch(r"([1-9][0-9]*)(?:x([1-9][0-9]*))?", text.strip())
        if match is None:
            raise typer.BadParameter(f"expected a number of windows, such as 30 or 30x1000, got {text!r}")
        return cls(*(int(number) for number in match.groups() if number is not None))

    def settings(self) -> list[Setting]:
        """Return the settings that select these windows."""
        from dagsim.config.yaml import Option, Setting

        values = {"seeds": self.windows, "workload.window": self.jobs, "workload.windows": self.windows}
        source = Option.of("--windows", f"{self.windows}x{self.jobs}")
        return [Setting(source, key, value) for key, value in values.items()]


Windows = Annotated[
    WindowCount | None,
    _of_trace(
        metavar="N[xJOBS]",
        parser=WindowCount.parse,
        help="Simulate N windows of 1000 (or JOBS) jobs each. They do not overlap, and are spread over the trace.",
    ),
]

READ_KEYS = (
    "gpus_per_task", "reference_gpu", "time_scale", "floor_s", "start", "processors", "protocol", "timezone", "tenant",
    "demand", "arrival", "mig", "shards", "gpu_names", "delimiter", "columns", "count_pull", "spread", "keep_partial",
    "strict",
)  # fmt: skip
"""Keys of ``--read``. The other fields of ``TraceOptions`` have separate options."""


Strict = Annotated[
    bool,
    _of_trace(
        "--strict",
        help=(
            "Reject a log if contradictions (within the log, or between the log and the site) affect more than 1% of "
            "its jobs, GPU-hours or core-hours."
        ),
    ),
]
Read = Annotated[
    list[str] | None,
    _of_trace(
        metavar="KEY=VALUE",
        help=f"Option for the reader (repeatable): {', '.join(READ_KEYS)} (docs/reference/traces.md).",
    ),
]


def read_settings(texts: Iterable[str]) -> Iterator[Setting]:
    """Yield the settings for the values of ``--read``.

    Raises:
        BadParameter: A value has no key, or there is no such key.
    """
    from dagsim.config.yaml import Option, Setting

    for text in texts:
        from dagsim.traces import TraceOptions  # imported only here, because runs without a trace do not need it

        key, equals, value = text.partition("=")
        if not key.strip():
            raise typer.BadParameter(f"expected KEY=VALUE, got {text!r}", param_hint="'--read'")
        name = key.strip().replace("-", "_")
        if name not in {field.name for field in fields(TraceOptions)}:
            near = "; did you mean 'timezone'?" if name == "tz" else choices(name, READ_KEYS)
            raise typer.BadParameter(f"there is no key {key.strip()!r}{near}", param_hint="'--read'")
        setting = f"workload.options.{name}"
        yield Setting(Option.of("--read", text), setting, scalar(value.strip()) if equals else True)


class Experiment(NamedTuple):
    """Options that select a configuration and change it."""

    workload: WorkloadName = None
    config: ConfigFile = None
    set_: Settings = None
    system: SystemName = None
    seeds: Seeds = None
    seed: Seed = None
    precision: Within = None


_CARBON = (
    "CSV file with hourly carbon intensities in grams of CO2 per kWh (columns time,value). It adds the kg of CO2 to "
    "the table."
)
Carbon = Annotated[Path | None, typer.Option(metavar="CSV", help=_CARBON)]
# hidden from the option lists of commands that already have many options; their help describes it below the example
UnlistedCarbon = Annotated[Path | None, typer.Option("--carbon", metavar="CSV", help=_CARBON, hidden=True)]


class EnergySeries(NamedTuple):
    """Options for the hourly price and carbon intensity of energy."""

    price: Annotated[
        Path | None,
        typer.Option(
            metavar="CSV",
            help=(
                "CSV file with hourly electricity prices per kWh (columns time,value). It adds the cost of "
                "energy to the table."
            ),
            hidden=True,
        ),
    ] = None
    carbon: UnlistedCarbon = None


class Output(NamedTuple):
    """Options that determine where results are written and how they are printed."""

    out: Out = Path("results")
    plots: Plots = None
    json_: Json = False
    quiet: Quiet = False
    wide: Wide = False
    table: TableLook = TableFormat.TEXT
    resume: Resume = None
    name: Name = None
    on: On = "local"

    @property
    def watched(self) -> bool:
        """True if progress is shown."""
        return not (self.quiet or self.json_)

    def where(self) -> str:
        """Return the executor, after checking that it exists.

        Raises:
            InputError: The executor does not exist.
        """
        from dagsim.experiment.executors import executor_for

        executor_for(self.on)
        return self.on


class SweepOutput(NamedTuple):
    """Options for the output of commands that can run on other machines."""

    on: On = "local"
    name: Name = None
    out: Out = Path("results")
    json_: Json = False
    quiet: Quiet = False
    wide: Wide = False
    table: TableLook = TableFormat.TEXT

    @property
    def watched(self) -> bool:
        """True if progress is shown."""
        return not (self.quiet or self.json_)


class TraceFlags(NamedTuple):
    """Options for reading a trace, and for the cluster on which it is replayed."""

    format_: TraceFormat = None
    cluster: Annotated[
        str | None,
        _of_trace(
            metavar="trace|sized|YAML",
            help=(
                "The cluster to simulate: trace (the machines listed in the trace), sized (a cluster whose size is "
                "chosen for an offered load of 0.9) or a configuration. Default: the cluster in --config, or else "
                "trace, or else sized."
            ),
        ),
    ] = None
    load: Annotated[
        float | None,
        _of_trace(help="Offered load to which the times of arrival are scaled (default: as in the trace)."),
    ] = None
    max_jobs: Annotated[int | None, _of_trace(help="Maximum number of jobs to keep (default: all).")] = None
    map_: TraceMap = None
    read: Read = None
    from_: Annotated[
        str | None,
        _of_trace(
            "--from",
            metavar="WHEN",
            help=(
                "Start at this time in the log, with the jobs that were running and waiting then. Give a date, or "
                "the time since the first job (36h, 7d)."
            ),
        ),
    ] = None
    until: Annotated[str | None, _of_trace(metavar="WHEN", help="Leave out jobs that arrive after this time.")] = None
    strict: Strict = False

    def settings(self) -> list[Setting]:
        """Return the settings for those options that were given.

        Raises:
            BadParameter: The value of a ``--read`` option has no key, or there is no such key.
        """
        from dagsim.config.yaml import Option, Setting

        own = {
            "--load": ("options.load", self.load),
            "--max-jobs": ("options.limit", self.max_jobs),
            "--map": ("options.map", self.map_),
            "--from": ("since", self.from_),
            "--until": ("until", self.until),
        }
        settings = [
            Setting(Option.of(option, f"{value:g}" if isinstance(value, float) else value), f"workload.{key}", value)
            for option, (key, value) in own.items()
            if value is not None
        ]
        return [*settings, *read_settings(self.read or ())]


def expand_options(command: Callable[..., None], leave_out: Collection[str] = ()) -> Callable[..., None]:
    """Decorate a command so that each parameter annotated with a group of options is replaced with
    the options in that group. Options in ``leave_out`` are not added, and keep their defaults.
    """
    signature = inspect.signature(command, eval_str=True)
    groups = {
        name: parameter.annotation
        for name, parameter in signature.parameters.items()
        if _is_group(parameter.annotation)
    }
    parameters: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        if name not in groups:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        hints = get_type_hints(parameter.annotation, include_extras=True)
        for field, default in parameter.annotation._field_defaults.items():
            if field in leave_out:
                continue
            keyword = inspect.Parameter.KEYWORD_ONLY
            parameters.append(inspect.Parameter(field, keyword, default=default, annotation=hints[field]))

    def spreading(**values: Any) -> None:
        group_values = {
            name: group(**{field: values.pop(field) for field in group._fields if field not in leave_out})
            for name, group in groups.items()
        }
        command(**values, **group_values)

    spreading.__name__, spreading.__doc__, spreading.__module__ = command.__name__, command.__doc__, command.__module__
    spreading.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    spreading.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return spreading


def _is_group(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, tuple) and hasattr(annotation, "_field_defaults")
