"""A trained agent as a policy, and as a file."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from dagsim.agents.config import NetConfig
from dagsim.agents.field import sizes_of
from dagsim.agents.nets import build
from dagsim.agents.ragged import log_softmax, sample, stack
from dagsim.agents.ranges import Ranges, Within
from dagsim.errors import RunFolderError
from dagsim.files import replaced
from dagsim.model import Decision
from dagsim.systems.cluster.codecs.candidates import Candidates
from dagsim.systems.cluster.codecs.codec import Codec
from dagsim.systems.cluster.codecs.config import CandidatesConfig
from dagsim.systems.cluster.view import ClusterView

__all__ = ["AgentPolicy", "Checkpoint", "load_agent", "read_plain", "write_plain"]

_FORMAT = "dagsim-agent-1"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An agent on disk: its network, how it sees, and where it comes from."""

    algorithm: str
    net: NetConfig
    codec: CandidatesConfig
    weights: Mapping[str, torch.Tensor]
    about: Mapping[str, Any]
    """Where it comes from, for people: workload, cluster, seed, iterations, score on validation."""
    ranges: Ranges | None = None
    """What features it has seen; ``None`` where that was not noted."""

    def save(self, path: Path) -> None:
        """Write it, whole or not at all."""
        plain = {
            "format": _FORMAT,
            "algorithm": self.algorithm,
            "net": asdict(self.net),
            "codec": asdict(self.codec),
            "features": _features(),
            "weights": dict(self.weights),
            "about": dict(self.about),
            "ranges": None if self.ranges is None else self.ranges.to_tensors(),
        }
        write_plain(path, plain)

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """Read what ``save`` wrote; nothing in it is executed.

        Raises:
            RunFolderError: Missing, damaged, of another version of dagsim, or made for other observations.
        """
        plain = read_plain(path)
        if plain.get("format") != _FORMAT:
            raise RunFolderError(f"{path}: not an agent of this version of dagsim (it says {plain.get('format')!r})")
        if plain["features"] != _features():
            gone = sorted(set(plain["features"]) ^ set(_features()))
            raise RunFolderError(f"{path}: was trained on other observations; they differ in {', '.join(gone)}")
        try:
            made = cls(
                plain["algorithm"],
                NetConfig(**plain["net"]),
                CandidatesConfig(**plain["codec"]),
                plain["weights"],
                plain["about"],
                None if plain.get("ranges") is None else Ranges.of(plain["ranges"]),
            )
            made.network()
        except (AttributeError, IndexError, KeyError, TypeError, RuntimeError) as error:
            raise RunFolderError(f"{path}: its parts do not fit together ({str(error).splitlines()[0]})") from None
        return made

    def within(self, codec: Codec) -> Codec:
        """The codec as the agent is to see through it: nothing beyond what it was trained on."""
        return codec if self.ranges is None else Within(codec, self.ranges)

    def network(self) -> nn.Module:
        """The network with its weights, for use only."""
        net = build(self.net, sizes_of())
        net.load_state_dict(dict(self.weights))
        return net.eval()


class AgentPolicy:
    """Decides as the network says: the likeliest choice, or with ``sampled`` one drawn from the simulation's stream
    ``"agent"``. Cost per decision: one observation and one pass of the network, some 0.3 ms."""

    def __init__(self, checkpoint: Checkpoint, *, sampled: bool = False) -> None:
        self.checkpoint = checkpoint
        self.sampled = sampled
        self._net = checkpoint.network()
        self._codec = checkpoint.within(Candidates(checkpoint.codec))

    def decide(self, view: ClusterView) -> Iterator[Decision]:
        observation = self._codec.encode(view)
        if observation is None:
            return
        batch = stack([observation])
        with torch.no_grad():
            log_p = log_softmax(self._net(batch), batch.segment, 1).numpy()
        rng = view.stream("agent") if self.sampled else None
        decision = self._codec.decode(view, int(sample(log_p, np.zeros(1, np.int64), rng)[0]))
        if decision is not None:
            yield decision


def load_agent(checkpoint: str | Path, sampled: bool = False) -> AgentPolicy:
    """The agent in a checkpoint file, as a policy.

    Raises:
        RunFolderError: As ``Checkpoint.load``.
    """
    return AgentPolicy(Checkpoint.load(Path(checkpoint)), sampled=sampled)


def write_plain(path: Path, plain: Mapping[str, Any]) -> None:
    """Write tensors and plain values, whole or not at all."""
    with replaced(path) as temporary:
        torch.save(dict(plain), temporary)


def read_plain(path: Path) -> dict[str, Any]:
    """A file of tensors and plain values.

    Raises:
        RunFolderError: Missing or damaged.
    """
    try:
        plain = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise RunFolderError(f"{path}: no such checkpoint") from None
    except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RunFolderError(f"{path}: not a readable checkpoint ({why[:120]})") from None
    if not isinstance(plain, dict):
        raise RunFolderError(f"{path}: not a checkpoint of dagsim")
    return plain


def _features() -> list[str]:
    return [*Candidates.token_features, *Candidates.context_features, *Candidates.gpu_features]
