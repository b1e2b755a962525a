"""The commands ``dagsim whatif``, ``plan`` and ``calibrate``. They estimate the effect of other
machines, how many machines are enough, and the hidden rules of a site."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from dagsim.cli.app import app, say
from dagsim.cli.configuring import audited, checked, experiment, trace_at, with_own_site, with_series
from dagsim.cli.options import (
    Algo,
    Carbon,
    ConfigFile,
    Experiment,
    Json,
    Quiet,
    Settings,
    SweepOutput,
    TraceFlags,
    UnlistedCarbon,
    expand_options,
)
from dagsim.cli.sweep import swept
from dagsim.families.capacity import services
from dagsim.text import count_of

if TYPE_CHECKING:
    from dagsim.config.schema import Config
    from dagsim.families.capacity.size_search import Size, SizePlan
    from dagsim.families.capacity.trials import Fit, Trial
    from dagsim.families.capacity.whatif import WhatIf
    from dagsim.report.answer import Recommendation
    from dagsim.systems.cluster.audit.audit import Audit
    from dagsim.workload.load import Load

TheLog = Annotated[Path, typer.Option("--trace", "-t", help="The log of the cluster.")]
_PRICES = (
    "Prices per GPU hour, such as H200=3.5,A100-40=1.4, a YAML file with prices for renting or buying GPUs and for "
    "power, or the word none (default: list prices in US dollars)"
)
Prices_ = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PRICES",
        help=f"{_PRICES}. A CSV of hourly prices per kWh (columns time,value) adds the cost of energy (repeatable).",
    ),
]


class _Priced(NamedTuple):
    """The values of ``--price``."""

    rented: tuple[str, ...]
    file: Path | None
    """Prices for renting, buying and power, in YAML."""
    energy: Path | None
    """Hourly prices per kWh, in CSV."""

    @classmethod
    def of(cls, texts: Sequence[str] | None) -> _Priced:
        """Split the values into prices and files.

        Raises:
            BadParameter: There is more than one file of a kind.
        """
        from dagsim.metrics.tariff import is_series

        series = [text for text in texts or () if is_series(Path(text))]
        others = [text for text in texts or () if text not in series]
        files = [text for text in others if "=" not in text and text != "none"]
        for text in files:
            if "." not in text and "/" not in text and not Path(text).exists():
                raise typer.BadParameter(
                    f"{text!r}: expected TYPE=PRICE ({text}=3.5), a file, or none", param_hint="'--price'"
                )
        for several in (series, files):
            if len(several) > 1:
                files_given = " and ".join(several)
                raise typer.BadParameter(
                    f"at most one file of each kind is allowed, got {files_given}", param_hint="'--price'"
                )
        rented = tuple([text for text in others if text not in files])
        return cls(rented, *(Path(one[0]) if one else None for one in (files, series)))


Growth = Annotated[
    str | None,
    typer.Option(
        metavar="30%", help="Growth in demand. With 30%, for example, the same jobs arrive 1.3 times as often."
    ),
]

Accept_ = Annotated[
    list[str] | None,
    typer.Option(
        metavar="A100=H200[:SPEED]",
        help=(
            "Let jobs that request the first GPU type also use the second type, at the given relative speed "
            "(repeatable). This applies to all clusters except today's."
        ),
    ),
]


@app.command()
@expand_options
def whatif(
    reading: TraceFlags,
    shown: SweepOutput,
    trace: TheLog,
    add: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GPUS",
            help="Add GPUs on new nodes (repeatable): 16xH200, 16xH200:PARTITION, or 16xH200@DATE for GPUs that come "
            "later, at a date or after a time (@14d). 16xH200,boot=300,idle=600 is a separate alternative with up to "
            "16 GPUs on demand: nodes boot for waiting jobs, which takes 300 s, and are switched off after 600 s "
            "without jobs. It can also set shutdown=, price= (per GPU hour) and trigger=pending.",
        ),
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option(metavar="GPUS", help="Remove GPUs, in whole nodes, such as 8xT4 (repeatable)."),
    ] = None,
    cloud: Annotated[
        list[str] | None, typer.Option(hidden=True, help="Earlier spelling of --add 16xH200,boot=300.")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            "-a",
            metavar="A,B",
            help="Schedulers to compare, beginning with today's (default: as configured).",
        ),
    ] = None,
    alternative: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help=(
                "A file with changed Kueue objects (YAML or JSON), such as a ClusterQueue with a different quota. "
                "Its objects replace the site's objects with the same names. Each file is one alternative "
                "(repeatable)."
            ),
        ),
    ] = None,
    growth: Growth = None,
    accept: Accept_ = None,
    price: Prices_ = None,
    carbon: Carbon = None,
    metric: Annotated[str, typer.Option(help="Metric by which the alternatives are compared.")] = "jct_s.mean",
    config: ConfigFile = None,
    set_: Settings = None,
) -> None:
    """Estimate from a log how other machines, another scheduler or other queues would change the
    waits and the cost, with intervals.

    Each alternative is simulated once, over the whole log without interruption.

    Example: dagsim whatif --trace sacct.txt --cluster cluster.yaml --add 16xH200 --policy fifo-fit,easy
    """
    from dagsim.experiment.plan import Plan
    from dagsim.families.capacity.machines import with_memberships
    from dagsim.families.capacity.trials import trials_of
    from dagsim.families.capacity.whatif import WhatIf

    policies = _names(policy)
    chosen, audit = _configured(reading, trace, config, set_, policies[:1], growth, watched=shown.watched)
    priced = _Priced.of(price)
    chosen = with_series(chosen, priced.energy, carbon)
    checked("--metric", metric, chosen)
    added = [*(add or ()), *(text if "," in text else f"{text},boot=300" for text in cloud or ())]
    changes = (added, remove or (), accept or (), priced.rented, priced.file)
    asked = WhatIf.of(with_memberships(chosen), policies, *changes, alternatives=alternative or ())
    asked.demand.check(metric)
    for note in asked.notes if shown.watched else ():
        say(note, err=True)
    folder, runs = swept(Plan.of_grid(asked.grid(trace, shown.name), "whatif"), shown)
    with folder.noting():
        trials = trials_of(folder, runs, asked.config, asked.demand)
        answer, facts, remarks = _compared(asked, trials, metric, growth, wide=shown.wide)
        _tell_answer(folder.path, answer, {"run": str(folder.path), **facts}, shown, remarks, audit)


def _compared(
    asked: WhatIf, trials: Sequence[Trial], metric: str, growth: str | None, *, wide: bool
) -> tuple[Recommendation, dict[str, Any], list[str]]:
    """Compare the alternatives. Return the answer, its facts for JSON, and remarks on the
    alternatives.
    """
    from dagsim.experiment.scenario import workload_label
    from dagsim.families.capacity.answer_tables import whatif_table
    from dagsim.families.capacity.answers import shift_facts, whatif_answer
    from dagsim.families.capacity.machines import joined
    from dagsim.families.capacity.trials import Fit
    from dagsim.families.capacity.whatif import alternatives_of, shifts_of

    choices = alternatives_of(trials, asked.clusters, asked.prices, metric)
    today = asked.config.cluster
    fit, load, begins = Fit.of(trials[0], metric), asked.demand.on(today), asked.demand.beginning
    grid = whatif_table(
        choices,
        metric,
        workload=workload_label(asked.config),
        demand=load,
        fit=fit,
        prices=asked.prices,
        begins=begins,
        wide=wide,
    )
    remarks = [*_grown(growth), *(line for section in asked.clusters.values() for line in joined(today, section))]
    facts = {"metric": metric, "prices": asked.prices.to_dict(), **_log_facts(load, fit)}
    facts["choices"] = [choice.to_dict() for choice in choices]
    facts |= {"notes": list(asked.notes)} if asked.notes else {}
    shifts = {
        (choice.cluster, choice.policy): shifts_of(choice, choices[0], asked.demand)
        for choice in (choices[1:] if asked.queues else ())
    }
    facts |= {"shifts": shift_facts(shifts)} if shifts else {}
    return whatif_answer(choices, metric, fit, grid, begins, remarks, shifts), facts, remarks


@app.command("plan")
@expand_options
def plan_capacity(
    reading: TraceFlags,
    shown: SweepOutput,
    trace: TheLog,
    target: Annotated[
        list[str],
        typer.Option(
            metavar="'wait_s.p95<4h'",
            help=(
                "Target: a metric, < or >, and a bound (repeatable). It applies to all jobs or, with a prefix such "
                "as account[NAME]. or partition[NAME]., to some jobs."
            ),
        ),
    ],
    types: Annotated[
        str | None,
        typer.Option(
            metavar="H200,A100-40",
            help="Vary only the number of nodes with these GPU types (default: vary the whole cluster).",
        ),
    ] = None,
    max_gpus: Annotated[
        int | None,
        typer.Option(min=1, help="Size of the largest cluster to try, in GPUs (default: four times today's cluster)."),
    ] = None,
    policy: Algo = None,
    growth: Growth = None,
    accept: Accept_ = None,
    price: Prices_ = None,
    carbon: UnlistedCarbon = None,
    budget: Annotated[
        float | None,
        typer.Option(min=0, help="Find the cluster with the best value of the --target metric for this monthly cost."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="File for the curve, ending in .png, .svg or .pdf (default: in the run folder)."
        ),
    ] = None,
    config: ConfigFile = None,
    set_: Settings = None,
) -> None:
    """Find the smallest cluster, or the cheapest mix of GPU types, that meets a target on a log.

    Example: dagsim plan --trace sacct.txt --cluster cluster.yaml --target "wait_s.p95<600" --types H200
    """
    from dagsim.experiment.store import Store
    from dagsim.families.capacity.answers import plan_answer
    from dagsim.families.capacity.machines import read_accept
    from dagsim.families.capacity.size_search import Targets, plan_size
    from dagsim.report.terminal import progress

    # Check the target before the trace is read, because reading may take long.
    Targets.read(target, bounded=budget is None)
    priced = _Priced.of(price)
    chosen, audit = _configured(reading, trace, config, set_, [policy] if policy else [], growth, watched=shown.watched)
    chosen = with_series(chosen, priced.energy, carbon)
    file = None if plot is None else _drawable(plot)
    planned = plan_size(
        chosen,
        target,
        (types or "").split(","),
        max_gpus,
        priced.rented,
        price_file=priced.file,
        budget=budget,
        accept=read_accept(accept or ()),
        name=shown.name,
        out=shown.out,
        on=shown.on,
        watching=progress(wanted=shown.watched, every_run=True),
        argv=["dagsim", *sys.argv[1:]],
    )
    with Store.read(planned.path).noting():
        drawn = _drawn(planned, file or planned.path / "plots" / "plan.svg")
        remarks = [*_grown(growth), f"drawn: {drawn}"]
        _tell_answer(planned.path, plan_answer(planned, _grown(growth)), _facts(planned), shown, remarks, audit)
    if planned.search.best is None:
        raise typer.Exit(1)


def _tell_answer(
    folder: Path,
    answer: Recommendation,
    facts: Mapping[str, Any],
    shown: SweepOutput,
    remarks: Iterable[str],
    audit: Audit,
) -> None:
    """Store an answer in its folder, and write the page for decision makers. Print the answer and
    the remarks, or the facts as JSON. On the terminal, contradictions in the input come first. What
    the policies knew is described before the answer if it includes hindsight, and otherwise after
    the answer.
    """
    from dagsim.experiment.store import Store
    from dagsim.families.capacity.trials import TODAY
    from dagsim.report.answer import write_answer
    from dagsim.report.tables import knowledge_of, losses
    from dagsim.report.terminal import show_grid

    store = Store.open(folder).as_grid()
    today_first = sorted(store.cells(), key=lambda run: run.at.get("cluster") != TODAY)
    lacking = losses([replace(run, policy=f"{run.at.get('cluster')}, {run.policy}") for run in today_first])
    knowledge = knowledge_of([run.workload for run in store.lines()])
    sentences = [] if knowledge is None else [str(knowledge)]
    if knowledge is not None and knowledge.is_hindsight:
        lacking = [*sentences, *lacking]
    else:
        remarks = (*sentences, *remarks)
        answer = replace(answer, assumptions=(*answer.assumptions[:2], *sentences, *answer.assumptions[2:]))
    write_answer(folder, replace(answer, sentences=(*audit.sentences(), *lacking, *answer.sentences)))
    if (write_page := services.write_page.offered()) is not None:
        page = f"page: {write_page([store], folder / 'report.html')}"
    else:
        page = f"no page is written, because the writer of pages {services.write_page.missing()}"
    if shown.json_:
        say(json.dumps({"audit": audit.to_dict(), "knowledge": " ".join(sentences), "incomplete": lacking, **facts}))
    elif not shown.quiet:
        for sentence in (*lacking, *answer.sentences):
            say(sentence)
        show_grid(answer.grid, shown.table, wide=shown.wide)
        for line in (*remarks, *audit.sentences(urgent=False), page, f"run folder: {folder}"):
            say(line)


_NO_CLUSTER = (
    "the cluster is invented (--cluster sized), so what follows about today's cluster and its cost "
    "does not describe a real cluster"
)


def _configured(
    reading: TraceFlags,
    trace: Path,
    config: str | None,
    set_: list[str] | None,
    policies: list[str],
    growth: str | None,
    *,
    watched: bool,
) -> tuple[Config, Audit]:
    """Return the configuration with its log, its cluster and the first policy. Also return the
    contradictions in the log, after printing them. If the demand grows, jobs arrive more
    frequently.

    Raises:
        InputError: An option is wrong, or the log or the cluster cannot be read.
    """
    with TemporaryDirectory() as scratch:
        what = Experiment(config=config, set_=set_)
        if reading.format_ == "kubernetes-now":
            what = with_own_site(trace, what, reading, Path(scratch), told=watched)
        chosen = experiment(
            what, reading, policies[0] if policies else None, first=trace_at(trace), watched=watched, invented=False
        )
    audit = audited(chosen, told=watched, doubts=(_NO_CLUSTER,) if reading.cluster == "sized" else ())
    if growth is None:
        return chosen, audit
    if reading.load is not None:
        raise typer.BadParameter("--growth: already scales the demand in the log, so leave out --load")
    from dagsim.families.capacity.log_demand import with_growth

    return with_growth(chosen, _percent(growth)), audit


def _percent(text: str) -> float:
    """Parse ``30%`` as 0.3."""
    match = re.fullmatch(r"\s*(-?[0-9]+(?:\.[0-9]+)?)\s*%\s*", text)
    if match is None or not -100 < float(match[1]) <= 10_000:
        raise typer.BadParameter(f"--growth {text!r}: expected a percentage above -100%, such as 30%")
    return float(match[1]) / 100


def _grown(growth: str | None) -> list[str]:
    return [] if growth is None else [f"All rows have a demand that is {growth.strip()} larger than that of the log."]


def _names(texts: list[str] | None) -> list[str]:
    from dagsim.systems.policy_spec import split_policies

    return split_policies(texts or ())


def _drawable(path: Path) -> Path:
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise typer.BadParameter(f"--plot {path}: must end in .png, .svg or .pdf")
    return path


def _drawn(planned: SizePlan, path: Path) -> Path:
    """Draw the curve and save it to a file."""
    from dagsim.experiment.scenario import workload_label
    from dagsim.families.capacity.size_plot import sizes
    from dagsim.report.plots import save

    title = f"{workload_label(planned.config)}, {planned.config.policy}"
    priced = bool(planned.prices)
    return save(sizes(planned.search, planned.today, planned.target.first, title, priced=priced), path)


def _log_facts(load: Load, fit: Fit | None) -> dict[str, Any]:
    """Return the demand of the log, and how well today's simulation reproduces it, for JSON."""
    parts = [asdict(part) for part in load.by_types]
    return {"load": load.offered, "demand": parts, "fit": None if fit is None else fit.to_dict()}


