"""The scenario of the GPU cluster, which is the only code that builds kernels of this system."""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, get_args

from dagsim.errors import ConfigError, ModelError, TraceError
from dagsim.metrics.why import observed_against_simulated
from dagsim.model import Admit, Cluster, Job, Request
from dagsim.registry import Registry
from dagsim.spelling import nearest
from dagsim.systems.cluster import services
from dagsim.systems.cluster.arrivals.job_sources import JOBS_KEPT, StoredJobs, TraceJobs
from dagsim.systems.cluster.arrivals.job_stream import JobStream
from dagsim.systems.cluster.kernel import ClusterKernel, Observer
from dagsim.systems.cluster.learnable import CODECS, TERMS
from dagsim.systems.cluster.models import Models
from dagsim.systems.cluster.models.runtime import Fed
from dagsim.systems.cluster.network.base import Network, levels_in
from dagsim.systems.cluster.past.from_log import JobsLeft, jobs_at, why_no_state
from dagsim.systems.cluster.past.recall import unknown_past
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.resources.site import domain_sets
from dagsim.systems.cluster.view import ClusterPolicy, ClusterView
from dagsim.systems.cluster.waits.stalled import why_unfinished
from dagsim.systems.seam import (
    CodecSettings,
    CountedJobs,
    Engaged,
    Engine,
    EngineUse,
    Kernel,
    RewardTerm,
    Scenario,
    System,
    stated,
)
from dagsim.workload.accept import Accept, accepting, asking
from dagsim.workload.arrays import JobArrays
from dagsim.workload.sessions import Sessions
from dagsim.workload.synthetic import Synthetic

if TYPE_CHECKING:
    from dagsim.systems.cluster.audit.audit import Audit
    from dagsim.systems.cluster.audit.auditor import Auditor
    from dagsim.traces.trace import Trace
    from dagsim.traces.trace_file import TraceFile


class _Sequences:
    """A cache of the most recently generated jobs, by seed. Replicas and other policies request the
    same jobs again. A copy in another process begins empty.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[int, StoredJobs] = OrderedDict()
        self._jobs = 0
        self.why_empty: str | None = None
        """The reason why windows begin on an empty cluster. None until the first window has been taken."""

    def __reduce__(self) -> tuple[type[_Sequences], tuple[()]]:
        return _Sequences, ()

    def get(self, seed: int, draw: Callable[[int], JobArrays]) -> StoredJobs:
        jobs = self._kept.get(seed)
        if jobs is None:
            jobs = self._kept[seed] = StoredJobs(draw(seed))
            self._jobs += len(jobs)
            while self._jobs > JOBS_KEPT and self._kept:
                self._jobs -= len(self._kept.popitem(last=False)[1])
        return jobs


class ChangesJobs(Protocol):
    """The interface for changes that make the tasks of a job elastic before the job arrives."""

    def check(self, cluster: Cluster) -> None:
        """Check that the cluster fulfils the requirements of the change.

        Raises:
            ModelError: The cluster lacks something that the change requires.
        """

    def job(self, job: Job, seconds: Callable[..., Sequence[float]], cluster: Cluster) -> Job:
        """Return the job with its tasks made elastic."""


def refused_engine(why: str) -> ConfigError:
    """Return the error for a configuration that requests the compiled engine for a run that it does
    not support.
    """
    return ConfigError(f"engine compiled: {why}; allowed: engine simpy or auto")


def check_level(request: Request | None, network: Network | None, names: Sequence[str]) -> None:
    """Check that the network above the nodes ``names`` has the level that jobs request.

    Raises:
        ModelError: The network does not have the level.
    """
    if request is None:
        return
    between = levels_in(network, names)
    if request.segment and not (between or request.level == "host"):
        raise ModelError("a segment lies within a domain of the network, and there is none with levels").below(
            "segment"
        )
    if level := request.level:
        levels = domain_sets(between, len(names))
        if level not in levels:
            allowed = f"its levels are {', '.join(levels)}" if levels else "there is no network with levels"
            raise ModelError(f"there is no level {level!r}{nearest(level, levels, allowed)}").below("level")


_SPREAD = (
    "if its rows state totals over several nodes, say so: --map nodes=COLUMN, or --read spread=true to spread them"
)


class AdmitAll:
    """A policy that admits every job immediately, and leaves all other decisions to ``policy``."""

    admits = True

    def __init__(self, policy: ClusterPolicy) -> None:
        self.policy = policy

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the wrapped policy, such as its name, its facts, or whether it
        reads true durations.
        """
        if name == "policy":  # while a copy is being made, the attribute does not exist yet
            raise AttributeError(name)
        return getattr(self.policy, name)

    def decide(self, view: ClusterView) -> Iterator[Any]:
        """Admit all jobs that are waiting for admission. If there are none, call the policy."""
        if view.applicants:
            yield from [Admit(number) for number in view.applicants]
        else:
            yield from self.policy.decide(view) or ()


