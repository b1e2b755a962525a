"""The seam: everything that systems have in common, and nothing else.

A *system* is a kind of simulated world. Its *scenario* says what a configuration describes and builds *kernels*, one
per seed. A kernel asks (it yields a *view* of the present) and is answered with decisions; a ``Conversation`` drives
it. Everything above a system (runs, environments, training, comparisons, plots) knows only what stands here."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, runtime_checkable

from dagsim.errors import IllegalDecision, Stalled
from dagsim.model.log import Schedule

if TYPE_CHECKING:
    import numpy as np

    from dagsim.model import Cluster
    from dagsim.registry import Registry

__all__ = [
    "Codec",
    "CodecSettings",
    "Conversation",
    "Heard",
    "HidesTruth",
    "Kernel",
    "Policy",
    "RewardTerm",
    "Scenario",
    "View",
    "decisions_of",
    "drive",
]


class View(Protocol):
    """The present, as a policy may see it: live, read-only, O(1) to hand over. Each system's view shows more."""

    @property
    def now(self) -> float:
        """Seconds since the start."""
        ...

    def stream(self, name: str) -> np.random.Generator:
        """The random stream of that name. Each name has its own, so other draws do not move it."""
        ...


ViewT = TypeVar("ViewT", bound=View)
DecisionT = TypeVar("DecisionT")
ShownT = TypeVar("ShownT", bound=View, covariant=True)
TakenT = TypeVar("TakenT", contravariant=True)
AskedT = TypeVar("AskedT", bound=View, contravariant=True)
AnswerT = TypeVar("AnswerT", covariant=True)


class Kernel(Protocol[ShownT, TakenT]):
    """One simulation under way: a cluster, its jobs, and the present."""

    @property
    def schedule(self) -> Schedule:
        """The one log of what happened so far, with the cluster and the jobs: the same record for every system."""
        ...

    @property
    def now(self) -> float:
        """Seconds since the start."""
        ...

    def decisions(self, until_s: float = inf) -> Generator[ShownT, Iterable[TakenT] | None, None]:
        """Yield a view whenever there is something to decide, take decisions for it (``None``: none), carry them out
        one by one, and go on until every job has left (or until ``until_s``).

        Raises:
            IllegalDecision: A decision cannot be carried out.
            Stalled: Nothing was decided although nothing is pending.
        """
        ...


@runtime_checkable
class Policy(Protocol[AskedT, AnswerT]):
    """Decides. Heuristics, trained agents and users' own all look like this.

    A policy object serves one simulation at a time and may keep state about it. A class with ``clairvoyant = True`` may
    read what no scheduler can know (true durations) where the system has it; without that, reading it is an error.
    """

    def decide(self, view: AskedT) -> Iterable[AnswerT]:
        """Decisions for this instant, carried out one by one as they are yielded; none: wait for the next change."""
        ...


@runtime_checkable
class HidesTruth(Protocol):
    """A kernel whose views hide what no scheduler can know, unless the policy declares ``clairvoyant = True``."""

    def show_truth(self) -> None:
        """From now on show the truth."""
        ...


class Codec(Protocol):
    """Translates between the views of one simulation, which it may keep state about, and arrays."""

    def encode(self, view: Any) -> Any | None:
        """The observation: what there is to choose from; ``None`` where nothing can be done but wait."""
        ...

    def decode(self, view: Any, choice: Any) -> Iterable[Any]:
        """The decisions that ``choice`` of the last observation stands for; none is to wait for a change."""
        ...

    def choice_of(self, decisions: Iterable[Any]) -> Any | None:
        """The choice of the last observation that stands for a heuristic's decisions; ``None`` if there is none."""
        ...


class CodecSettings(Protocol):
    """A codec as a configuration names it: a dataclass of its settings, which makes one codec per simulation."""

    @property
    def features(self) -> Mapping[str, tuple[str, ...]]:
        """The names of the columns of each part of an observation: what a net is built for."""
        ...

    def build(self) -> Codec:
        """A codec for one simulation."""
        ...


class RewardTerm(Protocol):
    """A cost that accrues in one simulation.

    A term that also has ``take(row)`` is given every new row of the log before it is asked.
    """

    def cost(self, now: float) -> float:
        """The cost since it was last asked, until ``now`` (s)."""
        ...


