"""GPU allocation when requests for all GPUs have arrived, under six placements: Weng et al. (FGD), ATC 2023.

    python scripts/validate_fgd.py --pods openb_pod_list_default.csv --nodes openb_node_list_gpu_node.csv [--json]

The paper's protocol: the pods in random order, followed by pods drawn from among them (or, where they are too many,
less pods removed) until 130 % of the cluster's GPUs are asked for. Each pod is placed or, where it fits nowhere,
passed over for good; nothing ends. The figure is the percentage of all GPUs that are allocated when requests for 100 %
have arrived, the mean over the seeds. Nodes without GPUs take no part, as in the paper (``--cpu-nodes``: they do).

Random numbers are those of the authors' simulator (``scripts/fgd``), so a seed stands for the same pods, in the same
order, on the same nodes. Where the files are the paper's, its figures are printed beside those found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean, pstdev

import command
from fgd.fragmentation import Fgd
from fgd.go_random import GoRandom
from fgd.nodes import Node, Nodes, read_nodes
from fgd.pods import Pod, read_pods
from fgd.policies import SCORES, Choice, at_random, by_score

from dagsim.traces.source import Source

POLICIES = ("Random", *SCORES, "FGD")
SEEDS = range(42, 52)
RATIO = 1.3
WATCHES = 10
"""Numbers that kube-scheduler takes when it starts, one per watch it opens (for the watch's time-out). With ten, every
allocation of the paper's tables that does not depend on the order of threads comes out to the digit."""

_FILE = Path(__file__).parent.parent / "results" / "validation" / "fgd.csv"
PUBLISHED = {row.pop("pods"): tuple(map(float, row.values())) for row in command.read_rows(_FILE)}
"""Percentages of GPUs allocated at 100 % load by pod list, in the order of ``POLICIES``: means over the ten seeds, from
``experiments/analysis/expected_results/analysis_allo_discrete.csv`` of the authors' repository."""
PAPER = dict(zip(POLICIES, PUBLISHED["default"], strict=True))
"""Those of the default list on the 1,213 nodes with GPUs."""
PAPER_PODS = "1ee7ed79c27a3b0861cda8ddba86a004c6aba904caafa329a76ae93ca63834a8"
PAPER_NODES = (
    "2beca64b4d3dfa342036a34b56a495c6cef9225db836c81f541282cb1df320b5",  # openb_node_list_gpu_node.csv
    "5a85c2af79c66a1efff8bbcbda430400aae56d8431370d738480967e1a9c6b15",  # openb_node_list_all_node.csv
)
TOLERANCE = 0.5


def allocated(pods: Sequence[Pod], nodes: Sequence[Node], policy: str, seed: int) -> float:
    """Percentage of GPUs allocated at 100 % load. Pods and nodes are in the order of their names."""
    rng = GoRandom(seed)
    rng.int63()  # goes into a line of the simulator's log
    capacity = Nodes(nodes).capacity
    arriving = arrivals(pods, capacity, rng)
    for _ in range(WATCHES):
        rng.int63()
    rank = rng.permutation(len(nodes))
    cluster = Nodes([node for _, node in sorted(zip(rank, nodes, strict=True))])
    return at_full_load(placed(arriving, cluster, chosen(policy, cluster, pods, rng)), capacity)


def arrivals(pods: Sequence[Pod], capacity: int, rng: GoRandom) -> list[Pod]:
    """Shuffle the pods, then draw more of them or remove some, until they ask for 1.3 times
    ``capacity``.

    Capacity is in thousandths of GPUs.
    """
    order = list(pods)
    rng.shuffle(order)
    asked, wanted = sum(pod.gpu_milli for pod in pods), RATIO * capacity
    if asked > wanted:
        while asked > wanted:
            asked -= order.pop(rng.below(len(order))).gpu_milli
    elif asked < wanted:
        while asked + (pod := pods[rng.below(len(pods))]).milli <= wanted:
            order.append(pod)
            asked += pod.gpu_milli
    return order


def chosen(policy: str, nodes: Nodes, pods: Sequence[Pod], rng: GoRandom) -> Choice:
    """Return the policy of this name for these nodes."""
    match policy:
        case "Random":
            return at_random(rng)
        case "FGD":
            return Fgd(nodes, pods)
        case _:
            return by_score(SCORES[policy])


def placed(pods: Sequence[Pod], nodes: Nodes, choose: Choice) -> Iterator[tuple[int, int]]:
    """Place the pods one by one. Yields the GPUs that arrived and those allocated, in thousandths."""
    arrived = taken = 0
    for pod in pods:
        arrived += pod.gpu_milli
        room = nodes.room(pod)
        if len(room):
            node, gpu = choose(nodes, pod, room)
            nodes.take(node, pod, gpu)
            taken += pod.gpu_milli
        yield arrived, taken


def at_full_load(course: Iterator[tuple[int, int]], capacity: int) -> float:
    """The mean percentage allocated while the percentage arrived rounds to 100, or else while it is from 99 to 101, or
    else before it passes 100."""
    near: list[tuple[float, float]] = []
    last = 0.0
    for arrived, taken in course:
        load, share = 100 * arrived / capacity, 100 * taken / capacity
        if load > 101:
            break
        if load <= 100:
            last = share
        if load >= 99:
            near.append((load, share))
    at = [share for load, share in near if round(load) == 100] or [share for _, share in near]
    return mean(at) if at else last


def measured(pods: Sequence[Pod], nodes: Sequence[Node], seeds: Sequence[int] = SEEDS) -> dict[str, list[float]]:
    """For each policy, the percentage allocated, seed by seed."""
    return {policy: [allocated(pods, nodes, policy, seed) for seed in seeds] for policy in POLICIES}


def rounded(shares: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The means, to four digits."""
    return {policy: round(mean(values), 4) for policy, values in shares.items()}


def is_paper(pods: Path, nodes: Path) -> bool:
    """True if the files are those of the paper."""
    return _digest(pods) == PAPER_PODS and _digest(nodes) in PAPER_NODES


def _digest(path: Path) -> str:
    return hashlib.sha256(Source(path).read_bytes()).hexdigest()


def _work(options: command.Options, say: command.Say) -> tuple[dict[str, list[float]], bool]:
    pods, nodes = read_pods(Source(options.pods)), read_nodes(Source(options.nodes), options.cpu_nodes)
    official = not options.cpu_nodes and is_paper(options.pods, options.nodes)
    shares = measured(pods, nodes, options.seeds)
    gpus = sum(node.gpus for node in nodes)
    say(f"{len(pods):,} pods, {len(nodes):,} nodes with {gpus:,} GPUs, {len(options.seeds)} seeds: % of GPUs allocated")
    for policy, values in shares.items():
        beside = f"   paper {PAPER[policy]:.2f}" if official else ""
        say(f"{policy:13} {mean(values):6.2f}   deviation {pstdev(values):.2f}{beside}")
    return shares, official


def _holds(outcome: tuple[dict[str, list[float]], bool]) -> bool:
    shares, official = outcome
    return not official or all(abs(mean(shares[policy]) - PAPER[policy]) <= TOLERANCE for policy in POLICIES)


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--pods", type=Path, required=True, help="an openb pod list, .csv or .csv.gz")
    parser.add_argument("--nodes", type=Path, required=True, help="an openb node list")
    parser.add_argument("--seeds", type=command.numbers, default=list(SEEDS), help="numbers, separated by commas")
    parser.add_argument("--cpu-nodes", action="store_true", help="keep nodes without GPUs")
    return command.run(parser, _work, _holds, convert=lambda outcome: rounded(outcome[0]))


if __name__ == "__main__":
    raise SystemExit(main())
