"""The Spark simulation. Jobs consist of stages, and run on executors. In rounds, executors are
committed to the stages at which they work next.

The kernel has its own event loop, because SimPy would be too slow. When an executor ends a
task, it takes the next task in the same stage if there is one. This costs a single swap at the top
of a heap. Everything else (``_settle``) happens only once per stage and executor. ``decisions()``
follows the protocol of ``dagsim.systems.seam``: it is a generator that yields a view and is sent
decisions.

There are two sets of rules. With ``parity``, the rules reproduce spark-sched-sim bit for bit,
including its peculiarities. Executors in the common pool are offered only when a job arrives.
Executors that are sent ahead to a stage that is not ready are counted at the stage's job, and then
forgotten. Policies see the duration of a task when the task is launched. Without ``parity``, idle
executors are offered after every change, executors that are sent ahead wait for their stage, and
policies see the duration of a task when the task ends.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from heapq import heappop, heapreplace
from math import inf
from operator import index

from dagsim.errors import IllegalDecision, ModelError, Stalled
from dagsim.families.spark.schedule import SparkEpisode, schedule_of
from dagsim.families.spark.spark_executors import ExecutorMove, ExecutorPools, ExecutorType, executor_types
from dagsim.families.spark.spark_job import SparkJob
from dagsim.families.spark.state import DurationSource, Executor, ExecutorPool, PairedStreams, SparkJobState, StageState
from dagsim.families.spark.view import Commit, SparkPolicy, SparkView, StageTable
from dagsim.model.log import Schedule
from dagsim.model.streams import Streams
from dagsim.systems.seam import Conversation, decisions_of
from dagsim.text import count_of


class SparkKernel:
    """A simulation of one cluster of executors and one sequence of jobs in order of arrival, which
    is read lazily.

    ``executors`` is a number of executors, or a list of types with speeds. An executor that moves
    to another job is unavailable for ``moving_delay_ms``. ``draws`` provides the durations that are
    not recorded. By default, they come from one random stream per job, based on ``seed``.
    With ``record=True``, every launch is stored, for logs and pictures.
    """

    def __init__(
        self,
        executors: int | tuple[ExecutorType, ...],
        jobs: Iterable[SparkJob],
        *,
        moving_delay_ms: float = 2000.0,
        parity: bool = False,
        draws: DurationSource | None = None,
        record: bool = False,
        seed: int = 0,
    ) -> None:
        types = executor_types(executors)
        self.draws: DurationSource = draws if draws is not None else PairedStreams(seed)
        self.cluster = ExecutorPools(types, moving_delay_ms, self.draws, parity, record)
        self.episode = SparkEpisode(types, seed=seed, launches=self.cluster.launches)
        self._arrivals: Iterator[SparkJob] = iter(jobs)
        self._next: SparkJob | None = None
        self._next_ms = inf
        self._offers: list[ExecutorPool] = []
        """Pools with idle executors that still have to be offered at the current time (not in
        parity)."""
        self._table: StageTable | None = None
        self.streams = Streams(self.episode.seed)
        self._fetch()

    @property
    def now(self) -> float:
        """Seconds since the start of the simulation."""
        return self.cluster.now_ms / 1000

    @property
    def schedule(self) -> Schedule:
        """The schedule so far. It is built on request, which costs O(launches). Without ``record``,
        its log contains only arrivals and completions."""
        self.episode.ended_ms = self.cluster.now_ms
        return schedule_of(self.episode)

    def run(self, policy: SparkPolicy, until_s: float = inf) -> SparkEpisode:
        """Run the simulation with ``policy`` until every job is complete (or until ``until_s``).

        Raises:
            IllegalDecision: The policy chose a stage that cannot be chosen. The message names the
                stage.
            Stalled: The policy leaves all executors idle although no further job will arrive.
        """
        Conversation(self, until_s).follow(policy)
        return self.episode

    def decisions(self, until_s: float = inf) -> Generator[SparkView, Iterable[Commit] | None, None]:
        """Yield a view whenever executors can be committed. Carry out the decisions that are sent
        back.

        An empty answer leaves the remaining executors idle. The policy is called again as long as
        executors and stages are left. Then time passes. This is repeated until the end of the
        simulation.
        """
        cluster, episode, until_ms = self.cluster, self.episode, until_s * 1000
        view, check, commit = SparkView(self), self._checked, cluster.commit
        while self._next_ms <= 0:
            self._admit()
        while self._opens() or self._advance(until_ms):
            deciding = True
            while deciding:
                deciding = False
                for decision in decisions_of((yield view), self.now):
                    commit(*check(decision))
                    deciding = True
                    episode.decisions += 1
                if not deciding:
                    episode.decisions += 1
                elif not (cluster.committable > 0 and cluster.any_schedulable()):
                    break
            cluster.end_round()
        episode.ended_ms = cluster.now_ms
        if cluster.jobs and until_ms == inf:
            raise Stalled(
                f"at {cluster.now_ms / 1000:g} s: the policy leaves all executors idle although "
                f"{count_of(len(cluster.jobs), 'job waits', 'jobs wait')}"
            )

    @property
    def table(self) -> StageTable:
        """The table of stages, from which ``SparkView.graph`` is built. It is created on first use."""
        if self._table is None:
            self._table = StageTable(self.cluster)
        return self._table

    def _advance(self, until_ms: float) -> bool:
        """Advance the time until executors can be committed. Return False at the end of the
        simulation."""
        cluster = self.cluster
        heap, parity, draw, launches = cluster.heap, cluster.parity, self.draws.draw, cluster.launches
        scaled = cluster.scaled
        while True:
            limit = min(self._next_ms, until_ms)
            ties = cluster.ties
            while heap:
                event = heap[0]
                now, _, executor, stage, length = event
                if now >= limit:
                    break
                remaining = stage.remaining
                if not remaining:
                    break
                if not parity:
                    stage.seen_ms = length  # type: ignore[union-attr]
                todo = stage.todo  # type: ignore[union-attr]
                length = todo.pop() if todo else draw(stage, executor)  # type: ignore[arg-type]
                if scaled:
                    length /= executor.speed
                if parity:
                    stage.seen_ms = length  # type: ignore[union-attr]
                stage.remaining = remaining - 1
                heapreplace(heap, (now + length, ties, executor, stage, length))
                ties += 1
                if launches is not None:
                    launches.append((now, length, executor, stage))
            cluster.ties = ties
            if not heap and self._next is None:
                return False
            if not heap or heap[0][0] >= limit:
                if limit == until_ms and until_ms < self._next_ms:
                    cluster.now_ms = until_ms
                    return False
                cluster.now_ms = limit
                self._admit()
            else:
                now, _, executor, target, length = heappop(heap)
                cluster.now_ms = now
                if isinstance(target, ExecutorMove):
                    cluster.arrive(executor, target.stage)
                else:
                    self._finish(executor, target, length)
            if not parity:
                self._offers = self._idle_pools()
            if self._opens():
                return True

    def _opens(self) -> bool:
        """Open a round for a pool with executors that can be committed. Return False if there is
        none."""
        cluster = self.cluster
        while True:
            source = cluster.source
            if source is not None and len(source.executors) > source.committed:
                if cluster.any_schedulable():
                    return True
                cluster.retire(source, cluster.idle(source))
                cluster.source = None
            if not self._offers:
                # In spark-sched-sim, a source remains set even if all its executors are committed.
                # It may therefore open another round later.
                if not cluster.parity:
                    cluster.source = None
                return False
            cluster.source = self._offers.pop()

    def _idle_pools(self) -> list[ExecutorPool]:
        """Return the pools whose executors are all idle. The last of these pools belongs to the
        oldest job, and is offered first.
        """
        cluster = self.cluster
        pools = [job.pool for job in reversed(cluster.jobs) if job.pool.executors]
        return [cluster.common, *pools] if cluster.common.executors else pools

    def _admit(self) -> None:
        """Process the arrival of the next job."""
        cluster, job = self.cluster, self._next
        assert job is not None
        active = SparkJobState(len(self.episode.jobs), job)
        self.draws.admit(active)
        self.episode.jobs.append(active)
        cluster.jobs.append(active)
        self.episode.population.append((cluster.now_ms, len(cluster.jobs)))
        if cluster.common.executors:
            cluster.source = cluster.common
        self._fetch()

    def _finish(self, executor: Executor, stage: StageState, length: float) -> None:
        """Release ``executor`` from ``stage``, which has no task left to launch."""
        cluster, job = self.cluster, stage.job
        executor.running = False
        stage.executing -= 1
        unlocked = False
        if not cluster.parity:
            stage.seen_ms = length
        if not stage.executing:
            unlocked = self._complete(stage)
        target = next(iter(stage.pool.commitments), executor)
        if target is not executor:
            cluster.fulfil(executor, target)  # type: ignore[arg-type]
        else:
            executor.last = None
            if unlocked:
                cluster.retire(stage.pool, [executor])
        if unlocked:
            cluster.source = job.pool
        elif target is executor:
            cluster.source = stage.pool

    def _complete(self, stage: StageState) -> bool:
        """Complete ``stage``. Return True if a child has become ready."""
        cluster, job = self.cluster, stage.job
        job.active.remove(stage)
        unlocked = []
        for child in stage.children:
            child.blockers -= 1
            cluster.note(child)
            if not child.blockers:
                unlocked.append(child)
        for child in unlocked:
            cluster.wake(child)
        if not job.active:
            if job.pool.executors:
                cluster.retire(job.pool, cluster.idle(job.pool))
            cluster.jobs.remove(job)
            job.completed_ms = cluster.now_ms
            self.episode.population.append((cluster.now_ms, len(cluster.jobs)))
        return bool(unlocked)

    def _fetch(self) -> None:
        """Read the job that will arrive next."""
        last_ms = self._next_ms if self._next is not None else 0.0
        self._next = next(self._arrivals, None)
        self._next_ms = inf if self._next is None else self._next.arrival_ms
        if self._next_ms < last_ms:
            raise ModelError(f"job {self._next.id!r} is listed after a job that arrives later")  # type: ignore[union-attr]

    def _checked(self, decision: object) -> tuple[StageState, int]:
        """Return the stage and the number of executors of a legal decision. Nothing is changed.

        Raises:
            IllegalDecision: The decision cannot be carried out.
        """
        if type(decision) is not Commit:
            raise IllegalDecision(f"{self._when}: {decision!r} is not a decision; yield Commit(stage, executors)")
        stage, executors = decision
        if not isinstance(stage, StageState):
            raise IllegalDecision(f"{self._when}: {stage!r} is not a stage; choose one from view.schedulable(job)")
        where = f"{self._when}: stage {stage.index} of job {stage.job.job.id!r}"
        number, jobs = stage.job.number, self.episode.jobs
        if not (number < len(jobs) and jobs[number] is stage.job and stage.job.stages[stage.index] is stage):
            raise IllegalDecision(f"{where} belongs to another simulation; choose one from view.schedulable(job)")
        cluster = self.cluster
        source = cluster.source
        assert source is not None
        if not stage.is_schedulable or (stage.job.supply >= len(cluster.executors) and stage.job is not source.job):
            raise IllegalDecision(f"{where} cannot be chosen now; choose one from view.schedulable(job)")
        try:
            count = 0 if isinstance(executors, bool) else index(executors)
        except TypeError:
            count = 0
        if not 1 <= count <= cluster.committable:
            raise IllegalDecision(f"{where} can get 1 to {cluster.committable} executors, not {executors!r}")
        return stage, count

    @property
    def _when(self) -> str:
        return f"at {self.cluster.now_ms / 1000:g} s"
