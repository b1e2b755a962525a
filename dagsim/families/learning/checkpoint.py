"""A trained agent, as a file and as a policy. The agent may be for any system.

Features are clipped to the range that they had in training, because networks extrapolate badly. For
example, suppose that no task in training had more than ten instances. A task with 100,000 instances
would then get a meaningless score, so the number is replaced by the nearest bound, ten. This was
measured on Alibaba's trace, on which the agents were not trained. With clipping, their mean
completion time is 0.7 to 0.9 times that of EFT-wait, and without clipping almost five times
(``results/agents/transfer.md``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import numpy as np
import torch

from dagsim.config.schema import Config
from dagsim.errors import CodeNotAllowed, ConfigError, InputError, RunFolderError
from dagsim.experiment.provenance import digest
from dagsim.families.learning.nets import NETS
from dagsim.families.learning.nets.actor import ActorNet
from dagsim.families.learning.nets.net_settings import NetSettings
from dagsim.files import replaced
from dagsim.registry import Registry
from dagsim.seeds import REPORT, part_of
from dagsim.spelling import nearest, nearest_file
from dagsim.systems import DEFAULT_SYSTEM, all_systems
from dagsim.systems.seam import Codec, CodecSettings, System, View
from dagsim.text import count_of

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


class AgentPolicy:
    """Makes decisions with a network. It takes the most likely choice or, with ``sampled``, draws a
    choice from the simulation's random stream ``"agent"``. Each decision takes one observation and
    one forward pass, about 0.3 ms in the system ``cluster``."""

    def __init__(self, checkpoint: Checkpoint, *, sampled: bool = False) -> None:
        self.checkpoint = checkpoint
        self.sampled = sampled
        self.forgets = "how many random numbers had been drawn" if sampled else ""
        self._net = checkpoint.network()
        self._codec = checkpoint.clipped(checkpoint.codec.build())

    @property
    def admits(self) -> bool:
        """True if the agent decides whether jobs are admitted."""
        return "admit" in getattr(self.checkpoint.codec, "actions", ())

    @property
    def outside_training(self) -> float:
        """The fraction of the values seen so far that were outside the range of their feature in
        training.
        """
        codec = self._codec
        return codec.outside / codec.values if isinstance(codec, Clipped) and codec.values else 0.0

    def decide(self, view: View) -> Iterator[Any]:
        """Yield the decisions that the network chooses."""
        observation = self._codec.encode(view)
        if observation is None:
            return
        choices, _ = self._net.act(self._net.stack([observation]), view.stream("agent") if self.sampled else None)
        yield from self._codec.decode(view, choices.tolist()[0])


def load_agent(
    checkpoint: str | Path,
    sampled: bool = False,
    system: System | type[System] | None = None,
    *,
    codec: str | None = None,
    net: str | None = None,
    beliefs: bool = False,
) -> AgentPolicy:
    """Load the agent in a checkpoint file as a policy. ``system`` must be the system for which the
    agent was trained. ``codec`` and ``net`` are as in ``Checkpoint.load``, and ``beliefs`` is as in
    ``Checkpoint.with_beliefs``.

    Raises:
        RunFolderError, CodeNotAllowed: As for ``Checkpoint.load``.
        ConfigError: As for ``Checkpoint.with_beliefs``.
    """
    agent = Checkpoint.load(Path(checkpoint), system, codec=codec, net=net)
    return AgentPolicy(agent.with_beliefs() if beliefs else agent, sampled=sampled)


def caveats(config: Config, seeds: Iterable[int], checkpoint: Path, beliefs: bool = False) -> list[str]:
    """Return warnings if an experiment differs from the agent's training, or if it contains jobs on
    which the agent was trained or selected.
    """
    beside = checkpoint.with_suffix(".json")  # a shipped agent's settings are in a second file next to it
    facts = json.loads(beside.read_text("utf-8")) if beside.is_file() else read_plain(checkpoint).get("about", {})
    unfamiliar = None if beliefs else _unfamiliar(config, facts)
    return [said for said in (_overlap(config, seeds, facts), unfamiliar) if said is not None]


def _unfamiliar(config: Config, facts: Mapping[str, Any]) -> str | None:
    """Return a warning if the experiment hides durations that were never hidden from the agent, and
    None otherwise."""
    trained_with = facts.get("knowledge")
    if not trained_with or not config.whole_system.hides_durations or "hidden" in trained_with:
        return None
    return (
        f"durations are hidden, but the agent was trained with estimates ({', '.join(trained_with)}), so it may be no "
        "better than a heuristic; ppo[beliefs=true] gives the agent expected durations, and dagsim train --set "
        "estimates.kind=hidden trains an agent for such jobs"
    )


def _overlap(config: Config, seeds: Iterable[int], facts: Mapping[str, Any]) -> str | None:
    """Return a warning if an experiment contains jobs with which the agent was trained or selected.
    The warning states how many of the experiment's windows contain such jobs.

    Return None if no window contains such jobs.
    """
    trace = config.trace_file
    traces = facts.get("traces") or ()
    if (
        trace is None
        or trace.window is None
        or not any(digest(path) in traces for path in config.whole_system.trace_paths)
    ):
        return None
    rest, places = part_of(REPORT.start)[0], trace.places(seeds)
    if not (inside := sum(begin < rest for begin, _ in places)):
        return None
    return (
        f"{inside} of {count_of(len(places), 'window')} contain jobs from the first {100 * rest:.0f}% of the "
        "trace, on which the agent "
        f"was trained and chosen; --set workload.part=[{rest:g},1] takes windows from the rest"
    )


def write_plain(path: Path, plain: Mapping[str, Any]) -> None:
    """Write tensors and plain values together with their digest. The file is written atomically."""
    content = {name: value for name, value in plain.items() if name != "digest"}
    # Write to memory first, because torch's own file writer reports a full disk only as a
    # RuntimeError.
    buffer = BytesIO()
    torch.save({**content, "digest": _digest(content)}, buffer)
    with replaced(path) as temporary:
        temporary.write_bytes(buffer.getbuffer())


def read_plain(path: Path) -> dict[str, Any]:
    """Read a file with tensors and plain values.

    Raises:
        RunFolderError: The file is missing or does not match its digest.
    """
    try:
        plain = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise RunFolderError(f"{path}: no such file{nearest_file(path)}") from None
    except Exception:  # unpickling a damaged file can raise any exception, with a message that does not help users
        why = "the checkpoint is damaged" if is_zipfile(path) else "not a checkpoint"
        raise RunFolderError(f"{path}: {why}; dagsim train writes checkpoints, such as RUN/best.pt") from None
    if not isinstance(plain, dict):
        raise RunFolderError(f"{path}: not a checkpoint from dagsim")
    digest = plain.pop("digest", None)
    if digest is None:
        raise RunFolderError(f"{path}: not a checkpoint of this version of dagsim (it has no digest)")
    if digest != _digest(plain):
        raise RunFolderError(f"{path}: damaged, because the content does not match the digest")
    return plain


def _digest(plain: Mapping[str, Any]) -> str:
    total = sha256()
    _feed(total, plain)
    return total.hexdigest()


def _feed(total: Any, value: Any) -> None:
    """Add a value, and everything that it contains, to the digest ``total``."""
    match value:
        case torch.Tensor():
            total.update(f"{value.dtype}{list(value.shape)}".encode())
            if value.numel():
                total.update(value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        case Mapping():
            total.update(f"{len(value)}{{".encode())
            for key, item in value.items():
                total.update(repr(key).encode())
                _feed(total, item)
        case list() | tuple():
            total.update(f"{len(value)}[".encode())
            for item in value:
                _feed(total, item)
        case _:
            total.update(repr(value).encode())


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


@dataclass(slots=True)
class ObservationBounds:
    """The smallest and the largest value of each feature, for each part of the observation. The
    bounds are empty until they are widened."""

    parts: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def widen(self, observation: Any) -> None:
        """Widen the bounds to include an observation."""
        for name, values in zip(observation._fields, observation, strict=True):
            rows = values.reshape(-1, values.shape[-1])
            low, high = rows.min(axis=0), rows.max(axis=0)
            if name in self.parts:
                low, high = np.minimum(low, self.parts[name][0]), np.maximum(high, self.parts[name][1])
            self.parts[name] = low, high

    def clip(self, observation: Any) -> Any:
        """Return the observation with each value clipped to the range of its feature."""
        parts = self.parts
        return type(observation)(
            *(np.clip(values, *parts[name]) for name, values in zip(observation._fields, observation, strict=True))
        )

    def to_tensors(self) -> dict[str, torch.Tensor]:
        """Return one tensor (2, features) per part of the observation, for a file."""
        return {name: torch.from_numpy(np.stack(limits)) for name, limits in self.parts.items()}

    @classmethod
    def of(cls, tensors: Mapping[str, torch.Tensor]) -> ObservationBounds:
        """Rebuild the bounds from the tensors that ``to_tensors`` returned."""
        return cls({name: (limits[0].numpy(), limits[1].numpy()) for name, limits in tensors.items()})


class _Wrapped:
    """The base class of codecs that wrap another codec."""

    def __init__(self, codec: Codec, bounds: ObservationBounds) -> None:
        self.codec = codec
        self.bounds = bounds

    def decode(self, view: Any, choice: Any) -> Iterable[Any]:
        return self.codec.decode(view, choice)

    def choice_of(self, decisions: Iterable[Any]) -> Any | None:
        return self.codec.choice_of(decisions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.codec, name)


class BoundsRecorder(_Wrapped):
    """Widens ``bounds`` to include every observation that the codec produces."""

    def encode(self, view: Any) -> Any | None:
        observation = self.codec.encode(view)
        if observation is not None:
            self.bounds.widen(observation)
        return observation


class Clipped(_Wrapped):
    """Clips every observation of the codec to ``bounds``, and counts the values that were
    outside."""

    def __init__(self, codec: Codec, bounds: ObservationBounds) -> None:
        super().__init__(codec, bounds)
        self.values = 0
        """Number of values in all observations so far."""
        self.outside = 0
        """Number of those values outside the bounds."""

    def encode(self, view: Any) -> Any | None:
        observation = self.codec.encode(view)
        if observation is None:
            return None
        clipped = self.bounds.clip(observation)
        for seen, inside in zip(observation, clipped, strict=True):
            self.values += seen.size
            self.outside += int(np.count_nonzero(seen != inside))
        return clipped