def _facts(planned: SizePlan) -> dict[str, Any]:
    """Return the answer as plain values for JSON."""
    search, today, target = planned.search, planned.today, planned.target

    def size(tried: Size | None) -> dict[str, Any] | None:
        if tried is None:
            return None
        value, low, high = (number if number == number else None for number in tried.met.value[:3])
        nodes = dict(zip(search.types or ("nodes",), tried.nodes, strict=True)) if tried is not today else {}
        facts = {"value": value, "low": low, "high": high, "lost": tried.met.lost, "meets": tried.met.meets}
        facts |= {"load": tried.met.load, "keeps_up": tried.met.keeps_up}
        values = [
            {"target": str(one), "value": value, "low": low, "high": high}
            for one, period in zip(target.conditions, (tried.met.value, *tried.met.further), strict=False)
            for value, low, high in [[number if number == number else None for number in period[:3]]]
        ]
        return {"nodes": nodes, "gpus": tried.gpus, "cost": tried.cost, **tried.met.energy, **facts, "targets": values}

    return {
        "run": str(planned.path),
        "target": str(target),
        "best": size(search.best),
        "sure": search.best is not None and target.is_sure(search.best.met),
        "today": size(today),
        "tried": [size(tried) for tried in sorted(search.tried.values(), key=lambda trial: (trial.cost, trial.nodes))],
        "exhausted": search.exhausted,
        "budget": search.budget if isfinite(search.budget) else None,
        "prices": planned.prices.to_dict(),
        **_log_facts(planned.demand, planned.fit),
    }


