"""The jobs of a schedule as JSON, with the shapes of their graphs."""

from __future__ import annotations

import json
from typing import Any

from dagsim.model import JobFacts
from dagsim.model.log import Schedule

__all__ = ["FACTS", "jobs_from", "jobs_text"]

FACTS = tuple(name for name in JobFacts._fields if name != "parents")
"""The facts of each job, in order."""

_ALONE: tuple[tuple[int, ...], ...] = ((),)


def jobs_text(schedule: Schedule) -> str:
    """Seed, end and jobs; distinct graphs once, and only where a job has several tasks."""
    known = {
        "fields": FACTS,
        "seed": schedule.seed,
        "ended_s": schedule.ended_s,
        "jobs": [job[: len(FACTS)] for job in schedule.jobs],
    }
    if any(len(job.parents) > 1 for job in schedule.jobs):
        places: dict[tuple[tuple[int, ...], ...], int] = {}
        shape = [places.setdefault(job.parents, len(places)) for job in schedule.jobs]
        known["graphs"] = {"parents": list(places), "of": shape}
    return json.dumps(known)


def jobs_from(known: dict[str, Any]) -> list[JobFacts]:
    """The jobs again. Of those of several tasks that an older dagsim wrote, the parents are not known.

    Raises:
        KeyError, TypeError, ValueError, IndexError: It is something else.
    """
    graphs = known.get("graphs")
    if graphs is None:
        parents = [_ALONE if len(fact[-1]) == 1 else () for fact in known["jobs"]]
    else:
        shapes = [tuple(map(tuple, each)) for each in graphs["parents"]]
        parents = [shapes[place] for place in graphs["of"]]
    facts = zip(known["jobs"], parents, strict=True)
    return [JobFacts._make((*fact[:-1], tuple(fact[-1]), each)) for fact, each in facts]
