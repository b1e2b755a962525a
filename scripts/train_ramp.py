"""Train agents for RAMP and judge them beside heuristics on report seeds, by ddls' own count of blocked jobs.

    python scripts/train_ramp.py --graphs DIR --out FOLDER [--setting ddls] [--beta A] [--seed 1] [--minutes 6]
    python scripts/train_ramp.py --graphs DIR --judge FOLDER [--setting ddls] [--beta A] [--seeds 10]

Settings are those of ``compare_ramp.py``. A training of one beta and seed writes a run folder below FOLDER. ``--judge``
plays every agent that was trained for the setting and beta there, and the heuristics, on report seeds of its own, which
the ledger gives once (``results/seeds.yaml``; 1,001 jobs, a job that runs at the end counts as blocked), and writes
FOLDER/SETTING-BETA.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from compare_ramp import MIXED, MODELS
from numpy.typing import NDArray

from dagsim.agents.checkpoint import load_agent
from dagsim.config.schema import load_config
from dagsim.errors import DagsimError
from dagsim.experiment.ledger import Ledger, Spending
from dagsim.experiment.scenario import scenario_of
from dagsim.experiment.store import Store
from dagsim.experiment.training.trainer import TrainingRun
from dagsim.files import write_text
from dagsim.metrics.intervals import ratio_of_means, t_quantile
from dagsim.systems.ramp import RampScenario
from dagsim.systems.ramp.kpis import kpis
from dagsim.systems.ramp.policies import tuned_weights

__all__ = ["judge", "settings", "train"]

ROOT = Path(__file__).parents[1]

CHOSEN = {
    "ddls": {"A": (4, 8), "B": (16, 8), "C": (4, 4), "D": (2, 2)},
    "plain": {"A": (4, 2), "B": (8, 8), "C": (4, 4), "D": (4, 2)},
    "mixed": {"A": (4, 4), "B": (8, 4), "C": (4, 4), "D": (4, 2)},
}
"""The best constant degree (by ddls' rules that of PAC-ML's paper) and the best smallest degree of ``on_time``, as
``compare_ramp.py`` found them on seeds of its own."""


def heuristics(setting: str, beta: str) -> list[tuple[str, str]]:
    """Policies with their placers: the published ones, and those found to be best."""
    constant, least = CHOSEN[setting].get(beta, (4, 4))
    placers = ("best_fit", "same_type") if setting == "mixed" else ("best_fit",)
    pairs = [("max", "first_fit"), (f"constant[degree={constant}]", "first_fit")]
    for placer in placers:
        pairs += [(f"constant[degree={constant}]", placer), (f"on_time[least={least}]", placer)]
    pairs.append((f"roomy[least={least}]", "best_fit"))
    tuned = f"{setting}-{beta}"
    return [*pairs, (f"roomy[tuned={tuned}]", "best_fit")] if tuned in tuned_weights() else pairs


def settings(setting: str, graphs: Path, beta: str, jobs: int, *, horizon: bool) -> list[str]:
    """Return the system of a setting, in the form of ``--set``."""
    compat, mixed = setting == "ddls", setting == "mixed"
    gap_s = 1000.0 if compat else 1.0
    values = {
        "kind": "ramp",
        "graphs": str(graphs),
        "models": "[" + ",".join(MODELS) + "]",
        "jobs": jobs,
        "gap_s": gap_s,
        "beta": beta,
        "placer": "same_type" if mixed else "best_fit",
    }
    if compat:
        values |= {"ddls": "true", "rules": "{remembered: false}"}
    if mixed:
        values |= {"gpus": "[" + ",".join(MIXED) + "]", "profiled_on": MIXED[0]}
    if horizon:
        values["horizon_s"] = 1000 * gap_s
    return [f"system.{key}={value}" for key, value in values.items()]


def teacher_of(setting: str, beta: str) -> str:
    """Return the heuristic that an agent imitates first, by default: the best known one of the
    setting.
    """
    if f"{setting}-{beta}" in tuned_weights():
        return f"roomy[tuned={setting}-{beta}]"
    least = CHOSEN[setting].get(beta, (4, 4))[1]
    return f"on_time[least={least}]" if setting == "mixed" else f"roomy[least={least}]"


def train(args: argparse.Namespace) -> Path:
    """Train one agent. Return its run folder."""
    gap_s = 1000.0 if args.setting == "ddls" else 1.0
    teacher = args.teacher or teacher_of(args.setting, args.beta)
    more = {
        "seed": args.seed,
        "policy": teacher,
        "train.algorithm": "{kind: ppo, sequences: 4, replicas: 6, lr: 5.0e-4, min_lr: 3.0e-5, epochs: 3,"
        " minibatch: 1024, max_grad: 1.0, entropy: 0.003}",
        "train.codec": "{kind: partition, blocks: 8}",
        "train.net": "pac_ml",
        "train.iterations": 100_000 if args.iterations is None else args.iterations,
        "train.minutes": args.minutes,
        "train.time_constant_s": f"[{15 * gap_s}, {40 * gap_s}]",
        "train.ema_decay": 0.7,
        "train.reference": teacher,
        "train.warm_start": f"{{policy: '{teacher}', episodes: {args.episodes}, epochs: 8, minibatch: 256,"
        " smoothing: 0.02, lr: 3.0e-3, final_lr: 1.0e-4}",
        "train.validate_every": 3,
        "train.validation_seeds": 6,
    }
    world = settings(args.setting, args.graphs, args.beta, args.jobs, horizon=False)
    config = load_config(None, [*world, *(f"{key}={value}" for key, value in more.items())])
    label = f"{args.setting}-{args.beta}"
    folder = Store.create(args.out, "train", config, argv=["train_ramp.py", *sys.argv[1:]], label=label)
    TrainingRun(folder).run()
    folder.mark("done")
    return folder.path


def judge(folder: Path, setting: str, graphs: Path, beta: str, spending: Spending) -> dict[str, Any]:
    """Blocking and completion times of heuristics and of the agents in the folder, by report seed."""
    seeds = tuple(spending.seeds)
    made_by = spending.sentence("1,001 jobs, what runs at the end is blocked; 95 %, Student's t over the seeds, paired")
    results: dict[str, Any] = {"made": made_by, "setting": setting, "beta": beta, "seeds": list(seeds), "policies": {}}
    world = scenario_of(load_config(None, settings(setting, graphs, beta, 1001, horizon=True)))
    assert isinstance(world, RampScenario)
    agents = sorted(folder.glob(f"*-train-{setting}-{beta}-*/best.pt"))
    for place, path in enumerate(agents, 1):
        results["policies"][f"agent {place}"] = _runs(world, lambda path=path: load_agent(path, system="ramp"), seeds)
    for policy, placer in heuristics(setting, beta):
        placed = scenario_of(
            load_config(None, [*settings(setting, graphs, beta, 1001, horizon=True), f"system.placer={placer}"])
        )
        name = f"{policy}, {placer}"
        results["policies"][name] = _runs(placed, lambda policy=policy: world.policies.create(policy), seeds)
    return results | {"agents": compared(results["policies"])}


def compared(policies: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Mean blocking of the agents with a 95 % interval (Student's t over the seeds).

    Also the paired difference and the ratio of means to each heuristic.
    """
    mine = [row["blocking"] for name, row in policies.items() if name.startswith("agent ")]
    if not mine:
        return {}
    values = np.mean(mine, axis=0)
    summary: dict[str, Any] = {"blocking": _interval(values), "against": {}}
    for name, row in policies.items():
        if not name.startswith("agent "):
            other = np.array(row["blocking"])
            ratio = [float(bound) for bound in ratio_of_means(values, other)]
            summary["against"][name] = {
                "blocking": fmean(other),
                "difference": _interval(values - other),
                "ratio": ratio,
            }
    return summary


