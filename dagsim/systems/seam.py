"""The interface that all systems implement. It contains what other code may ask of any system;
everything that only some systems support has a default.

A *system* is a kind of simulation. ``System`` contains what is known about it before anything is
simulated. The *scenario* of a system contains a configuration and builds one *kernel* for each
seed. A kernel yields a *view* of the current state and receives decisions in return. A
``Conversation`` drives the kernel. All code above the systems (runs, environments, training,
comparisons, plots) only uses this module.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from math import inf
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    Protocol,
    TypeAlias,
    TypeVar,
    runtime_checkable,
)

from dagsim.errors import IllegalDecision, Stalled
from dagsim.metrics.standings import Sample
from dagsim.model.log import Schedule
from dagsim.registry import Registry

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from dagsim.model import Cluster, RejectReason

__all__ = [
    "Blocking",
    "Codec",
    "CodecSettings",
    "Conversation",
    "CountedJobs",
    "Engaged",
    "Engine",
    "EngineUse",
    "HidesTruth",
    "Kernel",
    "Policy",
    "RewardTerm",
    "Scenario",
    "System",
    "View",
    "decisions_of",
    "drive",
]


class View(Protocol):
    """The part of the current state that a policy may see. A view is live and read-only, and it is
    passed to the policy without a copy. Each system's own views show more than this.
    """

    @property
    def now(self) -> float:
        """Seconds since the start."""

    def stream(self, name: str) -> np.random.Generator:
        """Return the random number stream with this name. Each name has its own stream, so draws
        from other streams do not affect it.
        """


ViewT = TypeVar("ViewT", bound=View)
DecisionT = TypeVar("DecisionT")
ShownT = TypeVar("ShownT", bound=View, covariant=True)
TakenT = TypeVar("TakenT", contravariant=True)
AskedT = TypeVar("AskedT", bound=View, contravariant=True)
AnswerT = TypeVar("AnswerT", covariant=True)


class Kernel(Protocol[ShownT, TakenT]):
    """A running simulation: a cluster, its jobs, and the current state."""

    @property
    def schedule(self) -> Schedule:
        """The log of everything that has happened so far, with the cluster and the jobs. All
        systems use this form of log.
        """

    @property
    def now(self) -> float:
        """Seconds since the start."""

    def decisions(self, until_s: float = inf) -> Generator[ShownT, Iterable[TakenT] | None, None]:
        """Yield a view whenever there is something to decide, and receive the decisions for this
        view (``None`` if there are none). Carry out the decisions one by one, and continue until no
        job is left, or until ``until_s``.

        Raises:
            IllegalDecision: A decision cannot be carried out.
            Stalled: No decision was made although nothing is pending.
        """


@runtime_checkable
class Policy(Protocol[AskedT, AnswerT]):
    """A policy. All policies implement this protocol: heuristics, trained agents and users' own
    policies.

    A policy object is used in one simulation at a time and may keep state about it. If its class
    has ``clairvoyant = True``, it may read facts that no real scheduler could know, such as true
    durations, provided that the system has them. For any other class, reading such a fact is an
    error.
    """

    def decide(self, view: AskedT) -> Iterable[AnswerT]:
        """Return the decisions for the current time. Each decision is carried out as soon as it is
        yielded. If there is no decision, the policy waits for the next change.
        """


class Statements:
    """The optional attributes of a policy, with the values for policies that do not have them.
    ``stated`` reads these attributes.
    """

    name: ClassVar[str] = ""
    """Name of the policy in tables and errors. By default, the name of its class."""
    clairvoyant: ClassVar[bool] = False
    """True if the policy reads facts that no real scheduler could know, such as true durations."""
    notes: ClassVar[Iterable[str]] = ()
    """Sentences to print below the results of a run."""
    outside_training: ClassVar[float | None] = None
    """Share of an agent's observations with a feature outside the range seen in training."""
    admits: ClassVar[bool] = False
    """True if the policy itself admits and rejects jobs when the configuration requires
    admission.
    """
    remembers: ClassVar[str] = ""
    """Facts about earlier jobs that the policy uses and that the log contains, in words."""
    forgets: ClassVar[str] = ""
    """Facts that the policy keeps between decisions and that neither the log nor the cluster's
    state contains, in words.
    """
    rehearses: ClassVar[bool] = True
    """True if simulating the events before the beginning of a simulation gives the policy the
    memory that it would have at the beginning."""
    decides_at_once: ClassVar[bool] = False
    """True if the policy decides about all waiting jobs in each cycle, including those that can
    never start.
    """
    wait_rules: ClassVar[Callable[..., Any] | None] = None
    """A method that returns the rules that can make a task wait, for ``dagsim why``."""
    outlook: ClassVar[Callable[..., Any] | None] = None
    """A method that returns these rules with their current usage, and the waiting tasks in order."""
    cycle_s: ClassVar[Callable[..., float] | None] = None
    """A method that returns, for the queues of a site, the seconds from the end of a cycle of the
    policy to the beginning of the next one, in which it starts what has become possible. A policy
    without this method decides at every change."""
    past_usage: ClassVar[Callable[..., Any] | None] = None
    """A method that returns the usage that a log contains, for the policy at a site. Its method
    ``before`` returns the usage before a time, for ``beginning``."""
    beginning: ClassVar[Callable[..., Any] | None] = None
    """A method that returns the policy for a simulation that begins with past usage."""
    load_searches: ClassVar[Callable[[], None] | None] = None
    """A function that loads the policy's compiled code in a process that will run many simulations."""


