"""A trained agent, as it is stored in a file. The agent may be for any system."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from dagsim.errors import CodeNotAllowed, ConfigError, InputError, RunFolderError
from dagsim.families.learning.checkpoint_file import read_plain, write_plain
from dagsim.families.learning.nets import NETS
from dagsim.families.learning.nets.actor import ActorNet
from dagsim.families.learning.nets.net_settings import NetSettings
from dagsim.families.learning.observation_bounds import Clipped, ObservationBounds
from dagsim.registry import Registry
from dagsim.spelling import nearest
from dagsim.systems import DEFAULT_SYSTEM, all_systems
from dagsim.systems.seam import Codec, CodecSettings, System

_FORMAT = "dagsim-agent-3"
_CHOICES = "embed.0.weight"
"""The weights of the layer that reads the columns of a choice, in networks that read choices one by one."""
_NETS_OF_ALGORITHMS = ("dagsim.families.learning.off_policy.rainbow:RainbowNetConfig",)
"""Networks that come with dagsim but cannot be chosen by name, because an algorithm builds them
itself."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An agent as it is stored in a file: its system, codec, network, weights and provenance."""

    algorithm: str
    net: NetSettings
    codec: CodecSettings
    weights: Mapping[str, torch.Tensor]
    about: Mapping[str, Any]
    """Provenance for human readers: workload, cluster, seed, iterations, validation score."""
    bounds: ObservationBounds | None = None
    """Bounds of the features seen in training, or ``None`` if they were not recorded."""
    system: str = DEFAULT_SYSTEM

    def save(self, path: Path) -> None:
        """Write the file atomically."""
        plain = {
            "format": _FORMAT,
            "system": self.system,
            "algorithm": self.algorithm,
            "net": _plain_settings(self.net),
            "codec": _plain_settings(self.codec),
            "codec_version": getattr(self.codec, "version", 1),
            "features": _features(self.codec),
            "weights": dict(self.weights),
            "about": dict(self.about),
            "ranges": None if self.bounds is None else self.bounds.to_tensors(),
        }
        write_plain(path, plain)

    @classmethod
    def load(
        cls,
        path: Path,
        system: System | type[System] | None = None,
        *,
        codec: str | None = None,
        net: str | None = None,
    ) -> Checkpoint:
        """Read a file that ``save`` wrote. ``system`` must be the system for which the agent was
        trained. It is required only if this system is code outside dagsim.

        A file contains only data. It can therefore refer only to codecs and networks that come with
        dagsim. An agent with another codec or network can be loaded if its class, or
        ``module:Class``, is passed as ``codec`` or ``net``.

        Raises:
            RunFolderError: The file is missing or damaged, belongs to another version of dagsim or
                to another system, or contains an agent that was trained on other observations.
            CodeNotAllowed: Its codec or network is code outside dagsim that the caller did not
                specify.
        """
        plain = read_plain(path)
        if plain.get("format") != _FORMAT:
            raise RunFolderError(
                f"{path}: not an agent from this version of dagsim (its format is {plain.get('format')!r})"
            )
        try:
            own = plain["system"]
            if system is not None and own != system.system:
                raise RunFolderError(
                    f"{path}: the agent was trained for the system {own!r}, so it cannot schedule {system.system!r}"
                )
            codec_settings = _settings_from(_codecs_of(path, own, system), plain["codec"], codec)
            version = getattr(codec_settings, "version", 1)
            if plain["codec_version"] != version:
                raise RunFolderError(
                    f"{path}: the agent was trained with version {plain['codec_version']} of the codec "
                    f"{plain['codec']['kind']!r}, which now has version {version}; train the agent again"
                )
            _same_features(path, plain["features"], _features(codec_settings))
            bounds = None if plain.get("ranges") is None else ObservationBounds.of(plain["ranges"])
            _finite(path, {"weights": plain["weights"], "ranges": plain.get("ranges") or {}})
            net_settings = _settings_from(NETS, plain["net"], net)
            about = plain["about"]
            agent = cls(plain["algorithm"], net_settings, codec_settings, plain["weights"], about, bounds, own)
            agent.network()
        except CodeNotAllowed as error:
            raise CodeNotAllowed(f"{path}: {error}") from None
        except (AttributeError, ConfigError, IndexError, KeyError, TypeError, RuntimeError) as error:
            raise RunFolderError(
                f"{path}: the parts of the agent do not fit together ({str(error).splitlines()[0]})"
            ) from None
        except InputError as error:
            if isinstance(error, RunFolderError):
                raise
            raise RunFolderError(f"{path}: {error}") from None
        return agent

    def clipped(self, codec: Codec) -> Codec:
        """Wrap the codec in another one, which clips each value to the range that it had in
        training."""
        return codec if self.bounds is None else Clipped(codec, self.bounds)

    def weights_for(self, codec: CodecSettings) -> dict[str, torch.Tensor]:
        """Return the weights for a codec that may have additional columns for each choice. Their
        weights are initially 0, so the agent ignores them.

        Raises:
            ConfigError: The codec differs in other ways, or the network does not read choices one by one.
        """
        trained, shown, weights = self.codec.features, codec.features, dict(self.weights)
        if trained != shown:
            old, new = trained.get("tokens", ()), shown.get("tokens", ())
            if _CHOICES not in weights or not set(old) <= set(new) or {**trained, "tokens": new} != shown:
                raise ConfigError(
                    f"the agent was trained with the codec {self.codec}, but the configuration sets {codec}"
                )
            first = weights[_CHOICES]
            weights[_CHOICES] = first.new_zeros(len(first), len(new))
            weights[_CHOICES][:, [new.index(name) for name in old]] = first
        return weights

    def with_beliefs(self) -> Checkpoint:
        """Return an agent that sees expected durations instead of hidden ones
        (``RelativeConfig.beliefs``).

        Raises:
            ConfigError: The codec of the agent cannot show them.
        """
        trained: Any = self.codec
        if not hasattr(trained, "beliefs"):
            kind = getattr(trained, "kind", type(trained).__name__)
            raise ConfigError(f"beliefs: the agent's codec is {kind!r}; it must be 'relative'")
        codec = replace(trained, beliefs=True)
        return replace(self, codec=codec, weights=self.weights_for(codec))

    def network(self) -> ActorNet:
        """Build the network with its weights. It is used for inference only."""
        net = self.net.build(self.codec)
        net.load_state_dict(dict(self.weights))
        net.settings = self.net
        return net.eval()


