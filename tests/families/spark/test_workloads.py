"""Where Spark jobs come from: profiles, made-up queries, traces, files of recorded durations."""

from __future__ import annotations

import gzip
import json
from itertools import islice
from pathlib import Path
from statistics import fmean, median

import pytest
from support.command_line import fine

from dagsim.errors import ModelError, TraceError, WorkloadError
from dagsim.families.spark.api import (
    SPARK_POLICIES,
    RecordedDurations,
    SparkJob,
    SparkKernel,
    parity_sequence,
    read_dump,
    read_profiles,
    sequence,
    synthetic_profiles,
    trace_jobs,
    write_dump,
)

SAMPLES = Path(__file__).parents[3] / "workloads" / "samples"


@pytest.fixture(scope="module")
def synthetic() -> list[SparkJob]:
    return synthetic_profiles()


def work_s(job: SparkJob, level: int = 5) -> float:
    """Executor-seconds of later tasks alone."""
    return sum(waves.tasks * fmean(waves.at[level][2]) for waves in job.durations) / 1000  # type: ignore[union-attr]


def test_synthetic_queries_look_like_the_profiled_ones(synthetic: list[SparkJob]) -> None:
    # The profiles: 9.18 stages, 5.86 deep, 3.55 scans, 1155 tasks, 628 s of work (median 277 s), 67 % in 35 jobs.
    work = sorted(map(work_s, synthetic), reverse=True)
    assert len(synthetic) == 154
    assert fmean(len(job.durations) for job in synthetic) == pytest.approx(9.18, abs=0.3)
    assert fmean(job.graph.depth() for job in synthetic) == pytest.approx(5.86, abs=0.4)
    scans = fmean(sum(not parents for parents in job.graph.parents) for job in synthetic)
    assert scans == pytest.approx(3.55, abs=0.3)
    assert fmean(job.tasks for job in synthetic) == pytest.approx(1155, rel=0.1)
    assert fmean(work) == pytest.approx(628, rel=0.15)
    assert median(work) == pytest.approx(277, rel=0.25)
    assert sum(work[:35]) / sum(work) == pytest.approx(0.67, abs=0.06)
    assert all(sum(not children for children in job.graph.children) == 1 for job in synthetic)


def test_synthetic_work_grows_with_the_number_of_executors(synthetic: list[SparkJob]) -> None:
    # The profiles: 1.26 times from 5 to 50 executors, 1.66 times to 100.
    total = {level: sum(work_s(job, level) for job in synthetic) for level in (5, 50, 100)}
    assert total[50] / total[5] == pytest.approx(1.26, abs=0.1)
    assert total[100] / total[5] == pytest.approx(1.66, abs=0.15)


def test_same_seed_same_synthetic_queries(synthetic: list[SparkJob]) -> None:
    again, other = synthetic_profiles(), synthetic_profiles(1)
    assert [job.graph for job in again] == [job.graph for job in synthetic]
    assert [waves.at for job in again for waves in job.durations] == [  # type: ignore[union-attr]
        waves.at
        for job in synthetic
        for waves in job.durations  # type: ignore[union-attr]
    ]
    assert [job.graph for job in other] != [job.graph for job in synthetic]


def test_the_synthetic_queries_are_those_of_the_published_tables(synthetic: list[SparkJob]) -> None:
    # Tables in results/decima were made on them; a change of the draw would change what these say.
    stages = [waves for job in synthetic for waves in job.durations]
    assert (len(stages), sum(waves.tasks for waves in stages)) == (1_421, 189_424)
    assert [waves.tasks for waves in synthetic[100].durations] == [60, 2, 2, 60, *[200] * 7, 6]
    assert sum(waves.rough_ms for waves in stages) == pytest.approx(2_472_114.41609071, rel=1e-9)
    sums_ms = {
        level: [
            sum(sum(waves.at[level][wave]) for waves in stages)  # type: ignore[union-attr]
            for wave in range(3)
        ]
        for level in (5, 100)
    }
    assert sums_ms[5] == pytest.approx([67_457_385, 32_987_511, 27_674_928], rel=1e-6)
    assert sums_ms[100] == pytest.approx([91_293_822, 49_218_892, 42_560_359], rel=1e-6)


@pytest.mark.data
def test_synthetic_loads_rank_policies_as_the_profiles_do(data: Path, synthetic: list[SparkJob]) -> None:
    """Overloaded (10 executors): SRPT before fair before FIFO, by about as much."""
    ratios = []
    for pool in (synthetic, read_profiles(data / "traces" / "tpch-decima")):
        means = {}
        for policy in ("srpt-cp[cap=5]", "fair", "fifo"):
            drawn = [
                SparkKernel(10, sequence(pool, seed, jobs=50), seed=seed).run(SPARK_POLICIES.create(policy)).mean_jct_s
                for seed in range(5)
            ]
            means[policy] = fmean(drawn)
        ratios.append((means["srpt-cp[cap=5]"] / means["fair"], means["fifo"] / means["fair"]))
    assert ratios[0] == pytest.approx(ratios[1], rel=0.25)
    assert ratios[0][0] < 0.7 < 1.1 < ratios[0][1]


def test_a_sequence_arrives_by_a_poisson_process(synthetic: list[SparkJob]) -> None:
    jobs = list(sequence(synthetic, 1, jobs=4000, mean_gap_ms=1000))
    assert jobs[0].arrival_ms == 0
    assert jobs[-1].arrival_ms / 3999 == pytest.approx(1000, rel=0.05)
    assert len({job.graph for job in jobs[:50]}) > 20


