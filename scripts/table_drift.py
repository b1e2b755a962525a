"""Three months of three sites whose jobs change: heuristics and an agent, fixed or adapted every Monday.

    python scripts/table_drift.py try --data DIR [--sites NAME...] [--seeds N]     # on validation seeds
    python scripts/table_drift.py report --data DIR --fresh|--again              # writes drift.csv, .md and .png
    python scripts/table_drift.py figure --data DIR                              # writes drift.png from drift.csv

A site is simulated once for each policy, for 13 weeks. Every Monday, the policy may be replaced, while the queue and
the running jobs stay. A heuristic is tuned, and the agent is trained further, on the jobs that ended in the week
before, in that same simulation. In the first week, every site runs the default heuristic, and its jobs are not counted.
Rows are added to ``drift.csv`` as simulations end, so that the same command continues where it was stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from time import process_time
from typing import Any, NamedTuple
from zlib import crc32

import command
import numpy as np
import torch
from command import markdown
from sweeps import RESULTS
from table_general import OUT

from dagsim.config.bundled import WORKLOADS
from dagsim.config.schema import load_config
from dagsim.experiment.ledger import Ledger
from dagsim.experiment.scenario import scenario_of
from dagsim.experiment.simulate import Timed, make_policy
from dagsim.experiment.tune import candidates, grid_of
from dagsim.families.learning.agents import shipped_agent
from dagsim.families.learning.training.session import train
from dagsim.files import write_text
from dagsim.metrics import Summary, summarize
from dagsim.metrics.jct import jct
from dagsim.metrics.paired import paired
from dagsim.model import Decision, Kind
from dagsim.model.streams import stream
from dagsim.seeds import VALIDATION
from dagsim.systems.cluster.api import ClusterPolicy, ClusterView
from dagsim.systems.cluster.arrivals.job_sources import StoredJobs
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.seam import Conversation
from dagsim.traces import open_trace
from dagsim.workload.array_tools import objects, renumbered
from dagsim.workload.arrays import JobArrays, Labels
from dagsim.workload.load import LoadMeter, seconds_of
from dagsim.workload.records import write_jobs
from dagsim.workload.sessions import Sessions
from dagsim.workload.sizes import MEASURED_MODELS

WEEK_S = 7 * 86_400.0
WEEKS = 13
"""The first week and the twelve that are counted."""
LOAD = 0.75
"""Mean offered load over the weeks."""
WIDEST, SHORTEST_S, LONGEST_S = 8, 300.0, 3 * 86_400.0
"""Largest number of GPUs, and fewest and most seconds on a V100; other jobs are left out."""
SEEDS = 5
DEFAULT = "eft-wait"
GRID = ("theta=0.7,0.85,1.0", "order=task,work")
TUNED = (*candidates(DEFAULT, grid_of(DEFAULT, GRID))[1:], "sjf", "fifo-fit")
"""The policies among which tuning chooses. They have no memory, so they can be replaced at any moment."""
WINDOW = 50
"""Jobs of an episode in training. In a week in which fewer than three times as many jobs have ended, nothing is
learnt."""
SEEN = {"philly": range(5), "helios": range(0), "itp": (*range(5), *range(8, WEEKS))}
"""Weeks of a site with jobs from the parts of logs on which the agent that ships with dagsim was trained."""
CONFIG = OUT / "drift.yaml"
Choose = Callable[[int, "Past"], str]
"""Returns the policy for a week, from the number of the week and the past."""


# ---- The jobs of a site


def philly(seed: int, data: Path) -> JobArrays:
    """Thirteen weeks of Philly from 25 September 2017 to Christmas."""
    jobs = _logged(data / "traces/philly/philly_pollux.csv.gz")
    chosen = np.flatnonzero((jobs.arrival_s >= 3 * WEEK_S) & (jobs.arrival_s < (3 + WEEKS) * WEEK_S))
    jobs = jobs.chosen(chosen)
    return _sampled(jobs.arriving(jobs.arrival_s - 3 * WEEK_S), seed)


def itp(seed: int, data: Path) -> JobArrays:
    """Eight weeks of ITP, and then the first five again with other jobs."""
    jobs, weeks = _logged(data / "traces/microsoft-itp-2021/raw-traces.tar.gz"), 8
    again = stream(seed, "drift/again").random(len(jobs)) < 0.5
    first = np.flatnonzero(~again & (jobs.arrival_s < weeks * WEEK_S))
    later = np.flatnonzero(again & (jobs.arrival_s < (WEEKS - weeks) * WEEK_S))
    later_jobs = jobs.chosen(later)
    parts = [jobs.chosen(first), later_jobs.arriving(later_jobs.arrival_s + weeks * WEEK_S)]
    return _sampled(JobArrays.joined(parts), seed)


def helios(seed: int, data: Path) -> JobArrays:
    """Weeks of like-helios. The shares of its kinds of jobs, and its rate, change from week to week as random walks."""
    base = WORKLOADS["like-helios"].workload
    assert isinstance(base, Sessions)
    rng, scenario = stream(seed, "drift/helios"), world()
    shares, rate, parts = np.zeros(len(base.kinds)), 0.0, []
    for week in range(WEEKS):
        shares = 0.9 * shares + rng.normal(0.0, 0.4, len(shares))
        rate = 0.8 * rate + float(rng.normal(0.0, 0.2))
        kinds = tuple(
            [replace(kind, share=kind.share * float(np.exp(by))) for kind, by in zip(base.kinds, shares, strict=True)]
        )
        rates = replace(base.rates, per_hour=6 * base.rates.per_hour * float(np.exp(rate)))
        drawn = replace(base, kinds=kinds, rates=rates, count=4000, measure=None)
        drawn = replace(drawn, load=drawn.natural_load(scenario.cluster, scenario.runtime))  # in real time
        jobs = drawn.arrays(scenario.cluster, scenario.runtime, int(rng.integers(2**31)))
        jobs = jobs.chosen(np.flatnonzero(jobs.arrival_s < WEEK_S))
        ids = objects([f"{week}-{number}" for number in range(len(jobs))])
        parts.append(replace(jobs.arriving(jobs.arrival_s + week * WEEK_S), ids=ids))
    return _sampled(JobArrays.joined(parts), seed)


SITES: Mapping[str, Callable[[int, Path], JobArrays]] = {"philly": philly, "helios": helios, "itp": itp}


@lru_cache(maxsize=2)
def _logged(path: Path) -> JobArrays:
    return JobArrays.of(list(open_trace(path).jobs()))


def _sampled(jobs: JobArrays, seed: int) -> JobArrays:
    """Keep each job with the same probability, so that the mean load is ``LOAD``, and add models and limits."""
    width = jobs.instances * np.array([kind.demand.gpus for kind in jobs.kinds])[jobs.kind]
    usual = (jobs.work >= SHORTEST_S) & (jobs.work <= LONGEST_S)
    jobs = jobs.chosen(np.flatnonzero((width <= WIDEST) & (width > 0) & usual))
    rng, scenario = stream(seed, "drift/sample"), world()
    jobs = _with_models(jobs)
    kept = rng.random(len(jobs)) < LOAD / load_of(jobs, scenario)
    return with_limits(jobs.chosen(np.flatnonzero(kept)), rng)


def _with_models(jobs: JobArrays) -> JobArrays:
    """Give each job one of the measured models, by the hash of its id."""
    models = len(MEASURED_MODELS)
    model = np.array([crc32(name.encode()) % models for name in map(str, jobs.ids.tolist())])
    kinds = tuple([kind._replace(model=name, speeds=None) for kind in jobs.kinds for name in MEASURED_MODELS])
    kind, kinds = renumbered((jobs.kind * models + model).astype(np.int32), kinds)
    return replace(jobs, kind=kind, kinds=kinds)


def with_limits(jobs: JobArrays, rng: np.random.Generator) -> JobArrays:
    """Add time limits: the true work times 1 to 20, by tenant and job, rounded up to a power of 2."""
    tenants = jobs.tenant or Labels(np.zeros(len(jobs), np.int32), ("",))
    factor = (rng.normal(1.0, 0.6, len(tenants.words))[tenants.place] + rng.normal(0.0, 0.6, len(jobs))).clip(0.0, 3.0)
    claimed = jobs.work * np.exp(np.repeat(factor, np.diff(jobs.first)))
    return replace(jobs, estimate=2.0 ** np.ceil(np.log2(np.maximum(claimed, 1e-9))))


def load_of(jobs: JobArrays, scenario: ClusterScenario) -> float:
    """Return the load that the jobs offer over all weeks."""
    meter = LoadMeter(scenario.cluster, scenario.runtime)
    meter.add_arrays(jobs, seconds_of(jobs, scenario.runtime, scenario.cluster.gpu_types))
    return meter.busy_s / (WEEKS * WEEK_S)


# ---- The past, and what is learnt from it


def world(jobs: JobArrays | None = None, *, failing: bool = True) -> ClusterScenario:
    """Return the site of ``drift.yaml`` with these jobs."""
    scenario = scenario_of(_config())
    assert isinstance(scenario, ClusterScenario)
    return replace(
        scenario,
        workload=scenario.workload if jobs is None else StoredJobs(jobs),
        failures=scenario.failures if failing else (),
    )


@lru_cache(maxsize=1)
def _config() -> Any:
    return load_config(CONFIG, ["workload.path=unused"])


class Past:
    """What has happened at a site so far, and what was spent on learning from it."""

    def __init__(self, jobs: JobArrays, seed: int, folder: Path) -> None:
        self.jobs, self.seed, self.folder = jobs, seed, folder
        self.conversation: Conversation[ClusterView, Decision] = Conversation(world(jobs).kernel(seed))
        self.chosen: list[str] = []
        """The policy of each week."""
        self.timed: list[Timed] = []
        """The same policies, with the time of their decisions."""
        self.learning_s = 0.0
        """CPU seconds that were spent on tuning and training."""
        self.agent: Path = shipped_agent("ppo", world())

    @property
    def schedule(self) -> Any:
        return self.conversation.kernel.schedule

    def ended(self, week: int) -> JobArrays:
        """Return the jobs that ended in the week before. Those that arrived earlier arrive at its beginning."""
        begin_s, rows = (week - 1) * WEEK_S, self.schedule.log.rows()
        recent = (rows["kind"] == Kind.COMPLETED) & (rows["time_s"] > begin_s) & (rows["time_s"] <= begin_s + WEEK_S)
        jobs = self.jobs.chosen(np.sort(rows["job"][recent]))
        return jobs.arriving(np.maximum(jobs.arrival_s - begin_s, 0.0))

    def play(self, choose: Choose) -> None:
        """Simulate all weeks."""
        self.conversation.follow(Weekly(partial(self._policy, choose)))

    def _policy(self, choose: Choose, week: int) -> ClusterPolicy:
        began = process_time()
        self.chosen.append(choose(week, self) if week else DEFAULT)
        self.learning_s += process_time() - began
        self.timed.append(Timed(make_policy(world(), self.chosen[-1]), self.chosen[-1]))
        return self.timed[-1]


class Weekly:
    """A policy that may be replaced every week, while the queue and the running jobs stay."""

    def __init__(self, policy_of: Callable[[int], ClusterPolicy]) -> None:
        self._policy_of, self._policy, self._ends_s, self._week = policy_of, policy_of(0), WEEK_S, 0

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        """Yield the decisions of this week's policy."""
        while view.now >= self._ends_s and self._week < WEEKS - 1:
            self._week += 1
            self._ends_s += WEEK_S
            self._policy = self._policy_of(self._week)
        yield from self._policy.decide(view) or ()


