"""RAMP as ddls has it: one job on an empty 4x4x2 fabric, a recorded episode, or all golden results.

    python scripts/validate_ramp.py --graph FILE --degree N [--json]
    python scripts/validate_ramp.py --episode FILE --graphs DIR [--json]
    python scripts/validate_ramp.py --golden DIR --graphs DIR [--json]
    python scripts/validate_ramp.py --table --streams DIR --graphs DIR [--json]

``--graph`` prints the job piece by piece. ``--episode`` replays ``{"config": ..., "jobs": [{time_arrived, model, beta,
action}, ...]}`` (also .json.gz) and prints what could be decided of each job and what became of it. ``--golden``
compares both with the results of ddls: look-aheads to 1e-9 in every size, server and dependency and to 1e-6 in the
completion time, episodes in every mask, status and cause. ``--table`` plays constant degrees on the paper's arrival
streams and prints their mean blocking rates. Exits with 1 if ``--golden`` finds a difference.
"""

from __future__ import annotations

import gzip
import json
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator
from math import isclose
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import command
from command import Say
from ramp_detail import deps, pieces

from dagsim.errors import InputError
from dagsim.model import RejectReason
from dagsim.systems.ramp import DDLS, Fabric, JobOutcome, Partition, Planner, Ramp, RampJob, RampView
from dagsim.systems.ramp.graph import ComputationGraph
from dagsim.systems.ramp.policies import ConstantDegree
from dagsim.systems.ramp.readers import read_graph, read_graphs
from dagsim.systems.ramp.scenario import RampScenario
from dagsim.systems.ramp.timing import srpt

__all__ = ["constant_degrees", "episode", "golden", "job"]

STEPS = 50
CAUSES = {
    RejectReason.BY_POLICY: "no_action_or_agent_declined",
    RejectReason.NO_PLACE: "op_placement",
    RejectReason.TOO_SLOW: "max_acceptable_jct_exceeded",
}
PAPER = {"A": (4, 0.2201), "B": (16, 0.2594), "C": (4, 0.1175), "D": (2, 0.1042)}
"""For each distribution of beta, the best constant degree and its mean blocking rate over three
seeds.
"""


def planner(topo: tuple[int, int, int] = (4, 4, 2), quantum_s: float = 0.01, max_degree: int = 16) -> Planner:
    """Return a planner with ddls' rules."""
    return Planner(Fabric(Ramp(*topo, ddls=True)), DDLS.but(quantum_s=quantum_s, max_degree=max_degree))


def job(graph: ComputationGraph, degree: int, plans: Planner, steps: int = STEPS) -> dict[str, Any]:
    """One job on the empty fabric, piece by piece.

    Raises:
        InputError: The job cannot be placed at that degree.
    """
    parts = plans.parts(graph, degree)
    placement = plans.place(parts, 0)
    if placement is None:
        raise InputError(f"{graph.model} split {degree} ways does not fit into an empty {plans.fabric.topology!r}")
    timed, step = plans.timed(parts, placement), plans.step(parts, placement)
    return {
        "jct_s": steps * step.seconds,
        "communication_s": steps * step.communication_s,
        "computation_s": steps * step.computation_s,
        "ticks": step.ticks,
        "ops": [list(piece) for piece in pieces(timed, srpt(0, parts, plans.fabric), plans.fabric)],
        "deps": [list(dep) for dep in deps(timed)],
    }


class Replay:
    """Policy that replays recorded degrees. A degree that is not offered is an error of the
    recording.
    """

    def __init__(self, actions: Iterable[int]) -> None:
        self._actions = iter(actions)

    def decide(self, view: RampView) -> Iterable[Partition]:
        """Return the next recorded degree."""
        return (Partition(view.number, next(self._actions)),)


def episode(said: dict[str, Any], graphs: dict[str, ComputationGraph], plans: Planner | None = None) -> dict[str, Any]:
    """Return the outcome of every job of a recorded episode."""
    config = said["config"]
    if plans is None:
        plans = planner(tuple(config["topo"]), config["quantum"], config["max_partitions_per_op"])
    steps = config["num_training_steps"]
    jobs = [
        RampJob(str(number), graphs[row["model"]], row["time_arrived"], row["beta"], steps)
        for number, row in enumerate(said["jobs"])
    ]
    kernel = RampScenario(horizon_s=config["sim_time"]).planned_by(plans).kernel(0, jobs=jobs)
    kernel.run(Replay(row["action"] for row in said["jobs"]))
    found = [_row(outcome) for outcome in kernel.outcomes]
    never = {"mask": None, "status": "not_decided", "cause": None, "jct_s": None}
    return {"jobs": found + [never] * (len(jobs) - len(found))}


