"""Write the text and tables of a page: verdicts, results, settings, observed waits, and the results
of training runs. For a sweep, these are the best value, curves along one axis, and a heat map over
two axes.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, product
from math import isclose, isfinite, nan
from pathlib import Path
from typing import Any

import numpy as np

from dagsim.config.dumping import dump_config
from dagsim.errors import RunFolderError
from dagsim.experiment.cell_run import CellRun
from dagsim.experiment.compare import CellGroup, compared_axis, grouped_standings
from dagsim.experiment.scenario import metric_of, sample_of, workload_label
from dagsim.experiment.store import Store
from dagsim.experiment.sweep_grid import Axis, short_names
from dagsim.families.web.charts import Packer, details, element, notes, table
from dagsim.families.web.chosen import MOST_DRAWN, Chosen
from dagsim.families.web.wait_sections import Explain, worst_waits
from dagsim.metrics import glossary
from dagsim.metrics.columns import ScheduleColumns
from dagsim.metrics.standings import PolicyResult, Sample, lower_is_better, plain_mean
from dagsim.metrics.summary import JobGroup, PerJob, job_groups
from dagsim.metrics.why import SIZES
from dagsim.report.comparison import comparison_table, metric_name, sweep_table
from dagsim.report.grid import Grid, factor, interval, number, short
from dagsim.report.panels import TrainingRow, link_steps
from dagsim.report.tables import contradictions, losses, observed_table, run_notes, summary_table, workload_notes
from dagsim.systems.cluster.audit.audit import URGENT
from dagsim.systems.cluster.network.links import LinkUse, busiest
from dagsim.text import count_of

_FAR = 0.1
"""Relative difference from the log up to which a run reproduces it."""
_LENGTHS = (
    (60.0, "up to 1 min"), (600.0, "up to 10 min"), (3600.0, "up to 1 h"), (36000.0, "up to 10 h"),
    (np.inf, "over 10 h"),
)  # fmt: skip
"""Upper bound on the critical path, in seconds, and name of each class of jobs on clusters without
GPUs."""
_MOST_LINKS = 10
_GROUP_HEADS = (
    *("", "jobs", "completed", "rejected", "unfinished", "mean JCT\n(s)", "p95 JCT\n(s)"),
    *("mean wait\n(s)", "p95 wait\n(s)", "bounded\nslowdown", "GPU-hours"),
)


def verdict_sentences(chosen: Chosen) -> list[str]:
    """Return one sentence per policy: which policy is better, by how much, and how certain that is."""
    config, lines = chosen.runs[0].folder.config, chosen.lines
    metric = metric_of(config)
    if not chosen.comparable:
        policies = list(dict.fromkeys(line.policy for line in lines))
        unit = " s" if metric.startswith("jct_s") else ""
        means = [plain_mean([line for line in lines if line.policy == name], metric) for name in policies]
        return [
            f"{name}: {metric_name(metric)} {number(mean) + unit if isfinite(mean) else 'not known: unfinished jobs'}."
            for name, mean in zip(policies, means, strict=True)
        ]
    reference = next(result.policy for result in chosen.ranked if result.is_reference)
    sentences = [_sentence(result, reference, metric) for result in chosen.ranked if not result.is_reference]
    return sentences or [f"{reference}: nothing to compare it with."]


def _sentence(standing: PolicyResult, reference: str, metric: str) -> str:
    if standing.pair is None:
        return f"{standing.policy} against {reference}: {standing.words}."
    pair = standing.pair
    bounds = interval(pair.low, pair.high, factor)
    sure = f" (95% interval {bounds})" if standing.sample is not Sample.TRACE and bounds != "-" else ""
    ratio = f"{metric_name(metric)} {factor(pair.ratio)} times that of {reference}{sure}"
    return f"{standing.policy}: {ratio}: {standing.words}."


def results(chosen: Chosen) -> str:
    """Return a table that compares all policies or, if there is nothing to compare, a table for
    each policy over its seeds.
    """
    config = chosen.runs[0].folder.config
    label = workload_label(config)
    if chosen.comparable:
        return table(comparison_table(chosen.ranked, metric_of(config), workload=label, wide=True))
    parts = []
    for policy in dict.fromkeys(line.policy for line in chosen.lines):
        runs = [run for run in chosen.runs if run.line.policy == policy]
        of = runs[0].folder.config
        grid = summary_table([run.line for run in runs], workload=workload_label(of), sample=sample_of(of))
        parts.append(table(grid))
    return "".join(parts)


def settings(chosen: Chosen, folders: Iterable[Store]) -> str:
    """Return the assumptions and warnings of the trace reader, the load, and the configurations."""
    remarks: list[str] = []
    for folder in folders:
        mine = [run.line.workload for run in chosen.runs if run.folder is folder]
        if mine:
            remarks += workload_notes(
                [{"gpu_load": None, "cpu_load": None, "warning": None} | details for details in mine]
            )
    remarks += run_notes(chosen.lines)
    policies = {line.policy for line in chosen.lines}
    if len(policies) > MOST_DRAWN:
        remarks.append(f"drawn below: the first run of the first {MOST_DRAWN} of {len(policies)} policies")
    text = "".join(element("li", line) for line in dict.fromkeys((*chosen.remarks, *remarks)))
    return f"<ul>{text}</ul>{configurations(folders)}"


def configurations(folders: Iterable[Store]) -> str:
    """Return the full configuration of each folder, collapsed at first."""
    return "".join(details(f"Configuration of {folder.path.name}", dump_config(folder.config)) for folder in folders)


def observed(chosen: Chosen) -> str:
    """Return a table that compares the waits on the real cluster with the simulated waits, or an
    empty text if the trace does not state them."""
    parts = []
    for run in chosen.drawn:
        waits = run.line.workload.get("observed")
        if waits:
            parts.append(table(observed_table(run.name, waits, len(waits["by_tenant"]))))
    return "".join(parts)


def lacking(chosen: Chosen) -> list[str]:
    """Return the sentences that come first on the page. They state where logs contradict themselves
    or the site, and which jobs did not complete."""
    return [*contradictions([line.workload for line in chosen.lines]), *losses(chosen.lines)]


def reproduction(chosen: Chosen) -> list[str]:
    """Return one sentence per policy on how well its waits reproduce those in the log, overall and
    for the account that is furthest off. The result is empty if the log has no starts.
    """
    return [
        _reproduced(run.line.policy, waits)
        for run in chosen.drawn
        if (waits := run.line.workload.get("observed")) is not None
    ]


def _reproduced(policy: str, waits: Mapping[str, Any]) -> str:
    total = waits["total"]
    changes = {part: _off(total["observed_s"][part], total["simulated_s"][part]) for part in ("mean", "p95")}
    distances = [abs(change) for change in changes.values() if isfinite(change)]
    missed, both = waits.get("missed", 0), total["jobs"]
    is_near = max(distances, default=0.0) <= _FAR and missed <= URGENT * (missed + both)
    how = "reproduces the waits of the log" if is_near else "does not reproduce the log"
    parts = [f"{missed:,} of {missed + both:,} jobs that started there never start here"] if missed else []
    parts += [
        f"{part} wait {number(total['simulated_s'][part])} s, in the log {number(total['observed_s'][part])} s"
        + (f" ({change:+.0%})" if isfinite(change) else "")
        for part, change in changes.items()
    ]
    by_tenant = {
        tenant: _off(pair["observed_s"]["mean"], pair["simulated_s"]["mean"])
        for tenant, pair in waits["by_tenant"].items()
    }
    furthest = max(by_tenant, key=lambda tenant: abs(by_tenant[tenant]) if isfinite(by_tenant[tenant]) else -1.0)
    if len(by_tenant) > 1 and isfinite(by_tenant[furthest]):
        parts.append(f"furthest off in the mean: {furthest or 'jobs without an account'} ({by_tenant[furthest]:+.0%})")
    return f"{policy} {how}: {'; '.join(parts)}."


def _off(observed: float, simulated: float) -> float:
    """Return the relative difference between the waits. It is 0 if both waits are 0, and infinite
    if only the wait in the log is 0.
    """
    if observed > 0:
        return simulated / observed - 1
    return 0.0 if simulated == observed else np.inf


def run_tables(
    cols: ScheduleColumns, measure: tuple[int, int | None] | None = None, explain: Explain | None = None
) -> str:
    """Return the results of one run by tenant and by size of the measured jobs. Also return the
    jobs that waited longest, with the reasons that ``explain`` finds."""
    per_job = PerJob.of(cols)
    measured = np.zeros(len(cols.jobs), bool)
    measured[slice(*(measure or (0, None)))] = True
    counted = cols.jobs.finished & measured
    with_gpus = bool(cols.cluster.gpus)
    classes, values = (SIZES, cols.jobs.gpus) if with_gpus else (_LENGTHS, cols.jobs.ideal_s)
    by = "the most GPUs that a task of the job requests" if with_gpus else "the job's critical path"
    size = np.searchsorted([most for most, _ in classes], values).astype(float).tolist()
    sizes = {classes[int(key)][1]: group for key, group in job_groups(cols, per_job, counted, size, measured).items()}
    parts = []
    if len(set(cols.jobs.tenant)) > 1:
        tenants = job_groups(cols, per_job, counted, cols.jobs.tenant, measured)
        named = {name or "(none)": group for name, group in tenants.items()}
        parts.append(table(_group_grid("By tenant", named)))
    parts.append(table(_group_grid(f"By size: {by}", sizes)))
    parts.append(table(worst_waits(cols, explain=explain)))
    return "".join(parts)


def links(cols: ScheduleColumns, usage: Sequence[LinkUse]) -> str:
    """Return a table of the busiest links in the shared network. The result is empty if nothing was
    sent."""
    rows = []
    for use in busiest(usage, _MOST_LINKS):
        whole = use.bytes / use.link.bandwidth
        share = f"{whole / cols.horizon_s:.1%}", f"{link_steps(cols, use).max():.1%}"
        rows.append((use.link.name, short(use.link.bandwidth / 1e9), short(use.bytes / 1e9), *share))
    heads = "link", "bandwidth\n(GB/s)", "sent\n(GB)", "mean use", "highest use"
    remark = f"{sum(bool(use.traffic) for use in usage):,} of {len(usage):,} links carried traffic."
    return table(Grid("Busiest links", heads, rows, (remark,))) if rows else ""


def _group_grid(title: str, groups: Mapping[str, JobGroup]) -> Grid:
    rows = []
    for name, group in groups.items():
        counts = (group.arrived, group.completed, group.rejected, group.unfinished)
        times = (group.jct_s.mean, group.jct_s.p95, group.wait_s.mean, group.wait_s.p95, group.bounded_slowdown.mean)
        rows.append((name, *(f"{count:,}" for count in counts), *map(short, times), short(group.gpu_hours)))
    return Grid(title, _GROUP_HEADS, rows, ("Times and slowdowns are of the completed jobs.",))


def repeat(folders: Iterable[Store]) -> str:
    """Return the commands of the runs, and hashes of their inputs."""
    parts = []
    for folder in folders:
        parts.append(element("h3", folder.path.name) + _typed(_command(folder.path)))
        parts.append(notes(_hashes(folder.manifest)))
    return "".join(parts)


def _typed(text: str) -> str:
    """Format a command as it was typed in a shell."""
    return f'<pre tabindex="0">{element("code", text)}</pre>'


def _command(path: Path) -> str:
    try:
        return (path / "command.txt").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return "(command.txt is missing)"


def _hashes(manifest: Mapping[str, Any]) -> Iterator[str]:
    yield f"configuration, SHA-256: {manifest['config_sha256']}"
    if (trace := manifest.get("trace")) is not None:
        yield f"trace {trace['path']}, SHA-256: {trace['sha256']}"
    if manifest.get("git_commit"):
        yield f"dagsim, commit: {manifest['git_commit']}"
    versions = ", ".join(f"{name} {version}" for name, version in manifest.get("versions", {}).items())
    yield f"created {manifest.get('created')}; Python {manifest.get('python')}; {versions}"


_HEADS = ("policy", "mean JCT\n(s)", "ratio", "95% interval", "won", "verdict")


def is_training(folder: Path) -> bool:
    """Return True if the folder contains a training run."""
    return (folder / "progress.csv").exists()


def training_sentences(logs: Mapping[str, Sequence[TrainingRow]]) -> list[str]:
    """Return one sentence per training run: its best validation score, and the number of samples at
    that point. A second sentence points out a training run that is too short for a curve."""
    single = [run for run, rows in logs.items() if len(rows) == 1 and rows[0]["samples"]]
    return [
        *(f"{run}: {_training_sentence(rows)}." for run, rows in logs.items()),
        *(f"{run}: one iteration has no curve, so the charts show one point." for run in single),
    ]


def _training_sentence(rows: Sequence[TrainingRow]) -> str:
    scored = [(ratio, row["samples"] or 0.0) for row in rows if (ratio := row["ratio"]) is not None]
    seen = max((row["samples"] or 0.0 for row in rows), default=0.0)
    if not scored:
        return f"not validated yet; {number(seen)} samples"
    ratio, at = min(scored)
    return (
        f"best completion time on the validation seeds {factor(ratio)} times that of the "
        f"reference, after {number(at)} "
        f"of {number(seen)} samples; the test seeds decide"
    )


def report_grid(name: str, path: Path) -> Grid | None:
    """Return the table ``report.csv`` of a training run: the agent next to the heuristics, or None if
    there is no such file.

    Raises:
        RunFolderError: The file cannot be read.
    """
    if not path.exists():
        return None
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [_cells(row) for row in csv.DictReader(file)]
    except (OSError, KeyError, TypeError, ValueError, csv.Error) as error:
        raise RunFolderError(f"{path}: not the results of a training run ({error})") from None
    return Grid(f"{name}: on the test seeds", _HEADS, rows, (), (0, 5))


def _cells(row: Mapping[str, str]) -> tuple[str, ...]:
    numbers = {name: float(row[name] or "nan") for name in ("mean", "ratio", "ratio_low", "ratio_high")}
    bounds = interval(numbers["ratio_low"], numbers["ratio_high"], factor)
    won = f"{row['wins']}/{row['n']}" if row["wins"] else "-"
    return row["policy"], number(numbers["mean"]), factor(numbers["ratio"]), bounds, won, row["verdict"]


class SweepView:
    """Text and charts for the finished cells of a sweep."""

    def __init__(self, folder: Store) -> None:
        self.folder = folder.as_grid()
        self.lines = [line for line in self.folder.cells() if _in_grid(line, self.folder.sweep.axes)]
        self._sample = sample_of(folder.config)
        self._metric = self.folder.sweep.metrics[0]

    def verdict(self) -> list[str]:
        """Return sentences about the best value on the compared axis, the points at which it is
        best, and the progress of the sweep."""
        axis = compared_axis(self.folder.sweep.axes)
        best = [names for group in self._groups() if (names := self._best(group))]
        progress = [f"{len(self.lines):,} of {count_of(self._planned(), 'cell')} are finished."]
        if not best:
            return progress
        counts = Counter(name for names in best for name in names)
        most = max(counts.values())
        first, *rest = [label for label in axis.labels if counts[label] == most]
        how = "lowest" if lower_is_better(self._metric) else "highest"
        where = f"at {most:,} of {len(best):,} combinations" if len(best) > 1 else "on average"
        what = short_names([axis.key])[axis.key]
        more = f" and {rest[0] if len(rest) == 1 else f'{len(rest):,} more'} each have" if rest else " has"
        name = first if what == "policy" else f"{what} {first}"
        return [f"{name}{more} the {how} {metric_name(self._metric)} {where}.", *progress]

    def table(self) -> str:
        """Return a table with a row for each point of the grid, compared within its group."""
        sweep, config = self.folder.sweep, self.folder.config
        return table(
            sweep_table(
                self._groups(),
                sweep.axes,
                sweep.metrics,
                name=sweep.name,
                workload=workload_label(config),
                sample=self._sample,
                wide=True,
            )
        )

    def facts(self, packer: Packer) -> dict[str, Any]:
        """Return the axes and, for each metric, its mean, minimum and maximum over seeds at each
        point of the grid.

        Points are in the order of the grid, with the last axis changing fastest. A point without a
        finished run is NaN.
        """
        axes, units = self.folder.sweep.axes, {term.name: term.unit for term in glossary()}
        names = short_names([axis.key for axis in axes])
        at: dict[tuple[str, ...], list[CellRun]] = {}
        for line in self.lines:
            at.setdefault(tuple(line.at[axis.key] for axis in axes), []).append(line)
        points = [at.get(labels, []) for labels in product(*(axis.labels for axis in axes))]
        return {
            "axes": [{"name": names[axis.key], "labels": list(axis.labels), "values": _numbers(axis)} for axis in axes],
            "compared": axes.index(compared_axis(axes)),
            "metrics": [
                {"name": metric_name(metric), "unit": units.get(metric) or "", **_spread(points, metric, packer)}
                for metric in self.folder.sweep.metrics
            ],
        }

    def _groups(self) -> list[CellGroup]:
        return grouped_standings(self.lines, self.folder.sweep.axes, self._metric, self._sample)

    def _best(self, group: CellGroup) -> list[str]:
        """Return the values that share the best result in the group."""
        scores = {name: values.get(self._metric, nan) for name, values in group.metrics.items()}
        score_of = {name: value for name, value in scores.items() if isfinite(value)}
        best = (min if lower_is_better(self._metric) else max)(score_of.values(), default=nan)
        return [name for name, value in score_of.items() if isclose(value, best)]

    def _planned(self) -> int:
        return int(self.folder.manifest["plan"]["sweep"].get("cells", len(self.lines)))


def _in_grid(line: CellRun, axes: Sequence[Axis]) -> bool:
    return all(line.at.get(axis.key) in axis.labels for axis in axes)


def _numbers(axis: Axis) -> list[float] | None:
    """Return the values of the axis if they are numbers in ascending order. Otherwise, return None."""
    values = [value for value in axis.values if isinstance(value, int | float) and not isinstance(value, bool)]
    rising = all(low < high for low, high in pairwise(values))
    return [float(value) for value in values] if len(values) == len(axis.values) and rising else None


def _spread(points: Sequence[Sequence[CellRun]], metric: str, packer: Packer) -> dict[str, int]:
    values = [[_value(line, metric) for line in lines] or [nan] for lines in points]
    folds = {
        "mean": [float(np.mean(samples)) for samples in values],
        "low": [min(samples) for samples in values],
        "high": [max(samples) for samples in values],
    }
    return {name: packer.add(fold, "f8") for name, fold in folds.items()}


def _value(line: CellRun, metric: str) -> float:
    value = line.metrics.get(metric)
    return nan if value is None or isinstance(value, str) else float(value)