def mean_jct_s(jobs: JobArrays, policy: str) -> float:
    """Return the mean completion time of the jobs with a policy, on an empty site without failures."""
    scenario = world(jobs, failing=False)
    kernel, _ = scenario.engaged(policy, 0)
    Conversation(kernel).follow(make_policy(scenario, policy))
    return float(jct(kernel.schedule).mean())


def tuned(jobs: JobArrays, policies: Sequence[str] = TUNED) -> str:
    """Return the policy with the least mean completion time of the jobs."""
    return min(policies, key=partial(mean_jct_s, jobs)) if len(jobs) else DEFAULT


def trained(jobs: JobArrays, agent: Path, folder: Path) -> Path:
    """Train an agent further on the jobs. Of its versions, the one that is best on the last third of the jobs stays.

    A training run uses the first three fifths of a log, validates on the next fifth and keeps the last one for a
    test. Therefore the log contains all jobs, then the last third once more, and then the first third.
    """
    third = len(jobs) // 3
    if third < WINDOW:
        return agent
    parts = [jobs, jobs.between(len(jobs) - third, len(jobs)), jobs.between(0, third)]
    starts = np.cumsum([0.0, *[part.arrival_s[-1] - part.arrival_s[0] for part in parts[:-1]]])
    parts = [part.arriving(part.arrival_s - part.arrival_s[0] + at) for part, at in zip(parts, starts, strict=True)]
    joined, log = JobArrays.joined(parts), folder / "jobs.jsonl.gz"
    write_jobs(log, replace(joined, ids=objects([str(number) for number in range(len(joined))])).jobs())
    config = load_config(CONFIG, [f"workload.path={log}", f"workload.window={WINDOW}", "failures=[]"])
    return train(config, out=folder, init=agent, report=False).folder.path / "best.pt"