def _row(outcome: JobOutcome) -> dict[str, Any]:
    if not outcome.degrees:
        return {"mask": None, "status": "not_decided", "cause": None, "jct_s": None}
    row: dict[str, Any] = {"mask": list(outcome.degrees), "status": "blocked", "cause": None, "jct_s": None}
    if outcome.reason is not None:
        row["cause"] = CAUSES[outcome.reason]
    else:
        assert outcome.outlook is not None
        row["jct_s"] = outcome.outlook.jct_s
        if outcome.completed_s is None:
            row["cause"] = "still_running_at_end"
        else:
            row["status"] = "completed"
    return row


class Difference(NamedTuple):
    """One golden file, and the first difference from it; ``what`` is empty if there is none."""

    file: str
    compared: int
    what: str


def golden(folder: Path, graphs: Path) -> Iterator[Difference]:
    """Compare every golden look-ahead and episode with ours."""
    for path in sorted(folder.glob("lookahead_*.json.gz")):
        said = _load(path)
        found = job(read_graph(graphs / f"{said['model']}.txt", "s"), said["degree"], planner())
        yield Difference(path.name, len(said["ops"]) + len(said["deps"]), _first_of_job(said, found))
    for path in sorted(folder.glob("episode_*.json.gz")):
        said = _load(path)
        names = tuple(dict.fromkeys(row["model"] for row in said["jobs"]))
        found = episode(said, read_graphs(graphs, names, "s"))["jobs"]
        yield Difference(path.name, len(found), _first_of_episode(said["jobs"], found))


def _first_of_job(said: dict[str, Any], found: dict[str, Any]) -> str:
    ops = {op[0]: op[1:] for op in found["ops"]}
    for id_, which, seconds, memory, server, priority in said["ops"]:
        server = server.removeprefix("node_").removesuffix("_worker_0")
        ours = ops.pop(id_, None)
        if (
            ours is None
            or ours[0] != which
            or ours[3:] != [server, priority]
            or not _close(ours[1:3], (seconds, memory))
        ):
            return f"op {id_}: expected {(which, seconds, memory, server, priority)}, got {ours}"
    deps = {(dep[0], dep[1]): dep[2:] for dep in found["deps"]}
    for source, target, size, seconds in said["deps"]:
        ours = deps.pop((source, target), None)
        if ours is None or not _close(ours, (size, seconds)):
            return f"dependency {source} -> {target}: expected {(size, seconds)}, got {ours}"
    if ops or deps:
        return f"{len(ops)} ops and {len(deps)} dependencies too many"
    if not isclose(said["lookahead_jct"], found["jct_s"], rel_tol=1e-6):
        return f"jct_s: expected {said['lookahead_jct']}, got {found['jct_s']}"
    if abs(said["n_ticks"] - found["ticks"]) > 1:
        return f"ticks: expected {said['n_ticks']}, got {found['ticks']}"
    return ""


def _first_of_episode(said: list[dict[str, Any]], found: list[dict[str, Any]]) -> str:
    for number, (row, ours) in enumerate(zip(said, found, strict=True)):
        for key in ("mask", "status", "cause"):
            if row.get(key) != ours[key]:
                return f"job {number}: expected {key} {row.get(key)!r}, got {ours[key]!r}"
        if "lookahead_jct" in row and not isclose(row["lookahead_jct"], ours["jct_s"], rel_tol=1e-6):
            return f"job {number}: expected jct {row['lookahead_jct']}, got {ours['jct_s']}"
    return ""


def _close(ours: Iterable[float], said: Iterable[float]) -> bool:
    return all(isclose(one, other, rel_tol=1e-9) for one, other in zip(ours, said, strict=True))


