"""Linear programs for shares of time in Gavel's published policies, and the search for solutions in
the middle of the optimal set. The policy ``gavel-events`` has a smaller program of its own.

HiGHS solves the linear programs. If several sets of shares are optimal, HiGHS may return another
set than the authors' solver (ECOS). Rounds may then differ, although the optimum is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from math import inf
from typing import Any

import numpy as np

from dagsim.families.gavel.round_ledger import Allocation, GavelJob, JobOrPair, Situation

_DIGITS = 9
"""Digits of shares that are kept: the last ones depend on the processor."""
_MOST_STEPS = 60
"""Number of steps after which the interior-point method gives up."""
_CENTRING = 0.3
"""Least factor by which a step reduces the gap: steps of this size stay close to the central
path."""
_CONVERGED = 1e-9
"""Gap and residuals at which the interior-point method ends."""
_CLOSE = 1e-7
"""Distance from HiGHS' optimum up to which its shares are taken."""


class ShareProgram:
    """The constraints that all linear programs have in common, and the rates of the jobs.

    The variables are the shares of rows (jobs and pairs) by type, row after row. Each job spends at
    most all of its time, and all rows together use at most the available GPUs of each type.
    """

    def __init__(self, situation: Situation, pairs: bool) -> None:
        self.jobs = list(situation.jobs.values())
        self.types = list(situation.gpus)
        self.keys = program_rows(situation, pairs)
        place_of = {job.number: place for place, job in enumerate(self.jobs)}
        count, width = len(self.jobs), len(self.types)
        entries: list[tuple[int, int, float]] = []
        held: list[tuple[int, int, float]] = []
        for row, key in enumerate(self.keys):
            jobs = [situation.jobs[number] for number in key]
            for column, name in enumerate(self.types):
                variable = row * width + column
                rates = (jobs[0].rate[name],) if len(jobs) == 1 else rates_of_pair(situation, jobs[0], jobs[1], name)
                entries += [(place_of[job.number], variable, rate) for job, rate in zip(jobs, rates, strict=True)]
                held.append((column, variable, float(jobs[0].gpus)))
        size = len(self.keys) * width
        self.rates = _matrix(entries, (count, size))
        """Steps per second of each job (row) by variable."""
        times = _matrix([(job, variable, 1.0) for job, variable, _ in entries], (count, size))
        self.present = times
        """1 where the job (row) spends time."""
        self._limits = _stacked([[times], [_matrix(held, (width, size))]])
        self._bounds = np.array([1.0] * count + [float(situation.gpus[name]) for name in self.types])

    def best(self, gain: np.ndarray) -> np.ndarray | None:
        """Return the shares that maximise the sum of ``gain`` times share, or None if HiGHS finds
        no solution.
        """
        return _solved(-gain, self._limits, self._bounds)[0]

    def highest(
        self, progress: Any, needs: np.ndarray, floors: np.ndarray | float = 0.0, *, middle: bool = True
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """Find the highest level such that the ``progress`` of each job is at least level x
        ``needs`` + ``floors``. Return the level, the shares, and the dual value of each job's
        constraint. If ``middle`` is True, the shares are from the middle of the optimal set.
        """
        column = np.concatenate([np.zeros(len(self._bounds)), needs])[:, None]
        limits = _stacked([[_stacked([[self._limits], [-progress]]), column]])
        cost = np.zeros(limits.shape[1])
        cost[-1] = -1.0
        floor = np.broadcast_to(floors, (len(self.jobs),))
        solution, prices = _solved(cost, limits, np.concatenate([self._bounds, -floor]), middle)
        if solution is None:
            return -inf, np.zeros(len(cost) - 1), np.zeros(len(self.jobs))
        return float(solution[-1]), solution[:-1], prices[len(self._bounds) :]

    def spread(self, floors: np.ndarray) -> np.ndarray | None:
        """Return shares that are far from all limits and give each job at least its rate in
        ``floors``, or None if no such shares are found.
        """
        limits, bounds = _stacked([[self._limits], [-self.rates]]), np.concatenate([self._bounds, -floors])
        return _middle(np.zeros(limits.shape[1]), limits, bounds, 0.0)

    def allocation(self, shares: np.ndarray) -> Allocation:
        """Return the shares by row and type."""
        table = np.maximum(shares.round(_DIGITS), 0.0).reshape(len(self.keys), len(self.types)).tolist()
        return {key: dict(zip(self.types, row, strict=True)) for key, row in zip(self.keys, table, strict=True)}


def _matrix(entries: Sequence[tuple[int, int, float]], shape: tuple[int, int]) -> Any:
    from scipy.sparse import csr_array

    rows, columns, values = zip(*entries, strict=True)
    return csr_array((values, (rows, columns)), shape)


def _stacked(blocks: Sequence[Sequence[Any]]) -> Any:
    from scipy.sparse import block_array

    return block_array(blocks, format="csr")


def _solved(
    cost: np.ndarray, limits: Any, bounds: np.ndarray, middle: bool = True
) -> tuple[np.ndarray | None, np.ndarray]:
    """Minimise ``cost``. Return two values: the solution (or None if there is none), and the dual
    values of the limits.

    HiGHS finds an optimum at a corner of the optimal set. At a corner, equal jobs get unequal
    shares, and jobs without a share run only on GPUs that would otherwise be idle. Therefore, an
    interior-point method is used to find optimal shares in the middle of the set, as Gavel's solver
    does.
    """
    from scipy.optimize import linprog

    result = linprog(cost, limits, bounds, bounds=(0, None), method="highs")
    if result.x is None:
        return None, bounds
    shares = _middle(cost, limits, bounds) if middle else None
    if shares is None or not np.all(limits @ shares <= bounds + _CLOSE):
        shares = result.x
    if cost @ shares > result.fun + _CLOSE * max(1.0, abs(result.fun)):
        shares = result.x
    return shares, -result.ineqlin.marginals


def _middle(cost: np.ndarray, limits: Any, bounds: np.ndarray, centring: float = _CENTRING) -> np.ndarray | None:
    """Minimise ``cost`` by Mehrotra's predictor-corrector method (1992), which ends near the
    analytic centre of the optimal set. Return None if it does not converge.
    """
    rows, columns = limits.shape
    cost = cost / max(float(np.abs(cost).max()), 1e-300)
    transposed = limits.T.tocsr()
    x, slack = np.ones(columns), np.ones(rows)
    price, reduced = np.ones(rows), np.ones(columns)
    for _ in range(_MOST_STEPS):
        off_primal = limits @ x + slack - bounds
        off_dual = cost + transposed @ price - reduced
        gap = (x @ reduced + slack @ price) / (rows + columns)
        if max(gap, float(np.abs(off_primal).max()), float(np.abs(off_dual).max())) < _CONVERGED:
            return x
        try:
            step = _newton(limits, transposed, (x, slack, price, reduced), off_primal, off_dual)
        except np.linalg.LinAlgError:
            return None
        d_x, d_slack, d_price, d_reduced = step(-x * reduced, -slack * price)
        primal, dual = _longest((x, d_x), (slack, d_slack)), _longest((price, d_price), (reduced, d_reduced))
        after = (x + primal * d_x) @ (reduced + dual * d_reduced)
        after += (slack + primal * d_slack) @ (price + dual * d_price)
        target = gap * max(centring, (after / (gap * (rows + columns))) ** 3)
        d_x, d_slack, d_price, d_reduced = step(
            target - x * reduced - d_x * d_reduced, target - slack * price - d_slack * d_price
        )
        primal, dual = _longest((x, d_x), (slack, d_slack)), _longest((price, d_price), (reduced, d_reduced))
        x, slack = x + 0.99 * primal * d_x, slack + 0.99 * primal * d_slack
        price, reduced = price + 0.99 * dual * d_price, reduced + 0.99 * dual * d_reduced
    return None


def _newton(
    limits: Any, transposed: Any, point: tuple[np.ndarray, ...], off_primal: np.ndarray, off_dual: np.ndarray
) -> Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, ...]]:
    """Return a function that computes Newton's step at a point. Its arguments are the changes in
    two products: shares x reduced costs, and slacks x dual values.

    Raises:
        numpy.linalg.LinAlgError: The system is singular in floating point.
    """
    x, slack, price, reduced = point
    ratio = x / reduced
    system = (limits.multiply(ratio[None, :]) @ transposed).toarray()
    system[np.diag_indices(len(slack))] += slack / price
    factor = np.linalg.cholesky(system)

    def step(at_x: np.ndarray, at_slack: np.ndarray) -> tuple[np.ndarray, ...]:
        right = at_slack / price + off_primal + limits @ (ratio * (at_x / x - off_dual))
        d_price = np.linalg.solve(factor.T, np.linalg.solve(factor, right))
        d_x = ratio * (at_x / x - off_dual - transposed @ d_price)
        return d_x, -off_primal - limits @ d_x, d_price, (at_x - reduced * d_x) / x

    return step


def _longest(*pairs: tuple[np.ndarray, np.ndarray]) -> float:
    """Return the longest step, up to 1, that keeps all values positive."""
    steps = [float((-value[down] / change[down]).min()) for value, change in pairs if (down := change < 0).any()]
    return min([1.0, *steps])


def rates_of_pair(situation: Situation, first: GavelJob, second: GavelJob, type_: str) -> tuple[float, float]:
    assert situation.pair_rates is not None
    return situation.pair_rates(first, second, type_)


def program_rows(situation: Situation, pairs: bool) -> list[JobOrPair]:
    """Return the active jobs in order of arrival, then the pairs of jobs with equal numbers of
    GPUs."""
    keys: list[JobOrPair] = [(number,) for number in situation.jobs]
    if pairs:
        jobs = sorted(situation.jobs.values(), key=lambda job: job.number)
        keys += [(one.number, other.number) for one, other in combinations(jobs, 2) if one.gpus == other.gpus]
    return keys
