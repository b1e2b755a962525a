from __future__ import annotations

import numpy as np

from dagsim.families.spark.api import PairedStreams, SharedStream, SparkJob, Waves
from dagsim.families.spark.state import Executor, ExecutorPool, SparkJobState


def at_job(job: SparkJobState, executors: int) -> Executor:
    executor = Executor(0, 0, 1.0, ExecutorPool())
    executor.job, job.local = job, executors
    return executor


def profile(tasks: int) -> Waves:
    """Fresh tasks last 100 + something, at 5 executors 0..36, at 10 executors 1000."""
    return Waves.of({5: list(range(37)), 10: [1000] * 3}, {5: [0] * (tasks - 37)}, {5: [], 10: []}, warmup_ms=0)


def test_one_stream_draws_what_numpy_draws() -> None:
    job = SparkJobState(0, SparkJob.of("j", [profile(40)]))
    executor = at_job(job, 7)
    rng, same = (np.random.Generator(np.random.PCG64(5)) for _ in range(2))
    rng.integers(22), same.integers(22)  # leaves half a word behind
    draws = SharedStream(rng)
    for _ in range(10_000):
        point = 1 + int(same.random() * 5)
        samples = [*range(37)] if point <= 2 else [1000] * 3
        assert draws.draw(job.stages[0], executor) == same.choice(samples)


def test_one_choice_costs_no_random_bits() -> None:
    job = SparkJobState(0, SparkJob.of("j", [Waves.of({5: [4]}, {}, {}), Waves.of({5: [4, 5, 6, 7]}, {}, {})]))
    executor = at_job(job, 5)
    draws = SharedStream(np.random.Generator(np.random.PCG64(1)))
    same = np.random.Generator(np.random.PCG64(1))
    for _ in range(100):
        assert draws.draw(job.stages[0], executor) == 1004
        assert draws.draw(job.stages[1], executor) == 1000 + same.choice([4, 5, 6, 7])


def test_the_nearer_level_is_the_likelier() -> None:
    # 9 executors lie at 4/5 of the way from 5 to 10, where all tasks last 1000 ms.
    job = SparkJobState(0, SparkJob.of("j", [profile(20_000)]))
    draws = PairedStreams(3)
    draws.admit(job)
    executor, stage = at_job(job, 9), job.stages[0]
    drawn = []
    while stage.remaining:
        drawn.append(draws.draw(stage, executor))
        stage.remaining -= 1
    assert abs(drawn.count(1000) / len(drawn) - 0.8) < 0.01


def test_a_task_has_its_luck_whatever_ran_before() -> None:
    jobs = [SparkJobState(number, SparkJob.of("j", [profile(50)])) for number in range(2)]
    alone, after = PairedStreams(3), PairedStreams(3)
    alone.admit(jobs[1])
    wanted = alone.draw(jobs[1].stages[0], at_job(jobs[1], 5))
    for job in jobs:
        after.admit(job)
    after.draw(jobs[0].stages[0], at_job(jobs[0], 5))
    assert after.draw(jobs[1].stages[0], at_job(jobs[1], 5)) == wanted