def constant_degrees(streams: Path, graphs: Path) -> dict[str, dict[str, float]]:
    """For each distribution of beta, the mean blocking rate of the best constant degree, expected
    and actual.
    """
    plans = planner()
    found = {}
    for beta, (degree, expected) in PAPER.items():
        rates = []
        for path in sorted(streams.glob(f"arrivals_paper_beta{beta}_seed*.json")):
            rows = _load(path)["jobs"]
            known = read_graphs(graphs, tuple(sorted({row[1] for row in rows})), "s")
            jobs = [RampJob(str(number), known[row[1]], row[0], row[2], STEPS) for number, row in enumerate(rows)]
            kernel = RampScenario(horizon_s=1e6).planned_by(plans).kernel(0, jobs=jobs)
            kernel.run(ConstantDegree(degree))
            done = sum(outcome.completed_s is not None for outcome in kernel.outcomes)
            decided = sum(bool(outcome.degrees) for outcome in kernel.outcomes)
            rates.append((decided - done) / len(kernel.outcomes))
        if not rates:
            raise InputError(f"{streams}: there are no arrivals_paper_beta{beta}_seed*.json in it")
        found[beta] = {"degree": degree, "expected": expected, "got": fmean(rates)}
    return found


def _load(path: Path) -> Any:
    try:
        raw = path.read_bytes()
        return json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error})") from None


def _checked_episode(path: Path) -> dict[str, Any]:
    said = _load(path)
    for part, keys in (
        ("config", ("topo", "sim_time", "quantum", "max_partitions_per_op", "num_training_steps")),
        ("jobs", ()),
    ):
        if not isinstance(said, dict) or part not in said:
            raise InputError(f"{path}: expected an object with config and jobs")
        for key in keys:
            if key not in said[part]:
                raise InputError(f"{path}: config lacks {key!r}")
    for number, row in enumerate(said["jobs"]):
        for key in ("time_arrived", "model", "beta", "action"):
            if key not in row:
                raise InputError(f"{path}: job {number} lacks {key!r}")
    return said  # type: ignore[no-any-return]


def _work(options: Namespace, say: Say) -> Any:
    if options.graph:
        placed = job(read_graph(options.graph, "s"), options.degree, planner())
        say(_sentence(placed))
        return placed
    if options.episode:
        recorded = _checked_episode(options.episode)
        names = tuple(dict.fromkeys(row["model"] for row in recorded["jobs"]))
        outcomes = episode(recorded, read_graphs(options.graphs, names, "s"))
        for row in outcomes["jobs"]:
            say(row)
        return outcomes
    if options.golden:
        rows = list(golden(options.golden, options.graphs))
        for row in rows:
            say(f"{row.file}: {row.compared} compared, {row.what or 'equal'}")
        return [row._asdict() for row in rows]
    table = constant_degrees(options.streams, options.graphs)
    for beta, figures in table.items():
        rates = f"blocking {figures['got']:.4f} (expected {figures['expected']:.4f})"
        say(f"beta {beta}, degree {figures['degree']:g}: {rates}")
    return table


def _sentence(placed: dict[str, Any]) -> str:
    return (
        f"{len(placed['ops'])} operations and {len(placed['deps'])} dependencies; JCT {placed['jct_s']:.6f} s,"
        f" communication {placed['communication_s']:.6f} s, computation {placed['computation_s']:.6f} s,"
        f" {placed['ticks']} ticks a step"
    )


def main() -> int:
    parser = command.arguments(__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--graph", type=Path, help="a computation graph (.txt, .pbtxt or .json)")
    what.add_argument("--episode", type=Path, help="a recorded episode (.json or .json.gz)")
    what.add_argument("--golden", type=Path, help="the folder with lookahead_* and episode_*")
    what.add_argument("--table", action="store_true", help="constant degrees on the paper's arrival streams")
    parser.add_argument("--degree", type=int, help="pieces per operation at most (with --graph)")
    parser.add_argument("--graphs", type=Path, help="the folder with the computation graphs")
    parser.add_argument("--streams", type=Path, help="the folder with arrivals_paper_*.json (with --table)")
    options = parser.parse_args()
    if options.graph and options.degree is None:
        parser.error("--graph needs --degree")
    if not options.graph and options.graphs is None:
        parser.error("give the folder with the computation graphs: --graphs")
    if options.table and options.streams is None:
        parser.error("--table needs --streams")
    return command.run(parser, _work, holds=lambda value: not options.golden or not any(row["what"] for row in value))


if __name__ == "__main__":
    sys.exit(main())
