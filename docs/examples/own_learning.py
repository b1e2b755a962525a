"""Train an agent with a reward, a codec, a net and a curriculum of your own.

    python docs/examples/own_learning.py        # half a minute; run folders below results/own-learning
    dagsim eval --config results/own-learning/RUN --allow-code

The reward counts tasks that wait, the codec adds a column to the candidates, the net has one hidden layer, and the
curriculum trains on short episodes first, then goes on with longer ones.
"""

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import nn

from dagsim.families.learning.codecs.candidates import Candidates
from dagsim.families.learning.codecs.codec import Observation
from dagsim.families.learning.nets.actor import ScoreNet
from dagsim.families.learning.nets.row_nets import Sizes, indifferent
from dagsim.families.learning.session import train
from dagsim.model import Kind

HERE = "docs/examples/own_learning.py"
CURRICULUM = ((5, 4), (10, 6))
"""Jobs in an episode, and iterations."""


class LongWaits:
    """The sum over jobs of (1 + hours in the system)^2 - 1, which long stays raise more than short ones."""

    def __init__(self, schedule):
        self.arrived, self.left, self.charged = {}, 0.0, 0.0

    def take(self, row):
        """Note a row of the log: its kind, time and job come first."""
        kind, now, job = row[:3]
        if kind == Kind.ARRIVED:
            self.arrived[job] = now
        elif kind in (Kind.COMPLETED, Kind.REJECTED):
            self.left += self.price(now - self.arrived.pop(job))

    def price(self, seconds):
        return (1 + seconds / 3600) ** 2 - 1

    def cost(self, now):
        """Return the cost since the last call."""
        total = self.left + sum(self.price(now - arrived) for arrived in self.arrived.values())
        cost, self.charged = total - self.charged, total
        return cost


@dataclass(frozen=True)
class WithBacklog:
    """The candidates, each with one more column: the logarithm of the number of tasks that wait."""

    @property
    def features(self):
        context, gpus = Candidates.context_features, Candidates.gpu_features
        return {"tokens": (*Candidates.token_features, "log backlog"), "context": context, "gpus": gpus}

    def build(self):
        return BacklogCodec()


class BacklogCodec:
    """The codec of ``WithBacklog``."""

    def __init__(self):
        self.inner = Candidates()

    def encode(self, view):
        seen = self.inner.encode(view)
        if seen is None:
            return None
        backlog = np.full((len(seen.tokens), 1), math.log1p(len(view.ready)), np.float32)
        return Observation(np.hstack([seen.tokens, backlog]), seen.context, seen.gpus)

    def decode(self, view, choice):
        return self.inner.decode(view, choice)

    def choice_of(self, decisions):
        return self.inner.choice_of(decisions)


@dataclass(frozen=True)
class OneHidden:
    """A score for each candidate from one hidden layer."""

    hidden: int = 32

    def build(self, codec):
        return Net(Sizes.of(codec, "OneHidden"), self.hidden)


class Net(ScoreNet):
    """The net of ``OneHidden``."""

    def __init__(self, sizes, hidden):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(sizes.tokens, hidden), nn.ReLU(), indifferent(hidden))

    def forward(self, batch):
        return self.layers(batch.tokens)[:, 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results/own-learning"))
    out, best = parser.parse_args().out, None
    for jobs, iterations in CURRICULUM:
        settings = [
            "workload=heterogeneous-dag",
            f"workload.count={jobs}",
            f"train.iterations={iterations}",
            f"train.codec={HERE}:WithBacklog",
            f"train.net={HERE}:OneHidden",
            f'train.reward={{"{HERE}:LongWaits": 1.0}}',
            "train.algorithm.sequences=2",
            "train.algorithm.replicas=4",
            "train.validation_seeds=8",
            "train.report_seeds=8",
            "train.reference=sjf",
        ]
        trained = train(None, settings, out=out, init=best, name=f"{jobs} jobs")
        best = trained.folder.path / "best.pt"
        print(f"{jobs} jobs: {trained.validation_ratio:.3f} times sjf on validation; {trained.folder.path}")


if __name__ == "__main__":
    main()
