"""The rest of a schedule, played from a moment within it, against the schedule's own rest.

    python scripts/check_rest.py [--cases 200] [--from SEED] [--policy NAME ...] [--moments 3] [--json]

Case n is drawn from seed n. Even cases are DAG jobs with gangs, shares of GPUs, CPU jobs, wrong estimates and nodes
that fail (``dagsim.testing.random_case``); odd ones are jobs on a site with rules (``check_site.py``): partitions,
limits, QOS, dependencies, begin times, arrays, reservations, outages. Some of these jobs are components of another, run
longer than their limits, or are suspended for a time, and Slurm's policy may kill, requeue or cancel them. A policy
plays the case whole. Then it plays it again from moments within it, from the jobs with the runs that had started by
then, as a log would state them; jobs that the policy killed were done by then. A run asks its policy at the
beginning, so the policy is asked at that moment in the whole schedule, too. Every later row of the log must be the
same: times, nodes, GPUs, instances, ends, rejections. Where the compiled engine plays the rest, its log must be the
kernel's.

Moments after which a job names one that the policy ended before are passed over, since no log of runs holds such jobs.
A policy with a memory that no log holds (``forgets``) takes it from the past if that is its own and wholly known
(``rehearse``). Otherwise it says so, and its moment is played, counted, and not judged. Without ``--from`` the first
seed is new each time, and printed. Exits with 1 if anything else differs.
"""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
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
from dagsim.model import Attempt, Cluster, Job, Kind, Request, TaskGraph
from dagsim.model.log import RUN_ENDS, Schedule
from dagsim.model.queues import JobSuspension
from dagsim.systems.cluster import Maintenance, NodeFailures, Preemption
from dagsim.systems.cluster.kernel import ClusterKernel
from dagsim.systems.cluster.knowledge import states_limits
from dagsim.systems.cluster.models.failures import Outages
from dagsim.systems.cluster.past.from_log import JobsLeft, jobs_at
from dagsim.systems.cluster.past.recall import forgotten, is_done
from dagsim.systems.cluster.past.rehearsal import with_past
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.seam import Conversation
from dagsim.testing import random_case
from dagsim.workload.arrays import JobArrays

_LONG_S = 7 * 86400.0
"""A schedule that lasts longer waits for weeks between reservations that repeat. It is played from one moment only, and
with ``--every`` by every tenth policy.
"""


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


def drawn(seed: int, *, more_forms: bool = True) -> Case:
    """Draw a case from its seed alone. Without ``more_forms``, no job is a component of another, runs over its limit,
    or is suspended, and Slurm's policy stops no runs.
    """
    if seed % 2:
        site = check_site.drawn(seed)
        if more_forms:
            return _with_more_forms(site, np.random.default_rng([12, seed]))
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


def _with_more_forms(site: check_site.Site, rng: np.random.Generator) -> Case:
    """Make some jobs components of another, longer than their limits, or suspended, and stop runs."""
    jobs = [_over_limit(job) if rng.random() < 0.15 else job for job in site.jobs]
    for at, job in enumerate(jobs[1:], 1):
        pair = (jobs[at - 1], job)
        if rng.random() < 0.1 and all(len(one.tasks) == 1 and not _together(one) for one in pair):
            for place, one in zip((at - 1, at), pair, strict=True):
                request = replace(one.request or Request(), together=f"h{at}")
                jobs[place] = replace(one, arrival_s=pair[0].arrival_s, request=request)
    queues = site.queues
    if queues.partitions and rng.random() < 0.6:
        mode = str(rng.choice(["partition_prio", "qos"]))
        qos = [replace(queues.qos[0], preempt=str(rng.choice(["requeue", "cancel"]))), *queues.qos[1:]]  # type: ignore[arg-type]
        qos[1] = replace(qos[1], preempts=("q0",), priority=1.0)
        scheduler: dict[str, Any] = {"preempt": mode, "kill": str(rng.choice(["limit", "partition"]))}
        queues = replace(queues, qos=tuple(qos), scheduler=scheduler)
    if rng.random() < 0.2:
        suspended = [job.id for job in jobs if rng.random() < 0.2]
        times = [
            (check_site.STEP_S * float(rng.integers(1, 30)), check_site.STEP_S * float(rng.integers(1, 6)))
            for _ in jobs
        ]
        some = [
            JobSuspension(id, start_s, start_s + for_s) for id, (start_s, for_s) in zip(suspended, times, strict=False)
        ]
        queues = replace(queues, suspensions=tuple(some))
    stops = Preemption("restart" if rng.random() < 0.5 else "resume")
    return Case(ClusterScenario(site.cluster, jobs, queues=queues, preemption=stops), jobs)


