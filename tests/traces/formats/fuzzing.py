"""A case of fuzzing: one damaged sample, and everything that can be asked of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from traces.formats.damage import PACKINGS, damaged, packed
from traces.formats.in_columns import ways

from dagsim.errors import TraceError
from dagsim.traces import READERS, TraceOptions, open_trace, reader, recognise
from dagsim.workload.records import MOST_INSTANCES

__all__ = ["SAMPLES", "Sample", "try_case"]


class Sample(NamedTuple):
    """A valid trace, and which of its files is damaged."""

    format: str
    opened: str
    damaged: str
    options: tuple[tuple[str, Any], ...] = ()


_MAP = "id=JobName,arrival_s=submit_time,gpus=NumGPUs,tenant=Owner"
_MAP_JSON = "id=job_id,arrival_s=submitted_at,gpus=resources.n_gpu,start_s=started_at,end_s=ended_at,tenant=team"

SAMPLES = tuple(
    Sample(*row)
    for row in (
        ("acme", "trace_seren.csv", "trace_seren.csv"),
        ("acme", "trace_kalos.csv", "trace_kalos.csv"),
        ("alibaba2017", "batch_task.csv", "batch_task.csv"),
        ("alibaba2018", "batch_task.csv", "batch_task.csv"),
        ("alibaba2018", "batch_task.csv", "machine_meta.csv"),
        ("alibaba2025", "disaggregated_DLRM_sample.csv", "disaggregated_DLRM_sample.csv"),
        ("alibaba2026", "job_info_df.csv", "job_info_df.csv"),
        ("alibaba2026", "job_info_df.csv", "node_info_df.csv"),
        ("batsim", "delays.json", "delays.json"),
        ("dax", "sample.xml", "sample.xml"),
        ("eagle", "eagle_data.csv", "eagle_data.csv"),
        ("fdata", "21_03.csv", "21_03.csv"),
        ("frontier", "frontier-completed-job-info.csv", "frontier-completed-job-info.csv"),
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
        ("flux", "jobs.json", "jobs.json"),
        ("gridengine", "accounting", "accounting"),
        ("helios", "cluster_log.csv", "cluster_log.csv"),
        ("helios", "cluster_log.csv", "cluster_gpu_number.csv"),
        ("htcondor", "history.json", "history.json"),
        ("htcondor", "history", "history"),
        ("itp", "cluster01.csv", "cluster01.csv"),
        ("itp", "elastic.csv", "elastic.csv"),
        ("jsonl", "jobs.jsonl", "jobs.jsonl"),
        ("kestrel", "kestrel_jobs.csv", "kestrel_jobs.csv"),
        ("kubernetes", "pods.json", "pods.json"),
        ("kubernetes", "workloads.json", "workloads.json"),
        ("kubernetes", "cluster", "cluster/events.json"),
        ("kubernetes-now", "objects.json", "objects.json"),
        ("lsf", "lsb.acct", "lsb.acct"),
        ("openb2023", "openb_pod_list_sample.csv", "openb_pod_list_sample.csv"),
        ("openb2023", "openb_pod_list_sample.csv", "openb_node_list_sample.csv"),
        ("openb2023", "openb_pod_list_untimed.csv", "openb_pod_list_untimed.csv"),
        ("pai2020", ".", "pai_job_table.csv"),
        ("pai2020", ".", "pai_task_table.csv"),
        ("pai2020", ".", "pai_task_table.header"),
        ("pai2020", ".", "pai_instance_table.csv"),
        ("pai2020", ".", "pai_group_tag_table.csv"),
        ("pai2020", ".", "pai_machine_spec.csv"),
        ("pai2020", "pai_job_duration_sample.csv", "pai_job_duration_sample.csv"),
        ("pai2020", "hydra_sample.csv", "hydra_sample.csv"),
        ("pbs", "20260105", "20260105"),
        ("pbs", "qstat-x.json", "qstat-x.json"),
        ("philly", "cluster_job_log", "cluster_job_log"),
        ("philly", "philly_list.csv", "philly_list.csv"),
        ("pipedream", "tiny.txt", "tiny.txt"),
        ("plain", "foreign.csv", "foreign.csv", (("map", f"{_MAP},duration_s=runtime"),)),
        ("plain", "foreign.jsonl", "foreign.jsonl", (("map", _MAP_JSON),)),
        ("plain", "jobs.csv", "jobs.csv"),
        ("pm100", "job_table.csv", "job_table.csv"),
        ("plain", "tasks.csv", "tasks.csv"),
        ("qstat", "qstat.txt", "qstat.txt"),
        ("sacct", "jobs.txt", "jobs.txt"),
        ("sacct", "jobs.json", "jobs.json"),
        ("slurm-events", "small.events", "small.events"),
        ("squeue", "squeue.json", "squeue.json"),
        ("stg", "rand0.stg", "rand0.stg"),
        ("stg", ".", "rand1.stg"),
        ("swf", "sample.swf", "sample.swf"),
        ("tiresias", "muri.csv", "muri.csv"),
        ("tiresias", "sia.csv", "sia.csv"),
        ("tiresias", "tiresias.csv", "tiresias.csv"),
        ("tpch", "tpch_dags.json", "tpch_dags.json"),
        ("wfcommons", "v13.json", "v13.json"),
        ("wfcommons", "v15.json", "v15.json"),
    )
    if row[0] in READERS  # a family may be missing
)
"""All below ``workloads/samples/<format>``."""


_OPTIONS: dict[str, tuple[Any, ...]] = {
    "keep_partial": (True,),
    "gpus_per_task": (0.5, 2),
    "reference_gpu": ("T4",),
    "floor_s": (1.0,),
    "processors": (1, 64),
    "timezone": ("Europe/Berlin",),
    "tenant": ("user", "partition"),
    "demand": ("requested",),
    "arrival": ("qtime",),
    "count_pull": (True,),
    "mig": (True,),
    "shards": (8,),
    "gpu_names": ("a100=A100-80",),
    "time_scale": (0.5, 1e6),
    "start": (1,),
    "limit": (2,),
}
"""Values that a case may give the options that a format heeds."""

_TABLES = ("alibaba2017", "alibaba2018", "gavel", "google2011", "google2019", "helios", "itp", "kubernetes",
           "kubernetes-now", "openb2023", "pai2020", "pbs", "philly", "plain", "sacct", "swf", "tiresias")  # fmt: skip
"""Formats that can be read in several ways."""

_MANY_JOBS = 100_000  # more than any damage to a sample can make

_WHOLE = (
    "the trace has no usable jobs",
    "not recognised",
    "not a log of jobs that dagsim reads",
    "could be any of",
    "the times of its machines",
    "no pai_task_table",
    "contains no files",
    "JSON Lines can only be read from a single file",
    "the time scale",
    "has no column",
)
"""What is said of a trace as a whole, without a line."""


def try_case(sample: Sample, seed: int, original: Path, folder: Path) -> str:
    """Damage one file of ``sample`` in ``folder``, a copy of ``original``, read it, and mend it.

    ``read`` or ``refused``. Raises whatever a reader should not have raised, and AssertionError for an error that does
    not say where it is.
    """
    rng = Random(f"{sample} {seed}")
    with _damage(sample, rng, original, folder) as path:
        return _read_all(sample, path, folder, rng)


@contextmanager
def _damage(sample: Sample, rng: Random, original: Path, folder: Path) -> Iterator[Path]:
    """The path to open."""
    content = (original / sample.format / sample.damaged).read_bytes()
    packing = rng.choice(PACKINGS)
    spoilt = damaged(content, rng) if not packing or rng.random() < 0.7 else content
    whole = folder / sample.format / sample.damaged
    file = whole.with_name(whole.name + packing) if packing.startswith(".tar") else whole  # gzip is told by content
    whole.unlink()
    try:
        file.write_bytes(packed(spoilt, sample.damaged, packing, rng))
        yield file if sample.opened == sample.damaged else folder / sample.format / sample.opened
    finally:
        file.unlink()
        whole.write_bytes(content)


def _read_all(sample: Sample, path: Path, folder: Path, rng: Random) -> str:
    heeded = {"time_scale", "start", "limit"} | reader(sample.format).uses
    extra = {name: rng.choice(values) for name, values in _OPTIONS.items() if name in heeded and rng.random() < 0.15}
    options = TraceOptions(strict=rng.random() < 0.3, **extra, **dict(sample.options))
    trace = open_trace(path, sample.format, options)
    refused = False

    def all_jobs() -> None:
        jobs = list(islice(trace.jobs(), _MANY_JOBS))
        assert len(jobs) < _MANY_JOBS, "a small file of very many jobs"
        assert all(task.instances <= MOST_INSTANCES for job in jobs for task in job.tasks)

    for step in (all_jobs, trace.cluster, trace.downtimes, lambda: trace.assumptions, lambda: recognise(path)):
        try:
            step()
        except TraceError as error:
            refused = refused or step is all_jobs
            _check_that_it_names_the_place(str(error), folder)
    if sample.format in _TABLES:
        first, *others = ways(path, sample.format, options)
        assert all(other == first for other in others), "in blocks or parts other than by rows"
    assert trace.report.open >= 0
    assert trace.report.kept >= 0
    str(trace.report)
    return "refused" if refused else "read"


def _check_that_it_names_the_place(message: str, folder: Path) -> None:
    """``file:line``, or for what is wrong with a trace as a whole its path and the counts or formats."""
    message = re.sub(r"^--map \S+: ", "", message)  # the option is named first
    assert message.startswith(str(folder)), message
    place = message.removeprefix(str(folder))
    assert re.match(r"[^:]*(:[^:]*)?:\d+: ", place) or any(words in place for words in _WHOLE), message
    assert len(message) < 20_000, f"a message of {len(message):,} characters: {message[:200]} ... {message[-200:]}"
