"""How often dagsim's intervals hold: coverage and false verdicts on populations of per-seed values.

    python scripts/validate_intervals.py --data DIR [--draws N] [--seed S] [--sizes N,N] [--json]
    python scripts/validate_intervals.py --simulate DIR [--seeds 20000]

Every ``*.npz`` in ``DIR`` is a population: ``mean`` (seeds, policies), ``pol`` their names, ``seeds``. Samples of n
seeds are drawn from it with replacement, for every pair of policies; an interval covers if it holds the ratio of the
whole population. With ``--json``, per population and n:

    coverage, worst    of the interval of ``method``: mean over the pairs, and the worst pair
    false_verdicts     how often two equal policies get p < .05 (t on the logs): mean over the pairs

``method`` is Student's t on the logs of the ratios; for windows of a trace (``seeds`` are places in it) the median's
order-statistic interval from n = 5 on. Equal policies are the two of a pair swapped by a coin per seed, their logs
centred before; not centred where the population is two columns without names, which are equal by construction (the
coin takes out what chance left between them). False verdicts are those of the test, also at n = 3, where dagsim itself
gives no verdict.

    approximate        the share of the intervals that dagsim marks as approximate
    plain, plain_worst the coverage of those that it does not mark: over all pairs, and of the worst pair of which
                       5 % or more are not marked
    own, own_worst     the coverage of the interval of a policy's own mean: over the policies, and of the worst
    own_approximate    true if dagsim marks that interval as approximate

``--simulate`` makes the population ``pareto``: four policies on 4 T4 GPUs, 60 jobs of a Poisson process with
Pareto(1.1) work, load 0.7. An array ``largest_job`` (seeds, policies) is the share of the job-seconds in the largest
job, as dagsim estimates it; populations without it are judged by the ratios alone.

Without ``--json`` all intervals are shown, and the gates. The first is that intervals without the mark cover .93, of
every pair of every population, less two standard errors of the draws. The others were set at what was first measured,
less .006. Exits with 1 if one is missed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, NamedTuple

import command
import numpy as np
from numpy.typing import NDArray

from dagsim.errors import InputError
from dagsim.metrics.intervals import (
    ENOUGH_FOR_T,
    Bounds,
    geometric_mean,
    largest_job,
    median,
    ratio_of_means,
    samples_needed,
    seeds_for_interval,
    seeds_for_mean,
    t_of_mean,
)
from dagsim.metrics.jct import jct
from dagsim.metrics.paired import Ending, Precision, holm, paired
from dagsim.metrics.student import two_sided_p
from dagsim.model import Cluster
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.seam import drive
from dagsim.workload import Synthetic
from dagsim.workload.arrivals import Poisson
from dagsim.workload.distributions import Constant, Pareto
from dagsim.workload.sizes import Independent

SIZES = (3, 5, 10, 20, 30, 100, 200, 300)
HELD = 0.93
"""Least coverage of an interval that is printed without "approximate"."""
FALSE_ALARMS = 0.1
"""Largest share of intervals of a well-behaved population that may be marked approximate."""
ROWS = 54
"""Comparisons of a table with a reference and every one of the 55 policies."""

FEWEST_PLAIN = 0.05
"""Minimum share of intervals without the mark to report their coverage."""
PARETO_POLICIES = ("fifo", "sjf", "2d-las", "round-robin")

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Population:
    """Values of several policies on many seeds."""

    name: str
    kind: Literal["drawn", "tails", "windows", "equal"]
    values: Floats  # (seeds, policies)
    policies: tuple[str, ...]
    largest_job: Floats  # (seeds, policies)

    @property
    def unit(self) -> str:
        """The unit of a sample: ``seed``, or ``window`` of a trace."""
        return "window" if self.kind == "windows" else "seed"

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Columns of every pair of policies."""
        return list(combinations(range(len(self.policies)), 2))

    def pair_name(self, pair: tuple[int, int]) -> str:
        """Names of the two policies."""
        return " / ".join(self.policies[column] for column in pair)


