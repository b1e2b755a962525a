"""Rainbow compared with D3QN: same job sequences, network width, number of updates and report
seeds.

python scripts/compare_rainbow.py [--seeds 1,2,3] [--iterations 12] [--out
results/agents/rainbow.md]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

from dagsim.config.schema import load_config
from dagsim.experiment.store import Store
from dagsim.experiment.training.report import PolicyRuns
from dagsim.experiment.training.trainer import TrainingRun
from dagsim.seeds import REPORT, seeds_of

COMMON = (
    "workload=heterogeneous",
    "workload.count=30",
    "workload.load=1.1",
    "train.reference=eft-wait",
    "train.validate_every=4",
    "train.validation_seeds=10",
)
LEARNING = ("train.algorithm.updates=40", "train.algorithm.minibatch=256")
ALGORITHMS = ("d3qn", "rainbow")
JUDGED = 30


def trained(algorithm: str, seed: int, iterations: int, root: Path) -> Path:
    """Return the file of the agent with the best validation score."""
    settings = (f"train.algorithm.kind={algorithm}", *LEARNING, f"train.iterations={iterations}", f"seed={seed}")
    folder = Store.create(root, "train", load_config(None, [*COMMON, *settings]), argv=sys.argv, label=algorithm)
    TrainingRun(folder).run()
    return folder.path / "best.pt"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--iterations", type=int, default=12)
    parser.add_argument("--out", type=Path, default=Path("results/agents/rainbow.md"))
    options = parser.parse_args()
    seeds = [int(each) for each in options.seeds.split(",")]
    with tempfile.TemporaryDirectory() as root:
        policies = {"eft-wait": "eft-wait", "sjf": "sjf"}
        for seed in seeds:
            for name in ALGORITHMS:
                file = trained(name, seed, options.iterations, Path(root))
                policies[f"{name}, seed {seed}"] = f'agent[checkpoint="{file}"]'
        lines = PolicyRuns(Path(root), load_config(None, COMMON)).run("report", policies, seeds_of(REPORT, JUDGED))
    jct_s = {
        policy: np.mean([line.metrics["jct_s.mean"] for line in lines if line.policy == policy])
        for policy in dict.fromkeys(line.policy for line in lines)
    }
    command = f"python scripts/compare_rainbow.py --seeds {options.seeds} --iterations {options.iterations}"
    text = [
        "# Rainbow beside D3QN",
        "",
        f"Made by `{command}`: 30 independent jobs at load 1.1, {options.iterations} iterations of 8 episodes and 40",
        f"updates, the best on 10 validation seeds, mean completion time on n = {JUDGED} report seeds.",
        "So short a training shows that both learn, not which of them ends up better.",
        "",
        "| policy | mean JCT (s) | of `eft-wait` |",
        "| --- | --- | --- |",
        *(f"| {policy} | {value:,.0f} | {value / jct_s['eft-wait']:.3f} |" for policy, value in jct_s.items()),
    ]
    for name in ALGORITHMS:
        ratios = [value / jct_s["eft-wait"] for policy, value in jct_s.items() if policy.startswith(f"{name},")]
        text.append(f"| {name}, mean of {len(ratios)} seeds (sd {np.std(ratios):.3f}) | | {np.mean(ratios):.3f} |")
    options.out.write_text("\n".join(text) + "\n", encoding="utf-8")
    print("\n".join(text))


if __name__ == "__main__":
    main()
