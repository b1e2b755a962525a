"""Explain why jobs in a snapshot are waiting: the cause, the jobs ahead, and the changes that would
help.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, NamedTuple

import numpy as np

from dagsim.errors import InputError
from dagsim.families.forecast.future_jobs import Future
from dagsim.families.forecast.futures import Player
from dagsim.families.forecast.job_changes import JobChange, changed, changes_of
from dagsim.families.forecast.members import KnownPast
from dagsim.families.forecast.question import Question
from dagsim.families.forecast.queue_rows import Listed, states_begin
from dagsim.families.forecast.queue_state import QueueState
from dagsim.families.forecast.reasons import Fate, verdict_of
from dagsim.families.forecast.texts import span
from dagsim.model.arithmetic import ordered_sum
from dagsim.systems.cluster.state import TaskState
from dagsim.systems.cluster.waits.present import Present
from dagsim.systems.cluster.waits.wait_rules import ReachedLimit, Standing
from dagsim.text import count_of

_SOONER_S = 60.0
"""Smallest gain for which a change is mentioned."""
_NAMED = 3
FUTURES = 10
"""Number of futures in which each change is simulated."""
_PASSING = ("Priority", "Resources", "Nodes required", "ReqNodeNotAvail", "Unschedulable")
HELD_BY_OTHERS = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"


class Hindrance(NamedTuple):
    """The cause of a wait: the scheduler's name for it, and a sentence for the user."""

    reason: str
    words: str
    fate: Fate = Fate.KNOWN
    limits: Sequence[ReachedLimit] = ()


class Ahead(NamedTuple):
    """The jobs that a scheduler examines before a given job."""

    same_group: int = 0
    """Number of these jobs in the given job's own partition or queue."""
    others: int = 0
    """Number of these jobs in other partitions that use the same nodes."""
    jobs: Sequence[tuple[str, str, float]] = ()
    """Id, user and priority of each job, in the order in which they are served."""
    priority: float | None = None
    parts: Mapping[str, tuple[float, float]] = {}
    """For each part of the priority, the job's own value, and the mean over the jobs ahead in its
    own group.
    """

    @property
    def part(self) -> str:
        """The part of the priority that puts most of these jobs ahead, or an empty text if there is
        no such part.
        """
        gains = {name: theirs - own for name, (own, theirs) in self.parts.items()}
        best = max(gains, key=gains.__getitem__, default="")
        return best if best and gains[best] > 0 else ""


class Freeing(NamedTuple):
    """A running job whose end frees what the waiting job needs."""

    job: str
    user: str
    within_s: float
    """Seconds until it reaches its time limit."""
    nodes: tuple[str, ...]