@app.command("calibrate")
@expand_options
def calibrate_site(
    reading: TraceFlags,
    trace: Annotated[Path, typer.Option("--trace", "-t", help="The log of the site.")],
    config: ConfigFile = None,
    set_: Settings = None,
    fit: Annotated[
        float,
        typer.Option(min=0.1, max=0.9, help="Fraction of the jobs, from the beginning of the log, to use for the fit."),
    ] = 0.5,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="YAML", help="File for the fitted configuration.")
    ] = None,
    json_: Json = False,
    quiet: Quiet = False,
) -> None:
    """Estimate settings of a Slurm site that its files do not contain, from the first part of the
    site's log.

    The command tries several times for the first scheduling cycle, several rules for breaking ties,
    and limits that are missing from the files. It then prints the errors in the simulated waits on
    the rest of the log, before and after the fit.

    Example: dagsim calibrate --trace sacct.txt --config cluster.yaml -o calibrated.yaml
    """
    from dagsim.config.dumping import dump_config
    from dagsim.families.capacity.calibrate import calibrate
    from dagsim.files import write_text
    from dagsim.report.tables import fidelity_lines
    from dagsim.report.terminal import counted

    watched = not (quiet or json_)
    what = Experiment(config=config, set_=set_)
    chosen = experiment(what, reading, "slurm-multifactor", first=trace_at(trace), watched=watched, invented=False)
    audit = audited(chosen, told=watched)
    result = calibrate(chosen, fit, counted("fitting", watched, "replays", every=5))
    if out is not None:
        text = (
            f"# Fitted by dagsim calibrate on the first {result.fitted:,} of "
            f"{count_of(result.jobs, 'job')} of {trace.name}.\n"
        )
        write_text(out, text + dump_config(result.config))
    if json_:
        say(json.dumps({"audit": audit.to_dict(), **result.to_dict()}))
        return
    if quiet:
        return
    say(
        f"fitted on the first {result.fitted:,} of {count_of(result.jobs, 'job')}: "
        f"{count_of(len(result.trials), 'value')} tried"
    )
    for name, value in result.kept.items():
        say(f"  {name} = {value}")
    if not result.kept:
        say("  no value brings the simulation closer to the log")
    say(*fidelity_lines("the rest, before the fit", result.before.to_dict()))
    say(*fidelity_lines("the rest, after the fit", result.after.to_dict()))
    say(result.knowledge)
    if not result.carries_over:
        say("The fit does not carry over to the rest of the log, so do not use it.")