def stated(part: object, name: str) -> Any:
    """Return the value of an optional attribute of a policy or of one of its parts. If the
    attribute is missing, return its default value.

    Raises:
        AttributeError: There is no optional attribute with this name.
    """
    return getattr(part, name, getattr(Statements, name))


@runtime_checkable
class HasPast(Protocol):
    """A kernel that may begin in the middle of a schedule."""

    def remind(self, policy: object) -> None:
        """If the past is known, give the policy the memory that it would have if it had made all
        decisions before the beginning of the simulation.
        """


@runtime_checkable
class HidesTruth(Protocol):
    """A kernel whose views hide facts that no real scheduler could know, unless the policy declares
    ``clairvoyant = True``.
    """

    def show_truth(self) -> None:
        """Show the true values in all views from now on."""


class Codec(Protocol):
    """An object that translates the views of one simulation into arrays, and choices into
    decisions. It may keep state about this simulation. If it also has a method ``fork(view)``,
    which returns an equivalent codec for a fork of the simulation, an environment can be copied
    without repeating the actions of the episode.
    """

    def encode(self, view: Any) -> Any | None:
        """Return the observation with the available choices, or ``None`` if waiting is the only
        option.
        """

    def decode(self, view: Any, choice: Any) -> Iterable[Any]:
        """Return the decisions for ``choice``, one of the choices in the last observation. If the
        result is empty, the agent waits for the next change.
        """

    def choice_of(self, decisions: Iterable[Any]) -> Any | None:
        """Return the choice in the last observation that leads to a heuristic's decisions, or
        ``None`` if there is no such choice.
        """


class CodecSettings(Protocol):
    """The description of a codec in a configuration: a dataclass with the codec's settings that
    creates one codec per simulation.
    """

    @property
    def features(self) -> Mapping[str, tuple[str, ...]]:
        """The names of the columns in each part of an observation. They determine the input size of
        a network.
        """

    def build(self) -> Codec:
        """Return a codec for one simulation."""


class RewardTerm(Protocol):
    """A cost that accrues during one simulation.

    If a term also has a method ``take(row)``, this method is called with every new row of the log
    before the cost is read. If it also has a method ``fork(kernel, twin)``, which returns an
    equivalent term for ``twin``, a fork of its ``kernel``, an environment can be copied without
    repeating the actions of the episode.
    """

    def cost(self, now: float) -> float:
        """Return the cost from the time of the last call until ``now`` (in seconds)."""


Engine: TypeAlias = Literal["auto", "simpy", "compiled"]
"""With ``auto``, the compiled engine is used if it supports the run, saves time, and has been
compiled before (``dagsim warm``). Otherwise, SimPy is used."""


class EngineUse(NamedTuple):
    """The engine that was requested, the engine that is used, and an explanation in words."""

    asked: str
    used: str
    reason: str


