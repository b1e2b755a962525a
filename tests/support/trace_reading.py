"""Fixtures of tests of readers: the hand-written samples, and a trace read to its end."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from dagsim.model import Job
from dagsim.traces import Trace, TraceOptions, open_trace


class Read(NamedTuple):
    """A trace and all its jobs, also by id."""

    trace: Trace
    jobs: list[Job]

    def job(self, id: str) -> Job:
        return next(job for job in self.jobs if job.id == id)

    @property
    def dropped(self) -> dict[str, int]:
        return dict(self.trace.report.dropped)

    @property
    def noted(self) -> dict[str, int]:
        return dict(self.trace.report.noted)


@pytest.fixture(scope="session")
def samples() -> Path:
    """The samples that the project ships."""
    return Path(__file__).parents[2] / "workloads" / "samples"


class ReadTrace:
    def __call__(self, path: Path | str, format: str | None = None, **options: object) -> Read:
        trace = open_trace(path, format, TraceOptions(**options), full_report=True)  # type: ignore[arg-type]
        jobs = list(trace.jobs())
        assert trace.report.open == 0, f"rows without a fate: {trace.report}"
        assert trace.report.jobs == len(jobs)
        arrivals = [job.arrival_s for job in jobs]
        assert arrivals == sorted(arrivals)
        assert arrivals[0] == 0
        return Read(trace, jobs)


@pytest.fixture(scope="session")
def read() -> ReadTrace:
    """Reads a trace to its end and checks what holds of every one."""
    return ReadTrace()