class GpuCluster(System):
    """The base class of all scenarios of the GPU cluster."""

    system: ClassVar[str] = "cluster"
    policies: ClassVar[Registry[ClusterPolicy]] = POLICIES
    codecs: ClassVar[Registry[Any]] = CODECS
    terms: ClassVar[Registry[RewardTerm]] = TERMS
    score: ClassVar[str] = "area_weighted_jct_s"
    takes_programs: ClassVar[bool] = True


def cluster_scenario_of(config: Any) -> ClusterScenario:
    """Build the scenario of a ``Config`` of the GPU cluster.

    Raises:
        InputError: The configuration is for another system, or the cluster cannot be built.
    """
    scenario = config.whole_system.scenario() if isinstance(config.whole_system, GpuCluster) else None
    if not isinstance(scenario, ClusterScenario):
        raise ConfigError(f"the system {config.kind!r} has no cluster section")
    return scenario


class ClusterWorld(GpuCluster, Scenario):
    """The interface of a scenario of the GPU cluster whose episodes may be able to run in the
    compiled engine.
    """

    @abstractmethod
    def world(self, seed: int) -> ClusterScenario:
        """Return the cluster and the jobs for a seed.

        Raises:
            TraceError, WorkloadError: The jobs cannot be generated or read.
        """

    def why_no_episodes(self, codec: CodecSettings, terms: Mapping[str, float]) -> str:
        """Return the reason why episodes of this scenario cannot run in the compiled engine. The
        result is empty if they can.
        """
        scenario, why = self.world(0), services.why_no_episodes.offered()
        if why is None:
            return "asked for" if scenario.engine == "simpy" else f"it {services.why_no_episodes.missing()}"
        return why(scenario, codec, terms)

    def episodes(
        self, count: int, codec: CodecSettings, terms: Mapping[str, float], scale: float, *, recorded: bool = False
    ) -> Any:
        """Return ``count`` episodes in the compiled engine, or the reason why that is not
        possible."""
        why = self.why_no_episodes(codec, terms)
        return why or services.compiled_episodes(self, count, codec, terms, scale, recorded)


