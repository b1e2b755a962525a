"""When flows that share links arrive: ``python scripts/validate_network.py --scenario FILE [--json]``.

``FILE`` is JSON. ``links``: id, bandwidth (bytes/s), latency_s, and perhaps profile, a list of [time_s, bandwidth].
``flows``: id, bytes, route (ids of links), start_s, and perhaps after (ids of flows that must have arrived) and
rate_cap (bytes/s). Where a flow has ``expected_finish_s``, the largest relative difference is printed too, and the exit
status is 1 if it is above 1e-9. The flows are SimPy processes on the carrier that the simulator uses.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from math import inf
from pathlib import Path
from typing import Any

import command
from simpy.events import AllOf, Event

from dagsim.errors import ConfigError
from dagsim.families.fabric.shared_network import SharedCarrier
from dagsim.families.fabric.topologies import Link, LinkFlow, Routing
from dagsim.systems.cluster.clock import Clock, Timer


def check(scenario: Any) -> None:
    """Check the links and flows of a scenario.

    Raises:
        ConfigError: One is wrong; the message names it.
    """
    if not isinstance(scenario, dict) or not all(isinstance(scenario.get(key), list) for key in ("links", "flows")):
        raise ConfigError("should be an object with the lists links and flows")
    ids: dict[str, set[str]] = {"link": set(), "flow": set()}
    listed = [("link", "bandwidth", link) for link in scenario["links"]]
    for kind, size, part in (*listed, *(("flow", "bytes", flow) for flow in scenario["flows"])):
        name = part.get("id") if isinstance(part, dict) else part
        where = f"{kind} {name!r}"
        if not isinstance(part, dict) or not isinstance(name, str) or name in ids[kind]:
            raise ConfigError(f"{where}: each needs an id of its own")
        ids[kind].add(name)
        for key in (size, "latency_s", "start_s", "rate_cap"):
            value = part.get(key) if key == size else part.get(key) or 0
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < inf:
                raise ConfigError(f"{where}: {key} must be a number of 0 or more, got {value!r}")
            if value == 0 and (
                (key == "bandwidth" and not part.get("profile")) or (key == "rate_cap" and part.get(key) is not None)
            ):
                raise ConfigError(f"{where}: {key} must be positive, got {value!r}")
        for step in part.get("profile") or ():
            if not (isinstance(step, list) and len(step) == 2 and all(isinstance(n, int | float) for n in step)):
                raise ConfigError(f"{where}: profile should be a list of [time_s, bandwidth], got {step!r}")
    for flow in scenario["flows"]:
        route = flow.get("route")
        if not isinstance(route, list) or len(set(map(str, route))) < len(route):
            raise ConfigError(f"flow {flow['id']!r}: route should be a list of links, none twice, got {route!r}")
        for name, kind in [*((name, "link") for name in route), *((name, "flow") for name in flow.get("after") or ())]:
            if name not in ids[kind]:
                raise ConfigError(f"flow {flow['id']!r} names {name!r}, which does not exist")


def finishes(scenario: Mapping[str, Any]) -> dict[str, float]:
    """Seconds at which each flow has arrived, by id."""
    check(scenario)
    clock = Clock()
    number = {link["id"]: place for place, link in enumerate(scenario["links"])}
    links = [Link(link["id"], link["bandwidth"], link.get("latency_s", 0.0)) for link in scenario["links"]]
    carrier = SharedCarrier(clock, Routing(0, links, lambda source, destination: ()))
    arrived: dict[str, Event] = {flow["id"]: Event(clock) for flow in scenario["flows"]}
    finish_s: dict[str, float] = {}

    def send(flow: Mapping[str, Any]) -> Generator[Event, object, None]:
        if flow.get("after"):
            yield AllOf(clock, [arrived[name] for name in flow["after"]])
        if flow.get("start_s", 0.0) > clock.now:
            yield Timer(clock, flow["start_s"])
        part = LinkFlow([number[link] for link in flow["route"]], flow["bytes"], flow.get("rate_cap") or inf)
        yield from carrier.carry([part])
        finish_s[flow["id"]] = clock.now
        arrived[flow["id"]].succeed()

    def change(link: Mapping[str, Any]) -> Generator[Event, object, None]:
        for time_s, bandwidth in link.get("profile") or ():
            yield Timer(clock, time_s)
            carrier.set_bandwidth(number[link["id"]], bandwidth)

    for link in scenario["links"]:
        clock.process(change(link))
    for flow in scenario["flows"]:
        clock.process(send(flow))
    while clock.scheduled():
        clock.settle()
    if len(finish_s) < len(arrived):
        raise ConfigError(f"these flows never arrive: {', '.join(name for name in arrived if name not in finish_s)}")
    return finish_s


def worst(scenario: Mapping[str, Any], finish_s: Mapping[str, float]) -> float | None:
    """Largest relative difference from the expected times; None if there are none."""
    expected = {flow["id"]: flow["expected_finish_s"] for flow in scenario["flows"] if "expected_finish_s" in flow}
    return max(
        [abs(finish_s.get(name, inf) - time_s) / (time_s or 1) for name, time_s in expected.items()], default=None
    )


def _work(options: command.Options, say: command.Say) -> dict[str, Any]:
    scenario = command.read_json(options.scenario)
    try:
        finish_s = finishes(scenario)
    except ConfigError as error:
        raise ConfigError(f"{options.scenario}: {error}") from None
    result = {"flows": finish_s, "worst": worst(scenario, finish_s)}
    say(result)
    return result


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--scenario", type=Path, required=True, help="links, routes and flows as JSON")
    return command.run(parser, _work, lambda value: value["worst"] is None or value["worst"] <= 1e-9)


if __name__ == "__main__":
    raise SystemExit(main())
