"""Services that only the GPU cluster needs (see ``dagsim.services``)."""
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from dagsim.services import FamilyService

if TYPE_CHECKING:
    from dagsim.model.job import Job
    from dagsim.model.log import Schedule
    from dagsim.model.queues import QueueTree
    from dagsim.systems.cluster.arrivals.job_stream import JobStream
    from dagsim.systems.cluster.models import Models
    from dagsim.systems.cluster.scenario import ClusterScenario
    from dagsim.systems.seam import CodecSettings, EngineUse


@FamilyService
def compiled(
    scenario: ClusterScenario, jobs: JobStream, policy: str, seed: int, on_arrivals: Callable[[int], None] | None
) -> Any:
    """Return the compiled kernel for a run (``Engaged``), or a text that states why there is none."""


@FamilyService
def why_not_compiled(scenario: ClusterScenario, policy: str, observed: bool = False) -> str:
    """Return the reason why the compiled engine cannot be used, if one is known before any job has
    been read. The result is empty if there is none.
    """


@FamilyService
def faster_engine(scenario_of: Callable[[], ClusterScenario], policy: str, engine: EngineUse, wall_s: float) -> str:
    """Return a hint about faster engines after a long run in SimPy. The result is empty if there is
    no such hint.
    """


@FamilyService
def why_no_episodes(scenario: ClusterScenario, codec: CodecSettings, terms: Mapping[str, float]) -> str:
    """Return the reason why episodes cannot be compiled. The result is empty if there is none."""


@FamilyService
def compiled_episodes(
    scenario: Any, count: int, codec: CodecSettings, terms: Mapping[str, float], scale: float, recorded: bool
) -> Any:
    """Return many episodes that are simulated together, or a text that states why this is not
    possible.
    """


@FamilyService
def scheduler_settings(queues: QueueTree) -> Any:
    """Return the parameters of the scheduler that a site uses: those of ``queues.scheduler``, and
    defaults."""


@FamilyService
def episodes_at_hand() -> bool:
    """Return True if the code of compiled episodes can be loaded. Otherwise, begin to compile it in
    another process and return False.
    """


@FamilyService
def listed_users(queues: QueueTree) -> Mapping[str, Collection[str]]:
    """Return the users of each account at a site whose scheduler lists all users. The result is
    empty for other sites, because these list only users whose shares differ from the default.
    """


@FamilyService
def link_traffic(schedule: Schedule, jobs: list[Job], models: Models) -> list[Any]:
    """Return the traffic on each link in a simulation."""
