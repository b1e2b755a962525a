"""Routes and links of each topology."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from dagsim.errors import ModelError
from dagsim.families.fabric.topologies import (
    Cable,
    Dragonfly,
    Explicit,
    FatTree,
    Island,
    NetworkTopology,
    Route,
    Routing,
    Torus,
    Tree,
)
from dagsim.families.fabric.topologies import (
    TreeSwitch as Box,
)


def hosts(count: int) -> list[str]:
    return [f"h{index}" for index in range(count)]


def route(routing: Routing, source: int, destination: int) -> list[str]:
    """The names of the links of the only path."""
    (path,) = routing.paths(source, destination)
    return [routing.links[link].name for link in path]


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "topology"),
    [
        ("08-fat-tree", FatTree((4, 4), (1, 2), (1, 2), 12.5)),
        ("10-torus-4x4", Torus((4, 4), 45.0)),
        ("12-dragonfly", Dragonfly(2, 2, 2, 2, blue=2, black=1, green=2, bandwidth_gb_s=12.5)),
    ],
)
def test_routes_are_simgrids(name: str, topology: NetworkTopology, data: Path) -> None:
    # One of our links for each of SimGrid's, of the same bandwidth, and the same order on every route.
    scenario = json.loads((data / "golden" / "network" / f"{name}.json").read_text())
    bandwidths = {link["id"]: link["bandwidth"] for link in scenario["links"]}
    routing = topology.routing(hosts(16))
    ours: dict[str, int] = {}
    for flow in scenario["flows"]:
        (path,) = routing.paths(flow["src"], flow["dst"])
        assert len(path) == len(flow["route"])
        for theirs, link in zip(flow["route"], path, strict=True):
            assert ours.setdefault(theirs, link) == link
            assert routing.links[link].bandwidth == bandwidths[theirs]
    assert len(set(ours.values())) == len(ours)


@pytest.mark.parametrize(
    "topology",
    [
        Island(2), FatTree((2, 3, 2), (1, 2, 3), (2, 1, 2)), Torus((2, 3, 2)), Torus((12,)), Torus((1, 12)),
        Dragonfly(3, 1, 4, 1), Dragonfly(2, 3, 2, 1, 2, 2, 2),
        Tree((Box("root", (), ("a", "b")), Box("a", tuple(hosts(5))), Box("b", tuple(hosts(12)[5:])))),
    ],
)  # fmt: skip
def test_every_route_is_a_walk_from_its_source_to_its_destination(topology: NetworkTopology) -> None:
    names = hosts(12)
    routing = topology.routing(names)
    assert len({link.name for link in routing.links}) == len(routing.links)
    for source in range(12):
        assert routing.paths(source, source) == ((),)
        for destination in range(12):
            for path in routing.paths(source, destination) if source != destination else ():
                walk = [routing.links[link].name.split("#")[0] for link in path]
                assert len(set(path)) == len(path)
                if isinstance(topology, Island):
                    first, last = walk
                    assert (first.split(".")[0], last.split(".")[0]) == (names[source], names[destination])
                    continue
                ends = [step.split(">") for step in walk]
                assert (ends[0][0], ends[-1][1]) == (names[source], names[destination])
                assert all(one[1] == other[0] for one, other in pairwise(ends))


def test_torus_routes_correct_one_dimension_after_the_other_by_the_shorter_way() -> None:
    routing = Torus((5, 3)).routing(hosts(15))
    assert route(routing, 0, 14) == ["h0>h4", "h4>h14"]
    assert route(routing, 1, 8) == ["h1>h2", "h2>h3", "h3>h8"]


def test_half_way_around_a_ring_is_ascending_except_to_coordinate_0() -> None:
    routing = Torus((4, 6)).routing(hosts(24))
    assert route(routing, 1, 3) == ["h1>h2", "h2>h3"]
    assert route(routing, 2, 0) == ["h2>h1", "h1>h0"]
    assert route(routing, 0, 12) == ["h0>h4", "h4>h8", "h8>h12"]
    assert route(routing, 12, 0) == ["h12>h8", "h8>h4", "h4>h0"]


def test_a_tree_routes_over_the_lowest_common_switch_and_divides_its_uplinks() -> None:
    names = hosts(4)
    racks = (Box("rack0", ("h0", "h1")), Box("rack1", ("h2", "h3"), bandwidth_gb_s=7.0))
    routing = Tree((*racks, Box("spine", (), ("rack0", "rack1"))), bandwidth_gb_s=10.0, oversubscription=4.0).routing(
        names
    )
    assert route(routing, 0, 1) == ["h0>rack0", "rack0>h1"]
    assert route(routing, 0, 3) == ["h0>rack0", "rack0>spine", "spine>rack1", "rack1>h3"]
    bandwidths = {link.name: link.bandwidth for link in routing.links}
    assert bandwidths["rack0>spine"] == bandwidths["spine>rack0"] == 5e9  # 2 x 10, oversubscribed 4 times
    assert bandwidths["spine>rack1"] == 7e9


def test_latencies_add_up_along_a_path() -> None:
    routing = Torus((8,), 1.0, latency_s=0.25).routing(hosts(8))
    assert routing.latency_s(routing.paths(0, 3)[0]) == 0.75


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: FatTree((2, 2), (1, 1), (1, 1)).routing(hosts(5)), "the topology has 4 hosts, but the cluster has 5"),
        (lambda: FatTree((2,), (1, 2), (1,)), "fat_tree: down, up and count must have one number per level"),
        (lambda: FatTree((0,), (1,), (1,)), "fat_tree: down of level 1 must be a whole number of at least 1, got 0"),
        (lambda: Torus((4,)).routing(hosts(3)), "torus: the topology has 4 hosts, but the cluster has 3 nodes"),
        (lambda: Torus(()), "torus: dimensions must have at least one number"),
        (lambda: Torus((4,), 0.0), r"torus: bandwidth_gb_s must be positive, got 0\.0"),
        (lambda: Island(8, 48.0, -1.0), r"island: latency_s must be 0 or more, got -1\.0"),
        (lambda: Island(0), "island: rails must be a whole number of at least 1, got 0"),
        (lambda: Dragonfly(5, 2, 2, 1), "routers per group must be at least the number of groups, 5, got 4"),
        (lambda: Dragonfly(2, 1, 2, 1).routing(hosts(5)), "dragonfly: the topology has 4 hosts, but the cluster has 5"),
        (lambda: Explicit((Cable("l", 0.0),), ()), "explicit: link 'l': bandwidth_gb_s must be positive"),
        (lambda: Explicit((), (Route("h0", "x", ()),)).routing(hosts(1)), "to 'x': the cluster has no node 'x'"),
        (lambda: Explicit((), (Route("h0", "h1", ("l",)),)).routing(hosts(2)), "to 'h1': there is no link 'l'"),
        (lambda: Explicit((Cable("l", 1.0),), (Route("h0", "h1", ("l", "l")),)).routing(hosts(2)), "occurs twice"),
        (
            lambda: Explicit((Cable("l", 1.0),), (Route("h0", "h1", ("l",)),)).routing(hosts(2)),
            "explicit: there is no route from 'h1' to 'h0'",
        ),
        (lambda: Tree((Box("s", ("h0",)),)).routing(hosts(2)), "tree: node 'h1' is not below any switch"),
        (lambda: Tree((Box("s", ("x",)),)).routing(hosts(1)), "switch 's' names the node 'x', which does not exist"),
        (lambda: Tree((Box("s", (), ("t",)),)).routing([]), "tree: switch 's' names the switch 't'"),
        (lambda: Tree((Box("s", ("h0",)), Box("t", ("h0",)))).routing(hosts(1)), "'t' names 'h0', which is below 's'"),
        (lambda: Tree((Box("s", ("h0",)), Box("t"))).routing(hosts(1)), "one switch above all others, got s, t"),
        (lambda: Tree((Box("s"), Box("s"))).routing([]), "tree: switch 's' has the name of another switch"),
        (
            lambda: Tree((Box("r", ("h0",)), Box("s", (), ("t",)), Box("t", (), ("s",)))).routing(hosts(1)),
            "tree: switch 's' is below itself",
        ),
        (lambda: Tree((Box("h0", ("h0",)),)).routing(hosts(1)), "tree: switch 'h0' has the name of a node"),
        (lambda: Explicit((Cable("l", 1.0), Cable("l", 2.0)), ()), "explicit: two links are called 'l'"),
        (lambda: Explicit((), (Route("h0", "h0", ()),)).routing(hosts(1)), "to 'h0': a node needs no route to itself"),
        (lambda: Explicit((), (Route("h0", "h1", ()),) * 2).routing(hosts(2)), "to 'h1': it is given twice"),
        (lambda: Tree((), oversubscription=0.0), "tree: oversubscription must be positive"),
        (lambda: Tree((Box("s", bandwidth_gb_s=-1.0),)), "tree: switch 's': bandwidth_gb_s must be positive"),
    ],
)  # fmt: skip
def test_a_topology_that_does_not_fit_says_why(build: object, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        build()  # type: ignore[operator]


def test_links_have_the_bandwidth_and_latency_of_their_topology() -> None:
    for topology in (Torus((4, 3), 45.0, 2e-6), Island(2, 48.5, 2e-6)):
        links = topology.routing(hosts(12)).links
        assert {(link.bandwidth, link.latency_s) for link in links} == {(topology.bandwidth_gb_s * 1e9, 2e-6)}
