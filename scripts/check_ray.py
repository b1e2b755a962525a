"""Run plans on a Ray cluster of two nodes, lose parts of it, compare: ``python scripts/check_ray.py [--json]``.

Both nodes are processes of this machine (``ray.cluster_utils.Cluster``). A sweep is run whole, with a worker killed on
the way, and with a node lost; an evaluation of two policies (``baseline``) whole. Each finished folder must be equal,
byte for byte, to that of ``--on local``. Ends with 1 if one is not. Needs ``pip install -e '.[ray]'``.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from dagsim.config.schema import load_config
from dagsim.experiment.carry_out import carry_out
from dagsim.experiment.executors import executor_for
from dagsim.experiment.plan import Plan, read_grid
from dagsim.experiment.store import Store

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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    import ray
    from ray.cluster_utils import Cluster

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
        ray.shutdown()
        cluster.shutdown()
    equal = all(len({digest for digest, _ in places.values()}) == 1 for places in runs.values())
    if options.json:
        print(json.dumps({"equal": equal, "ray": ray.__version__, "runs": runs}))
    else:
        for plan, places in runs.items():
            for place, (digest, seconds) in places.items():
                print(f"{plan}, {place}: {digest[:16]}, {seconds} s")
        print("equal" if equal else "NOT EQUAL")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