def _together(job: Job) -> str:
    return "" if job.request is None else job.request.together


def _over_limit(job: Job) -> Job:
    """The same job, with limits of half the time that its tasks take."""
    graph = job.graph
    tasks = [replace(task, estimate=task.work / 2) for task in graph.tasks]
    return replace(job, graph=replace(graph, tasks=tuple(tasks)))


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
    ended = {row.run: row.time_s for row in schedule.log if row.kind in RUN_ENDS}
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


def differing(case: Case, policy: str, seed: int, number: int = 3) -> Rests:
    """Compare the rest from a ``number`` of moments with the schedule's own."""
    whole = play(case.scenario, policy, seed)[0].schedule
    if not case.jobs or not whole.ended_s > 0:
        return Rests()
    rng = np.random.default_rng([13, seed])
    last_s, times = whole.ended_s, sorted({row.time_s for row in whole.log if row.time_s > 0})
    moments = [float(rng.uniform(0.05, 0.95) * last_s) for _ in range(number - 1)]
    moments += [times[int(rng.integers(len(times)))]] if times else []
    moments = moments[-1:] if last_s > _LONG_S else moments
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


def differing_from_log(case: Case, policy: str, seed: int, number: int = 3) -> Rests:
    """Compare the starts from a ``number`` of moments with those of the schedule, if a log of batch jobs states its
    past.
    """
    restarts = Preemption("restart", "restart")  # a log does not state what a stopped run keeps
    scenario, jobs = replace(case.scenario, preemption=restarts), [_first_task(job) for job in case.jobs]
    while True:
        kernel = play(replace(scenario, workload=jobs), policy, seed)[0]
        started = {row.job for row in kernel.schedule.log if row.kind == Kind.STARTED}
        if len(started) == len(jobs):
            break
        jobs = [job for number, job in enumerate(jobs) if number in started]  # a log of runs has no others
    scenario = replace(scenario, workload=jobs)
    rng, last_s = np.random.default_rng([13, seed]), kernel.schedule.ended_s
    judged, unjudged, differences, forgets = 0, 0, list[str](), dict[str, None]()
    for at_s in [float(rng.uniform(0.05, 0.95) * last_s) for _ in range(number if jobs else 0)]:
        kernel = play(scenario, policy, seed, at_s)[0]
        log = JobArrays.of(list(_as_logged(jobs, kernel)))
        suspended = [one.job for one in scenario.queues.suspensions] if scenario.queues else []
        state = jobs_at(log, at_s, inf, scenario.cluster, scenario.runtime, suspended=suspended)
        before = any(arrival_s < at_s for arrival_s in state.arrival_s.tolist())
        # without a limit in the state, policies know true run times, and the result says so
        if not before or states_limits(log) != states_limits(state):
            continue
        left = JobsLeft(log, at_s, scenario.cluster, scenario.runtime)
        rest, unknown = play(replace(scenario, workload=list(state.jobs()), left=left, begins_s=at_s), policy, seed)
        mine, theirs = (_starts_from(one.schedule, at_s) for one in (kernel, rest))
        if unknown := [*unknown, *rest.frontier.unknown]:
            forgets |= dict.fromkeys(unknown)
            unjudged += mine != theirs
            continue
        judged += 1
        if mine != theirs:
            first = min(set(mine) ^ set(theirs))
            differences.append(f"from {at_s!r}: {first} is only in {'its own' if first in mine else 'the played'} rest")
    return Rests(judged, tuple(differences), ", ".join(forgets), unjudged)


