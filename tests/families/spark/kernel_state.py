"""Everything that a Spark kernel is at an instant, as values that can be compared."""

from __future__ import annotations

from typing import Any

from dagsim.families.spark.kernel import SparkKernel
from dagsim.families.spark.state import ExecutorPool


def spark_state(kernel: SparkKernel) -> dict[str, Any]:
    pools = kernel.cluster
    jobs = kernel.episode.jobs
    return {
        "now": (pools.now_ms, pools.ties, len(jobs), kernel._next_ms),
        "heap": [(*event[:2], event[2].number, id(event[3]), event[4]) for event in pools.heap],
        "source": None if pools.source is None else id(pools.source),
        "common": _pool(pools.common),
        "executors": [
            (executor.running, id(executor.pool), id(executor.job), id(executor.last)) for executor in pools.executors
        ],
        "jobs": [
            (job.local, job.supply, _pool(job.pool), [id(stage) for stage in job.active], job.completed_ms)
            for job in jobs
        ],
        "stages": [
            (
                stage.remaining,
                stage.executing,
                stage.inbound,
                stage.blockers,
                stage.selected,
                stage.seen_ms,
                list(stage.todo),
                len(stage.waiting),
                _pool(stage.pool),
            )
            for job in jobs
            for stage in job.stages
        ],
    }


def _pool(pool: ExecutorPool) -> tuple[Any, ...]:
    return sorted(pool.executors), [(id(stage), count) for stage, count in pool.commitments.items()], pool.committed