# ---- The ways to choose the policy of a week


def fixed(policy: str) -> Choose:
    return lambda week, past: policy


def tuned_once(week: int, past: Past) -> str:
    return tuned(past.ended(1)) if week == 1 else past.chosen[-1]


def tuned_weekly(week: int, past: Past) -> str:
    return tuned(past.ended(week))


def trained_weekly(week: int, past: Past) -> str:
    past.agent = trained(past.ended(week), past.agent, past.folder)
    return f'ppo[checkpoint="{past.agent}"]'


WAYS: Mapping[str, Choose] = {
    "default": fixed(DEFAULT),
    "tuned once": tuned_once,
    "tuned weekly": tuned_weekly,
    "agent": fixed("ppo"),
    "agent trained weekly": trained_weekly,
    "search": fixed("search"),
}
REFERENCE = "tuned once"
PAIRS = (
    *(("agent", "default"), ("agent", "tuned weekly"), ("agent trained weekly", "agent")),
    *(("search", "agent"), ("search", "tuned weekly")),
)
METRICS = {
    "mean_jct_s": "mean",
    "unseen_mean_jct_s": "mean in weeks with unseen jobs",
    "area_weighted_jct_s": "area-weighted mean",
    "p95_wait_s": "p95 wait",
}


class Row(NamedTuple):
    """Twelve weeks of a site with one way to choose policies."""

    site: str
    seed: int
    way: str
    jobs: int
    mean_jct_s: float
    area_weighted_jct_s: float
    p95_wait_s: float
    unseen_mean_jct_s: float
    """Mean completion time of the jobs from weeks that are not in ``SEEN``."""
    decisions: int
    decision_cpu_s: float
    learning_cpu_s: float
    policies: int
    """Number of different policies in the twelve weeks."""