class Sooner(NamedTuple):
    """A change to the waiting job, and when the job would start after this change."""

    change: JobChange
    median_s: float
    sooner_s: float
    """Seconds by which the job would start sooner with the change, or infinity if it would not
    start without the change."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of one job's wait."""

    job: str
    user: str
    partition: str
    hindrance: Hindrance
    """The cause by the rules of the site, without the scheduler's reason."""
    stated: str
    """The reason that the scheduler stated. It is empty if it stated none."""
    ahead: Ahead = field(default_factory=Ahead)
    limit_start_s: float = inf
    """Seconds until the job starts if all jobs run to their limits and no other job arrives."""
    median_s: float = inf
    """Median of the seconds until the job starts, over futures with random run times, or infinity
    if the job does not start in half of them.
    """
    frees: Sequence[Freeing] = ()
    changes: Sequence[Sooner] = ()
    """Changes that were tried, beginning with the one with the soonest start."""
    futures: int = 0

    @property
    def reason(self) -> str:
        """The name of the cause that holds the job back. It is the scheduler's reason or, if there
        is none, the cause according to the rules. A scheduler that has not examined a job yet
        reports that other jobs are ahead, even if it will never start the job.
        """
        return self.hindrance.reason if self.is_early else self.stated or self.hindrance.reason

    @property
    def is_early(self) -> bool:
        """True if the scheduler states that the job waits for its turn or for resources, although
        the rules never let it start.
        """
        return self.hindrance.fate is Fate.NEVER and self.stated.startswith(_PASSING)

    @property
    def agrees(self) -> bool:
        """True if the rules agree with the scheduler's reason, or if there is no such reason."""
        return not self.stated or same_reason(self.stated, self.hindrance.reason)

    @property
    def sentence(self) -> str:
        """The cause of the wait in one sentence."""
        if self.is_early:
            return f"Job {self.job} {self.hindrance.words} (for now the scheduler says {self.stated})."
        if self.agrees:
            name = "" if self.reason == "None" or f" {self.reason} " in self.hindrance.words else f" ({self.reason})"
            return f"Job {self.job} {self.hindrance.words}{name}."
        verdict = verdict_of(self.stated)
        does = "never starts" if verdict.fate is Fate.NEVER else "waits"
        return (
            f"Job {self.job} {does}: the scheduler says {self.stated}{f' ({verdict.words})' if verdict.words else ''}."
        )

    @property
    def best(self) -> Sooner | None:
        """The change with which the job would start soonest, or None if no change makes it start
        sooner.
        """
        return next((change for change in self.changes if change.sooner_s >= _SOONER_S), None)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that are safe for JSON, in which infinite times are null."""

        def finite(seconds: float) -> float | None:
            return seconds if seconds < inf else None

        fate = self.hindrance.fate if self.is_early or not self.stated else verdict_of(self.stated).fate
        return {
            "job": self.job,
            "user": self.user,
            "partition": self.partition,
            "sentence": self.sentence,
            "reason": self.reason,
            "kind": fate.name.lower(),
            "stated_reason": self.stated or None,
            "found_reason": self.hindrance.reason,
            "found": self.hindrance.words,
            "agrees": self.agrees,
            "limits": [limit.to_dict() for limit in self.hindrance.limits],
            "ahead": {
                "same_partition": self.ahead.same_group,
                "other_partitions": self.ahead.others,
                "jobs": [{"job": job, "user": user, "priority": worth} for job, user, worth in self.ahead.jobs],
                "priority": self.ahead.priority,
                "parts": {name: {"own": own, "ahead": theirs} for name, (own, theirs) in self.ahead.parts.items()},
                "most_by": self.ahead.part or None,
            },
            "frees": [
                {"job": one.job, "user": one.user, "within_s": one.within_s, "nodes": list(one.nodes)}
                for one in self.frees
            ],
            "start_by_limits_s": finite(self.limit_start_s),
            "median_s": finite(self.median_s),
            "changes": [
                {"change": str(one.change), "median_s": finite(one.median_s), "sooner_s": finite(one.sooner_s)}
                for one in self.changes
            ],
            "futures": self.futures,
        }


def same_reason(stated: str, ruled: str) -> bool:
    """Return True if two names mean the same cause. squeue's names of limits are longer than the
    rules' names (``AssocGrpCpuLimit``, ``AssocGrpCpu``). There are several names for nodes that are
    kept for other jobs. slurmctld also calls nodes unavailable if they are up but kept for jobs
    ahead (``select_nodes`` in node_scheduler.c). kube-scheduler calls every pod that fits on no
    node unschedulable.
    """
    pair = [_plain(name) for name in (stated, ruled)]
    if "Unschedulable" in pair and any(name in pair for name in ("Resources", "Priority", "None")):
        return True
    others = ("Resources", "Priority", "ReqNodeNotAvail")
    return pair[0] == pair[1] or ("Nodes required" in pair and any(name in pair for name in others))


_ALIASES = {
    "AccountNotAllowed": "account", "Job's account not permitted": "account", "PartitionConfig": "account",
    "AllowAccounts": "account", "DenyAccounts": "account", "AllowQos": "qos", "DenyQos": "qos",
    "QOSNotAllowed": "qos", "Job's QOS not permitted": "qos", "Nodes required": "Nodes required",
    "ReqNodeNotAvail, UnavailableNodes": "Nodes required",
    "DependencyNeverSatisfied": "Dependency", "AssociationJobLimit": "AssocMaxJobs",
}  # fmt: skip


def _plain(name: str) -> str:
    for start, plain in _ALIASES.items():
        if name.startswith(start):
            return plain
    plain = name.partition(",")[0].partition(":")[0].strip()
    plain = plain.replace("Memory", "Mem").replace("CPU", "Cpu")
    return plain.removesuffix("Limit").removesuffix("PerJob") if plain.startswith(("Assoc", "QOS", "Max")) else plain


def explain_wait(question: Question, job: str, futures: int = FUTURES) -> Explanation:
    """Explain why a waiting job or array in a snapshot does not start.

    Raises:
        InputError: The job is not in the snapshot, or is not waiting.
    """
    log, player, t = question.log, question.forecaster.player, question.t
    name, listing = job.partition("_")[0], question.listing or {}
    state = QueueState.at(log, t)
    own = [place for place in state.waiting.tolist() if job in (log.jobs.ids[place], log.array[place])]
    listed = listing.get(name)
    if not own and listed is None:
        _refuse_running(state, name, t)
    stated = "" if listed is None or listed.reason in ("", "None") else listed.reason
    if not own:
        hindrance = _unread(stated, listed)
        if listed is not None and not {*listed.after}.isdisjoint(log.array[np.union1d(state.running, state.waiting)]):
            hindrance = _conditions(state, listed) or hindrance
        user, partition = (listed.user, listed.partition) if listed else ("", "")
        return Explanation(job, user, partition, hindrance, stated)
    first = own[0]
    state = replace(state, waiting=np.union1d(player.rows(state, question.listing).state.waiting, own))
    members = np.flatnonzero(np.isin(state.waiting, own))
    present, tasks, zero_s = player.present(state)
    task = next((tasks[id] for id in log.jobs.ids[state.waiting[members]].tolist() if id in tasks), None)
    past = KnownPast(log, baselines=False)
    past.move(t)
    hindrance = _hindrance(question, state, first, listed, present, task, zero_s)
    fates = {hindrance.fate, verdict_of(hindrance.reason).fate, verdict_of(stated).fate}
    # Do not simulate if the start depends on something outside the data.
    never, known = hindrance.fate is Fate.NEVER, Fate.OUTSIDE not in fates
    ahead = _ahead(present, task, listing) if task is not None else Ahead()
    if hindrance.words == "waits for its turn":
        hindrance = hindrance._replace(words=_turn(ahead, log.partition[first]))
    start_s, nodes = (inf, ()) if never or not known else player.planned_start(state, int(members[0]))
    if hindrance.reason == "Priority" and start_s <= player.cycle_s:
        hindrance = hindrance._replace(words=f"{hindrance.words}; there is room for it at the scheduler's next cycle")
    frees = list(_frees(state, present, hindrance, start_s, nodes))
    trials: Iterator[tuple[JobChange | None, float]] = iter([(None, inf)])
    if known:
        trials = _trials(question, past, state, first, members, futures, never=never)
    median_s = next(trials)[1]
    changes = [
        Sooner(change, after_s, median_s - after_s if median_s < inf else inf)
        for change, after_s in trials
        if change is not None and after_s < inf
    ]
    return Explanation(
        job=job,
        user=log.user[first],
        partition=log.partition[first],
        hindrance=hindrance,
        stated=stated,
        ahead=ahead,
        limit_start_s=start_s,
        median_s=median_s,
        frees=frees,
        changes=sorted(changes, key=lambda one: one.median_s),
        futures=futures if known else 0,
    )


def _refuse_running(state: QueueState, name: str, t: float) -> None:
    log = state.log
    for place in state.running.tolist():
        if log.array[place] == name:
            raise InputError(
                f"job {name} has been running for {span(t - float(log.start_s[place]))}, so it is not waiting"
            )
    raise InputError(f"job {name} is neither running nor waiting in the snapshot")


def _unread(stated: str, listed: Listed | None) -> Hindrance:
    """Return the cause that the scheduler states for a job that is not simulated."""
    verdict = verdict_of(stated)
    if stated in ("Dependency", "DependencyNeverSatisfied") and listed is not None and listed.after:
        others = ", ".join(listed.after[:_NAMED])
        if stated == "Dependency":
            return Hindrance(
                stated, f"waits for job {others}, which neither runs nor waits here or is held", Fate.OUTSIDE
            )
        return Hindrance(
            stated, f"never starts: job {others}, on which it depends, did not end as it had to", Fate.NEVER
        )
    does = "never starts" if verdict.fate is Fate.NEVER else "waits"
    return Hindrance(stated or "None", f"{does}: {verdict.words or 'nothing is known about it'}", verdict.fate)


def _hindrance(
    question: Question, state: QueueState, job: int, listed: Listed | None, present: Present, task: TaskState | None,
    zero_s: float,
) -> Hindrance:  # fmt: skip
    """Return why a job waits according to the site's rules. They are checked in the same order as
    by the scheduler.
    """
    log, t, player = question.log, question.t, question.forecaster.player
    if listed is not None and listed.reason == "Suspended":
        return Hindrance("Suspended", f"is suspended: it waits {verdict_of('Suspended').words}")
    if listed is not None and listed.after and (others := _conditions(state, listed)):
        return others
    ours = None if task is None else _own(present, task)
    obstacle = player.obstacle(job, t)
    # If the job can never start, this matters more than the scheduler's current reason.
    if (
        ours is not None
        and (outcome := ours.outcome) is not None
        and not (obstacle and outcome.reason == "Unschedulable")
    ):
        fate = Fate.NEVER if outcome.never else Fate.OUTSIDE if outcome.outside else Fate.KNOWN
        return Hindrance(outcome.reason, outcome.words, fate, outcome.limits)
    if words := obstacle:
        reason = words.partition(" (")[0].partition(":")[0] if words[0].isupper() else "BadConstraints"
        return Hindrance(reason, f"never starts under the present rules: {words}", Fate.NEVER)
    if log.begin_s[job] > t:
        return Hindrance("BeginTime", f"waits for its begin time in {span(float(log.begin_s[job]) - t)}")
    if listed is not None and listed.reason == "BeginTime" and not states_begin(log, np.array([job])):
        return Hindrance("BeginTime", "waits for its begin time, which the listing does not state", Fate.OUTSIDE)
    if task is None:
        return _ineligible(state, job, listed)
    return _hindrance_by_rules(question, present, task, ours, zero_s)


def _hindrance_by_rules(
    question: Question, present: Present, task: TaskState, ours: Standing | None, zero_s: float
) -> Hindrance:
    """Return what keeps an eligible task waiting: limits, licences, reservations, nodes that are
    down, jobs ahead of it, or a lack of room.
    """
    t = question.t
    if limits := list(present.rules.reached(task)):
        first = limits[0]  # the limit that the scheduler would report
        return Hindrance(first.reason, f"waits for a limit: {first.detail or first.words}", Fate.KNOWN, limits)
    if lacking := present.licences(task):
        name, count, free = lacking[0]
        return Hindrance("Licenses", f"waits for licences: it takes {count} of {name}, and {free:g} are free")
    if (own := present.own_reservation(task)) is not None:
        begins_s = own.start_s + zero_s - t
        return Hindrance("Reservation", f"waits for its reservation {own.name}, which begins in {span(begins_s)}")
    if present.closed(task) and (reserved := present.reserved(task)):
        return Hindrance("Reservation", f"waits for a reservation to end: {_reserved(reserved, zero_s, t, task)}")
    if present.closed(task):
        return Hindrance("ReqNodeNotAvail", "waits for nodes: too many of those that it could use are down or drained")
    if ours is not None and (first := next(_before(present, ours, task, question.listing or {}), None)) is not None:
        return Hindrance("Priority" if first.group == ours.group else HELD_BY_OTHERS, "waits for its turn")
    if causes := present.lacking(task):
        return Hindrance(
            "Resources", f"is next in line and waits for free resources: {'; '.join(cause.what for cause in causes)}"
        )
    return Hindrance("None", "has no known reason to wait: it would start at the scheduler's next cycle")


def _reserved(reserved: Sequence[Any], zero_s: float, t: float, task: TaskState) -> str:
    """Describe how the first of these reservations prevents a task from starting."""
    one = reserved[0]
    begins_s, ends_s = one.start_s + zero_s - t, one.end_s + zero_s - t
    when = f"begins in {span(begins_s)}" if begins_s > 0 else f"ends in {span(ends_s)}"
    limit_s = task.demand.terms.limit_s if task.demand.terms is not None else 0.0
    longer = f", before the end of its time limit of {span(limit_s)}" if begins_s > 0 else ""
    more = f", and {len(reserved) - 1} more" if len(reserved) > 1 else ""
    return f"{one.name} {when}{longer}{more}"


def _conditions(state: QueueState, listed: Listed) -> Hindrance | None:
    """Return the cause of a wait for dependencies that the scheduler still lists."""
    log = state.log
    running, waiting = set(log.array[state.running].tolist()), set(log.array[state.waiting].tolist())
    if listed.reason == "DependencyNeverSatisfied":
        return _unread(listed.reason, listed)
    one = next((name for name in listed.after if name in running or name in waiting), listed.after[0])
    does = "runs" if one in running else "waits itself" if one in waiting else "is held or can never start"
    more = f" and {len(listed.after) - 1} more" if len(listed.after) > 1 else ""
    return Hindrance("Dependency", f"waits for job {one}{more}, which {does}")


def _ineligible(state: QueueState, job: int, listed: Listed | None) -> Hindrance:
    """Return the cause for a job that is not eligible because it waits for other jobs or for its own
    array.
    """
    log = state.log
    running, waiting = set(log.array[state.running].tolist()), set(log.array[state.waiting].tolist())
    after = listed.after if listed is not None and listed.after else log.parents[job]
    request = None if log.jobs.request is None else log.jobs.request.words[log.jobs.request.place[job]]
    after = after or (tuple(request.after) if request is not None else ())
    open_ = [name for name in after if name.partition(":")[2] or name in running or name in waiting]
    if open_:
        one = open_[0].removeprefix("start:").partition("+")[0]
        does = "runs" if one in running else "waits itself" if one in waiting else "has not ended"
        more = f" and {len(open_) - 1} more" if len(open_) > 1 else ""
        return Hindrance("Dependency", f"waits for job {one}{more}, which {does}")
    if request is not None and request.array_limit:
        return Hindrance(
            "JobArrayTaskLimit", f"waits for its own array: at most {request.array_limit} of its tasks run at a time"
        )
    return Hindrance("Dependency", "waits for other jobs, which the snapshot does not name")


def _own(present: Present, task: TaskState) -> Standing | None:
    return next((one for one in present.standings if one.task is task), None)


def _before(present: Present, ours: Standing, task: TaskState, listing: dict[str, Listed]) -> Iterator[Standing]:
    """Yield the waiting jobs that are examined before a given job and use the same nodes, beginning
    with those in its own partition. Priorities come from the scheduler if the snapshot contains
    them.
    """

    def rank(one: Standing) -> tuple[int, float]:
        listed = listing.get(one.task.job.job.id.partition("_")[0])
        return one.tier, one.priority if listed is None or listed.priority is None else listed.priority

    own, place = rank(ours), present.standings.index(ours)
    before: list[tuple[bool, tuple[int, float], Standing]] = []
    seen: set[int] = {task.job.number}
    for at, one in enumerate(present.standings):
        if one.task.job.number in seen or not one.nodes & ours.nodes:
            continue
        other = rank(one)
        listed = listing.get(one.task.job.job.id.partition("_")[0])
        if listed is not None and listed.reason == "Suspended":
            continue
        is_before = other > own or (other == own and at < place)
        is_held = one.outcome is None and (any(present.rules.reached(one.task)) or present.closed(one.task))
        if is_before and not is_held:
            seen.add(one.task.job.number)
            before.append((one.group != ours.group, other, one))
    for *_, one in sorted(before, key=lambda row: (row[0], (-row[1][0], -row[1][1]))):
        yield one


def _ahead(present: Present, task: TaskState, listing: dict[str, Listed]) -> Ahead:
    ours = _own(present, task)
    if ours is None:
        return Ahead()
    before = list(_before(present, ours, task, listing))
    same = [one for one in before if one.group == ours.group]

    def stated(one: Standing) -> tuple[float, dict[str, float]]:
        """Return the priority and its parts. The difference between the scheduler's priority and the
        other parts is attributed to the fair share, which depends on usage that the snapshot does
        not contain.
        """
        listed = listing.get(one.task.job.job.id.partition("_")[0])
        if listed is None or listed.priority is None:
            return one.priority, dict(one.parts)
        others = ordered_sum(worth for name, worth in one.parts.items() if name != "fair share")
        parts = dict(one.parts) | ({"fair share": max(listed.priority - others, 0.0)} if one.parts else {})
        return listed.priority, parts

    priority, own = stated(ours)
    theirs = [stated(one)[1] for one in same]
    names = dict.fromkeys(name for parts in (own, *theirs) for name in parts)
    parts = (
        {
            name: (own.get(name, 0.0), ordered_sum(other.get(name, 0.0) for other in theirs) / len(theirs))
            for name in names
        }
        if theirs
        else {}
    )
    jobs = [(one.task.job.job.id, one.task.job.job.user, stated(one)[0]) for one in before]
    return Ahead(len(same), len(before) - len(same), jobs, priority if own else None, parts)


def _turn(ahead: Ahead, partition: str) -> str:
    """Describe which jobs are ahead of a job."""
    where = f" in the partition {partition}" if partition else ""
    jobs = f"{count_of(ahead.same_group, 'job')}{where}"
    others = f"{count_of(ahead.others, 'job')} in partitions that share its nodes"
    if not ahead.same_group:
        return f"waits for its turn: {others} {'are' if ahead.others > 1 else 'is'} ahead of it"
    are = "are" if ahead.same_group > 1 else "is"
    why = f", mainly because of {ahead.part}" if ahead.part else ""
    more = f", and {others}" if ahead.others else ""
    return f"waits for its turn: {jobs} {are} ahead of it{why}{more}"


def _frees(
    state: QueueState, present: Present, hindrance: Hindrance, start_s: float, nodes: Sequence[str]
) -> Iterator[Freeing]:
    """Yield the running jobs that end first, by their time limits, and free what a job needs. If a
    limit on usage holds the job back, these are the jobs that count towards it. Otherwise, these
    are the jobs on the nodes where the job would start if all jobs ran to their time limits.
    """
    log, counted = state.log, None
    if hindrance.limits:
        running = present.running
        counted = {running[run].task.job.job.id for limit in hindrance.limits for run in limit.runs if run in running}
    wanted, rows = set(nodes), []
    for job in state.running.tolist():
        hosts = log.nodes.words[log.nodes.place[job]]
        left_s = max(float(log.start_s[job] + log.limit_s[job]) - state.t, 0.0)
        matches = log.jobs.ids[job] in counted if counted is not None else bool(wanted.intersection(hosts))
        if matches and left_s <= start_s + 1.0:
            rows.append(Freeing(log.jobs.ids[job], log.user[job], left_s, tuple(dict.fromkeys(hosts))))
    yield from sorted(rows, key=lambda row: (row.within_s, row.job))


def _trials(
    question: Question, past: KnownPast, state: QueueState, job: int, members: np.ndarray, futures: int, *, never: bool
) -> Iterator[tuple[JobChange | None, float]]:
    """Yield the median start of a job, first without a change and then with each change that would
    let it start. The same futures are used for all of them.
    """
    log, player = question.log, question.forecaster.player
    own = state.waiting[members]

    def median_s(player: Player, state: QueueState) -> float:
        rng = np.random.default_rng([question.forecaster.seed, 0, list(Future).index(Future.RUNS)])
        starts = player.starts(state, Future.RUNS, futures, past.run_times, rng, [members])
        return float(np.median([starts_s[members].min() for starts_s in starts]))

    yield None, inf if never else median_s(player, state)
    for change in changes_of(log, job, question.scenario):
        other = changed(log, own.tolist(), change)
        trial = player.of(other)
        if not trial.obstacle(job, question.t):
            yield change, median_s(trial, replace(state, log=other))
