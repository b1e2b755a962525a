"""A replay buffer for off-policy learning: n-step transitions sampled by priority, and their files
on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from shutil import rmtree
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dagsim.errors import RunFolderError
from dagsim.families.learning.checkpoint_file import read_plain, write_plain
from dagsim.families.learning.codecs.codec import Observation
from dagsim.families.learning.nets.actor import ObservationBatch, Observations, ObservationStore, ScoreNet
from dagsim.families.learning.training.rollouts import EpisodeSteps

_ROWS = len(Observation._fields)
"""Number of parts that every observation with rows has. Each further part is one of a few objects
that many observations share."""


class Drawn(NamedTuple):
    """A minibatch of transitions."""

    batch: ObservationBatch
    """Observations in which the choices were made."""
    choices: Tensor  # shape (B,), int64
    rewards: Tensor  # shape (B,), float32: discounted over the n steps
    following: ObservationBatch
    """Observations n steps later, or arbitrary observations if the episode had ended by then."""
    discounts: Tensor  # shape (B,), float32: factor by which the value n steps later counts; 0 if the episode had ended
    weights: Tensor  # shape (B,), float32: importance weights, at most 1
    places: np.ndarray  # shape (B,), int64: positions in the buffer, for ``update``


class ReplayBuffer:
    """The last ``capacity`` transitions. They are sampled with probabilities proportional to
    (priority ** ``priority``) (Schaul et al. 2016). New transitions get the largest priority so
    far. If ``priority`` is 0, sampling is uniform. Drawing a sample takes O(capacity), for a
    cumulative sum in NumPy.

    Transitions are numbered from the first one that was ever added. A transition never changes
    except for its priority. So ``since`` returns the transitions that earlier files lack, and
    ``state`` returns everything else. ``net`` is the network that is trained. It decides which
    parts of observations are stored, and builds batches from them.
    """

    def __init__(
        self, capacity: int, priority: float = 0.0, importance: float = 0.0, net: ScoreNet | None = None
    ) -> None:
        self._capacity = capacity
        self._store: Callable[[Sequence[Any]], Observations] = ObservationStore if net is None else net.store
        self._kind: Any = Observation if net is None else net.observation
        self._priority, self._importance = priority, importance
        self._gone = 0
        """Number of dropped transitions, which is also the number of the first one kept."""
        self._seen: list[Any] = []
        self._choices, self._rewards, self._discounts = np.zeros(0, np.int64), np.zeros(0), np.zeros(0)
        self._ends = np.zeros(0, np.int64)
        """For each transition, the number of the next one in its episode; arbitrary for the last one."""
        self._weights = np.zeros(0)

    def __len__(self) -> int:
        return len(self._seen)

    @property
    def span(self) -> tuple[int, int]:
        """The number of the first transition in the buffer, and the number that the next one will
        get."""
        return self._gone, self._gone + len(self)

    def add(self, steps: EpisodeSteps, discounts: np.ndarray, n_step: int, scale: float) -> None:
        """Add an episode. Rewards are divided by ``scale``. ``discounts`` (T,) comes from
        ``advantages.discounts``.
        """
        count = len(steps.choices)
        rewards = np.zeros(count)
        along = np.ones(count)
        for ahead in range(n_step):
            there = np.arange(count - ahead)
            rewards[there] += along[there] * np.asarray(steps.rewards)[there + ahead]
            along[there] *= discounts[there + ahead]
            along[count - ahead :] = 0.0
        ends = self.span[1] + np.minimum(np.arange(count) + n_step, count - 1)
        along[np.arange(count) + n_step >= count] = 0.0
        top_weight = self._weights.max() if len(self._weights) else 1.0
        self._append(steps.observations, np.array(steps.choices, np.int64), rewards / scale, along, ends)
        self._weights = np.append(self._weights, np.full(count, top_weight))
        self._drop(len(self) - self._capacity)

    def draw(self, count: int, rng: np.random.Generator) -> Drawn:
        """Sample ``count`` transitions with replacement."""
        chances = np.cumsum(self._weights)
        places = np.searchsorted(chances, rng.random(count) * chances[-1], side="right")
        share = self._weights[places] / chances[-1]
        weights = (share * len(self)) ** -self._importance
        return Drawn(
            self._store([self._seen[place] for place in places]).batch(np.arange(count)),
            torch.from_numpy(self._choices[places]),
            torch.from_numpy(self._rewards[places].astype(np.float32)),
            self._store([self._seen[end] for end in self._ends[places] - self._gone]).batch(np.arange(count)),
            torch.from_numpy(self._discounts[places].astype(np.float32)),
            torch.from_numpy((weights / weights.max()).astype(np.float32)),
            places,
        )

    def update(self, places: np.ndarray, errors: np.ndarray) -> None:
        """Set the priority of each sampled transition to its absolute error (B,)."""
        if self._priority:
            self._weights[places] = (np.abs(errors) + 1e-3) ** self._priority

    def state(self) -> dict[str, Any]:
        """Return the span and the priorities."""
        return {"span": list(self.span), "weights": torch.from_numpy(self._weights.copy())}

    def since(self, number: int) -> dict[str, Any]:
        """Return the transitions from ``number`` onwards as tensors and plain values. Transitions
        that have been dropped are left out."""
        begin = max(number - self._gone, 0)
        observations = self._seen[begin:]
        return {
            "first": self._gone + begin,
            "lengths": torch.tensor([len(observation.tokens) for observation in observations]),
            "tokens": torch.from_numpy(np.concatenate([observation.tokens for observation in observations])),
            "context": torch.from_numpy(np.stack([observation.context for observation in observations])),
            "gpus": torch.from_numpy(np.stack([observation.gpus for observation in observations])),
            "choices": torch.from_numpy(self._choices[begin:]),
            "rewards": torch.from_numpy(self._rewards[begin:]),
            "discounts": torch.from_numpy(self._discounts[begin:]),
            "ends": torch.from_numpy(self._ends[begin:]),
            **{
                name: _shared([getattr(observation, name) for observation in observations])
                for name in self._kind._fields[_ROWS:]
            },
        }

    def load(self, state: Mapping[str, Any], parts: Iterable[Mapping[str, Any]]) -> None:
        """Fill the empty buffer with ``state`` and with the ``parts`` that ``since`` returned. The
        parts must be in order and without gaps.

        Raises:
            ValueError: The parts are not consecutive or do not match the state.
        """
        first, after = state["span"]
        assert not len(self)
        for part in parts:
            self._gone = self._gone if len(self) else part["first"]
            if part["first"] != self.span[1]:
                raise ValueError(f"transitions from {self.span[1]} to {part['first']} are missing")
            tokens = np.split(part["tokens"].numpy(), np.cumsum(part["lengths"].numpy())[:-1])
            more = [_apart(part[name]) for name in self._kind._fields[_ROWS:]]
            observations = map(self._kind, tokens, part["context"].numpy(), part["gpus"].numpy(), *more)
            columns = (part[name].numpy() for name in ("choices", "rewards", "discounts", "ends"))
            self._append(list(observations), *columns)
        self._drop(first - self._gone)
        if self.span != (first, after):
            raise ValueError(
                f"the checkpoint needs transitions {first} to {after}, but the files contain {self.span[0]} to "
                f"{self.span[1]}"
            )
        self._weights = state["weights"].numpy().copy()

    def _append(
        self, seen: list[Any], choices: np.ndarray, rewards: np.ndarray, discounts: np.ndarray, ends: np.ndarray
    ) -> None:
        self._seen += seen
        self._choices = np.append(self._choices, choices)
        self._rewards = np.append(self._rewards, rewards)
        self._discounts = np.append(self._discounts, discounts)
        self._ends = np.append(self._ends, ends)

    def _drop(self, count: int) -> None:
        """Drop the oldest ``count`` transitions. If ``count`` is not positive, do nothing."""
        if count > 0:
            del self._seen[:count]
            self._choices, self._rewards = self._choices[count:], self._rewards[count:]
            self._discounts, self._ends = self._discounts[count:], self._ends[count:]
            self._weights = self._weights[count:]
            self._gone += count


def _shared(arrays: Sequence[np.ndarray]) -> dict[str, torch.Tensor]:
    """Pack a sequence of arrays. An object that occurs several times is stored only once."""
    distinct = {id(array): array for array in arrays}
    places = {key: place for place, key in enumerate(distinct)}
    return {
        "rows": torch.from_numpy(np.concatenate(list(distinct.values()))),
        "lengths": torch.tensor([len(array) for array in distinct.values()]),
        "which": torch.tensor([places[id(array)] for array in arrays]),
    }


def _apart(part: Mapping[str, torch.Tensor]) -> list[np.ndarray]:
    """Unpack what ``_shared`` packed."""
    distinct = np.split(part["rows"].numpy(), np.cumsum(part["lengths"].numpy())[:-1])
    return [distinct[place] for place in part["which"].tolist()]


class ReplayArchive:
    """A folder with files named ``NNNNNNNNN.pt``. The file contains the transitions from number
    NNNNNNNNN on.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written = 0
        """Number of the first transition that is not in a file."""

    def write(self, replay: ReplayBuffer) -> None:
        """Write the transitions that were added since the previous call. Call this before writing
        the checkpoint."""
        if replay.span[1] > self._written:
            self._folder.mkdir(exist_ok=True)
            added = replay.since(self._written)
            write_plain(self._folder / f"{added['first']:09d}.pt", added)
            self._written = replay.span[1]

    def prune(self, replay: ReplayBuffer) -> None:
        """Delete the files whose transitions have all been dropped. Call this after writing the
        checkpoint."""
        for path, following in pairwise(self._paths()):
            if int(following.stem) <= replay.span[0]:
                path.unlink()

    def read(self, replay: ReplayBuffer, state: Mapping[str, Any]) -> None:
        """Fill an empty buffer so that it has the saved ``state`` again.

        Raises:
            RunFolderError: A file is missing or damaged.
        """
        first, after = state["span"]
        paths = [path for path in self._paths() if int(path.stem) < after]
        # Each file ends where the next one begins. The last file, if there is one, ends at
        # ``after``.
        ends = [int(path.stem) for path in paths[1:]] + [after] * bool(paths)
        needed = [path for path, end in zip(paths, ends, strict=True) if end > first]
        try:
            replay.load(state, map(read_plain, needed))
        except (KeyError, TypeError, ValueError) as error:
            raise RunFolderError(f"{self._folder}: the replay buffer is damaged ({error})") from None
        self._written = after

    def remove(self) -> None:
        """Delete the folder at the end of training."""
        rmtree(self._folder, ignore_errors=True)

    def _paths(self) -> list[Path]:
        return sorted(self._folder.glob("[0-9]*.pt"))
