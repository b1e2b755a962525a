"""Profiles of kube-scheduler, which set the weights and the arguments of plugins
(KubeSchedulerConfiguration)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from dagsim.errors import ConfigError
from dagsim.families.kubernetes.api.terms import HOSTNAME, Selector
from dagsim.families.kubernetes.kube.objects import ZONE, node_affinity_terms
from dagsim.traces.documents import list_in, object_in, text_in

FILTERS = (
    "NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit",
    "PodTopologySpread", "InterPodAffinity",
)  # fmt: skip
WEIGHTS = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "NodeResourcesFit": 1,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
}
"""Plugins that score, with their default weights."""
_PREEMPTION = "DefaultPreemption"
_WITHOUT_EFFECT = (
    "SchedulingGates", "PrioritySort", "DefaultBinder", "DynamicResources", "VolumeRestrictions", "NodeVolumeLimits",
    "EBSLimits", "GCEPDLimits", "AzureDiskLimits", "VolumeBinding", "VolumeZone",
)  # fmt: skip
"""Plugins for volumes, devices, queueing and binding, which have no effect here."""
_POINTS = ("multiPoint", "filter", "postFilter", "score")

Weighted: TypeAlias = tuple[tuple[str, int], ...]
"""Names of resources or labels, and a number for each."""
_CPU_AND_MEMORY: Weighted = (("cpu", 1), ("memory", 1))


@dataclass(frozen=True, slots=True)
class FitArguments:
    """NodeResourcesFitArgs: the scoring strategy, the weights of resources, and the shape of
    RequestedToCapacityRatio.
    """

    strategy: str = "LeastAllocated"
    resources: Weighted = _CPU_AND_MEMORY
    shape: tuple[tuple[int, int], ...] = ()
    """Points of utilization (in percent) and score (0 to 100), for RequestedToCapacityRatio."""
    ignored: frozenset[str] = frozenset()
    ignored_groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class BalancedArguments:
    """NodeResourcesBalancedAllocationArgs: the weights of resources."""

    resources: Weighted = _CPU_AND_MEMORY


@dataclass(frozen=True, slots=True)
class Profile:
    """The plugins that take part in decisions, with their weights and arguments. The defaults are
    those of kube-scheduler."""

    filters: frozenset[str] = frozenset(FILTERS)
    weights: Weighted = tuple(WEIGHTS.items())
    preempts: bool = True
    fit: FitArguments = FitArguments()
    balanced: BalancedArguments = BalancedArguments()
    hard_affinity_weight: int = 1
    ignores_preferred_of_others: bool = False
    default_spread: tuple[tuple[str, int, bool], ...] = ((HOSTNAME, 3, False), (ZONE, 5, False))
    """The default constraints for pods of Services without constraints: label, largest skew, and
    whether it must hold."""
    spread_is_built_in: bool = True
    added_terms: tuple[Selector, ...] = ()
    added_preferred: tuple[tuple[int, Selector], ...] = ()
    candidates_percent: int = 10
    candidates_least: int = 100
    """Preemption examines this share of the nodes, and at least this number of them."""
    unmodelled: tuple[str, ...] = ()
    """Settings that have no effect here."""

    def ignores(self, resource: str) -> bool:
        """Return True if NodeResourcesFit ignores the resource when it filters nodes."""
        return resource in self.fit.ignored or resource.partition("/")[0] in self.fit.ignored_groups


def read_profile(path: Path, name: str = "") -> Profile:
    """Read the profile ``name`` (by default, the first one) from a KubeSchedulerConfiguration in
    YAML or JSON.

    Raises:
        ConfigError: The file cannot be read, or a setting is wrong. The message names the file and the key.
    """
    from yaml import YAMLError, safe_load

    try:
        document = safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, YAMLError) as error:
        raise ConfigError(f"{path}: cannot be read as a KubeSchedulerConfiguration: {error}") from None
    if (
        not isinstance(document, dict)
        or document.get("kind", "KubeSchedulerConfiguration") != "KubeSchedulerConfiguration"
    ):
        raise ConfigError(f"{path}: not a KubeSchedulerConfiguration (kind: {object_in(document).get('kind')!r})")
    return profile_of(document, str(path), name)


def profile_of(document: Mapping[str, Any], where: str, name: str = "") -> Profile:
    """Return the profile ``name`` (by default, the first one) from a KubeSchedulerConfiguration
    that has already been parsed.

    Raises:
        ConfigError: A setting is wrong. The message names the setting.
    """
    profiles = list_in(document, "profiles") or [{}]
    names = [text_in(entry, "schedulerName") or "default-scheduler" for entry in profiles]
    if name and name not in names:
        raise ConfigError(f"{where}: no profile {name!r}; known profiles: {', '.join(map(repr, names))}")
    reading = _Reading(where, names.index(name) if name else 0)
    return reading.profile(document, profiles[reading.number])


class _Reading:
    """Reads a single profile in a document."""

    def __init__(self, where: str, number: int) -> None:
        self._where = where
        self.number = number
        self._unmodelled: list[str] = []

    def profile(self, document: Mapping[str, Any], entry: Any) -> Profile:
        for key in sorted(document):
            if key in ("extenders", "percentageOfNodesToScore") and document[key] not in (None, [], 100):
                self._unmodelled.append(f"{key}: {document[key]!r}" if key != "extenders" else key)
        if object_in(entry).get("percentageOfNodesToScore") not in (None, 100):
            self._unmodelled.append(f"percentageOfNodesToScore: {entry['percentageOfNodesToScore']!r}")
        profile = self._plugins(object_in(entry, "plugins"))
        for place, setting in enumerate(list_in(entry, "pluginConfig")):
            plugin, arguments = text_in(setting, "name"), object_in(setting, "args")
            at = f"profiles[{self.number}].pluginConfig[{place}].args"
            match plugin:
                case "NodeResourcesFit":
                    profile = replace(profile, fit=self._fit(arguments, at))
                case "NodeResourcesBalancedAllocation":
                    listed = self._weighted(arguments.get("resources"), f"{at}.resources") or _CPU_AND_MEMORY
                    profile = replace(profile, balanced=BalancedArguments(listed))
                case "InterPodAffinity":
                    profile = replace(
                        profile,
                        hard_affinity_weight=self._whole(arguments, "hardPodAffinityWeight", 1, at, 0, 100),
                        ignores_preferred_of_others=arguments.get("ignorePreferredTermsOfExistingPods") is True,
                    )
                case "PodTopologySpread":
                    profile = self._spread(profile, arguments, at)
                case "NodeAffinity":
                    terms, preferred = node_affinity_terms(object_in(arguments, "addedAffinity"))
                    profile = replace(profile, added_terms=terms, added_preferred=preferred)
                case "DefaultPreemption":
                    profile = replace(
                        profile,
                        candidates_percent=self._whole(arguments, "minCandidateNodesPercentage", 10, at, 0, 100),
                        candidates_least=self._whole(arguments, "minCandidateNodesAbsolute", 100, at, 0, 1 << 31),
                    )
                case _:
                    self._unmodelled.append(f"arguments of {plugin or 'a plugin without a name'}")
        return replace(profile, unmodelled=tuple(self._unmodelled))

    def _plugins(self, plugins: Mapping[str, Any]) -> Profile:
        """Enable and disable plugins as configured. A plugin may be listed under ``multiPoint`` or
        under a single extension point."""
        filters, weights, preempts = dict.fromkeys(FILTERS), dict(WEIGHTS), True
        for point in _POINTS:
            stated = object_in(plugins, point)
            off = {text_in(entry, "name") for entry in list_in(stated, "disabled")}
            everywhere = point == "multiPoint"
            if everywhere or point == "filter":
                filters = {name: None for name in filters if not off & {name, "*"}}
            if everywhere or point == "score":
                weights = {name: weight for name, weight in weights.items() if not off & {name, "*"}}
            if everywhere or point == "postFilter":
                preempts = preempts and not off & {_PREEMPTION, "*"}
            for place, entry in enumerate(list_in(stated, "enabled")):
                name = text_in(entry, "name")
                at = f"profiles[{self.number}].plugins.{point}.enabled[{place}]"
                known = (everywhere or point == "filter") and name in FILTERS
                if known:
                    filters[name] = None
                if (everywhere or point == "score") and name in WEIGHTS:
                    default = WEIGHTS[name] if everywhere else 1
                    weights[name] = self._whole(entry, "weight", 0, at, 0, 1 << 31) or default
                    known = True
                if (everywhere or point == "postFilter") and name == _PREEMPTION:
                    preempts = known = True
                if not known and name not in _WITHOUT_EFFECT:
                    self._unmodelled.append(f"plugin {name} ({point})")
        for point in sorted(plugins):
            if point not in _POINTS:
                self._unmodelled.append(f"plugins at {point}")
        return Profile(frozenset(filters), tuple(weights.items()), preempts)

    def _fit(self, arguments: Mapping[str, Any], at: str) -> FitArguments:
        stated = object_in(arguments, "scoringStrategy")
        strategy = text_in(stated, "type") or "LeastAllocated"
        allowed = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
        if strategy not in allowed:
            raise self._wrong(f"{at}.scoringStrategy.type", strategy, f"one of {', '.join(allowed)}")
        shape: list[tuple[int, int]] = []
        if strategy == allowed[2]:
            key = f"{at}.scoringStrategy.requestedToCapacityRatio.shape"
            for entry in list_in(stated, "requestedToCapacityRatio", "shape"):
                used, score = (
                    self._whole(entry, "utilization", 0, key, 0, 100),
                    self._whole(entry, "score", 0, key, 0, 10),
                )
                if shape and used <= shape[-1][0]:
                    raise self._wrong(f"{key}.utilization", used, "greater than at the previous point")
                shape.append((used, 10 * score))
            if not shape:
                raise self._wrong(key, [], "at least one point of utilization and score")
        return FitArguments(
            strategy,
            self._weighted(stated.get("resources"), f"{at}.scoringStrategy.resources") or _CPU_AND_MEMORY,
            tuple(shape),
            frozenset(map(str, list_in(arguments, "ignoredResources"))),
            frozenset(map(str, list_in(arguments, "ignoredResourceGroups"))),
        )

    def _weighted(self, listed: Any, at: str) -> Weighted:
        names = listed if isinstance(listed, list) else []
        return tuple([(text_in(entry, "name"), self._whole(entry, "weight", 1, at, 1, 100)) for entry in names])

    def _spread(self, profile: Profile, arguments: Mapping[str, Any], at: str) -> Profile:
        if text_in(arguments, "defaultingType") == "System":
            return profile
        constraints = []
        for entry in list_in(arguments, "defaultConstraints"):
            skew = self._whole(entry, "maxSkew", 1, f"{at}.defaultConstraints", 1, 1 << 31)
            must = text_in(entry, "whenUnsatisfiable") != "ScheduleAnyway"
            constraints.append((text_in(entry, "topologyKey"), skew, must))
        return replace(profile, default_spread=tuple(constraints), spread_is_built_in=False)

    def _whole(self, entry: Any, name: str, default: int, at: str, least: int, most: int) -> int:
        value = object_in(entry).get(name)
        if value is None:
            return default
        if type(value) is not int or not least <= value <= most:
            raise self._wrong(f"{at}.{name}", value, f"a whole number from {least} to {most}")
        return value

    def _wrong(self, key: str, value: object, allowed: str) -> ConfigError:
        return ConfigError(f"{self._where}: {key} is {value!r}; it must be {allowed}")


def fit_arguments(scoring: str, weights: Iterable[tuple[str, int]]) -> FitArguments:
    """Return the arguments of NodeResourcesFit for a strategy (``least`` or ``most``) and weights
    of resources."""
    strategies = {"least": "LeastAllocated", "most": "MostAllocated"}
    return FitArguments(strategies[scoring], tuple([(name, weight) for name, weight in weights if weight]))
