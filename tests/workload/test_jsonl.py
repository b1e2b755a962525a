from __future__ import annotations

import gzip
import json
import re
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagsim.errors import TraceError, WorkloadError
from dagsim.model import Edge, InFlight, Job, Request, Share, Task, TaskGraph
from dagsim.workload.arrays import JobArrays
from dagsim.workload.records import job_of, read_jobs, read_meta, record_of, write_jobs

HEADER = '{"format": "dagsim-workload", "version": 1}\n'

amounts = st.floats(0, 1e300, allow_nan=False)
tasks = st.builds(
    Task,
    name=st.text(),
    work=amounts,
    instances=st.integers(1, 10**9),
    gang=st.booleans(),
    gpus=st.floats(0, 1) | st.integers(0, 64).map(float),
    cpus=amounts,
    memory_gb=amounts,
    gpu_types=st.none() | st.lists(st.text(), min_size=1).map(tuple),
    speeds=st.none() | st.dictionaries(st.text(), amounts),
    model=st.none() | st.text(),
    batch=st.none() | st.integers(1, 10**6),
    estimate=st.none() | amounts,
)


@st.composite
def jobs(draw):
    listed = draw(st.lists(tasks, min_size=1, max_size=5, unique_by=lambda task: task.name))
    pairs = [(parent, child) for child in range(len(listed)) for parent in range(child)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    edges = tuple(Edge(*pair, draw(amounts)) for pair in chosen)
    arrival_s = draw(st.floats(0, 1e12))
    return Job(
        draw(st.text()),
        TaskGraph(tuple(listed), edges),
        arrival_s,
        draw(st.floats(allow_nan=False, allow_infinity=False)),
        draw(st.text()),
        draw(st.none() | st.floats(arrival_s, 1e300)),
        draw(st.floats(1e-300, 1e300)),
    )


@settings(deadline=None)
@given(st.lists(jobs(), max_size=4), st.sampled_from(["w.jsonl", "w.jsonl.gz"]))
def test_what_is_written_is_read_back_exactly(job_list, name):
    job_list.sort(key=lambda job: job.arrival_s)
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        assert write_jobs(path, job_list, {"seed": 3}) == len(job_list)
        assert list(read_jobs(path)) == job_list
        assert read_meta(path) == {"seed": 3}


def test_a_small_file_reads_as_people_would_write_it(tmp_path):
    path = tmp_path / "w.jsonl"
    path.write_text(
        HEADER + '{"id": "j", "tasks": [{"name": "map", "work": 30, "instances": 4}, {"name": "reduce", "work": 9.0}],'
        ' "edges": [[0, 1, 2e6]]}\n\n'
    )
    graph = TaskGraph((Task("map", 30.0, 4), Task("reduce", 9.0)), (Edge(0, 1, 2e6),))
    assert list(read_jobs(path)) == [Job("j", graph)]
    assert read_meta(path) == {}


def test_defaults_are_left_out():
    assert record_of(Job.single("j", Task("t", 5.0))) == {"id": "j", "tasks": [{"name": "t", "work": 5.0}]}


def test_every_field_of_the_model_is_written():
    for value in (Task("t", 1.0), Job.single("j", Task("t", 1.0))):
        named = {field.name for field in fields(value) if field.init} - {"graph", "elastic"}
        assert named <= set(re.findall(r"\w+", refusal(value)))


def refusal(value):
    record = {"nonsense": 1} if isinstance(value, Job) else {"id": "j"}
    record["tasks"] = [{"name": "t", "work": 1, "nonsense": 1}]
    with pytest.raises(Exception, match="there is no such field; known:") as error:
        job_of(record)
    return str(error.value)


@pytest.mark.parametrize("numbers", [(8, 4.0), (8.0, 4)])
def test_whole_numbers_are_written_as_they_are_whatever_was_read_before(numbers):
    for gpus, cpus in ((8, 4.0), numbers):
        job = Job("a", TaskGraph((Task("t", 1.0, gpus=gpus, cpus=cpus),)))
        (read_back,) = JobArrays.of([job]).jobs()
        assert str(record_of(read_back)) == str(record_of(job))


def test_equal_jobs_make_equal_bytes(tmp_path):
    job_list = [Job.single("j", Task("t", 5.0))]
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        write_jobs(tmp_path / name, job_list)
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()


def test_a_file_is_read_as_it_is_asked_for(tmp_path):
    path = tmp_path / "w.jsonl"
    path.write_text(HEADER + '{"id": "j", "tasks": [{"name": "t", "work": 1}]}\nrubbish\n')
    reading = read_jobs(path)
    assert next(reading).id == "j"
    with pytest.raises(TraceError, match=r"w\.jsonl:3: the line is not valid JSON"):
        next(reading)


TASK = '{"name": "t", "work": 1}'


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("[1]", "must be a JSON object"),
        ("[" * 100_000, "the line is not valid JSON"),
        ('{"id": "j"}', "tasks: must be a list, got None"),
        (f'{{"tasks": [{TASK}]}}', "id: is missing"),
        ('{"id": "j", "tasks": []}', "at least one task"),
        ('{"id": "j", "tasks": [3]}', r"tasks\[0\]: must be a task, got 3"),
        ('{"id": "j", "tasks": [{"name": "t"}]}', r"tasks\[0\]\.work: is missing"),
        (
            '{"id": "j", "tasks": [{"name": "t", "work": "long"}]}',
            r"tasks\[0\]\.work: must be a finite number, got 'l",
        ),
        ('{"id": "j", "tasks": [{"name": "t", "work": true}]}', r"tasks\[0\]\.work: must be a finite number"),
        ('{"id": "j", "tasks": [{"name": "t", "work": NaN}]}', "NaN is not a JSON number"),
        ('{"id": "j", "tasks": [{"name": "t", "work": -1}]}', "task 't': work must be 0 or more"),
        ('{"id": "j", "tasks": [{"name": "t", "work": 1, "gpus": 1' + "0" * 400 + "}]}", r"tasks\[0\]\.gpus"),
        ('{"id": "j", "tasks": [{"name": "t", "work": 1, "gpus": 1.5}]}', "gpus must be"),
        ('{"id": "j", "tasks": [{"name": "t", "work": 1, "instances": 1.5}]}', r"tasks\[0\]\.instances: .* whole"),
        (
            '{"id": "j", "tasks": [{"name": "t", "work": 1, "instances": 1000000000000}]}',
            r"instances: .* up to 2,147,483,647",
        ),
        ('{"id": "j", "tasks": [{"name": "t", "work": 1, "gang": 1}]}', r"tasks\[0\]\.gang: must be true or false"),
        ('{"id": "j", "tasks": [{"name": "t", "work": 1, "gpu_types": "T4"}]}', r"tasks\[0\]\.gpu_types"),
        ('{"id": "j", "tasks": [{"name": "t", "work": 1, "speeds": {"T4": "x"}}]}', r"tasks\[0\]\.speeds"),
        (f'{{"id": "j", "tasks": [{TASK}], "piority": 1}}', "piority: there is no such field"),
        (f'{{"id": "j", "tasks": [{TASK}], "edges": 1}}', "edges: must be a list"),
        (f'{{"id": "j", "tasks": [{TASK}], "edges": [[0]]}}', r"edges\[0\]: must be \[parent, child\]"),
        (f'{{"id": "j", "tasks": [{TASK}], "edges": [[0, true]]}}', r"edges\[0\]"),
        (f'{{"id": "j", "tasks": [{TASK}], "edges": [[0, 7]]}}', "refers to a missing task; number of tasks: 1"),
        (f'{{"id": "j", "tasks": [{TASK}], "edges": [[0, 0]]}}', "depends on itself"),
        (f'{{"id": "j", "tasks": [{TASK}], "arrival_s": -1}}', "arrival_s must be 0 or more"),
        (
            f'{{"id": "j", "tasks": [{TASK}], "arrival_s": 1}}',
            r"arrival_s: 1 is before the arrival of the previous job, 5",
        ),
    ],
)
def test_a_bad_line_names_file_line_and_field(tmp_path, line, named):
    path = tmp_path / "w.jsonl"
    path.write_text(HEADER + f'{{"id": "first", "arrival_s": 5, "tasks": [{TASK}]}}\n' + line + "\n")
    with pytest.raises(TraceError, match=named) as error:
        list(read_jobs(path))
    assert str(error.value).startswith(f"{path}:3: ")


