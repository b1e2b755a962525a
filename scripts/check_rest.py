"""The rest of a schedule, played from a moment within it, against the schedule's own rest.

    python scripts/check_rest.py [--cases 200] [--from SEED] [--policy NAME ...] [--json]

Case n is drawn from seed n. Even cases are DAG jobs with gangs, shares of GPUs, CPU jobs, wrong estimates and nodes
that fail (``dagsim.testing.random_case``); odd ones are jobs on a site with rules (``check_site.py``): partitions,
limits, QOS, dependencies, begin times, arrays, reservations, outages. A policy plays the case whole. Then it plays it
again from moments within it, from the jobs with the runs that had started by then, as a log would state them. A run
asks its policy at the beginning, so the policy is asked at that moment in the whole schedule, too. Every later row of
the log must be the same: times, nodes, GPUs, instances, ends, rejections. Where the compiled engine plays the rest,
its log must be the kernel's.

Moments after which a job names one that the policy ended before are passed over, since no log of runs holds such jobs.
A policy with a memory that no log holds (``forgets``) takes it from the past if that is its own and wholly known
(``rehearse``). Otherwise it says so, and its moment is played, counted, and not judged. Without ``--from`` the first
seed is new each time, and printed. Exits with 1 if anything else differs.
"""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from operator import eq
from typing import Any, NamedTuple

import check_site
import command
import numpy as np
from stress import specs

from dagsim.errors import ConfigError, DagsimError, Stalled
from dagsim.model import Cluster, Job, Kind
from dagsim.model.log import Schedule
from dagsim.systems.cluster import Maintenance, NodeFailures, Preemption
from dagsim.systems.cluster.kernel import ClusterKernel
from dagsim.systems.cluster.models.failures import Outages
from dagsim.systems.cluster.past import forgotten, is_done
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.rehearsal import with_past
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.seam import Conversation
from dagsim.testing import random_case

_MOMENTS = 3


@dataclass(frozen=True, slots=True)
class Case:
    """A scenario, and its jobs."""

    scenario: ClusterScenario
    jobs: Sequence[Job]

    def at(self, jobs: Sequence[Job], begins_s: float) -> ClusterScenario:
        """The scenario with other jobs, from a moment on."""
        failures = self.scenario.failures
        later = [_later(model, begins_s) for model in failures if _end_s(model) > begins_s]
        known = len(jobs) == len(self.jobs) and not any(_start_s(model) < begins_s for model in failures)
        left = () if known else None
        return replace(self.scenario, workload=jobs, begins_s=begins_s, failures=tuple(later), left=left)


def drawn(seed: int) -> Case:
    """Draw a case from its seed alone."""
    if seed % 2:
        site = check_site.drawn(seed)
        return Case(ClusterScenario(site.cluster, site.jobs, queues=site.queues), site.jobs)
    case, rng = random_case(seed), np.random.default_rng([11, seed])
    models = {name: model for name, model in case.models.items() if name not in ("setup", "network")}
    failures = [model for model in models.get("failures", ()) if not isinstance(model, NodeFailures)]
    stops = models.get("preemption", Preemption())
    models["failures"] = tuple(failures)
    models["preemption"] = Preemption(stops.on_resume, stops.on_failure)
    if "estimates" in models and models["estimates"].kind == "noisy":
        models["estimates"] = replace(models["estimates"], kind="predicted")
    jobs = [replace(job, user=f"u{int(rng.integers(3))}", account=f"a{int(rng.integers(2))}") for job in case.jobs]
    return Case(ClusterScenario(case.cluster, jobs, **models), jobs)


def _end_s(model: Any) -> float:
    return model.end_s if isinstance(model, Maintenance) else inf


def _start_s(model: Any) -> float:
    if isinstance(model, Maintenance):
        return model.start_s
    return min([start_s for _, start_s, _ in model.windows], default=inf)


def _later(model: Any, begins_s: float) -> Any:
    """A disturbance on a clock that begins then."""
    if isinstance(model, Maintenance):
        return Maintenance(model.nodes, max(model.start_s - begins_s, 0.0), model.end_s - begins_s)
    windows = [(node, max(start_s - begins_s, 0.0), end_s - begins_s) for node, start_s, end_s in model.windows]
    return Outages(tuple([window for window in windows if window[2] > 0]))


def play(
    scenario: ClusterScenario,
    policy: str,
    seed: int = 0,
    asked_s: float | None = None,
    pieces: dict[int, int] | None = None,
) -> tuple[ClusterKernel, list[str]]:
    """Return the kernel after its schedule under a policy, as far as it comes, and what the policy forgets if the
    schedule has a past. The policy is also asked at ``asked_s``. ``pieces`` is filled with the number of the piece of
    each run.
    """
    kernel, decider = scenario.kernel(seed), POLICIES.create(policy, seed=seed)
    if pieces is not None:
        kernel.frontier.started.append(
            lambda run, _: pieces.update({run.id: run.task.piece} if run.id not in pieces else {})
        )
    if asked_s is not None:
        kernel.call_at(asked_s, kernel.wake)
    with suppress(Stalled):
        Conversation(kernel).follow(scenario.fitted(decider))
    return kernel, [] if kernel.reminded else forgotten(decider)