def populations(folder: Path, metric: str) -> list[Population]:
    """Return every population in the folder by name."""
    loaded = [_population(path, metric) for path in sorted(folder.glob("*.npz"))]
    if not loaded:
        raise InputError(f"{folder}: there is no *.npz with a population in it")
    return [population for population in loaded if population is not None]


def _population(path: Path, metric: str) -> Population | None:
    with np.load(path) as arrays:
        if metric not in arrays:
            if metric == "mean":
                raise InputError(f"{path}: there is no array 'mean' (seeds, policies)")
            return None
        values = np.asarray(arrays[metric], float)
        names = tuple(map(str, arrays["pol"])) if "pol" in arrays else ()
        largest = np.asarray(arrays["largest_job"]) if "largest_job" in arrays else np.zeros(values.shape)
        seeds = np.asarray(arrays["seeds"]) if "seeds" in arrays else np.arange(len(values))
    if values.ndim != 2 or values.shape[1] < 2 or not np.all(np.isfinite(values) & (values > 0)):
        raise InputError(f"{path}: {metric} must be positive, (seeds, policies), got shape {values.shape}")
    if not names and values.shape[1] == 2:
        return Population(path.stem, "equal", values, ("one", "other"), largest)
    apart = len(seeds) > 1 and int(np.diff(seeds).min()) > 1  # jobs from one window's start to the next
    names = names or tuple(f"policy {column}" for column in range(values.shape[1]))
    drawn: Literal["drawn", "tails"] = "tails" if largest.all() else "drawn"
    return Population(path.stem, "windows" if apart or "window" in path.stem else drawn, values, names, largest)


def coverage(population: Population, n: int, draws: int, seed: int) -> dict[str, Any]:
    """For each method, the share of ``draws`` samples of ``n`` that contain the truth (mean, worst
    pair).

    Also the share of false verdicts.
    """
    rng = np.random.default_rng([seed, n, *population.name.encode()])
    covers: dict[str, list[float]] = {"t_log": [], "median": [], "ratio_of_means": []}
    false, marks, plain = [], [], []
    for one, other in population.pairs:
        a, b = population.values[:, one], population.values[:, other]
        logs = np.log(a) - np.log(b)
        pick = rng.integers(0, len(a), (draws, n), np.int32)
        covers["t_log"].append(_held(geometric_mean(logs[pick]), np.exp(logs.mean())))
        marked = _marked(population, (one, other), logs, pick)
        marks.append(float(marked.mean()))
        if marks[-1] <= 1 - FEWEST_PLAIN:
            plain.append(_holds(geometric_mean(logs[pick]), np.exp(logs.mean()))[~marked])
        covers["median"].append(_held(median((a / b)[pick]), np.median(a / b)))
        covers["ratio_of_means"].append(_held(ratio_of_means(a[pick], b[pick]), a.mean() / b.mean()))
        centre = 0.0 if population.kind == "equal" else logs.mean()
        null = (logs - centre)[pick] * rng.choice([-1.0, 1.0], pick.shape)
        false.append(float(np.mean(two_sided_p(t_of_mean(null), n - 1) < 0.05)))
    summaries = {name: _summary(population, shares) for name, shares in covers.items() if not np.isnan(shares).any()}
    method = "median" if population.kind == "windows" and "median" in summaries else "t_log"
    return {
        **summaries[method],
        "false_verdicts": float(np.mean(false)),
        "worst_false_verdicts": max(false),
        "method": method,
        "approximate": float(np.mean(marks)),
        **({"plain": float(np.concatenate(plain).mean()), "plain_worst": min(map(_mean, plain))} if plain else {}),
        **_own_mean(population, n, draws, rng),
        **summaries,
    }


def _marked(population: Population, pair: tuple[int, int], logs: Floats, pick: NDArray[np.int32]) -> NDArray[np.bool_]:
    """True for samples whose interval dagsim marks as approximate."""
    shares = population.largest_job[pick][..., list(pair)]
    largest = np.exp(np.log(shares).mean(axis=1)).max(axis=-1) if population.kind == "tails" else 0.0
    few_windows = samples_needed(0, pick.shape[1], population.unit) > 0
    return (seeds_for_interval(logs[pick], largest) > 0) | few_windows


