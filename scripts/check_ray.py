"""Run a sweep on a Ray cluster of two nodes, lose one on the way, compare: ``python scripts/check_ray.py [--json]``.

Both nodes are processes of this machine (``ray.cluster_utils.Cluster``). The finished folders must be equal, byte for
byte, to that of ``--on local``. Ends with 1 if they are not. Needs ``pip install -e '.[ray]'``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

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


def swept(plan: Plan, on: str, root: Path) -> tuple[str, float]:
    """Return the digest of the finished folder, and the elapsed seconds."""
    began = time.monotonic()
    folder = Store.begin(root, plan, argv=["check_ray"])
    carry_out(folder, plan, executor_for(on))
    total = sha256()
    for file in sorted(folder.path.rglob("*")):
        if file.is_file() and file.name not in OF_THE_CLOCK:
            total.update(file.relative_to(folder.path).as_posix().encode() + b"\0" + file.read_bytes())
    return total.hexdigest(), round(time.monotonic() - began, 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    import ray
    from ray.cluster_utils import Cluster

    with TemporaryDirectory() as name:
        root = Path(name)
        sweep = grid(root)
        found = {"local": swept(sweep, "local:1", root / "local")}
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        second = cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, log_to_driver=False)
        found["two nodes"] = swept(sweep, "ray", root / "ray")

        def lose() -> None:
            while len(list((root / "lost").glob("*/cells/*.json"))) < 10:
                time.sleep(0.01)
            cluster.remove_node(second, allow_graceful=False)

        threading.Thread(target=lose, daemon=True).start()
        found["a node lost"] = swept(sweep, "ray", root / "lost")
        ray.shutdown()
        cluster.shutdown()
    equal = len({digest for digest, _ in found.values()}) == 1
    if options.json:
        print(json.dumps({"equal": equal, "ray": ray.__version__, "runs": found}))
    else:
        for what, (digest, seconds) in found.items():
            print(f"{what}: {digest[:16]}, {seconds} s")
        print("equal" if equal else "NOT EQUAL")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
