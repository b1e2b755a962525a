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

from collections.abc import Iterable, Iterator
from math import isclose
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import command

from dagsim.errors import InputError
from dagsim.families.ramp.api import DDLS, Fabric, JobOutcome, Partition, Planner, Ramp, RampJob, RampView
from dagsim.families.ramp.decisions import OpSchedule
from dagsim.families.ramp.graph import ComputationGraph
from dagsim.families.ramp.partition import PartitionedGraph
from dagsim.families.ramp.policies import ConstantDegree
from dagsim.families.ramp.readers import read_graph, read_graphs
from dagsim.families.ramp.scenario import RampScenario
from dagsim.families.ramp.timing import Srpt, TimedGraph
from dagsim.model import RejectReason

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
        "ops": pieces(timed, Srpt()(0, parts, plans.fabric), plans.fabric),
        "deps": deps(timed),
    }


def pieces(timed: TimedGraph, schedule: OpSchedule, fabric: Fabric) -> list[list[Any]]:
    """Return all pieces of pass operations: id, pass, seconds, bytes of memory, server and priority. Of the ready
    pieces on a server, the one with the highest priority runs.

    Whole operations come first, forward ones before mirrors, then each split one with its mirror.
    """
    parts, count = timed.parts, len(timed.parts.graph)
    on_server: dict[int, list[int]] = {}
    for op in range(2 * count):
        for server in timed.placement.block(op % count):
            on_server.setdefault(server, []).append(op)
    priority = {}
    for server, ops in on_server.items():
        ranks = schedule.ranks[fabric.type_of[server]]
        for rank, op in enumerate(sorted(ops, key=ranks.__getitem__)):
            priority[op, server] = rank
    detailed = []
    for op in _in_order(parts):
        for id_, server in zip(_ids(parts, op), timed.placement.block(op % count), strict=True):
            seconds = parts.graph.costs(fabric.gpus[server].name)[op] / parts.pieces[op]
            which = "forward_pass" if op < count else "backward_pass"
            name = fabric.topology.server_names[server]
            detailed.append([id_, which, seconds, parts.memory_bytes[op % count], name, priority[op, server]])
    return detailed


def deps(timed: TimedGraph) -> list[list[Any]]:
    """Return all dependencies between two pieces: source, target, bytes, and seconds (0 if nothing is sent). They come
    by source, exchanges of weights last.
    """
    parts, count = timed.parts, len(timed.parts.graph)
    sizes = {(edge.source, edge.target): edge.pair_bytes for edge in parts.edges}
    for op, size in enumerate(parts.sync_bytes):
        sizes[count + op, count + op] = size
    ids = [_ids(parts, op) for op in range(2 * count)]
    detailed = []
    for op in _in_order(parts):
        for bundle in timed.bundles[op]:
            size, seconds = sizes[op, bundle.target], bundle.seconds if bundle.flows else 0.0
            for source, targets in zip(ids[op], bundle.lane.targets, strict=True):
                detailed += [[source, ids[bundle.target][target], size, seconds] for target in targets]
    return detailed


def _in_order(parts: PartitionedGraph) -> list[int]:
    count = len(parts.graph)
    whole = [op for op in range(2 * count) if parts.pieces[op] == 1]
    return whole + [both for op in range(count) if parts.splits[op] > 1 for both in (op, count + op)]


def _ids(parts: PartitionedGraph, op: int) -> list[str]:
    """Names ``7a, 7b, ...`` of the parts of a split operation. ``z`` is followed by ``aa, ab,
    ...``.
    """
    id_ = parts.graph.pass_id(op)
    return [id_] if parts.pieces[op] == 1 else [id_ + _letters(piece) for piece in range(parts.pieces[op])]


def _letters(number: int) -> str:
    high, low = divmod(number, 26)
    return (_letters(high - 1) if high else "") + chr(ord("a") + low)


class Replay:
    """Policy that replays recorded degrees. A degree that is not offered is an error of the
    recording.
    """

    def __init__(self, actions: Iterable[int]) -> None:
        self._actions = iter(actions)

    def decide(self, view: RampView) -> Iterable[Partition]:
        """Return the next recorded degree."""
        return (Partition(view.number, next(self._actions)),)


def episode(recorded: dict[str, Any], graphs: Path) -> dict[str, Any]:
    """Return the outcome of every job of a recorded episode.

    Raises:
        InputError: The recording lacks a key.
    """
    with command.reading("--episode", "a recorded episode"):
        config, rows = recorded["config"], recorded["jobs"]
        plans = planner(tuple(config["topo"]), config["quantum"], config["max_partitions_per_op"])
        models = read_graphs(graphs, tuple(dict.fromkeys(row["model"] for row in rows)), "s")
        steps, horizon_s = config["num_training_steps"], config["sim_time"]
        jobs = [
            RampJob(str(number), models[row["model"]], row["time_arrived"], row["beta"], steps)
            for number, row in enumerate(rows)
        ]
        replay = Replay([row["action"] for row in rows])
    kernel = RampScenario(horizon_s=horizon_s).planned_by(plans).kernel(0, jobs=jobs)
    kernel.run(replay)
    outcomes = [_row(outcome) for outcome in kernel.outcomes]
    return {"jobs": outcomes + [_UNDECIDED] * (len(jobs) - len(outcomes))}