def _mean(held: NDArray[np.bool_]) -> float:
    return float(held.mean())


def _own_mean(population: Population, n: int, draws: int, rng: np.random.Generator) -> dict[str, Any]:
    """Coverage of the interval of each policy's arithmetic mean, and whether dagsim marks it."""
    shares, marked = [], False
    for values, largest in zip(population.values.T, population.largest_job.T, strict=True):
        sample = values[rng.integers(0, len(values), (draws, n), np.int32)]
        shares.append(_held(ratio_of_means(sample, np.ones(n)), values.mean()))
        share = float(np.exp(np.log(largest).mean())) if population.kind == "tails" else 0.0
        marked = marked or samples_needed(seeds_for_mean(n, share), n, population.unit) > 0
    return {"own": float(np.mean(shares)), "own_worst": min(shares), "own_approximate": marked}


def _held(bounds: Bounds, truth: float) -> float:
    """Share of intervals that contain the truth; NaN if the method has no interval."""
    return float("nan") if np.isnan(bounds.low).all() else float(np.mean(_holds(bounds, truth)))


def _holds(bounds: Bounds, truth: float) -> NDArray[np.bool_]:
    """True for intervals that contain the truth. A sample of equal values is a point, right or
    wrong.
    """
    low = np.where(np.isnan(bounds.low), bounds.value, bounds.low) * (1 - 1e-12)
    high = np.where(np.isnan(bounds.high), bounds.value, bounds.high) * (1 + 1e-12)
    held: NDArray[np.bool_] = (low <= truth) & (truth <= high)
    return held


def simulated(seeds: int) -> dict[str, NDArray[Any]]:
    """Simulate the population ``pareto``. Return the arrays of its file."""
    sizes = Independent(work=Pareto(100.0, 1.1), instances=Constant(1.0), models=())
    jobs = Synthetic(60, 0.7, arrivals=Poisson(), sizes=sizes)
    scenario = ClusterScenario(Cluster.of({"T4": 4}), jobs, runtime=Recorded())
    values, largest = np.empty((2, seeds, len(PARETO_POLICIES)))
    for seed in range(seeds):
        for place, policy in enumerate(PARETO_POLICIES):
            kernel = scenario.engaged(policy, seed).kernel
            jct_s = jct(drive(kernel, scenario.policies.create(policy)))
            values[seed, place] = jct_s.mean()
            figures = np.array([jct_s.mean(), *np.percentile(jct_s, [95, 99]), len(jct_s)])
            largest[seed, place] = largest_job(*figures)
    return {"mean": values, "largest_job": largest, "seeds": np.arange(seeds), "pol": np.array(PARETO_POLICIES)}


def _summary(population: Population, shares: list[float]) -> dict[str, Any]:
    worst = int(np.argmin(shares))
    return {
        "coverage": float(np.mean(shares)),
        "worst": shares[worst],
        "worst_pair": population.pair_name(population.pairs[worst]),
    }


class Gate(NamedTuple):
    """A figure that must lie between two bounds."""

    name: str
    got: float
    low: float = 0.0
    high: float = 1.0

    @property
    def holds(self) -> bool:
        """True if the figure lies between the bounds."""
        return self.low <= self.got <= self.high