class Engaged(NamedTuple):
    """A kernel and, if the system has more than one engine, the engine that the kernel uses."""

    kernel: Kernel[Any, Any]
    engine: EngineUse | None = None


class Blocking(NamedTuple):
    """The reasons why a system blocks jobs."""

    setting: str
    """The key of the system that determines how many jobs are blocked."""
    causes: tuple[RejectReason, ...]
    """The reasons for blocking."""


class System:
    """A system as a configuration describes it, before anything is simulated.

    Every system defines ``system`` and ``policies``. All other attributes are optional features
    with defaults. A system overrides the ones that it supports.
    """

    system: ClassVar[str]
    """Name of the system. Its policies and agents can be used in all its scenarios."""
    policies: ClassVar[Registry[Any]] = Registry("policy")
    """Its policies by name."""
    codecs: ClassVar[Registry[Any]] = Registry("codec")
    """Its codecs by name, as their ``CodecSettings``."""
    terms: ClassVar[Registry[Any]] = Registry("reward term")
    """Its reward terms by name."""
    merit: ClassVar[str] = "jct_s.mean"
    """The metric of a summary by which policies are ranked and agents are judged; lower is better."""
    score: ClassVar[str] = "jct_s.mean"
    """The metric by which the benchmark scores policies; lower is better."""
    has_top_keys: ClassVar[bool] = False
    """True for the system whose keys are at the top level of a configuration, beside ``system``."""
    training: ClassVar[Mapping[str, Any]] = {}
    """Defaults for the section ``train`` that differ from the section's own. A part that has a
    ``kind`` is given by its kind.
    """
    agents: ClassVar[Mapping[str, str]] = {}
    """The shipped agents, by algorithm, as files in the package. Families add more (``agents``)."""
    variants: ClassVar[tuple[str, ...]] = ()
    """Tuned heuristics that a training run also compares with. Default: those of ``dagsim
    tune``."""
    environment: ClassVar[str | None] = None
    """``module:Class`` of its Gymnasium environment, an ``EpisodeEnv``; or a family adds it
    (``environments``)."""
    takes_programs: ClassVar[bool] = False
    """True if schedulers in other programs can make the decisions."""
    blocked_by: ClassVar[Blocking | None] = None
    """Why jobs are blocked, if they cannot wait."""

    def of(self, keys: Any) -> System:
        """Return the system that the top-level ``keys`` of a configuration describe. If its
        settings are not among these keys, return the system itself.
        """
        return self

    def scenario(self) -> Scenario:
        """Build the scenario.

        Raises:
            InputError: The scenario cannot be built.
        """
        raise NotImplementedError

    def label(self, named: Mapping[str, Any]) -> str:
        """Return a short description of the workload. If the description is empty, the name in the
        configuration is used. ``named`` contains the workloads that ship with dagsim.
        """
        return ""

    @property
    def sample(self) -> Sample:
        """The meaning of one seed: a generated workload, a whole trace or a window of a trace."""
        return Sample.SEED

    @property
    def varied(self) -> bool:
        """True if every seed has its own cluster and workload, so that times from different seeds
        are not comparable.
        """
        return False

    @property
    def admission(self) -> bool:
        """True if each job waits until the policy admits or rejects it."""
        return False

    @property
    def episode_jobs(self) -> int | None:
        """Number of jobs in a simulation. It is None if ``kernel(jobs=...)`` cannot restrict a
        simulation to the first jobs.
        """
        return None

    @property
    def trace_path(self) -> Path | None:
        """Path of the trace that contains the jobs, or None if they do not come from a trace."""
        return None

    @property
    def trace_paths(self) -> tuple[Path, ...]:
        """Paths of all traces that contain jobs."""
        return () if self.trace_path is None else (self.trace_path,)

    def read_from(self, path: str) -> Mapping[str, Any]:
        """Return the keys of a configuration that change the path from which the trace is read."""
        raise NotImplementedError

    @property
    def measured(self) -> tuple[int, int | None] | None:
        """The range of jobs that metrics count, in order of arrival, or None if all jobs count."""
        return None

    def faster_engine(self, policy: str, engine: EngineUse, wall_s: float) -> str:
        """Return a hint for the user if another engine could have run a simulation that took
        ``wall_s`` seconds. Otherwise, return an empty text.
        """
        return ""

    @property
    def knowledge(self) -> tuple[str, ...]:
        """The knowledge of policies about durations: the values that ``told`` accepts. There are
        several values if this depends on the seed, and none if the system has no estimates.
        """
        return ()

    @property
    def hides_durations(self) -> bool:
        """True if policies know no duration in advance, for any seed."""
        return self.knowledge == ("hidden",)

    def told(self, estimates: str) -> Mapping[str, Any]:
        """Return the keys of a configuration that give policies the durations that ``estimates``
        names: ``exact``, ``noisy`` or ``hidden``. The result is empty if the system does not hide
        durations.
        """
        return {}


