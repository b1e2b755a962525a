"""Sia's integer program on recorded instances: the least cost of each.

    python scripts/validate_sia.py --instances FILE [--run FILE] [--json]

``--run`` names the run that holds the configurations and the cluster; by default the one file beside
the instances that does. Exits with 1 if an optimum differs by more than 1e-6 from the recorded one,
where the file has one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import command
import numpy as np

from dagsim.errors import InputError
from dagsim.families.elastic.sia import Configuration, choose_configurations

TOLERANCE = 1e-6


def optima(instances: Path, run: Path | None = None) -> list[tuple[float, float | None]]:
    """The optimum of each instance, and the recorded one if there is one.

    Raises:
        InputError: A file has other contents.
    """
    cluster = read_run(instances, run)
    with command.reading(instances, "instances of Sia's program"):
        return [(objective(instance, cluster), instance.get("objective")) for instance in command.read_json(instances)]


def read_run(instances: Path, run: Path | None) -> Any:
    """The JSON of ``run``, or of the only file beside ``instances`` with configurations."""
    paths = [run] if run else sorted(path for path in instances.parent.glob("*.json*") if path != instances)
    runs = [
        document for path in paths if isinstance(document := command.read_json(path), dict) and "configs" in document
    ]
    if len(runs) != 1:
        raise InputError(f"{instances}: {len(runs)} files with configurations beside it; name one (--run)")
    return runs[0]


def objective(instance: Any, run: Any) -> float:
    """Least cost of one instance."""
    options = [Configuration(*run["configs"][str(place)]) for place in range(len(run["configs"]))]
    gpus = {name: nodes * per_node for name, (nodes, per_node) in run["cluster"].items()}
    jobs = instance["jobs"]
    choice = choose_configurations(
        np.array(instance["goodput"], float).reshape(len(jobs), len(options)),
        options,
        gpus,
        present=[instance["prev"].get(job) for job in jobs],
        restart_factors=instance["realloc"],
        locked=[place for place, job in enumerate(jobs) if job in instance["locked"]],
    )
    return choice.objective


def _work(options: command.Options, say: command.Say) -> list[tuple[float, float | None]]:
    rows = optima(options.instances, options.run)
    differences = [abs(ours - recorded) for ours, recorded in rows if recorded is not None]
    say({"instances": len(rows), "recorded": len(differences), "largest difference": max(differences, default=0)})
    return rows


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--instances", type=Path, required=True, help="instances of the program (.json or .json.gz)")
    parser.add_argument("--run", type=Path, help="the run with configurations and cluster")
    return command.run(
        parser,
        _work,
        holds=lambda rows: all(recorded is None or abs(ours - recorded) <= TOLERANCE for ours, recorded in rows),
        convert=lambda rows: {"objectives": [ours for ours, _ in rows]},
    )


if __name__ == "__main__":
    raise SystemExit(main())