@pytest.mark.parametrize(
    ("header", "named"),
    [
        ("", "not a dagsim workload"),
        ("job,arrival\n", "not a dagsim workload"),
        ('{"format": "other", "version": 1}\n', "not a dagsim workload"),
        ('{"format": "dagsim-workload", "version": 1, "meta": 3}\n', "not a dagsim workload"),
        ('{"format": "dagsim-workload", "version": 2}\n', "version: 2 cannot be read"),
    ],
)
def test_another_format_or_version_is_refused(tmp_path, header, named):
    path = tmp_path / "w.jsonl"
    path.write_text(header)
    for read in (lambda: list(read_jobs(path)), lambda: read_meta(path)):
        with pytest.raises(TraceError, match=named) as error:
            read()
        assert str(error.value).startswith(f"{path}:1: ")


def test_bytes_that_cannot_be_read_are_a_trace_error(tmp_path):
    with pytest.raises(TraceError, match=r"absent\.jsonl:1: cannot be read"):
        list(read_jobs(tmp_path / "absent.jsonl"))
    binary = tmp_path / "w.jsonl"
    binary.write_bytes(HEADER.encode() + b"\xff\xfe\n")
    with pytest.raises(TraceError, match="cannot be read"):
        list(read_jobs(binary))
    plain = tmp_path / "plain.jsonl.gz"
    plain.write_text(HEADER)
    with pytest.raises(TraceError, match="cannot be read"):
        list(read_jobs(plain))


