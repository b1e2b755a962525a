"""Max-min rates against progressive filling in exact fractions, and golden completion times."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from fractions import Fraction
from importlib import import_module
from math import inf
from pathlib import Path

import pytest

from dagsim.errors import ConfigError
from dagsim.families.fabric.topologies import LinkFlow, SharedLinks


def streams(flow: LinkFlow, link: object) -> int:
    return 1 if flow.weights is None or not isinstance(link, int) else flow.weights[link]


def exact_rates(bandwidths: Sequence[float], flows: Sequence[LinkFlow]) -> list[Fraction]:
    """Max-min rates by filling all streams at the same speed, in exact fractions; a cap is a link of its own."""
    free: dict[object, Fraction] = {link: Fraction(bandwidth) for link, bandwidth in enumerate(bandwidths)}
    routes: list[list[object]] = [list(flow.route) for flow in flows]
    for index, flow in enumerate(flows):
        if flow.cap < inf:
            free["cap", index] = Fraction(flow.cap)
            routes[index].append(("cap", index))
    rates: dict[int, Fraction] = {}
    while len(rates) < len(flows):
        users = {
            link: [index for index, route in enumerate(routes) if link in route and index not in rates] for link in free
        }
        share, bottleneck = min(
            (free[link] / sum(streams(flows[index], link) for index in on), str(link))
            for link, on in users.items()
            if on
        )
        for index in next(on for link, on in users.items() if str(link) == bottleneck):
            rates[index] = share
            for link in routes[index]:
                free[link] -= share * streams(flows[index], link)
    return [rates[index] for index in range(len(flows))]


def drawn_flow(rng: random.Random, links: int) -> LinkFlow:
    """A flow on some of the links, which may have several streams there, like a gang."""
    route = rng.sample(range(links), rng.randint(1, min(4, links)))
    weights = {link: rng.randint(1, 3) for link in route} if rng.random() < 0.4 else None
    return LinkFlow(route, 1e12, rng.choice([inf, inf, 0.3e9, 2.5e9]), weights)


@pytest.mark.parametrize("seed", range(12))
def test_rates_are_those_of_exact_progressive_filling_after_every_change(seed: int) -> None:
    rng = random.Random(seed)
    bandwidths = [rng.choice([1.0, 2.0, 3.0, 10.0]) * rng.choice([1e9, 1.7e9]) for _ in range(rng.randint(3, 14))]
    links, running = SharedLinks(bandwidths), []
    for step in range(40):
        for _ in range(rng.randint(0, 3)):
            running.append(drawn_flow(rng, len(bandwidths)))
            links.start(running[-1], float(step))
        for _ in range(rng.randint(0, 2) if running else 0):
            if running:
                links.stop(running.pop(rng.randrange(len(running))))
        if rng.random() < 0.2:
            link = rng.randrange(len(bandwidths))
            bandwidths[link] = rng.choice([0.5e9, 4e9])
            links.set_bandwidth(link, bandwidths[link])
        links.update(float(step))
        assert [flow.rate for flow in running] == pytest.approx(
            list(map(float, exact_rates(bandwidths, running))), rel=1e-11
        )
        assert [links.load(link) for link in range(len(bandwidths))] == pytest.approx(
            [
                sum(flow.rate * streams(flow, link) for flow in running if link in flow.route)
                for link in range(len(bandwidths))
            ]
        )


@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_the_rate_of_a_flow_that_has_not_started_is_the_one_that_it_gets_and_changes_nothing(
    seed: int, pending: bool
) -> None:
    rng = random.Random(seed)
    links, running = SharedLinks([rng.choice([1e9, 3e9]) for _ in range(6)]), []
    for step in range(20):
        running.append(drawn_flow(rng, 6))
        links.start(running[-1], float(step))
        if not pending:
            links.update(float(step))
        before = [(flow.rate, flow.next_rate, flow.bottleneck, flow.ends_s) for flow in running]
        flow, trial, untouched = drawn_flow(rng, 6), links.copy(), links.copy()
        expected = links.rate_of(flow)
        assert [(flow.rate, flow.next_rate, flow.bottleneck, flow.ends_s) for flow in running] == before
        assert flow.number == -1
        changed, alike = links.update(float(step)), untouched.update(float(step))
        assert [(one.number, one.rate) for one in changed] == [(one.number, one.rate) for one in alike]
        trial.start(flow, float(step))
        trial.update(float(step))
        assert flow.rate == expected


def test_a_long_flow_gets_the_share_of_its_bottleneck_and_the_others_get_the_rest() -> None:
    # Links of 10, 6 and 25: two flows share 6 with the long one, 2 each; the others have 8 and 23.
    links = SharedLinks([10.0, 6.0, 25.0])
    flows = [LinkFlow(route, 100.0) for route in ([0, 1, 2], [0], [1], [1], [2])]
    for flow in flows:
        links.start(flow, 0.0)
    links.update(0.0)
    assert [flow.rate for flow in flows] == [2, 8, 2, 2, 23]
    assert links.load(1) == 6


def test_a_flow_over_no_link_arrives_at_once_or_at_its_cap() -> None:
    links = SharedLinks([])
    free, capped = LinkFlow([], 10.0), LinkFlow([], 10.0, cap=5.0)
    links.start(free, 3.0)
    links.start(capped, 3.0)
    links.update(3.0)
    assert links.ended(3.0) == [free]
    assert links.next_end_s() == 5


def test_a_flow_on_a_dead_link_waits_until_the_link_returns() -> None:
    links, flow = SharedLinks([2.0]), LinkFlow([0], 6.0)
    for time_s, bandwidth in ((0.0, 2.0), (1.0, 0.0), (5.0, 4.0)):
        if time_s == 0:
            links.start(flow, 0.0)
        links.set_bandwidth(0, bandwidth)
        links.update(time_s)
        if time_s == 1:
            assert links.next_end_s() == inf
    assert links.next_end_s() == 6  # 2 bytes in the first second, 4 at 4 bytes/s from 5 on


def test_copies_of_flows_on_copied_links_see_a_change_that_awaits_its_update() -> None:
    links, flow = SharedLinks([2.0]), LinkFlow([0], 6.0)
    links.start(flow, 0.0)
    links.update(0.0)
    links.set_bandwidth(0, 4.0)
    twin, copy = links.without_flows(), flow.copy()
    twin.adopt(copy)
    twin.update(1.0)
    assert twin.next_end_s() == 2  # 2 bytes in the first second, then 4 at 4 bytes/s
    assert flow.rate == 2


SCENARIOS = [
    "01-one-link", "02-parking-lot", "03-rate-caps", "04-nvswitch-rails", "05-latency", "06-degraded-link",
    "07-ring-all-reduce", "08-fat-tree", "10-torus-4x4", "12-dragonfly", "15-shuffle-unlike-nics",
]  # fmt: skip


@pytest.mark.data
@pytest.mark.parametrize("name", SCENARIOS)
def test_flows_arrive_when_simgrid_and_an_exact_solver_say(name: str, data: Path) -> None:
    script = import_module("validate_network")
    scenario = json.loads((data / "golden" / "network" / f"{name}.json").read_text())
    difference = script.worst(scenario, script.finishes(scenario))
    assert difference is not None
    assert difference < 1e-12


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"route": ["m"]}, "flow 'a' names 'm', which does not exist"),
        ({"after": ["b"]}, "flow 'a' names 'b', which does not exist"),
        ({"after": ["a"]}, "these flows never arrive: a"),
        ({"route": ["l", "l"]}, "flow 'a': route should be a list of links, none twice"),
        ({"bytes": -1}, "flow 'a': bytes must be a number of 0 or more, got -1"),
        ({"bytes": "1GB"}, "flow 'a': bytes must be a number of 0 or more, got '1GB'"),
        ({"rate_cap": 0}, "flow 'a': rate_cap must be positive, got 0"),
        ({"id": ["x"]}, "each needs an id of its own"),
    ],
)
def test_a_scenario_that_contradicts_itself_is_an_error_in_words(change: Mapping[str, object], message: str) -> None:
    script = import_module("validate_network")
    flow = {"id": "a", "bytes": 1, "route": ["l"], "start_s": 0, **change}
    with pytest.raises(ConfigError, match=message):
        script.finishes({"links": [{"id": "l", "bandwidth": 1}], "flows": [flow]})
    for links, wrong in (
        ([{"id": "l", "bandwidth": 0}], "link 'l': bandwidth must be positive"),
        ([{"id": "l", "bandwidth": 1}] * 2, "link 'l': each needs an id of its own"),
        (None, "should be an object with the lists links and flows"),
    ):
        with pytest.raises(ConfigError, match=wrong):
            script.finishes({"links": links, "flows": []})
