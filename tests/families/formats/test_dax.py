"""Pegasus DAX: jobs, edges and the files between them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dagsim.errors import TraceError
from dagsim.traces import open_trace

Reading = Callable[..., Any]


def test_a_file_is_a_job_with_bytes_on_its_edges(read: Reading, samples: Path) -> None:
    got = read(samples / "dax" / "sample.xml")
    (job,) = got.jobs
    assert got.trace.format == "dax"
    assert [(task.name, task.work, task.cpus) for task in job.tasks] == [("ID0", 2.5, 1), ("ID1", 4, 1), ("ID2", 0, 1)]
    assert [tuple(edge) for edge in job.graph.edges] == [(0, 1, 300), (0, 2, 700), (1, 2, 0)]


def test_missing_parents_and_doubled_edges_are_noted(read: Reading, samples: Path) -> None:
    assert read(samples / "dax" / "sample.xml").noted == {
        "edges given twice": 1,
        "edges to missing tasks (taken as satisfied)": 1,
    }


def test_broken_xml_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text('<adag>\n<job id="1" runtime="2">\n</adag>\n')
    with pytest.raises(TraceError, match=r"a\.xml:3: invalid XML"):
        list(open_trace(tmp_path / "a.xml").jobs())


def test_runtimes_drawn_below_0_count_as_0_and_are_noted(read: Reading, tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text('<adag><job id="1" runtime="-2"/><job id="2" runtime="3"/></adag>\n')
    got = read(tmp_path / "a.xml")
    assert [task.work for task in got.jobs[0].tasks] == [0, 3]
    assert got.noted == {"jobs with a negative runtime (taken as 0)": 1}


@pytest.mark.data
@pytest.mark.parametrize(
    ("file", "jobs"),
    [("Epigenomics_46.xml.gz", 47), ("Sipht_100.xml.gz", 97), ("Sipht_60.xml.gz", 58), ("Sipht_30.xml.gz", 29),
     ("HEFT_paper.xml", 10), ("Montage_1000.xml.gz", 1000)],
)  # fmt: skip
def test_files_have_the_jobs_they_hold_not_those_they_promise(read: Reading, data: Path, file: str, jobs: int) -> None:
    got = read(data / "traces" / "pegasus-dax" / file)
    assert (len(got.jobs), len(got.jobs[0].tasks)) == (1, jobs)


@pytest.mark.data
def test_every_file_is_read_without_a_loss(read: Reading, data: Path) -> None:
    for path in sorted((data / "traces" / "pegasus-dax").iterdir()):
        if path.suffix in (".gz", ".xml", ".dax"):
            assert read(path).dropped == {}, path.name


@pytest.mark.parametrize("encoding", ["UT.F-8", "shift_jis", "hex"])
def test_an_encoding_that_cannot_be_read_is_said(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.xml"
    path.write_text(f'<?xml version="1.0" encoding="{encoding}"?><adag><job id="a" runtime="1"/></adag>')
    with pytest.raises(TraceError, match=r"a\.xml:1: the declared encoding is not supported"):
        list(open_trace(path, "dax").jobs())
