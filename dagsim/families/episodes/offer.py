"""Create episodes for the compiled engine, which runs many of them at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dagsim.errors import ConfigError
from dagsim.families.compiled import jit
from dagsim.families.compiled.choice import why_not_live
from dagsim.families.compiled.warming import EPISODES, warm_beside
from dagsim.families.learning.codecs.codec import CandidatesConfig, RelativeConfig
from dagsim.families.learning.codecs.further import DerivedColumns
from dagsim.families.learning.column_rewards import ColumnReward
from dagsim.specs import Spec

if TYPE_CHECKING:
    from dagsim.families.episodes.side_by_side import CompiledEpisodes
    from dagsim.systems.cluster.scenario import ClusterScenario
    from dagsim.systems.seam import CodecSettings

_TERMS = ("shaped_job_seconds", "job_seconds")


def compiled_episodes(
    scenario: Any, count: int, codec: CodecSettings, terms: Mapping[str, float], scale: float, recorded: bool
) -> CompiledEpisodes | str:
    """Build ``count`` episodes of a GPU-cluster scenario in the compiled engine. If the codec's
    settings prevent this, return the reason. All other reasons are found by ``why_no_episodes``.
    """
    from dagsim.families.episodes.episode_state import EpisodeReward
    from dagsim.families.episodes.side_by_side import CompiledEpisodes

    assert isinstance(codec, CandidatesConfig | RelativeConfig | DerivedColumns)
    ((term, weight),) = terms.items()
    reward = EpisodeReward(weight, scale, term == "shaped_job_seconds")
    own = None if term in _TERMS else scenario.terms.create(term)
    try:
        return CompiledEpisodes(scenario, count, codec, reward, recorded=recorded, own=own)
    except ConfigError as error:
        return f"the codec {getattr(codec, 'kind', type(codec).__name__)!r}: {error}"


def at_hand() -> bool:
    """Return True if the code of compiled episodes can be loaded. Otherwise, start compiling it in
    another process."""
    from dagsim.families.episodes.episode_calls import are_warm

    if not jit.jitted():
        return False
    if not (warm := are_warm()):
        warm_beside(EPISODES)
    return warm


def why_no_episodes(scenario: ClusterScenario, codec: CodecSettings, terms: Mapping[str, float]) -> str:
    """Return the reason why the compiled engine cannot run the episodes, or an empty string if it
    can."""
    plain = type(codec) is CandidatesConfig and (codec.select, codec.look_ahead) == ("heads", "sorted")
    if not plain and type(codec) is not RelativeConfig and not isinstance(codec, DerivedColumns):
        return (
            "only the codecs 'candidates', with select heads and look_ahead sorted, 'relative', and DerivedColumns of "
            "your own are compiled"
        )
    if isinstance(codec, RelativeConfig) and codec.actions:
        return f"the actions of the codec 'relative' are not compiled: {', '.join(codec.actions)}"
    if isinstance(codec, RelativeConfig) and codec.beliefs:
        return "the codec 'relative' with beliefs is not compiled"
    if len(terms) != 1 or not (set(terms) <= set(_TERMS) or _of_columns(scenario, *terms)):
        return (
            f"only single reward terms are compiled: {', '.join(_TERMS)}, or a ColumnReward of your own; "
            f"got {', '.join(terms)}"
        )
    return why_not_live(scenario)


def _of_columns(scenario: ClusterScenario, term: str) -> bool:
    """Return True if a reward term is the user's own and is computed from columns."""
    kind = scenario.terms.get(Spec.parse(term).name) if ":" in term else None
    return isinstance(kind, type) and issubclass(kind, ColumnReward)