def row_of(site: str, seed: int, way: str, data: Path) -> Row:
    """Simulate a site."""
    folder = Path(mkdtemp(prefix="drift-"))
    try:
        past = Past(_jobs(site, seed, data), seed, folder)
        past.play(WAYS[way])
        first = int(np.searchsorted(past.jobs.arrival_s, WEEK_S))
        counted: Summary = summarize(past.schedule, measured=(first, None))
        return Row(
            site=site,
            seed=seed,
            way=way,
            jobs=counted.jobs_completed,
            mean_jct_s=round(counted.jct_s.mean, 1),
            area_weighted_jct_s=round(counted.area_weighted_jct_s, 1),
            p95_wait_s=round(counted.wait_s.p95, 1),
            unseen_mean_jct_s=round(float(jct(past.schedule)[_unseen(site, past.jobs)].mean()), 1),
            decisions=sum(timed.decisions for timed in past.timed[1:]),
            decision_cpu_s=round(sum(timed.decision_s for timed in past.timed[1:]), 3),
            learning_cpu_s=round(past.learning_s, 3),
            policies=len(set(past.chosen[1:])),
        )
    finally:
        rmtree(folder)


def _unseen(site: str, jobs: JobArrays) -> np.ndarray:
    """Return for each job whether it is counted and comes from a week that is not in ``SEEN``."""
    return ~np.isin(jobs.arrival_s // WEEK_S, [0, *SEEN[site]])


@lru_cache(maxsize=1)
def _jobs(site: str, seed: int, data: Path) -> JobArrays:
    return SITES[site](seed, data)


# ---- The table


def simulated(options: command.Options, seeds: Sequence[int], path: Path, say: command.Say) -> list[Row]:
    """Return the rows of these seeds, and simulate those that are not in the file yet."""
    for way in options.ways:
        for seed in seeds:
            for site in options.sites:
                if not options.draw and (site, seed, way) not in {row[:3] for row in rows_in(path)}:
                    row = row_of(site, seed, way, options.data)
                    rows = [*rows_in(path), row]
                    command.write_rows(path, [row._asdict() for row in rows])
                    say(row)
    return [row for row in rows_in(path) if row.seed in seeds]


def rows_in(path: Path) -> list[Row]:
    """Return the rows of a file, in the order of the ways."""
    if not path.exists():
        return []
    kinds = [str, int, str, int, float, float, float, float, int, float, float, int]
    read = command.read_rows(path)
    rows = [Row(*[kind(value) for kind, value in zip(kinds, row.values(), strict=True)]) for row in read]
    return sorted(rows, key=lambda row: (list(SITES).index(row.site), list(WAYS).index(row.way), row.seed))


def report(options: command.Options, say: command.Say) -> list[Row]:
    """Write ``drift.csv`` and ``drift.md``."""
    ledger, text = Ledger(RESULTS / "seeds.yaml"), "python scripts/table_drift.py report"
    spending = ledger.spend("agents/drift", options.seeds, text, fresh=options.fresh, again=options.again)
    rows = simulated(options, spending.seeds, OUT / "drift.csv", say)
    ledger.close(spending)
    how = "geometric means of ratios by site and seed, Student's t on their logarithms"
    write_text(OUT / "drift.md", "\n".join([HEAD, *page(rows), "", spending.sentence(how)]) + "\n")
    draw(rows, OUT / "drift.png")
    return rows


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw the ratios of mean completion times with their intervals, for all sites and for each."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    at = {(row.way, row.site, row.seed): row for row in rows}
    ways = [way for way in dict.fromkeys(row.way for row in rows) if way != REFERENCE]
    figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
    places = {"all sites": tuple(SITES)} | {site: (site,) for site in SITES}
    for number, way in enumerate(ways):
        for place, sites in enumerate(places.values()):
            of = [row for row in rows if row.way == way and row.site in sites]
            if len(of) < 2 or {row.site for row in of} != set(sites):
                continue
            than = [at[REFERENCE, *row[:2]] for row in of]
            pair = paired([row.mean_jct_s for row in of], [row.mean_jct_s for row in than])
            x, error = (
                place + 0.15 * (number - (len(ways) - 1) / 2),
                [[pair.ratio - pair.low], [pair.high - pair.ratio]],
            )
            axes.errorbar(x, pair.ratio, error, fmt="o", ms=4, color=f"C{number}", label=None if place else way)
    axes.axhline(1.0, color="0.5", lw=0.8)
    axes.set_xticks(range(len(places)), list(places))
    axes.set_ylabel(f'mean completion time\nrelative to "{REFERENCE}"')
    axes.legend(ncols=len(ways), loc="upper center", bbox_to_anchor=(0.5, 1.2), frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)
    plt.close(figure)


HEAD = f"""# Three sites whose jobs change from week to week

Twelve weeks of three sites with 8 A100, 8 V100 and 16 T4 GPUs, each simulated once with each policy. Ratios are to a
heuristic that is tuned once, on the first week (`{REFERENCE}`). *Area-weighted* is the mean of the completion times,
weighted by the jobs' GPU-seconds on their fastest GPU type, so that a large job counts as much as the GPU time that it
takes. *p95 wait* is the 95th percentile of the wait. *Weeks with unseen jobs* have no jobs from the parts of logs
on which the agent that ships with dagsim was trained. *Policies* is the number of policies in the twelve weeks.
[The guide](../../docs/drift.md) says how the sites were made. All rows are in [drift.csv](drift.csv).
"""


def page(rows: Sequence[Row]) -> list[str]:
    """The tables of ``drift.md``. Ways that did not run at all sites are only in the tables of sites."""
    places = {way: {row.site for row in rows if row.way == way} for way in WAYS}
    whole = [row for row in rows if len(places[row.way]) == len(set().union(*places.values()))]
    lines = ["## All sites", "", *_table(whole, list(SITES)), "", "## Pairs, all sites", "", *_pairs(whole), ""]
    for site in dict.fromkeys(row.site for row in rows):
        of = [row for row in rows if row.site == site and row.way == REFERENCE]
        means = ", ".join(
            f"{name} {np.mean([getattr(row, metric) for row in of]):,.0f} s" for metric, name in METRICS.items()
        )
        jobs = round(float(np.mean([row.jobs for row in of])))
        lines += [f"## {site}", "", f"{jobs:,} jobs; `{REFERENCE}`: {means}.", "", *_table(rows, [site]), ""]
        if some := [row for row in rows if row.site == site and row not in whole]:
            lines += [*_pairs([row for row in rows if row.site == site], {row.way for row in some}), ""]
    return lines[:-1]


def _pairs(rows: Sequence[Row], ways: Collection[str] = tuple(WAYS)) -> Iterator[str]:
    at = {(row.way, row.site, row.seed): row for row in rows}
    lines = []
    for way, other in PAIRS:
        of = [row for row in rows if row.way == way and (other, *row[:2]) in at]
        if of and {way, other} & set(ways):
            than = [at[other, *row[:2]] for row in of]
            lines.append((way, other, len(of), *[ratio_of(of, than, metric) for metric in METRICS]))
    return markdown(("policy", "compared with", "n", *METRICS.values()), lines, (2,))


def _table(rows: Sequence[Row], sites: Sequence[str]) -> Iterator[str]:
    at = {(row.way, row.site, row.seed): row for row in rows if row.site in sites}
    lines = []
    for way in dict.fromkeys(way for way, *_ in at):
        of = [row for (name, *_), row in at.items() if name == way]
        us = 1e6 * sum(row.decision_cpu_s for row in of) / sum(row.decisions for row in of)
        week_s = sum(row.learning_cpu_s for row in of) / len(of) / (WEEKS - 1)
        changes = "" if way.startswith(("agent", "search")) else f"{np.mean([row.policies for row in of]):.1f}"
        ratios = [ratio_of(of, [at[REFERENCE, *row[:2]] for row in of], metric) for metric in METRICS]
        lines.append((way, len(of), *ratios, f"{us:,.0f}", f"{week_s:.1f}", changes))
    heads = ("policy", "n", *METRICS.values(), "us per decision", "learning, CPU s a week", "policies")
    return markdown(heads, lines, (1, 6, 7, 8))


def ratio_of(rows: Sequence[Row], reference: Sequence[Row], metric: str) -> str:
    """Format the geometric mean of a metric's ratios, with its interval."""
    if rows[0].way == reference[0].way:
        return "1"
    own, than = ([getattr(row, metric) for row in of] for of in (rows, reference))
    pair = paired(own, than)
    return f"{pair.ratio:.3f} ({pair.low:.3f} to {pair.high:.3f})"


def _work(options: command.Options, say: command.Say) -> Any:
    torch.set_num_threads(1)
    if options.what == "report":
        rows = report(options, say)
    elif options.what == "figure":
        rows = rows_in(OUT / "drift.csv")
        draw(rows, OUT / "drift.png")
    else:
        rows = simulated(options, VALIDATION[: options.seeds], RESULTS / "table-drift" / "try.csv", say)
        for line in page(rows):
            say(line)
    return [row._asdict() for row in rows]


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("what", choices=("try", "report", "figure"))
    parser.add_argument("--data", type=Path, required=True, help="folder with the traces (DAGSIM_DATA)")
    parser.add_argument("--sites", nargs="*", choices=SITES, default=list(SITES))
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=list(WAYS))
    parser.add_argument("--seeds", type=int, default=SEEDS, help="number of seeds")
    parser.add_argument("--again", action="store_true", help="the same report seeds again")
    parser.add_argument("--fresh", action="store_true", help="new report seeds")
    parser.add_argument("--draw", action="store_true", help="simulate nothing, and use the rows that are there")
    return command.run(parser, _work)


if __name__ == "__main__":
    raise SystemExit(main())
