"""Run plans on a Ray cluster of two nodes, lose parts of it, compare: ``python scripts/check_ray.py [--json]``.

Both nodes are processes of this machine (``ray.cluster_utils.Cluster``). A sweep is run whole, with a worker killed on
the way, and with a node lost; an evaluation of two policies (``baseline``) whole. Each finished folder must be equal,
byte for byte, to that of ``--on local``. Ends with 1 if one is not. Needs ``pip install -e '.[ray]'``.

A training plays its episodes on both nodes, and again while one is lost after the first iteration. The agents must be
equal, bit for bit. What the roll-outs sent is counted, and computed for 1,000 parts in an iteration.

``--speed`` measures instead: cells of real work with 1 and 2 workers, and cells that sleep (the executor alone) with 1
to 8.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import command

from dagsim.config.schema import load_config
from dagsim.experiment.carry_out import carry_out
from dagsim.experiment.cell import Cell
from dagsim.experiment.cell_run import CellRun
from dagsim.experiment.executors import CellWork, executor_for
from dagsim.experiment.plan import Plan
from dagsim.experiment.store import Store
from dagsim.experiment.sweep_grid import read_grid
from dagsim.families.learning.training.ray_rollouts import RayRollouts, RolloutTraffic
from dagsim.families.learning.training.session import train
from dagsim.families.learning.training.trainer import Progress

OF_THE_CLOCK = {"progress.jsonl", "timing.jsonl", "manifest.json", "status.json", "command.txt", "lock"}
GRID = """
base: base.yaml
set: {cluster.groups: [{name: v, gpu: V100-16, gpus: 8, count: 2}]}
over:
  policy: [fifo, sjf, easy]
  cluster.groups.0.count: [2, 3]
seeds: 8
"""


def grid(folder: Path) -> Plan:
    """A sweep over windows of a small trace, which must be sent to the nodes."""
    rows = [f"j{n},{30 * n},{1 + n % 8},{100 + 37 * n % 900}" for n in range(400)]
    (folder / "log.csv").write_text("\n".join(["id,arrival_s,gpus,duration_s", *rows]) + "\n", encoding="utf-8")
    workload = f"{{kind: trace, path: {folder / 'log.csv'}, window: 50, windows: 8}}"
    (folder / "base.yaml").write_text(f"workload: {workload}\n", encoding="utf-8")
    (folder / "grid.yaml").write_text(GRID, encoding="utf-8")
    return Plan.of_grid(read_grid(folder / "grid.yaml"))


def baseline() -> Plan:
    """Two policies on seeds, whose cells are kept in order, with tables and schedules."""
    return Plan.of("baseline", load_config(None, ["workload.count=100", "seeds=8"]), ("fifo", "sjf"))


def carried(plan: Plan, on: str, root: Path) -> tuple[str, float]:
    """Return the digest of the finished folder, and the elapsed seconds."""
    began = time.monotonic()
    folder = Store.begin(root, plan, argv=["check_ray"])
    carry_out(folder, plan, executor_for(on))
    total = sha256()
    for file in sorted(folder.path.rglob("*")):
        if file.is_file() and file.name not in OF_THE_CLOCK:
            total.update(file.relative_to(folder.path).as_posix().encode() + b"\0" + file.read_bytes())
    return total.hexdigest(), round(time.monotonic() - began, 1)


TRAINING = ["iterations=3", "lockstep=2", "algorithm.sequences=2", "algorithm.replicas=4", "validation_seeds=4"]
TRAINING += ["reference=sjf", "linear_iterations=0"]


def trained(root: Path, on: str, act: Callable[[], None] = lambda: None) -> str:
    """Train, and call ``act`` after the first iteration; return the digest of the best agent."""

    def watch(progress: Progress) -> None:
        if progress.what == "training" and progress.done == 1:
            act()

    settings = [*(f"train.{setting}" for setting in TRAINING), "workload.count=100"]
    training = train("train/ppo", settings, out=root, report=False, on=on, watch=watch)
    return sha256((training.folder.path / "best.pt").read_bytes()).hexdigest()


def per_iteration(traffic: RolloutTraffic) -> dict[str, float]:
    """Bytes and round trips of an iteration, measured, and for one with 1,000 parts."""
    answer, weights = traffic.answer_bytes / traffic.parts, traffic.weight_bytes / traffic.rollouts
    return {
        "round_trips": traffic.parts / traffic.rollouts,
        "weight_bytes": weights,
        "answer_bytes_per_part": answer,
        "bytes_with_1000_parts_on_100_machines": 100 * weights + 1000 * answer,
    }


@dataclass(frozen=True, slots=True)
class Sleep(CellWork):
    """Work that takes 0.2 s and no processor."""

    def __call__(self, cell: Cell, tell: Callable[[int], None]) -> CellRun:
        time.sleep(0.2)
        return CellRun(cell.policy, cell.seed)


def speed() -> dict[str, dict[int, float]]:
    """Seconds by kind of cell and number of workers, the best of two; the workers are started before."""
    import ray

    real = Plan.of("baseline", load_config(None, ["workload.count=2000", "seeds=40"]), ("easy-sjf",)).cells
    plans = {"real": (CellWork(), real, (1, 2)), "sleeping": (Sleep(), real * 2, (1, 2, 4, 8))}
    times: dict[str, dict[int, float]] = {}
    for kind, (work, cells, counts) in plans.items():
        for workers in counts:
            ray.init(address="local", num_cpus=workers, include_dashboard=False, log_to_driver=False)
            executor = executor_for("ray")
            best = float("inf")
            for _ in range(3):  # the first one starts the workers
                began = time.monotonic()
                assert len(list(executor.run(work, cells))) == len(cells)
                best = min(best, time.monotonic() - began)
            times.setdefault(kind, {})[workers] = round(best, 2)
            ray.shutdown()
    return times


def after_cells(root: Path, count: int, act: Callable[[], None]) -> None:
    """Call ``act`` once ``count`` cells below ``root`` are finished, from a thread."""

    def wait() -> None:
        while len(list(root.glob("*/cells/*.json"))) < count:
            time.sleep(0.01)
        act()

    threading.Thread(target=wait, daemon=True).start()


def kill_a_worker() -> None:
    """Kill a descendant of this process that runs a cell now; Ray names it after its task."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):  # it ended meanwhile
            continue

    def is_ours(pid: int) -> bool:
        while pid in parents and pid != os.getpid():
            pid = parents[pid]
        return pid == os.getpid()

    while True:
        for pid in filter(is_ours, parents):
            try:
                title = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if title.startswith(b"ray::_run_remotely"):
                os.kill(pid, signal.SIGKILL)
                return
        time.sleep(0.001)


