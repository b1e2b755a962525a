"""CPU time per flow event on links that flows share max-min: ``python scripts/bench_network.py [--json] [--out FILE]``.

On a fabric of 128 hosts (leaf-spine, 2:1 oversubscribed) a constant number of flows is under way: whenever one ends, a
new one between random hosts starts a little later. An event is a start or an end, including new rates for all flows
that it concerns. *Apart* has the same number of flows, two per pair of hosts, so that at most two are connected.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from typing import Any

import clock
import command

from dagsim.families.fabric.topologies import FatTree, LinkFlow, SharedLinks

EVENTS = 2000
HOSTS = 128


def play(active: int, connected: bool) -> None:
    """Play ``EVENTS`` events with about ``active`` flows under way."""
    rng = random.Random(active)
    routing = FatTree((16, 8), (1, 8), (1, 1), 12.5).routing([f"h{host}" for host in range(HOSTS)])
    links = SharedLinks([link.bandwidth for link in routing.links])

    def start(pair: int, now: float) -> None:
        source, destination = rng.sample(range(HOSTS), 2) if connected else (2 * (pair % 64), 2 * (pair % 64) + 1)
        links.start(LinkFlow(routing.paths(source, destination)[0], rng.uniform(1e9, 1e11)), now)

    for pair in range(active):
        start(pair, 0.0)
    links.update(0.0)
    starts: list[float] = []
    events = 0
    while events < EVENTS:
        now = min(links.next_end_s(), starts[0] if starts else float("inf"))
        if starts and starts[0] == now:
            heappop(starts)
            start(rng.randrange(64), now)
            events += 1
        for _ in links.ended(now):
            heappush(starts, now + rng.uniform(0.0, 0.3))
            events += 1
        links.update(now)


def _work(options: command.Options, say: command.Say) -> dict[str, Any]:
    ways: dict[str, Callable[[], object]] = {
        f"{active} {'connected' if connected else 'apart'}": partial(play, active, connected)
        for active in (10, 100, 200)
        for connected in (True, False)
    }
    rows = {name: spent_s / EVENTS * 1e6 for name, spent_s in clock.in_turn(ways, 3).items()}
    say({f"{name}, us per flow event": us for name, us in rows.items()})
    return rows


def main() -> int:
    return command.run(command.arguments(__doc__, out=True), _work)


if __name__ == "__main__":
    raise SystemExit(main())