def rows_from(schedule: Schedule, begins_s: float, cluster: Cluster) -> list[tuple[Any, ...]]:
    """The rows from a moment on, without those of nodes. Jobs go by their ids, runs by the order of their starts
    among those that run then or later.
    """
    rows, numbers = [], dict[int, int]()
    ended = {row.run: row.time_s for row in schedule.log if row.kind in (Kind.FINISHED, Kind.PREEMPTED, Kind.FAILED)}
    for row in schedule.log:
        if row.kind in (Kind.DOWN, Kind.UP):
            continue
        if row.run >= 0 and (row.time_s >= begins_s or ended.get(row.run, inf) >= begins_s):
            numbers.setdefault(row.run, len(numbers))
        if row.time_s >= begins_s:
            id = schedule.jobs[row.job].id
            rows.append((row.kind, row.time_s, id, row.task, numbers.get(row.run, -1), *row[5:]))
    return rows


class Rests(NamedTuple):
    """What became of the rests from some moments: how many were judged, which of them are others, what the policy
    forgets at the moments that were not judged, and how many of those rests are others.
    """

    judged: int = 0
    different: tuple[str, ...] = ()
    forgets: str = ""
    differ_unjudged: int = 0


def differing(case: Case, policy: str, seed: int) -> Rests:
    """Compare the rest from a few moments with the schedule's own."""
    whole = play(case.scenario, policy, seed)[0].schedule
    if not case.jobs or not whole.ended_s > 0:
        return Rests()
    rng = np.random.default_rng([13, seed])
    last_s, times = whole.ended_s, sorted({row.time_s for row in whole.log if row.time_s > 0})
    moments = [float(rng.uniform(0.05, 0.95) * last_s) for _ in range(_MOMENTS - 1)]
    moments += [times[int(rng.integers(len(times)))]] if times else []
    judged, unjudged, differences, forgets = 0, 0, list[str](), dict[str, None]()
    for at_s in moments:
        pieces = dict[int, int]()
        whole = play(case.scenario, policy, seed, at_s, pieces)[0].schedule
        jobs = with_past(whole, case.jobs, at_s, pieces)
        if not any(job.arrival_s < at_s for job in jobs) or _wait_for_left_out(case.jobs, jobs):
            continue
        kernel, unknown = play(case.at(jobs, at_s), policy, seed)
        mine, theirs = (rows_from(one, at_s, one.cluster) for one in (whole, kernel.schedule))
        if len(jobs) < len(case.jobs):  # jobs that the policy ended are missing, which may move others to other GPUs
            mine, theirs = ([(*row[:7], *row[8:]) for row in rows] for rows in (mine, theirs))
        if unknown:
            forgets |= dict.fromkeys(unknown)
            unjudged += mine != theirs
            continue
        judged += 1
        if mine != theirs:
            same = list(map(eq, mine, theirs))
            first = same.index(False) if False in same else len(same)
            differences.append(
                f"from {at_s!r}: row {first} {mine[first : first + 1]} became {theirs[first : first + 1]}"
            )
        elif not in_both_engines(case.at([job for job in jobs if not is_done(job)], at_s), policy, seed):
            differences.append(f"from {at_s!r}: the compiled engine differs")
    return Rests(judged, tuple(differences), ", ".join(forgets), unjudged)


def _wait_for_left_out(jobs: Sequence[Job], left: Sequence[Job]) -> bool:
    """True if one of the jobs left names one that a policy ended before, which no log of runs holds: whether it
    entered its array before or after that job had gone is not known.
    """
    gone = {job.id for job in jobs} - {job.id for job in left}
    named = {re.sub(r"^\w+:|\+.*$", "", name) for job in left if job.request for name in job.request.after}
    return bool(gone & named)


def in_both_engines(scenario: ClusterScenario, policy: str, seed: int) -> bool:
    """True if both engines play the same log, or the compiled one does not play the case."""
    try:
        compiled = replace(scenario, engine="compiled").engaged(policy, seed).kernel
        Conversation(compiled)
    except (ConfigError, Stalled):
        return True
    return compiled.schedule.log == play(scenario, policy, seed)[0].schedule.log


def _work(options: command.Options, say: command.Say) -> dict[str, Any]:
    first = secrets.randbelow(1 << 30) if options.first is None else options.first
    policies = options.policy or [spec for spec in specs() if spec.partition("[")[0] not in check_site.SKIPPED]
    judged, unjudged = Counter[str](), Counter[str]()
    cases, unknown = 0, dict[str, str]()
    different: list[dict[str, Any]] = []
    for place in range(options.cases):
        seed = first + place
        for policy in [policies[place % len(policies)]] if not options.every else policies:
            try:
                rests = differing(drawn(seed), policy, seed)
            except ConfigError:  # the policy plays no such site
                continue
            except DagsimError as error:
                rests = Rests(1, (f"{type(error).__name__}: {error}",))
            except Exception as error:
                rests = Rests(1, (f"traceback {type(error).__name__}: {error}",))
            if rests.forgets:
                unknown[policy] = rests.forgets
                unjudged[policy] += rests.differ_unjudged
            judged[policy] += rests.judged
            cases += rests.judged > 0
            if rests.different:
                different.append({"policy": policy, "case": seed, "what": rests.different[0][:300]})
                say(f"{policy} on case {seed}: {rests.different[0][:300]}")
    say(f"seed {first}: {cases} cases ({judged.total()} moments) of {len(+judged)} policies, {len(different)} differ")
    figures = {"first": first, "cases": cases, "moments": judged.total(), "different": different}
    return figures | {"forget": unknown, "differ_and_say_so": dict(unjudged)}


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--cases", type=int, default=200, help="cases (default 200)")
    parser.add_argument(
        "--from", type=int, default=None, dest="first", help="seed of the first case (default: a new one)"
    )
    parser.add_argument("--policy", action="append", help="play only these; may be given more than once")
    parser.add_argument("--every", action="store_true", help="play each case by every policy, instead of one in turn")
    return command.run(parser, _work, holds=lambda figures: not figures["different"])


if __name__ == "__main__":
    raise SystemExit(main())
