"""Random jobs of a small site, and what a file can say of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from zoneinfo import ZoneInfo

from dagsim.traces import TraceOptions

_TYPES = ("a100", "h100", "l40s", "v100")
_USERS = ("ada", "ben", "cy", "d'or")
PHRASES = ("fit", "my job", "pipe|in|name", "line\nbreak", 'say "hi"', "a;b,c", "größe", "x=1,y=2")


@dataclass(frozen=True)
class Part:
    """A component of a job: equal shares of some nodes."""

    nodes: tuple[str, ...]
    gpus: int  # per node
    kind: str
    cpus: int  # per node
    memory_mb: int  # per node


@dataclass(frozen=True)
class Attempt:
    """A run of a job, in seconds since 1970."""

    submit_s: int
    eligible_s: int
    start_s: int
    end_s: int
    state: str


@dataclass(frozen=True)
class TrueJob:
    """A job as it was."""

    id: str
    user: str
    account: str
    parts: tuple[Part, ...]
    attempts: tuple[Attempt, ...]
    limit_min: int | None = None
    suspended_s: int = 0
    name: str = "job"

    @property
    def arrival_s(self) -> int:
        return self.attempts[0].submit_s

    @property
    def work_s(self) -> int:
        """Run time of the last attempt."""
        return self.attempts[-1].end_s - self.attempts[-1].start_s - self.suspended_s


@dataclass
class Written:
    """A file, the options to read it with, and what can be known of the jobs in it."""

    path: Path
    known: list[Known]
    options: TraceOptions = field(default_factory=TraceOptions)


@dataclass(frozen=True)
class Known:
    """What a file says of a job: seconds, GPUs and cores of all its instances, and its user."""

    arrival_s: float
    seconds: float
    gpus: float
    cores: float
    user: str

    @classmethod
    def of(cls, job: TrueJob, seconds: float | None = None) -> Known:
        gpus = sum(len(part.nodes) * part.gpus for part in job.parts)
        cores = sum(len(part.nodes) * part.cpus for part in job.parts)
        return cls(job.arrival_s, job.work_s if seconds is None else seconds, gpus, cores, job.user)


def draw_jobs(rng: Random, *, again: bool = True) -> list[TrueJob]:
    """Jobs of a small site: arrays, heterogeneous and requeued ones, and ids that are used again. A third of the logs
    lies around a change to or from summer time.
    """
    base_s = rng.choice((1_700_000_000, 1_761_436_000, 1_774_740_000, 1_761_429_600)) + rng.randrange(3600)
    jobs: list[TrueJob] = []
    number = rng.randrange(1, 90_000)
    for _ in range(rng.randint(1, 9)):
        number += rng.randint(1, 4)
        base_s += rng.choice((0, 7, 300, 1800))
        limit = rng.choice((None, 30, 60, 1440))
        form = rng.choice(("plain", "plain", "plain", "array", "het", "requeued", "suspended"))
        count = rng.randint(2, 4) if form == "array" else 1
        for task in range(count):
            wait_s, held_s = rng.choice((0, 1, 400, 5000)), rng.choice((0, 0, 60))
            attempts = [_attempt(rng, base_s, held_s, wait_s)]
            if form == "requeued":
                attempts[0] = replace(attempts[0], state=rng.choice(("REQUEUED", "PREEMPTED", "NODE_FAIL")))
                attempts.append(_attempt(rng, attempts[0].end_s, 121, wait_s))
            run_s = attempts[-1].end_s - attempts[-1].start_s
            jobs.append(
                TrueJob(
                    f"{number}_{task}" if form == "array" else str(number),
                    rng.choice(_USERS),
                    rng.choice(("bio", "phys", "")),
                    tuple([_part(rng) for _ in range(2 if form == "het" else 1)]),
                    tuple(attempts),
                    limit,
                    rng.randrange(run_s) if form == "suspended" and run_s else 0,
                    rng.choice(PHRASES),
                )
            )
    if again and rng.random() < 0.2:
        old = rng.choice(jobs)
        shift = 400 * 86400
        moved = [
            replace(one, submit_s=one.submit_s + shift, eligible_s=one.eligible_s + shift, start_s=one.start_s + shift,
                    end_s=one.end_s + shift)
            for one in old.attempts
        ]  # fmt: skip
        jobs.append(replace(old, attempts=tuple(moved), user=rng.choice(_USERS)))
    return jobs


def _attempt(rng: Random, submit_s: int, held_s: int, wait_s: int) -> Attempt:
    start_s = submit_s + held_s + wait_s
    end_s = start_s + rng.choice((0, 1, 59, 1200, 3600, 7260, 90_000))
    return Attempt(
        submit_s, submit_s + held_s, start_s, end_s, rng.choice(("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED"))
    )


def _part(rng: Random) -> Part:
    nodes = tuple([f"n{number:02}" for number in sorted(rng.sample(range(1, 30), rng.choice((1, 1, 2, 4))))])
    return Part(nodes, rng.choice((0, 1, 4)), rng.choice(_TYPES), rng.choice((1, 8, 16)), rng.choice((1024, 4096)))


def clock(seconds: int, zone: ZoneInfo | None, unset: bool = False) -> str:
    if unset:
        return "Unknown"
    return (
        str(seconds)
        if zone is None
        else datetime.fromtimestamp(seconds, UTC).astimezone(zone).strftime("%Y-%m-%dT%H:%M:%S")
    )


def span(seconds: int) -> str:
    days, rest = divmod(seconds, 86400)
    return f"{days}-" * bool(days) + f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"


def finished(rng: Random, *, nodes: int | None = None) -> list[tuple[TrueJob, Attempt, Part]]:
    """Jobs of one part and one attempt, on at most ``nodes`` nodes."""
    found = []
    for job in draw_jobs(rng, again=False):
        part = job.parts[0] if nodes is None else replace(job.parts[0], nodes=job.parts[0].nodes[:nodes])
        job = replace(job, parts=(part,), attempts=job.attempts[-1:], suspended_s=0)
        found.append((job, job.attempts[0], part))
    return found
