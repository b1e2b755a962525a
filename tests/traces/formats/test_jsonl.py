"""dagsim's own JSON Lines through the same door as every other trace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dagsim.errors import TraceError
from dagsim.model import Job, Task
from dagsim.traces import open_trace, recognise
from dagsim.workload.records import write_jobs

Reading = Callable[..., Any]


def test_the_sample_is_recognised_and_read(read: Reading, samples: Path) -> None:
    path = samples / "jsonl" / "jobs.jsonl"
    assert recognise(path) == "jsonl"
    got = read(path)
    first, second = got.jobs
    assert (first.id, first.arrival_s, first.tenant) == ("one", 0, "red")
    assert first.graph.edges == ((0, 1, 2e6),)
    assert first.tasks[1].gpu_types == ("T4",)
    assert (second.arrival_s, second.deadline_s, second.priority) == (5.25, 97, 2)
    assert got.trace.meta == {"origin_s": 3}
    assert got.trace.assumptions == {"work": "seconds on a T4"}


@pytest.mark.family("formats")
@pytest.mark.parametrize("name", ["w.jsonl", "w.jsonl.gz"])
def test_another_trace_written_and_read_again_is_the_same(
    read: Reading, samples: Path, tmp_path: Path, name: str
) -> None:
    jobs = read(samples / "alibaba2018" / "batch_task.csv").jobs
    write_jobs(tmp_path / name, jobs)
    assert read(tmp_path / name).jobs == jobs


def test_a_damaged_line_is_an_error_with_its_place(samples: Path, tmp_path: Path) -> None:
    text = (samples / "jsonl" / "jobs.jsonl").read_text().replace('"work":600.0', '"work":-1')
    (tmp_path / "w.jsonl").write_text(text)
    with pytest.raises(TraceError, match=r"w\.jsonl:3: task 'fit': work must be 0 or more"):
        list(open_trace(tmp_path / "w.jsonl").jobs())


@pytest.mark.parametrize(
    "constraint", ["(" * 9000 + "a" + ")" * 9000, "!" * 20_000 + "a", "[" * 5000 + "a" + "]" * 5000]
)
def test_a_constraint_that_is_nested_too_deeply_is_an_error_with_its_place(tmp_path: Path, constraint: str) -> None:
    write_jobs(tmp_path / "w.jsonl", [Job.single("j", Task("t", 1.0))])
    lines = (tmp_path / "w.jsonl").read_text().splitlines()
    lines[1] = lines[1].replace('"id"', f'"request":{{"constraint":"{constraint}"}},"id"', 1)
    (tmp_path / "w.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(TraceError, match=r"w\.jsonl:2: constraint .*: nested too deeply"):
        list(open_trace(tmp_path / "w.jsonl").jobs())