def test_a_batch_arrives_at_once_and_the_mix_does_not_depend_on_the_gap(synthetic: list[SparkJob]) -> None:
    batch = list(sequence(synthetic, 1, jobs=20, batch=20))
    later = list(sequence(synthetic, 1, jobs=20, mean_gap_ms=5))
    assert {job.arrival_ms for job in batch} == {0}
    assert [job.id for job in batch] == [job.id for job in later]


def test_an_endless_sequence_is_read_lazily_and_ends_at_its_limit(synthetic: list[SparkJob]) -> None:
    assert len(list(islice(sequence(synthetic, 1), 7))) == 7
    jobs = list(sequence(synthetic, 1, mean_gap_ms=100, until_ms=10_000))
    assert 60 < len(jobs) < 140
    assert jobs[-1].arrival_ms < 10_000


def test_impossible_sequences_are_refused(synthetic: list[SparkJob]) -> None:
    with pytest.raises(WorkloadError, match="at least one job"):
        sequence([], 1)
    with pytest.raises(WorkloadError, match="mean_gap_ms must be positive"):
        sequence(synthetic, 1, mean_gap_ms=0)
    with pytest.raises(WorkloadError, match="all 154"):
        parity_sequence(synthetic[:3], 1, 5)
    with pytest.raises(WorkloadError, match="number of jobs or a time limit"):
        parity_sequence(synthetic, 1, None)
    with pytest.raises(WorkloadError, match="queries must be at least 1"):
        synthetic_profiles(queries=0)


def test_a_parity_sequence_ends_at_its_time_limit(synthetic: list[SparkJob]) -> None:
    drawn = parity_sequence(synthetic, 5, None, mean_gap_ms=100, until_ms=10_000)
    assert drawn.jobs[-1].arrival_ms < 10_000
    assert 60 < len(drawn.jobs) < 140


@pytest.mark.parametrize("suffix", ["json", "json.gz"])
def test_what_is_written_reads_back(tmp_path: Path, suffix: str) -> None:
    job = SparkJob.of("3", [RecordedDurations((5.0, 7.0), 6), RecordedDurations((2.0,), 2)], [(0, 1)], 40)
    path = tmp_path / f"w.{suffix}"
    write_dump(path, [job], 8, 500)
    dump = read_dump(path)
    assert (dump.executors, dump.moving_delay_ms) == (8, 500)
    assert dump.jobs == [job]


def test_drawn_durations_cannot_be_written(tmp_path: Path, synthetic: list[SparkJob]) -> None:
    with pytest.raises(ModelError, match="random instead of recorded"):
        write_dump(tmp_path / "w.json", synthetic[:1], 8)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"jobs": []}',
        '{"jobs": [{"id": 0}]}',
        '{"jobs": [{"id": 0, "arrival_ms": 0, "stages": [{"durations": [1], "num_tasks": 2}]}]}',
        '{"jobs": [{"id": 0, "arrival_ms": -1, "stages": [{"durations": [1]}]}]}',
        '{"jobs": [{"id": 0, "arrival_ms": 0, "stages": [{"durations": [1]}, {"durations": [1]}],'
        ' "edges": [[0, 1], [1, 0]]}]}',
    ],
)
def test_a_damaged_workload_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "w.json"
    path.write_text(text)
    with pytest.raises(TraceError, match=r"w\.json"):
        read_dump(path)
    with pytest.raises(TraceError, match=r"w\.json"):
        read_profiles(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file"):
        read_dump(tmp_path / "w.json")
    with pytest.raises(TraceError, match=r"tpch_dags\.json\.gz"):
        read_profiles(tmp_path)


def test_profiles_are_listed_by_query_and_size(tmp_path: Path) -> None:
    stage = {"first_wave_ms": {"5": [40, 50]}, "rest_wave_ms": {"5": [30]}, "fresh_ms": {"5": [50]}}
    profiles = [
        {"query": query, "size": size, "edges": [[0, 1]], "stages": [stage, stage]}
        for query, size in ((2, "2g"), (1, "100g"), (1, "5g"))
    ]
    path = tmp_path / "tpch_dags.json.gz"
    path.write_bytes(gzip.compress(json.dumps(profiles).encode()))
    jobs = read_profiles(tmp_path)
    assert [job.id for job in jobs] == ["tpch-1-5g", "tpch-1-100g", "tpch-2-2g"]
    assert [waves.tasks for waves in jobs[0].durations] == [3, 3]
    assert jobs[0].graph.depth() == 2


@pytest.mark.family("formats")
def test_alibaba_tasks_become_stages() -> None:
    jobs = trace_jobs(SAMPLES / "alibaba2018" / "batch_task.csv")
    assert jobs
    assert all(durations.rough_ms >= 1000 for job in jobs for durations in job.durations)
    episode = SparkKernel(4, jobs).run(SPARK_POLICIES.create("fair"))
    assert all(job.completed_ms is not None for job in episode.jobs)


@pytest.mark.family("formats")
def test_a_variable_in_the_path_of_a_trace_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMPLE_LOGS", str(SAMPLES))
    settings = ["system.trace=$SAMPLE_LOGS/alibaba2018/batch_task.csv", "system.executors=4", "system.jobs=2"]
    words = [word for setting in settings for word in ("--set", setting)]
    arguments = ["eval", "--system", "spark", "--policy", "fifo", "--seeds", "1", "--no-plots", "--out", str(tmp_path)]
    fine(*arguments, *words)


@pytest.mark.family("formats")
def test_a_trace_without_jobs_small_enough_is_refused() -> None:
    with pytest.raises(TraceError, match="no jobs are left"):
        trace_jobs(SAMPLES / "alibaba2018" / "batch_task.csv", most_tasks=0)