_UNDECIDED = {"mask": None, "status": "not_decided", "cause": None, "jct_s": None}


def _row(outcome: JobOutcome) -> dict[str, Any]:
    if not outcome.degrees:
        return _UNDECIDED
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
        expected = command.read_json(path)
        actual = job(read_graph(graphs / f"{expected['model']}.txt", "s"), expected["degree"], planner())
        yield Difference(path.name, len(expected["ops"]) + len(expected["deps"]), _first_of_job(expected, actual))
    for path in sorted(folder.glob("episode_*.json.gz")):
        expected = command.read_json(path)
        actual = episode(expected, graphs)["jobs"]
        yield Difference(path.name, len(actual), _first_of_episode(expected["jobs"], actual))


def _first_of_job(expected: dict[str, Any], actual: dict[str, Any]) -> str:
    ops = {op[0]: op[1:] for op in actual["ops"]}
    for id_, which, seconds, memory, server, priority in expected["ops"]:
        server = server.removeprefix("node_").removesuffix("_worker_0")
        ours = ops.pop(id_, None)
        if (
            ours is None
            or ours[0] != which
            or ours[3:] != [server, priority]
            or not _close(ours[1:3], (seconds, memory))
        ):
            return f"op {id_}: expected {(which, seconds, memory, server, priority)}, got {ours}"
    deps = {(dep[0], dep[1]): dep[2:] for dep in actual["deps"]}
    for source, target, size, seconds in expected["deps"]:
        ours = deps.pop((source, target), None)
        if ours is None or not _close(ours, (size, seconds)):
            return f"dependency {source} -> {target}: expected {(size, seconds)}, got {ours}"
    if ops or deps:
        return f"{len(ops)} ops and {len(deps)} dependencies too many"
    if not isclose(expected["lookahead_jct"], actual["jct_s"], rel_tol=1e-6):
        return f"jct_s: expected {expected['lookahead_jct']}, got {actual['jct_s']}"
    if abs(expected["n_ticks"] - actual["ticks"]) > 1:
        return f"ticks: expected {expected['n_ticks']}, got {actual['ticks']}"
    return ""


def _first_of_episode(expected: list[dict[str, Any]], actual: list[dict[str, Any]]) -> str:
    for number, (row, ours) in enumerate(zip(expected, actual, strict=True)):
        for key in ("mask", "status", "cause"):
            if row.get(key) != ours[key]:
                return f"job {number}: expected {key} {row.get(key)!r}, got {ours[key]!r}"
        if "lookahead_jct" in row and not isclose(row["lookahead_jct"], ours["jct_s"], rel_tol=1e-6):
            return f"job {number}: expected jct {row['lookahead_jct']}, got {ours['jct_s']}"
    return ""


def _close(ours: Iterable[float], expected: Iterable[float]) -> bool:
    return all(isclose(one, other, rel_tol=1e-9) for one, other in zip(ours, expected, strict=True))


def constant_degrees(streams: Path, graphs: Path) -> dict[str, dict[str, float]]:
    """For each distribution of beta, the mean blocking rate of the best constant degree, expected
    and actual.
    """
    plans = planner()
    actual = {}
    for beta, (degree, published) in PAPER.items():
        rates = []
        for path in sorted(streams.glob(f"arrivals_paper_beta{beta}_seed*.json")):
            rows = command.read_json(path)["jobs"]
            models = read_graphs(graphs, tuple(sorted({row[1] for row in rows})), "s")
            jobs = [RampJob(str(number), models[row[1]], row[0], row[2], STEPS) for number, row in enumerate(rows)]
            kernel = RampScenario(horizon_s=1e6).planned_by(plans).kernel(0, jobs=jobs)
            kernel.run(ConstantDegree(degree))
            done = sum(outcome.completed_s is not None for outcome in kernel.outcomes)
            decided = sum(bool(outcome.degrees) for outcome in kernel.outcomes)
            rates.append((decided - done) / len(kernel.outcomes))
        if not rates:
            raise InputError(f"{streams}: there are no arrivals_paper_beta{beta}_seed*.json in it")
        actual[beta] = {"degree": degree, "expected": published, "got": fmean(rates)}
    return actual


def _work(options: command.Options, say: command.Say) -> Any:
    if options.graph:
        placed = job(read_graph(options.graph, "s"), options.degree, planner())
        say({name: value for name, value in placed.items() if not isinstance(value, list)})
        return placed
    if options.episode:
        outcomes = episode(command.read_json(options.episode), options.graphs)
        for row in outcomes["jobs"]:
            say(row)
        return outcomes
    if options.golden:
        rows = list(golden(options.golden, options.graphs))
        for row in rows:
            say(f"{row.file}: {row.compared} compared, {row.what or 'equal'}")
        return [row._asdict() for row in rows]
    table = constant_degrees(options.streams, options.graphs)
    say(table)
    return table


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
    raise SystemExit(main())
