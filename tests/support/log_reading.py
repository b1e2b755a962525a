"""What a log says: its rows of a kind, and when jobs start and end. Jobs come in order of arrival."""

from __future__ import annotations

from dagsim.model import Kind
from dagsim.model.log import Record, Schedule, ScheduleLog


def rows_of(log: ScheduleLog, *kinds: Kind) -> list[Record]:
    """The rows of these kinds."""
    return [row for row in log if row.kind in kinds]


def starts(schedule: Schedule) -> dict[str, list[tuple[float, int]]]:
    """Time and node of each start of each job that started; a gang starts on several nodes at once."""
    listed: dict[int, list[tuple[float, int]]] = {}
    for row in rows_of(schedule.log, Kind.STARTED):
        listed.setdefault(row.job, []).append((row.time_s, row.node))
    return {schedule.jobs[job].id: listed[job] for job in sorted(listed)}


def start_times(schedule: Schedule) -> dict[str, list[float]]:
    """Time of each start of each job that started."""
    return {job: [time_s for time_s, _ in placed] for job, placed in starts(schedule).items()}


def first_starts(schedule: Schedule) -> dict[str, float]:
    """Time of the first start of each job that started."""
    return {job: placed[0][0] for job, placed in starts(schedule).items()}


def starts_in_order(schedule: Schedule) -> list[float]:
    """Time of each start of each job that started, without its name."""
    return [time_s for times in start_times(schedule).values() for time_s in times]


def ends(schedule: Schedule) -> dict[str, float]:
    """When each job was completed that was."""
    completed = rows_of(schedule.log, Kind.COMPLETED)
    times = {row.job: row.time_s for row in completed}
    assert len(times) == len(completed)
    return {schedule.jobs[job].id: times[job] for job in sorted(times)}