class Scenario(System, ABC):
    """The description of what is simulated. A scenario can be pickled, and only scenarios build
    kernels.

    Subclasses are frozen dataclasses, whose fields are the keys of ``system`` in a configuration.
    """

    if TYPE_CHECKING:  # otherwise, a dataclass would treat the property as the default value of its field

        @property
        def cluster(self) -> Cluster:
            """The machines that appear in the log, as numbered nodes with GPUs.

            Raises:
                InputError: The machines cannot be built.
            """

    @abstractmethod
    def kernel(
        self, seed: int, *, record: bool = True, on_arrivals: Callable[[int], None] | None = None
    ) -> Kernel[Any, Any]:
        """Return a new kernel. The same seed always gives the same jobs, failures and outages.

        With ``record=False``, a kernel may omit runs from its log if this is faster. It always
        records arrivals and completions of jobs. ``on_arrivals`` is called from time to time with
        the number of jobs that have arrived.

        Raises:
            InputError: The cluster cannot be built, or the workload cannot be generated.
        """

    @abstractmethod
    def facts(self, kernel: Kernel[Any, Any]) -> Mapping[str, Any]:
        """Return facts about the jobs in ``kernel`` as plain values: how many there are, what load
        they offer, and where they come from.
        """

    def notes(self, kernel: Kernel[Any, Any], policy: object) -> list[str]:
        """Return the notes that must be shown above the results of a run, in addition to the
        policy's own notes.
        """
        return []

    def unfinished(self, kernel: Kernel[Any, Any]) -> Mapping[int, str]:
        """Map the number of each job that is still in ``kernel`` at the end of the simulation to
        the reason why the job is unfinished, if the reason is known.
        """
        return {}

    @abstractmethod
    def check(self) -> None:
        """Check the scenario by creating everything that a kernel needs.

        Raises:
            InputError: One of these parts cannot be created.
        """

    def scenario(self) -> Scenario:
        """Return the scenario itself, because its settings are all under ``system``."""
        return self

    def engaged(self, policy: str, seed: int, *, on_arrivals: Callable[[int], None] | None = None) -> Engaged:
        """Return the kernel for a policy that is given by name. It uses the requested engine or, if
        none was requested, the fastest engine that supports the policy.

        Raises:
            InputError: As in ``kernel``, or the requested engine does not support this run.
        """
        return Engaged(self.kernel(seed, on_arrivals=on_arrivals))

    def check_jobs(self, seed: int) -> None:  # systems that cannot have invalid jobs need no check
        """Check that the first job for ``seed`` can be generated. Jobs from a trace are not read.

        Raises:
            InputError: It cannot be generated, for example because no run time is known on a GPU type.
        """

    def check_engine(self, policy: str) -> None:
        """Check that the requested engine can be used for a policy, as far as this can be checked
        without jobs.

        Raises:
            ConfigError: The engine cannot be used.
        """

    def fitted(self, policy: Policy[Any, Any]) -> Policy[Any, Any]:
        """Return the policy. If the scenario requires something that the policy does not do itself,
        the policy is wrapped in an object that does it.
        """
        return policy

    def why_no_episodes(self, codec: CodecSettings, terms: Mapping[str, float]) -> str:
        """Return the reason why a compiled engine cannot run many episodes together, or an empty
        text if it can.
        """
        return f"episodes of the system {self.system!r} are not compiled"

    def episodes(
        self, count: int, codec: CodecSettings, terms: Mapping[str, float], scale: float, *, recorded: bool = False
    ) -> Any:
        """Return ``count`` episodes that run in a compiled engine, or a text that explains why this
        is impossible. Their observations and rewards are bit-identical to those of ``Episode``. A
        reward is the weighted sum of ``terms``, divided by ``scale``. With ``recorded``, the
        episodes keep their logs.
        """
        return self.why_no_episodes(codec, terms)