def _finite(path: Path, parts: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
    for part, tensors in parts.items():
        for name, tensor in tensors.items():
            if not bool(torch.isfinite(tensor).all()):
                raise RunFolderError(
                    f"{path}: {name!r} in the {part} of the agent contains numbers that are not finite"
                )


def _codecs_of(path: Path, name: str, system: System | type[System] | None) -> Registry[Any]:
    """Return the codecs of the system for which an agent was trained."""
    if system is not None:
        return system.codecs
    known = {other.system: other for other in all_systems().values()}
    if name not in known:
        systems = f"known systems: {', '.join(known)}. An agent for your own system can only be loaded for that system"
        raise RunFolderError(
            f"{path}: the agent is for the system {name!r}, which is unknown{nearest(str(name), known, systems)}"
        )
    return known[name].codecs


def _settings_from(registry: Registry[Any], settings: Mapping[str, Any], own: str | None) -> Any:
    """Rebuild the settings object described by ``_plain_settings``. ``own`` is the name of its
    class if the class is not part of dagsim."""
    kind = settings["kind"]
    part = registry.kind
    if registry.is_own(kind) and own is None and kind not in _NETS_OF_ALGORITHMS:
        raise CodeNotAllowed(
            f"the {part} {kind!r} of the agent is code outside dagsim, but a checkpoint may only contain data. If "
            f"you trust that code, pass it explicitly as the parameter {part}={kind} (docs/security.md)"
        )
    if own not in (None, kind) and not registry.is_own(kind):
        raise ConfigError(f"the {part} of the agent is {kind!r}, which comes with dagsim, so leave out {own!r}")
    cls: Any = registry.get(kind if own is None else own)
    has_kind = any(field.name == "kind" and field.default == kind for field in fields(cls))
    return cls(**{name: value for name, value in settings.items() if has_kind or name != "kind"})


def _plain_settings(settings: Any) -> dict[str, Any]:
    """Return the fields of a settings object and its ``kind``, which is its name or the location of
    its class."""
    cls = type(settings)
    path = f"{cls.__module__}:{cls.__qualname__}"
    kind = getattr(settings, "kind", path) if cls.__module__.startswith("dagsim.") else path
    return {**asdict(settings), "kind": kind}


def _features(codec: CodecSettings) -> list[str]:
    return [name for names in codec.features.values() for name in names]


def _same_features(path: Path, trained: list[str], now: list[str]) -> None:
    if trained != now:
        differing = sorted(set(trained) ^ set(now)) or ["their order"]
        raise RunFolderError(
            f"{path}: the agent was trained on different observations; the differences are in {', '.join(differing)}"
        )