@pytest.mark.parametrize("damage", [lambda whole: whole[:-20], lambda whole: whole[:200] + b"\0" * 50 + whole[250:]])
def test_a_damaged_archive_is_a_trace_error(tmp_path, damage):
    path = tmp_path / "w.jsonl.gz"
    write_jobs(path, [Job.single(f"job-{number}", Task("t", 5.0 * number)) for number in range(500)])
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(TraceError, match="cannot be read"):
        list(read_jobs(path))


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "w.jsonl"
    write_jobs(path, [Job.single("old", Task("t", 1.0))])
    with pytest.raises(WorkloadError, match="before the job that was written last"):
        write_jobs(path, [Job.single("late", Task("t", 1.0), 5.0), Job.single("early", Task("t", 1.0), 4.0)])
    assert [job.id for job in read_jobs(path)] == ["old"]
    assert [file.name for file in tmp_path.iterdir()] == ["w.jsonl"]


def test_what_json_cannot_say_is_refused(tmp_path):
    with pytest.raises(WorkloadError, match="'j' cannot be written"):
        write_jobs(tmp_path / "w.jsonl", [Job.single("j", Task("t", 1.0), deadline_s=float("inf"))])
    with pytest.raises(WorkloadError, match="header cannot be written"):
        write_jobs(tmp_path / "w.jsonl", [], {"seed": object()})


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(WorkloadError, match="cannot be written"):
        write_jobs(tmp_path / "absent" / "w.jsonl", [])


def test_a_compressed_file_is_a_gzip_of_the_plain_one(tmp_path):
    job_list = [Job.single("j", Task("t", 5.0, speeds={"T4": 0.5}))]
    write_jobs(tmp_path / "w.jsonl", job_list)
    write_jobs(tmp_path / "w.jsonl.gz", job_list)
    assert gzip.decompress((tmp_path / "w.jsonl.gz").read_bytes()) == (tmp_path / "w.jsonl").read_bytes()
    assert [json.loads(line) for line in (tmp_path / "w.jsonl").read_text().splitlines()][1]["id"] == "j"


def test_instances_in_flight_are_written_and_read_back(tmp_path: Path) -> None:
    job = Job.single("j", Task("t", 9.0, instances=3), 1.0, in_flight=(InFlight(2.0, (Share(0, 2), Share(4, 1, 3))),))
    write_jobs(tmp_path / "jobs.jsonl", [job])
    assert list(read_jobs(tmp_path / "jobs.jsonl")) == [job]
    text = (tmp_path / "jobs.jsonl").read_text().replace("[0,2,null]", "[0,2]")
    (tmp_path / "jobs.jsonl").write_text(text)
    with pytest.raises(TraceError, match="in_flight: must be a list of"):
        list(read_jobs(tmp_path / "jobs.jsonl"))


@pytest.mark.parametrize(
    "request_",
    [
        Request(level="rack"),
        Request(level="pod", level_required=False, segment=4),
        Request(
            "a|b", ("x", "y"), "r", (("matlab", 2),), True, False, "7", 3, ("5", "6_1"), True, 60.0, "host", True, 1
        ),
    ],
)
def test_terms_are_written_and_read_again(request_: Request, tmp_path: Path) -> None:
    job = Job.single("j", Task("t", 1.0), request=request_)
    write_jobs(tmp_path / "jobs.jsonl", [job])
    assert [one.request for one in read_jobs(tmp_path / "jobs.jsonl")] == [request_]
