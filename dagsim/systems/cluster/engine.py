"""The engine of a run: the SimPy kernel, which defines the rules, or the compiled lane, which writes the same bytes.

The lane plays policies by name: it knows them from the start and asks nobody. It steps aside for everything that it
does not know, and says why. Nothing here imports numba before a run is large enough for it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from importlib.util import find_spec
from math import inf
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from dagsim.errors import ConfigError
from dagsim.model import Cluster
from dagsim.model.log import Schedule

if TYPE_CHECKING:
    from dagsim.systems.cluster.lane.reading import LaneScenario
    from dagsim.systems.cluster.lane.scenario import LanePolicy

__all__ = ["INSTALL", "CompiledKernel", "Engine", "EngineUse", "is_installed", "pays"]

Engine: TypeAlias = Literal["auto", "simpy", "compiled"]
"""``auto``: the compiled lane where it applies, pays, and was compiled before (``dagsim warm``)."""

PAYS = 50_000
"""Tasks from which the lane is faster than the kernel, which takes some 20 us a task more: to import numba and load
what was compiled takes 1 s."""

PAYS_IN_ROUNDS = 1_000
"""The same under policies that may stop each task hundreds of times."""

_IN_ROUNDS = ("las", "2d-las")

INSTALL = "the compiled engine needs numba: pip install -e '.[fast]' in the checkout"


class EngineUse(NamedTuple):
    """The engine that was asked for, the one that is used, and the reason in words."""

    asked: Engine
    used: Literal["simpy", "compiled"]
    reason: str


def is_installed() -> bool:
    """True if there is numba; does not import it."""
    return find_spec("numba") is not None


def pays(policy: str) -> int:
    """Tasks from which the lane is likely to be faster than the kernel under the policy."""
    return PAYS_IN_ROUNDS if policy.partition("[")[0] in _IN_ROUNDS else PAYS


class CompiledKernel:
    """A simulation in the compiled lane: it knows its policy, asks nobody, and is over once it is set going."""

    def __init__(self, cluster: Cluster, jobs: Iterable[Any], scene: LaneScenario, plan: LanePolicy, seed: int) -> None:
        self.jobs = jobs
        self.schedule = Schedule(cluster, seed=seed)
        self._scene, self._plan = scene, plan

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return self.schedule.ended_s

    def decisions(self, until_s: float = inf) -> Generator[Any, Any, None]:
        """Run to the end; there is nothing to decide.

        Raises:
            ConfigError: It should stop before the end.
            Stalled: Jobs are not done, and nothing runs.
        """
        if until_s != inf:
            raise ConfigError("the compiled engine runs to the end; engine simpy can stop before")
        from dagsim.systems.cluster.lane.drive import compile_loops, scheduled

        compile_loops([self._plan.policy])
        self.schedule = scheduled(self.schedule.cluster, self._scene, self._plan, self.schedule.seed)
        yield from ()