@dataclass(frozen=True)
class ClusterScenario(Models, ClusterWorld):
    """A cluster, its jobs, and the models of everything that takes time.

    ``workload`` is generated or read again for every seed. It may also be a list of jobs in order
    of arrival, which is then used for all seeds. ``elastic`` gives tasks a range of GPUs.
    ``accept`` lists GPU types that jobs from a trace may use in addition to those that they name.
    ``request`` contains the terms of jobs that state no terms themselves. ``outages`` removes nodes
    for as long as the trace's own machines were absent. If ``workload`` is a list of jobs, the
    simulation begins at ``begins_s``. For a trace, the trace determines the beginning. ``left``
    contains the jobs that had left the system by then, with their runs, if these jobs are known and
    not in the list. With ``admission``, each job waits for ``Admit`` or ``Reject``. ``engine``
    applies only to policies that are given by name (``engaged``). Code that calls ``kernel`` makes
    decisions during the simulation, so it always gets the SimPy kernel.
    """

    cluster: Cluster
    workload: Synthetic | Sessions | TraceFile | Iterable[Job]
    outages: bool = False
    engine: Engine = "auto"
    accept: Accept = field(default_factory=dict)
    elastic: ChangesJobs | None = None
    request: Request | None = None
    begins_s: float = 0.0
    left: Iterable[Job] | None = None
    _sequences: _Sequences = field(default_factory=_Sequences, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.engine not in get_args(Engine):
            hint = nearest(str(self.engine), get_args(Engine))
            raise ConfigError(f"engine must be one of {', '.join(get_args(Engine))}, got {self.engine!r}{hint}")
        if self.elastic is not None:
            self.elastic.check(self.cluster)
        check_level(self.request, self.network, [node.name for node in self.cluster.nodes])

    @property
    def models(self) -> Models:
        """The models alone, without the cluster and the jobs."""
        return Models(**{part.name: getattr(self, part.name) for part in fields(Models)})

    def world(self, seed: int) -> ClusterScenario:
        """Return the scenario itself, which is the same for every seed."""
        return self

    def kernel(
        self,
        seed: int,
        *,
        record: bool = True,
        on_arrivals: Callable[[int], None] | None = None,
        observers: Sequence[Observer] = (),
    ) -> ClusterKernel:
        """Return a new kernel. The same seed gives the same jobs, failures and outages. The kernel
        always writes the log.

        Raises:
            TraceError, WorkloadError: The jobs cannot be generated or read.
            ConfigError: The compiled engine is requested.
        """
        if self.engine == "compiled":
            raise ConfigError(
                "the compiled engine runs only policies given by name; to make decisions one by one, use engine "
                "simpy or auto"
            )
        return self._live(self.jobs(seed), seed, on_arrivals, observers)

    def engaged(
        self,
        policy: str,
        seed: int,
        *,
        on_arrivals: Callable[[int], None] | None = None,
        observers: Sequence[Observer] = (),
    ) -> Engaged:
        """Return the kernel for a policy that is given by name. It uses the requested engine or, if
        none was requested, the fastest engine that supports the policy.

        Raises:
            TraceError, WorkloadError: The jobs cannot be generated or read.
            ConfigError: The compiled engine is requested, but does not support this run.
        """
        why, jobs = self._why_simpy(policy, observed=bool(observers)), self.jobs(seed)
        if not why:
            engaged = services.compiled(self, jobs, policy, seed, on_arrivals)
            if isinstance(engaged, Engaged):
                return engaged
            why = engaged
        if self.engine == "compiled":
            raise refused_engine(why)
        return Engaged(self._live(jobs, seed, on_arrivals, observers), EngineUse(self.engine, "simpy", why))

    def check_engine(self, policy: str) -> None:
        """Check that the requested engine can be used for a policy, as far as this can be checked
        without jobs.

        Raises:
            ConfigError: The engine cannot be used.
        """
        if self.engine == "compiled" and (why := self._why_simpy(policy)):
            raise refused_engine(why)

    def _why_simpy(self, policy: str, *, observed: bool = False) -> str:
        """Return the reason for using the SimPy kernel, if one is known before any job has been
        read. The result is empty if there is none.
        """
        if self.engine == "simpy":
            return "asked for"
        why = services.why_not_compiled.offered()
        return why(self, policy, observed) if why else f"it {services.why_not_compiled.missing()}"

    def _live(
        self, jobs: JobStream, seed: int, on_arrivals: Callable[[int], None] | None, observers: Sequence[Observer]
    ) -> ClusterKernel:
        outages = (jobs.outages(),) if self.outages else ()
        queues, origin_s = self.queues, 0.0
        if queues is not None and (queues.reservations or queues.outages or queues.suspensions):
            clock_s = jobs.origin_s()
            if clock_s is None:
                queues = replace(queues, reservations=(), outages=(), suspensions=())
            else:
                origin_s = clock_s
        return ClusterKernel(
            self.cluster,
            jobs if on_arrivals is None else CountedJobs(jobs, on_arrivals),
            replace(self.models, failures=(*self.failures, *outages), queues=queues),
            seed=seed,
            observers=observers,
            origin_s=origin_s,
            begins_s=jobs.begins_s,
            left=jobs.left,
        )

    @property
    def knowledge(self) -> tuple[str, ...]:
        """The kind of estimates, which determines what policies know about durations."""
        return (self.estimates.kind,)

    def fitted(self, policy: ClusterPolicy) -> ClusterPolicy:
        """Return the policy. With admission control, a policy that does not admit jobs itself
        (``admits``) is wrapped so that all jobs are admitted.
        """
        return AdmitAll(policy) if self.admission and not stated(policy, "admits") else policy

    def facts(self, kernel: Kernel[Any, Any]) -> Mapping[str, Any]:
        """Return facts about the jobs that have arrived, such as their number and load. For a
        trace, also return the numbers of rows that were read and dropped. If the trace contains
        observed waits, return them next to the simulated waits.
        """
        of_kernel: Any = kernel
        jobs = of_kernel.jobs.jobs if isinstance(of_kernel.jobs, CountedJobs) else of_kernel.jobs
        assert isinstance(jobs, JobStream)
        facts = jobs.facts() | {"knowledge": jobs.knowledge(self.estimates).to_dict()}
        trace = self._trace
        if trace is not None and trace.window is not None and "state" not in facts:
            facts["empty"] = self._why_empty(trace)
        observed = jobs.observed()
        waits = (
            None
            if observed is None
            else observed_against_simulated(
                kernel.schedule, *observed, kernel.became_eligible_s if isinstance(kernel, ClusterKernel) else {}
            )
        )
        return facts if waits is None else facts | {"observed": waits.to_dict()}

    def notes(self, kernel: Kernel[Any, Any], policy: object) -> list[str]:
        """For a simulation that began in the middle of a log, return notes about parts of the past
        that are unknown to the policy.
        """
        return unknown_past(kernel, policy) if isinstance(kernel, ClusterKernel) else []

    def unfinished(self, kernel: Kernel[Any, Any]) -> Mapping[int, str]:
        """Map the number of each job that is still in ``kernel`` when the simulation ends to the
        reason why it did not complete.
        """
        return why_unfinished(kernel) if isinstance(kernel, ClusterKernel) else {}

    def check(self) -> None:
        """Check the models by creating a kernel without jobs. For a trace, also check its options
        and the beginning of its file.

        Raises:
            InputError: A model, an option of the trace or the beginning of its file is invalid.
        """
        replace(self, workload=(), outages=False, engine="auto").kernel(0)
        if self._trace is not None:
            self._trace.check()

    def check_jobs(self, seed: int) -> None:
        if self._trace is None:
            next(iter(self.jobs(seed)), None)

    @property
    def _trace(self) -> TraceFile | None:
        """The trace to read, or None if jobs are generated or given as a list."""
        return None if isinstance(self.workload, Synthetic | Sessions | Iterable) else self.workload

    def jobs(self, seed: int) -> JobStream:
        """Return the jobs for ``seed`` in order of arrival.

        Raises:
            TraceError, WorkloadError: The jobs cannot be generated or read.
        """
        stream = self._stream(seed)
        changes: list[Callable[[Job], Job]] = []
        if isinstance(self.runtime, Fed) and self.runtime.cores != "asked":
            changes.append(partial(self.runtime.job, cluster=self.cluster))
        if self.elastic is not None:
            changes.append(partial(self.elastic.job, seconds=self.runtime.seconds, cluster=self.cluster))
        if changes:
            stream.change_by(changes, elastic=self.elastic is not None)
        return stream

    def _stream(self, seed: int) -> JobStream:
        """Return the jobs as submitted."""
        match self.workload:
            case (Synthetic() | Sessions()) as drawn:
                draw = partial(drawn.arrays, self.cluster, self.runtime)
                drawn_jobs = (lambda seed: asking(draw(seed), self.request)) if self.request else draw
                stored, exact = self._sequences.get(seed, drawn_jobs), drawn.load_mode == "exact"
                return JobStream(stored, self.cluster, self.runtime, whole=exact)
            case Iterable() as jobs:
                return JobStream(jobs, self.cluster, self.runtime, begins_s=self.begins_s, left=self.left)
            case file if file.window is not None:
                cut, auditor = partial(self._window, file), self.auditor()
                jobs = self._sequences.get(seed, cut)
                auditor.add(jobs.arrays)
                return JobStream(jobs, self.cluster, self.runtime, auditor=auditor)
            case file:
                trace = file.open(self.cluster, self.runtime)
                trace.change, auditor = self._accepted, self.auditor(trace)
                if file.has_period or trace.begins_s is not None:
                    stored = self._period(file, trace)
                    auditor.add(stored.arrays)
                    return JobStream(stored, self.cluster, self.runtime, trace, auditor=auditor)
                trace.watcher = auditor
                return JobStream(TraceJobs(trace), self.cluster, self.runtime, trace, auditor=auditor)

    def audit(self) -> Audit:
        """Read a trace, and return its contradictions with the site, before anything is simulated.
        Workloads that are not traces have none.

        Raises:
            TraceError, WorkloadError: The workload cannot be read.
        """
        from dagsim.systems.cluster.audit.audit import Audit

        if self._trace is None:
            return Audit()
        trace = self._trace.as_recorded()
        trace.change, trace.watcher = self._accepted, (auditor := self.auditor(trace))
        trace.unscaled()
        return auditor.audit(trace.report)

    def auditor(self, trace: Trace | None = None) -> Auditor:
        """Return the auditor for the jobs in a trace or in a window of a trace."""
        # imported here because the module imports dagsim.traces, which other workloads do not need
        from dagsim.systems.cluster.audit.auditor import Auditor

        as_stated = self.elastic is None and not (isinstance(self.runtime, Fed) and self.runtime.cores != "asked")
        levels = levels_in(self.network, [node.name for node in self.cluster.nodes])
        return Auditor(
            self.cluster,
            self.queues,
            self.runtime,
            self.accept,
            domain_sets(levels, len(self.cluster.nodes)),
            as_stated=as_stated,
            snapshot=trace is not None and trace.begins_s is not None,
            hint=_SPREAD if trace is not None and trace.format == "plain" else "",
            broken=self._broken_rules if self.queues is not None and as_stated else None,
        )

    def _broken_rules(self) -> Callable[[Job], str]:
        """Create a simulation of the site without jobs. Return a function that names the site's
        rules, if any, under which a given job could never start.
        """
        # imported here because present.py imports this module
        from dagsim.systems.cluster.waits.present import Obstacles, rules_of_site

        return Obstacles(self, rules_of_site).rules_against

    def _period(self, file: TraceFile, trace: Trace) -> StoredJobs:
        """Return the jobs in the chosen period of a log, including the jobs that are in the system
        at the beginning of the period.
        """
        jobs, stated_s = trace.unscaled(), trace.begins_s
        last_s = float(jobs.arrival_s[-1]) if len(jobs) else 0.0
        begins_s, until_s = file.period(trace.meta["origin_s"], stated_s)
        left = JobsLeft(jobs, begins_s, self.cluster, self.runtime) if stated_s is None else None
        suspended = () if self.queues is None else [one.job for one in self.queues.suspensions]
        jobs = jobs_at(
            jobs, begins_s, until_s, self.cluster, self.runtime, stated=stated_s is not None, suspended=suspended
        )
        if not len(jobs):
            end = "the end of the log" if file.until is None else repr(file.until)
            raise TraceError(
                f"{file.path}: no job is running, waiting or arriving from {file.since!r} until {end}; "
                f"the last job arrives {last_s:,.0f} s after the first"
            )
        return StoredJobs(jobs.shifted(0.0, trace.options.time_scale), left)

    def _window(self, file: TraceFile, seed: int) -> JobArrays:
        """Return the jobs in a window of a log. If the log contains the necessary times, these
        include the jobs that were running or waiting when the window began.
        """
        past = None if self._why_empty(file) else self._past
        return self._accepted(file.window_of(seed, self.cluster, self.runtime, past))

    def _past(self, earlier: JobArrays, begins_s: float) -> JobArrays:
        return jobs_at(self._accepted(earlier), begins_s, begins_s, self.cluster, self.runtime)

    def _why_empty(self, file: TraceFile) -> str:
        """Return the reason why windows of a trace begin on an empty cluster. The result is empty
        if they do not."""
        if file.options.load is not None or file.options.time_scale != 1:
            return "their arrivals are scaled"
        if self._sequences.why_empty is None:
            self._sequences.why_empty = why_no_state(self._accepted(file.whole()), self.cluster, self.runtime)
        return self._sequences.why_empty

    def _accepted(self, jobs: JobArrays) -> JobArrays:
        return asking(accepting(jobs, self.accept, self.runtime, self.cluster.gpu_types), self.request)