def coverage_gates(population: Population, coverage_by_n: dict[int, dict[str, Any]], draws: int) -> Iterator[Gate]:
    """The gates on coverage and false verdicts, by the kind of population."""
    least = HELD - 2 * (HELD * (1 - HELD) / draws) ** 0.5
    for n, row in coverage_by_n.items():
        where = f"{population.name}, n = {n}"
        if "plain" in row:
            yield Gate(f"{where}: t on logs, not marked approximate", row["plain"], HELD)
            yield Gate(f"{where}: t on logs, not marked approximate, worst pair", row["plain_worst"], least)
        if not row["own_approximate"]:
            yield Gate(f"{where}: a policy's own mean, not marked approximate", row["own"], HELD)
        match population.kind:
            case "tails":
                if n >= 5:
                    yield Gate(f"{where}: median, worst pair", row["median"]["worst"], 0.93)
            case "drawn":
                if n >= ENOUGH_FOR_T:
                    yield Gate(f"{where}: marked approximate", row["approximate"], 0, FALSE_ALARMS)
                worst, mean = {3: (0.905, 0.937), 5: (0.913, 0.938)}.get(n, (0.925, 0.94))
                yield Gate(f"{where}: t on logs, worst pair", row["t_log"]["worst"], worst)
                yield Gate(f"{where}: t on logs, mean", row["t_log"]["coverage"], mean)
            case "windows":
                if n >= 5:
                    yield Gate(f"{where}: median, worst pair", row["median"]["worst"], 0.93)
                if n == 20:
                    yield Gate(f"{where}: t on logs, mean", row["t_log"]["coverage"], 0.918)
                if n == 100:
                    yield Gate(f"{where}: t on logs, worst pair", row["t_log"]["worst"], 0.924)
            case "equal":
                if n >= ENOUGH_FOR_T:
                    yield Gate(f"{where}: marked approximate", row["approximate"], 0, FALSE_ALARMS)
                if n <= 30:
                    yield Gate(f"{where}: told apart", row["false_verdicts"], 0.035, 0.065)