def _work(options: command.Options, say: command.Say) -> dict[str, Any]:
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    import ray
    from ray.cluster_utils import Cluster

    if options.speed:
        times = speed()
        say(times)
        return times
    with TemporaryDirectory() as name:
        root = Path(name)
        sweep, pair = grid(root), baseline()
        runs = {"sweep": {"local": carried(sweep, "local:1", root / "local")}}
        runs["baseline"] = {"local": carried(pair, "local:1", root / "local")}
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        second = cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, log_to_driver=False)
        runs["baseline"]["two nodes"] = carried(pair, "ray", root / "ray")
        runs["sweep"]["two nodes"] = carried(sweep, "ray", root / "ray")
        after_cells(root / "killed", 5, kill_a_worker)
        runs["sweep"]["a worker killed"] = carried(sweep, "ray", root / "killed")
        after_cells(root / "lost", 10, lambda: cluster.remove_node(second, allow_graceful=False))
        runs["sweep"]["a node lost"] = carried(sweep, "ray", root / "lost")
        agents = {"local": trained(root / "local-train", "local:1")}
        second = cluster.add_node(num_cpus=1)
        traffics: list[RolloutTraffic] = []
        end = RayRollouts.end

        def recorded(self: RayRollouts) -> None:
            traffics.append(self.traffic)
            end(self)

        RayRollouts.end = recorded  # type: ignore[method-assign]
        agents["two nodes"] = trained(root / "ray-train", "ray")
        agents["a node lost"] = trained(
            root / "lost-train", "ray", lambda: cluster.remove_node(second, allow_graceful=False)
        )
        runs["training"] = {place: (digest, 0.0) for place, digest in agents.items()}
        counted = per_iteration(traffics[0]) | {"parts_played_again": traffics[1].lost}
        ray.shutdown()
        cluster.shutdown()
    equal = all(len({digest for digest, _ in places.values()}) == 1 for places in runs.values())
    result = {"equal": equal, "ray": ray.__version__, "runs": runs, "traffic": counted}
    say(result)
    return result


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--speed", action="store_true", help="measure the speed-up instead")
    return command.run(parser, _work, holds=lambda result: result.get("equal", True))


if __name__ == "__main__":
    raise SystemExit(main())