def _first_task(job: Job) -> Job:
    return replace(job, graph=TaskGraph(job.tasks[:1]))


def _as_logged(jobs: Sequence[Job], kernel: ClusterKernel) -> Iterator[Job]:
    """The jobs with what a log states of them: their attempts, and the run time of the last one."""
    nodes, attempts = dict[int, list[str]](), dict[int, list[Attempt]]()
    eligible_s = {number: kernel.became_eligible_s.get(number, job.arrival_s) for number, job in enumerate(jobs)}
    start_s = dict[int, float]()
    names = [node.name for node in kernel.schedule.cluster.nodes]
    for row in kernel.schedule.log:
        if row.kind == Kind.STARTED:
            start_s[row.run] = row.time_s
            nodes.setdefault(row.run, []).extend([names[row.node]] * row.instances)
        elif row.kind in RUN_ENDS and row.run in start_s:
            began_s = start_s.pop(row.run)
            attempt = Attempt(eligible_s[row.job], began_s, row.time_s, tuple(nodes[row.run]))
            attempts.setdefault(row.job, []).append(attempt)
            eligible_s[row.job] = row.time_s
    times_of = kernel.queues.suspensions if kernel.queues is not None else ()
    for number, job in enumerate(jobs):
        ran = attempts[number]
        begins_s, ends_s = ran[-1].start_s, ran[-1].end_s
        stood_s = sum(
            min(time.end_s, ends_s) - time.start_s
            for time in times_of
            if time.job == job.id and begins_s < time.start_s < ends_s
        )
        task = replace(job.tasks[0], work=ends_s - begins_s - stood_s)
        yield replace(
            job,
            graph=TaskGraph((task,)),
            eligible_s=ran[0].eligible_s,
            observed_start_s=ran[0].start_s,
            observed_nodes=ran[0].nodes,
            observed_attempts=tuple(ran) if len(ran) > 1 or stood_s else (),
        )


def _starts_from(schedule: Schedule, at_s: float) -> list[tuple[float, str, int, int]]:
    """Time, job, node and instances of each start from a moment on, in order."""
    starts = [row for row in schedule.log if row.kind == Kind.STARTED and row.time_s >= at_s]
    return sorted((row.time_s, schedule.jobs[row.job].id, row.node, row.instances) for row in starts)


def _lasts_long(seed: int) -> bool:
    """True if the jobs of a case wait for weeks between reservations, at least under one policy."""
    return play(drawn(seed).scenario, "fifo")[0].schedule.ended_s > _LONG_S


def _work(options: command.Options, say: command.Say) -> dict[str, Any]:
    first = secrets.randbelow(1 << 30) if options.first is None else options.first
    policies = options.policy or [spec for spec in specs() if spec.partition("[")[0] not in check_site.SKIPPED]
    judged, unjudged = Counter[str](), Counter[str]()
    cases, unknown = 0, dict[str, str]()
    different: list[dict[str, Any]] = []
    for place in range(options.cases):
        seed = first + place if not options.logs else 2 * (first + place) + 1  # only sites have batch jobs
        chosen = policies if options.every else [policies[place % len(policies)]]
        if options.every and len(chosen) > 9 and _lasts_long(seed):
            say(f"case {seed} lasts for weeks")
            chosen = chosen[place % 10 :: 10]
        for policy in chosen:
            try:
                rests = (differing_from_log if options.logs else differing)(drawn(seed), policy, seed, options.moments)
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
    parser.add_argument("--moments", type=int, default=3, help="moments of each schedule (default 3)")
    parser.add_argument("--logs", action="store_true", help="state the past as a log of batch jobs does")
    parser.add_argument("--every", action="store_true", help="play each case by every policy, instead of one in turn")
    return command.run(parser, _work, holds=lambda figures: not figures["different"])


if __name__ == "__main__":
    raise SystemExit(main())