def _interval(values: NDArray[np.float64]) -> list[float]:
    """Mean and bounds of its 95 % interval; with fewer than two values, only the mean."""
    mean, count = float(values.mean()), len(values)
    if count < 2:
        return [mean]
    half = t_quantile(0.95, count - 1) * float(values.std(ddof=1)) / count**0.5
    return [mean, mean - half, mean + half]


def _runs(world: Any, made: Any, seeds: tuple[int, ...]) -> dict[str, Any]:
    runs = []
    for seed in seeds:
        kernel = world.kernel(seed)
        kernel.run(made())
        runs.append(kpis(kernel))
    causes = ("declined", "no_place", "too_slow", "unfinished")
    return {
        "blocking": [run["blocking_rate"] for run in runs],
        "jct_s": [run.get("job_completion_time") for run in runs],
        "speedup": [run.get("job_completion_time_speedup") for run in runs],
        "degree": [run.get("jobs_completed_max_partitions_per_op") for run in runs],
        "by_cause": {cause: fmean(run[f"blocking_rate_{cause}"] for run in runs) for cause in causes},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=Path, required=True, help="the folder with PipeDream's profiles")
    parser.add_argument("--out", type=Path, default=Path("results"), help="where run folders go")
    parser.add_argument("--setting", choices=("ddls", "plain", "mixed"), default="ddls")
    parser.add_argument("--beta", default="A", help="a letter of the paper, or a distribution by name")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--iterations", type=int, help="the most iterations")
    parser.add_argument("--jobs", type=int, default=300, help="jobs of a training episode")
    parser.add_argument("--episodes", type=int, default=8, help="episodes of the teacher that are imitated")
    parser.add_argument("--teacher", help="the heuristic that is imitated first (default: the best that is known)")
    parser.add_argument("--judge", type=Path, metavar="FOLDER", help="judge the agents in this folder instead")
    parser.add_argument("--seeds", type=int, default=10, help="report seeds")
    parser.add_argument("--fresh", action="store_true", help="take report seeds that nothing has used")
    parser.add_argument("--again", action="store_true", help="take the report seeds of before; the table says so")
    args = parser.parse_args()
    try:
        if args.judge is None:
            print(train(args))
            return 0
        ledger = Ledger(ROOT / "results" / "seeds.yaml")
        command = f"python scripts/train_ramp.py --judge FOLDER --setting {args.setting} --beta {args.beta}"
        spending = ledger.spend(
            f"ramp/{args.setting}-{args.beta}", args.seeds, command, fresh=args.fresh, again=args.again
        )
        results = judge(args.judge, args.setting, args.graphs, args.beta, spending)
        write_text(args.judge / f"{args.setting}-{args.beta}.json", json.dumps(results, indent=1) + "\n")
        ledger.close(spending)
        for name, row in sorted(results["policies"].items(), key=lambda each: fmean(each[1]["blocking"])):
            print(f"{args.setting} {args.beta}  {name:34s} {fmean(row['blocking']):.4f}")
    except (DagsimError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