def rule_gates(population: Population, draws: int, seed: int) -> Iterator[Gate]:
    """The gates on Holm's table, on swapping the two, and on adding seeds until they are enough.

    Tables from 5 seeds on: with fewer dagsim gives no verdict.
    """
    if population.kind != "drawn":
        return
    for n in (5, 10, 20, 30):
        share = table_errors(population, n, max(draws // 5, 10), seed)
        yield Gate(f"{population.name}, n = {n}: tables of {ROWS} equal rows with an error, Holm", share, 0, 0.05)
    yield Gate(f"{population.name}: swapping the two, largest error", swap_error(population), 0, 1e-12)
    held, ends = sequential(population, max(draws // 20, 10), seed)
    worst = min(held, key=lambda pair: held[pair])
    yield Gate(f"{population.name}: --precision 2 %, worst pair ({worst}, {ends[worst]:.0f} seeds)", held[worst], 0.915)


def table_errors(
    population: Population,
    n: int,
    tables: int,
    seed: int,
    adjusted: Callable[[Sequence[float]], Sequence[float]] = holm,
) -> float:
    """Share of tables of equal rows in which ``adjusted`` p-values call one different.

    The rows are every pair of policies, centred, and mixtures of two of these, which are correlated
    with them.
    """
    rng = np.random.default_rng([seed, n, *population.name.encode(), 1])
    logs = np.log(population.values)
    pairs = np.stack([logs[:, one] - logs[:, other] for one, other in population.pairs], axis=1)
    pairs = (pairs - pairs.mean(axis=0)) / pairs.std(axis=0)
    more = max(ROWS - pairs.shape[1], 0)
    one, other = rng.integers(0, pairs.shape[1], (2, more))
    share = rng.uniform(0.2, 0.8, more)
    rows = np.concatenate([pairs, share * pairs[:, one] + (1 - share) * pairs[:, other]], axis=1)
    pick = rng.integers(0, len(rows), (tables, n))
    p = two_sided_p(t_of_mean(np.swapaxes(rows[pick], 1, 2)), n - 1)  # (tables, rows)
    return float(np.mean([min(adjusted(table.tolist())) < 0.05 for table in p]))


def swap_error(population: Population) -> float:
    """The largest deviation from 1 of ratio x ratio and bound x bound when the two change places."""
    largest = 0.0
    for one, other in population.pairs:
        a, b = population.values[:, one], population.values[:, other]
        here, there = paired(a, b), paired(b, a)
        products = (
            here.ratio * there.ratio,
            here.low * there.high,
            here.median_low * there.median_high,
            here.of_means_low * there.of_means_high,
        )
        largest = max(largest, *(abs(product - 1) for product in products))
    return largest


def sequential(population: Population, sequences: int, seed: int) -> tuple[dict[str, float], dict[str, float]]:
    """For each pair, the coverage of the interval at which ``--precision 2%`` ends, and the median
    number of seeds.
    """
    rule = Precision(0.02)
    held, seeds = {}, {}
    for number, pair in enumerate(population.pairs):
        rng = np.random.default_rng([seed, number, *population.name.encode(), 2])
        logs = np.log(population.values[:, pair[0]]) - np.log(population.values[:, pair[1]])
        ended = [_until_enough(rule, logs[rng.integers(0, len(logs), rule.cap)]) for _ in range(sequences)]
        inside = [abs(mean - logs.mean()) <= half_width for mean, half_width, _ in ended]
        held[population.pair_name(pair)] = float(np.mean(inside))
        seeds[population.pair_name(pair)] = float(np.median([n for _, _, n in ended]))
    return held, seeds


def _until_enough(rule: Precision, logs: Floats) -> tuple[float, float, int]:
    """Mean of the logs, half-width on the logs and seeds at the end."""
    look = rule.look(logs[: rule.start])
    while look.ending is Ending.GOES_ON:
        look = rule.look(logs[: look.n + look.more])
    return float(logs[: look.n].mean()), float(np.log1p(look.half_width)), look.n


def _work(options: command.Options, say: command.Say) -> tuple[dict[str, dict[int, dict[str, Any]]], list[Gate]]:
    if options.simulate is not None:
        np.savez_compressed(options.simulate / "pareto.npz", allow_pickle=True, **simulated(options.seeds))
        return {}, []
    studied, gates = populations(options.data, options.metric), list[Gate]()
    covered = {
        population.name: {n: coverage(population, n, options.draws, options.seed) for n in options.sizes}
        for population in studied
    }
    for population in () if options.json else studied:
        by_n = covered[population.name]
        say(f"\n{population.name}: {len(population.values)} seeds, {len(population.pairs)} pairs")
        say("\n".join(command.markdown(("n", *METHODS.values(), "told apart if equal"), _rows(by_n), range(5))))
        gates += [
            *coverage_gates(population, by_n, options.draws),
            *rule_gates(population, options.draws, options.seed),
        ]
    for gate in gates:
        bounds = f"{gate.low:g} to {gate.high:g}" if gate.high < 1 else f"at least {gate.low:g}"
        say(f"{'passed' if gate.holds else 'MISSED'}  {gate.name}: {gate.got:.3g} ({bounds})")
    say(f"{len(gates)} gates, {sum(not gate.holds for gate in gates)} missed")
    return covered, gates


METHODS = {"t_log": "t on logs [worst]", "median": "median [worst]", "ratio_of_means": "ratio of means [worst]"}


def _rows(by_n: dict[int, dict[str, Any]]) -> Iterator[list[str]]:
    for n, row in by_n.items():
        shares = (row.get(method) for method in METHODS)
        cells = (f"{of['coverage']:.3f} [{of['worst']:.3f}]" if of else "none" for of in shares)
        yield [str(n), *cells, f"{row['false_verdicts']:.3f}"]


def main() -> int:
    parser = command.arguments(__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", type=Path, metavar="DIR", help="the folder with the populations, *.npz")
    source.add_argument("--simulate", type=Path, metavar="DIR", help="make pareto.npz in this folder")
    parser.add_argument("--seeds", type=int, default=20_000, help="seeds to simulate (20,000)")
    parser.add_argument("--metric", default="mean", help="the array to take: mean (the default) or p95")
    parser.add_argument("--draws", type=int, default=10_000, help="samples per pair and n (10,000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--sizes", type=command.numbers, default=SIZES, metavar="N,N", help="numbers of seeds (3 to 300)"
    )
    return command.run(
        parser, _work, holds=lambda result: all(gate.holds for gate in result[1]), convert=lambda result: result[0]
    )


if __name__ == "__main__":
    raise SystemExit(main())
