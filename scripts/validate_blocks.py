"""GPU occupancy of block scheduling with segments beside naive packing: ``python scripts/validate_blocks.py [--nodes N]
[--jobs N] [--json] [--out FILE]``.

Nodes of four GPUs in blocks of 18, as NVL72 racks. All jobs wait from the beginning and take whole nodes; EASY starts
them. *naive* puts a job on the first nodes that are free. *block* keeps each segment of a job within a block; a segment
is at most 16 nodes. Occupancy is the share of GPU-seconds held between the start of the first 30 % of the jobs and that
of 80 %, so that the queue never runs dry.

``mixed`` has jobs of 1 to 256 nodes, ``large`` only multiples of 16 nodes: segments of 16 leave 2 of 18 nodes idle, if
no job is small enough for them.
"""

from __future__ import annotations

from typing import Any

import command
import numpy as np

from dagsim import simulate
from dagsim.families.fabric.shared_network import SharedNetwork
from dagsim.families.fabric.topologies import Tree, TreeSwitch
from dagsim.metrics import gpu_utilization, wait
from dagsim.metrics.columns import ScheduleColumns
from dagsim.model import Cluster, Job, Node, Request, Task, gpu_type

GPUS, BLOCK, SEGMENT = 4, 18, 16
MIXES = {
    "mixed": {1: 0.4, 2: 0.2, 4: 0.12, 8: 0.1, 16: 0.08, 32: 0.05, 64: 0.03, 128: 0.015, 256: 0.005},
    "large": {16: 0.4, 32: 0.3, 64: 0.2, 128: 0.1},
}
"""Share of jobs by nodes."""
POLICY = {"naive": "easy[placement=first-fit]", "block": "block"}


def blocks(nodes: int) -> tuple[Cluster, SharedNetwork]:
    """A cluster of ``nodes`` nodes, and a switch for each block of 18; the last may have fewer."""
    cluster = Cluster(tuple([Node(f"n{number}", gpu_type("H100"), GPUS) for number in range(nodes)]))
    names = [node.name for node in cluster.nodes]
    starts = range(0, nodes, BLOCK)
    racks = [TreeSwitch(f"b{start // BLOCK}", tuple(names[start : start + BLOCK])) for start in starts]
    top = TreeSwitch("top", switches=tuple([rack.name for rack in racks]))
    return cluster, SharedNetwork(Tree((*racks, top), levels_up=("block",)))


def gangs(mix: str, count: int, seed: int, way: str) -> list[Job]:
    """Jobs of whole nodes with lognormal durations, all there at 0 s."""
    rng = np.random.default_rng(seed)
    sizes = [*MIXES[mix]]
    drawn = rng.choice(sizes, count, p=[*MIXES[mix].values()]).tolist()
    seconds = rng.lognormal(8.0, 1.0, count).tolist()
    requests = {size: Request(level="block", segment=min(size, SEGMENT)) for size in sizes}
    return [
        Job.single(
            f"j{number}",
            Task("t", duration_s, nodes, nodes > 1, gpus=GPUS),
            request=None if way == "naive" else requests[nodes],
        )
        for number, (nodes, duration_s) in enumerate(zip(drawn, seconds, strict=True))
    ]


def occupancy(mix: str, way: str, nodes: int, jobs: int, seed: int = 1) -> float:
    """Share of the GPU-seconds that runs hold while many jobs wait."""
    cluster, network = blocks(nodes)
    schedule = simulate(gangs(mix, jobs, seed, way), cluster, POLICY[way], network=network).schedule
    starts_s = np.sort(wait(schedule))  # all jobs are there at 0 s
    starts_s = starts_s[np.isfinite(starts_s)]  # too wide ones are rejected
    low_s, high_s = (float(starts_s[share * len(starts_s) // 10]) for share in (3, 8))
    return gpu_utilization(ScheduleColumns.of(schedule, start_s=low_s, end_s=high_s))


def _work(options: command.Options, say: command.Say) -> dict[str, Any]:
    result: dict[str, Any] = {"nodes": options.nodes, "jobs": options.jobs}
    for mix in MIXES:
        result[mix] = {way: occupancy(mix, way, options.nodes, options.jobs) for way in POLICY}
    say(result)
    return result


def main() -> int:
    parser = command.arguments(__doc__, out=True)
    parser.add_argument("--nodes", type=command.at_least_one, default=5000, help="number of nodes (5000)")
    parser.add_argument("--jobs", type=command.at_least_one, default=2500, help="number of jobs (2500)")
    return command.run(parser, _work)


if __name__ == "__main__":
    raise SystemExit(main())