class Scenario(Protocol):
    """The world that a configuration describes. Picklable; the only place that builds kernels."""

    @property
    def system(self) -> str:
        """The name of its system (``dagsim list systems``)."""
        ...

    @property
    def cluster(self) -> Cluster:
        """The machines as the log knows them: nodes by number, with their GPUs.

        Raises:
            InputError: They cannot be made.
        """
        ...

    @property
    def merit(self) -> str:
        """The metric of a summary that policies are ranked by and agents judged by; less is better."""
        ...

    @property
    def policies(self) -> Registry[Any]:
        """The policies of this system by name."""
        ...

    @property
    def codecs(self) -> Registry[Any]:
        """The codecs of this system by name, as their ``CodecSettings``."""
        ...

    @property
    def terms(self) -> Registry[RewardTerm]:
        """The reward terms of this system by name."""
        ...

    def kernel(self, seed: int, *, record: bool = True, heard: Callable[[int], None] | None = None) -> Kernel[Any, Any]:
        """A new kernel: the same seed gives the same jobs, failures and outages every time.

        ``record=False`` allows a kernel to keep less than every run in its log, where that is faster; jobs' arrivals
        and completions are always there. ``heard`` is called now and then with the number of jobs that arrived.

        Raises:
            InputError: The cluster or the workload cannot be made.
        """
        ...

    def facts(self, kernel: Kernel[Any, Any]) -> Mapping[str, Any]:
        """Facts of the jobs of ``kernel``: their number, load, what was read; plain values."""
        ...

    def check(self) -> None:
        """Make what a kernel needs, and throw it away.

        Raises:
            InputError: Something cannot be made.
        """
        ...


class Conversation(Generic[ViewT, DecisionT]):
    """The talk with a kernel, from its first question to its end; the only driver of kernels.

    ``view`` is the question that waits for an answer, ``None`` when all is over.
    """

    __slots__ = ("_talk", "kernel", "view")

    def __init__(self, kernel: Kernel[ViewT, DecisionT], until_s: float = inf) -> None:
        self.kernel = kernel
        self._talk = kernel.decisions(until_s)
        self.view: ViewT | None = next(self._talk, None)

    def answer(self, decisions: Iterable[DecisionT] | None) -> ViewT | None:
        """Send decisions for the view; returns the next one, ``None`` when all is over."""
        try:
            self.view = self._talk.send(decisions)
        except StopIteration:
            self.view = None
        return self.view

    def follow(self, policy: Policy[ViewT, DecisionT]) -> None:
        """Answer as the policy decides, to the end.

        Raises:
            IllegalDecision, Stalled: As the kernel does; the message names the policy.
        """
        if getattr(policy, "clairvoyant", False) and isinstance(self.kernel, HidesTruth):
            self.kernel.show_truth()
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
    """The decisions of a policy's answer, as they come; ``None`` means no decision.

    Raises:
        IllegalDecision: The answer cannot be iterated over, or is a decision itself.
    """
    if answer is None:
        return iter(())
    if isinstance(answer, tuple) and hasattr(answer, "_fields"):  # its fields would be taken for decisions
        kind = type(answer).__name__
        raise IllegalDecision(
            f"at {now:g} s: decide() answered a {kind} itself; it must yield decisions or return a list of them: "
            f"yield {kind}(...), or return [{kind}(...)]"
        )
    try:
        return iter(answer)  # type: ignore[call-overload,no-any-return]
    except TypeError:
        raise IllegalDecision(
            f"at {now:g} s: decide() answered {answer!r}; it must yield decisions or return a list of them"
        ) from None


def drive(kernel: Kernel[ViewT, DecisionT], policy: Policy[ViewT, DecisionT], until_s: float = inf) -> Schedule:
    """Drive ``kernel`` with ``policy`` until every job has left (or until ``until_s``).

    Raises:
        IllegalDecision: The policy decided what cannot be done.
        Stalled: The policy waits although nothing is pending.
    """
    Conversation(kernel, until_s).follow(policy)
    return kernel.schedule


JobT = TypeVar("JobT")

_JOBS_PER_STEP = 500


class Heard(Generic[JobT]):
    """The ``jobs``; ``heard`` is called with the number that came, at the first and then at every 500th."""

    def __init__(self, jobs: Iterable[JobT], heard: Callable[[int], None]) -> None:
        self.jobs = jobs
        self._heard = heard

    def __iter__(self) -> Iterator[JobT]:
        for number, job in enumerate(self.jobs):
            if number % _JOBS_PER_STEP == 0:
                self._heard(number)
            yield job
