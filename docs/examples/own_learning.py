"""Train an agent with your own reward, codec, network and curriculum.

    python docs/examples/own_learning.py        # takes half a minute; run folders are in results/own-learning
    dagsim eval --config results/own-learning/RUN --allow-code

The codec adds a column to the candidates, and the curriculum begins with short episodes."""

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from dagsim import train
from dagsim.families.learning.codecs.further import FurtherColumns
from dagsim.families.learning.column_rewards import ColumnReward
from dagsim.families.learning.nets.actor import ScoreNet
from dagsim.families.learning.nets.row_nets import Sizes, indifferent
from dagsim.model import Kind

HERE = "docs/examples/own_learning.py"
CURRICULUM = ((5, 4), (10, 6))  # jobs in an episode, and iterations


class SquaredHours(ColumnReward):
    """The sum of the squared completion times in hours, in which long jobs count more than short ones."""

    columns = ("kind", "time_s", "arrival_s")

    def costs(self, kind, time_s, arrival_s):
        return (kind == Kind.COMPLETED) * ((time_s - arrival_s) / 3600) ** 2


class WithBacklog(FurtherColumns):
    """The candidates with one additional column: the logarithm of the number of waiting tasks."""

    names = ("log backlog",)

    def columns(self, view, rows):
        return math.log1p(len(view.ready))


@dataclass(frozen=True)
class OneHidden:
    """A network with one hidden layer that computes a score for each candidate."""

    hidden: int = 32

    def build(self, codec):
        return Net(Sizes.of(codec, "OneHidden"), self.hidden)


class Net(ScoreNet):
    """The network that ``OneHidden`` builds."""

    def __init__(self, sizes, hidden):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(sizes.tokens, hidden), nn.ReLU(), indifferent(hidden))

    def forward(self, batch):
        return self.layers(batch.tokens)[:, 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results/own-learning"))
    out, best = parser.parse_args().out, None
    parts = [f"train.codec={HERE}:WithBacklog", f"train.net={HERE}:OneHidden"]
    parts += [f'train.reward={{"{HERE}:SquaredHours": 1.0}}', "train.reference=sjf"]
    short = [f"train.{key}" for key in ("algorithm.sequences=2", "validation_seeds=8", "report_seeds=8")]
    for jobs, iterations in CURRICULUM:
        settings = ["workload=heterogeneous-dag", f"workload.count={jobs}", f"train.iterations={iterations}"]
        trained = train(None, [*settings, *parts, *short], out=out, init=best, name=f"{jobs} jobs")
        best = trained.folder.path / "best.pt"
        print(f"{jobs} jobs: {trained.validation_ratio:.3f} times sjf on validation; {trained.folder.path}")


if __name__ == "__main__":
    main()
