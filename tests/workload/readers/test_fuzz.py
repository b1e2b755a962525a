"""Damaged traces: whatever is done to a sample, a reader reads on with counts or says file and line. Never a traceback.

``DAGSIM_FUZZ=5000 pytest tests/workload/readers/test_fuzz.py`` tries 5,000 damages per sample instead of a few.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dagsim.errors import TraceError
from dagsim.workload.readers import TraceOptions, open_trace, reader, recognise

SAMPLES = (
    ("alibaba2017", "batch_task.csv", "batch_task.csv"),
    ("alibaba2018", "batch_task.csv", "batch_task.csv"),
    ("alibaba2018", "batch_task.csv", "machine_meta.csv"),
    ("dax", "sample.xml", "sample.xml"),
    ("gavel", "msr.trace", "msr.trace"),
    ("gavel", "physical.trace", "sample_throughputs.json"),
    ("gavel", "shockwave.trace", "shockwave.trace"),
    ("google2011", ".", "task_events/part-00001-of-00002.csv"),
    ("google2011", ".", "job_events/part-00000-of-00001.csv"),
    ("google2011", ".", "machine_events/part-00000-of-00001.csv"),
    ("google2019", "csv", "csv/instance_events-000000000000.csv"),
    ("google2019", "csv", "csv/collection_events.csv"),
    ("google2019", "csv", "csv/machine_events.csv"),
    ("google2019", "json", "json/instance_events.json"),
    ("google2019", "kaggle_sample.csv", "kaggle_sample.csv"),
    ("google2019", "2019_x_user_requests.csv", "2019_x_user_requests.csv"),
    ("google2019", "2019_x_user_requests.csv", "2019_x_host_resource.csv"),
    ("helios", "cluster_log.csv", "cluster_log.csv"),
    ("helios", "cluster_log.csv", "cluster_gpu_number.csv"),
    ("itp", "cluster01.csv", "cluster01.csv"),
    ("itp", "elastic.csv", "elastic.csv"),
    ("jsonl", "jobs.jsonl", "jobs.jsonl"),
    ("openb2023", "openb_pod_list_sample.csv", "openb_pod_list_sample.csv"),
    ("openb2023", "openb_pod_list_sample.csv", "openb_node_list_sample.csv"),
    ("pai2020", ".", "pai_job_table.csv"),
    ("pai2020", ".", "pai_task_table.csv"),
    ("pai2020", ".", "pai_task_table.header"),
    ("pai2020", ".", "pai_instance_table.csv"),
    ("pai2020", ".", "pai_group_tag_table.csv"),
    ("pai2020", ".", "pai_machine_spec.csv"),
    ("pai2020", "pai_job_duration_sample.csv", "pai_job_duration_sample.csv"),
    ("pai2020", "hydra_sample.csv", "hydra_sample.csv"),
    ("philly", "cluster_job_log", "cluster_job_log"),
    ("philly", "philly_list.csv", "philly_list.csv"),
    ("pipedream", "tiny.txt", "tiny.txt"),
    ("plain", "jobs.csv", "jobs.csv"),
    ("plain", "tasks.csv", "tasks.csv"),
    ("stg", "rand0.stg", "rand0.stg"),
    ("swf", "sample.swf", "sample.swf"),
    ("tiresias", "muri.csv", "muri.csv"),
    ("tiresias", "sia.csv", "sia.csv"),
    ("tpch", "tpch_dags.json", "tpch_dags.json"),
    ("wfcommons", "v13.json", "v13.json"),
    ("wfcommons", "v15.json", "v15.json"),
)
"""Format, what is opened, and which of its files is damaged; all below ``workloads/samples/<format>``."""

FIELDS = (
    "", "nan", "inf", "-inf", "-1", "0", "1e999", "9" * 400, "9" * 5000, "9223372036854775807", "-0.0", "1.5", "0x10",
    "1_000", "\u0663", '"', '""', "'", "a,b", "a|b", "M1_1", "M1_2_3", "R99999999999_1", "\x1f", "\0", "\u2028", "\x85",
    "\x0b", "[" * 2000, "{}", "Terminated", "2^63", " 7 ", "\ufeff", "_".join(["M1"] * 50), "-", "|", "/", "1/2",
)  # fmt: skip
EXAMPLES = int(os.environ.get("DAGSIM_FUZZ", "15"))


def flip(content: bytes, at: int, what: int) -> bytes:
    at %= max(1, len(content))
    return content[:at] + bytes([what % 256]) + content[at + 1 :]


def insert(content: bytes, at: int, what: int) -> bytes:
    at %= len(content) + 1
    return content[:at] + (b"\n", b"\r", b'"', b",", b"\0", b"\xff", b"\n\n", b"\x1f")[what % 8] + content[at:]


def truncate(content: bytes, at: int, what: int) -> bytes:
    return content[: at % (len(content) + 1)]


def drop_line(content: bytes, at: int, what: int) -> bytes:
    lines = content.splitlines(keepends=True)
    del lines[at % len(lines) : at % len(lines) + 1 + what % 3]
    return b"".join(lines)


def repeat_line(content: bytes, at: int, what: int) -> bytes:
    lines = content.splitlines(keepends=True)
    lines.insert(what % (len(lines) + 1), lines[at % len(lines)])
    return b"".join(lines)


def set_field(content: bytes, at: int, what: int) -> bytes:
    fields = re.split(rb"([,\n])", content)
    fields[2 * (at % ((len(fields) + 1) // 2))] = FIELDS[what % len(FIELDS)].encode()
    return b"".join(fields)


def swap_fields(content: bytes, at: int, what: int) -> bytes:
    fields = re.split(rb"([,\n])", content)
    one, other = (2 * (place % ((len(fields) + 1) // 2)) for place in (at, what))
    fields[one], fields[other] = fields[other], fields[one]
    return b"".join(fields)


def pack_and_truncate(content: bytes, at: int, what: int) -> bytes:
    packed = gzip.compress(content)
    return packed[: at % (len(packed) + 1)] if what % 2 else flip(packed, at, what)


DAMAGES: tuple[Callable[[bytes, int, int], bytes], ...] = (
    flip, insert, truncate, drop_line, repeat_line, set_field, set_field, set_field, swap_fields, pack_and_truncate,
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz") / "samples"
    shutil.copytree(samples, folder)
    return folder


@pytest.mark.parametrize(("name", "opened", "damaged"), SAMPLES)
@given(seed=st.integers(0, 2**64 - 1))
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damage_is_counted_or_named(
    folder: Path, samples: Path, name: str, opened: str, damaged: str, seed: int
) -> None:
    rng = Random(seed)
    content = (samples / name / damaged).read_bytes()
    for _ in range(rng.randint(1, 4)):
        content = rng.choice(DAMAGES)(content, rng.randrange(1 << 30), rng.randrange(1 << 30)) or b"\n"
    (folder / name / damaged).write_bytes(content)
    try:
        read_all(folder, name, folder / name / opened, rng)
    finally:
        (folder / name / damaged).write_bytes((samples / name / damaged).read_bytes())


def read_all(folder: Path, name: str, path: Path, rng: Random) -> None:
    """Take everything that can be asked of a trace."""
    keep_partial = rng.random() < 0.5 and "keep_partial" in reader(name).uses
    trace = open_trace(path, name, TraceOptions(strict=rng.random() < 0.3, keep_partial=keep_partial))
    for step in (
        lambda: list(trace.jobs()),
        trace.cluster,
        trace.downtimes,
        lambda: trace.assumptions,
        lambda: recognise(path),
    ):
        try:
            step()
        except TraceError as error:
            assert_names_the_place(str(error), folder)
    assert trace.report.open >= 0
    assert trace.report.kept >= 0


def assert_names_the_place(message: str, folder: Path) -> None:
    """``file:line``, or for what is wrong with a trace as a whole its path and the counts or formats."""
    assert message.startswith(str(folder)), message
    place = message.removeprefix(str(folder))
    whole = ("no job to keep", "not recognised", "could be any of", "the times of its machines", "no pai_task_table")
    assert re.match(r"[^:]*:\d+: ", place) or any(words in place for words in whole), message