class Conversation(Generic[ViewT, DecisionT]):
    """The exchange of views and decisions with a kernel, from the first view to the end of the
    simulation. Kernels are only driven through this class.

    ``view`` is the view for which decisions are expected, or ``None`` at the end.
    """

    __slots__ = ("_talk", "_until_s", "kernel", "view")

    def __init__(self, kernel: Kernel[ViewT, DecisionT], until_s: float = inf) -> None:
        self.kernel, self._until_s = kernel, until_s
        self._talk = kernel.decisions(until_s)
        self.view: ViewT | None = next(self._talk, None)

    def of_fork(self, kernel: Kernel[ViewT, DecisionT]) -> Conversation[ViewT, DecisionT]:
        """Return a conversation with a fork of the kernel that continues from the same view."""
        return Conversation(kernel, self._until_s)

    def answer(self, decisions: Iterable[DecisionT] | None) -> ViewT | None:
        """Send the decisions for the current view, and return the next view, or ``None`` at the
        end.
        """
        try:
            self.view = self._talk.send(decisions)
        except StopIteration:
            self.view = None
        return self.view

    def follow(self, policy: Policy[ViewT, DecisionT]) -> None:
        """Send the policy's decisions until the end.

        Raises:
            IllegalDecision, Stalled: Raised by the kernel. The message also names the policy.
        """
        if stated(policy, "clairvoyant") and isinstance(self.kernel, HidesTruth):
            self.kernel.show_truth()
        if isinstance(self.kernel, HasPast):
            self.kernel.remind(policy)
        send, decide, view = self._talk.send, policy.decide, self.view
        try:
            while view is not None:
                view = send(decide(view))
        except StopIteration:
            pass
        except (IllegalDecision, Stalled) as error:
            error.blame(policy)
            raise
        self.view = None


def decisions_of(answer: object, now: float) -> Iterator[Any]:
    """Yield the decisions in a policy's answer. ``None`` means no decision.

    Raises:
        IllegalDecision: The answer is not iterable, or is itself a decision.
    """
    if answer is None:
        return iter(())
    # A decision is a tuple, so its fields would otherwise be treated as decisions.
    if isinstance(answer, tuple) and hasattr(answer, "_fields"):
        kind = type(answer).__name__
        raise IllegalDecision(
            f"at {now:g} s: decide() returned a bare {kind}, but it must yield decisions or return a list "
            f"of them: yield {kind}(...), or return [{kind}(...)]"
        )
    try:
        return iter(answer)  # type: ignore[call-overload,no-any-return]
    except TypeError:
        raise IllegalDecision(
            f"at {now:g} s: decide() returned {answer!r}, but it must yield decisions or return a list of them"
        ) from None


def drive(kernel: Kernel[ViewT, DecisionT], policy: Policy[ViewT, DecisionT], until_s: float = inf) -> Schedule:
    """Run ``kernel`` with ``policy`` until no job is left, or until ``until_s``.

    Raises:
        IllegalDecision: A decision of the policy cannot be carried out.
        Stalled: The policy waits although nothing is pending.
    """
    Conversation(kernel, until_s).follow(policy)
    return kernel.schedule


JobT = TypeVar("JobT")

_JOBS_PER_STEP = 500


class CountedJobs(Generic[JobT]):
    """An iterable that yields the ``jobs``. For the first job and for every 500th job, it calls
    ``on_arrivals`` with the number of jobs so far.
    """

    def __init__(self, jobs: Iterable[JobT], on_arrivals: Callable[[int], None]) -> None:
        self.jobs = jobs
        self._on_arrivals = on_arrivals

    def __iter__(self) -> Iterator[JobT]:
        for number, job in enumerate(self.jobs):
            if number % _JOBS_PER_STEP == 0:
                self._on_arrivals(number)
            yield job
