"""Links that flows share max-min fairly: the rate of a flow cannot rise unless the rate of another
flow, whose rate is the same or lower, falls.

The rates of a set of flows are found by progressive filling (Bertsekas and Gallager, *Data
Networks*, section 6.5.2): the link with the smallest fair share determines the rates of its flows,
and the other flows share the remaining bandwidth. Rates are max-min fair if and only if every flow
has a *bottleneck*: a full link on which no flow is faster. After a change, only flows that have
lost their bottleneck need new rates. ``SharedLinks`` examines no other flows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from math import inf
from operator import attrgetter

from dagsim.model.arithmetic import ordered_sum, whole_sum

_ROUNDING = 1e-12
"""Relative difference below which two rates count as equal."""
_TINY = 1e-300
_CAP = -1
"""Stands for the bottleneck of a flow that is limited by its own cap."""


class LinkFlow:
    """Bytes in transit over links."""

    __slots__ = (
        "bottleneck", "bytes_left", "cap", "ends_s", "next_rate", "number", "rate", "route", "since_s", "weights"
    )  # fmt: skip

    def __init__(
        self, route: Iterable[int], size: float, cap: float = inf, weights: Mapping[int, int] | None = None
    ) -> None:
        """Describe a flow.

        Args:
            route: Numbers of the links, without duplicates.
            size: Bytes, or ``inf`` for a flow that continues until it is stopped.
            cap: Upper limit of the rate, in bytes per second.
            weights: Number of equal streams on each link of the route. All streams have the same
                rate, and ``rate`` is the rate of one stream. None means one stream on each link.
        """
        self.route = tuple(route)
        self.weights = weights
        self.bytes_left = max(size, _TINY)
        """Bytes that were left at ``since_s``; 0 once the flow has arrived."""
        self.cap = cap
        self.rate = 0.0
        """Bytes per second since ``since_s``."""
        self.next_rate = 0.0
        """The rate that is being computed; between updates, it equals ``rate``."""
        self.since_s = -1.0
        """Time of the last rate change; before the first, the time of the start, -1 if unknown."""
        self.ends_s = inf
        """Time in seconds at which the flow ends if its rate does not change."""
        self.number = -1
        """Position in the order in which flows started, or -1 before."""
        self.bottleneck = _CAP

    @property
    def arrived(self) -> bool:
        """True once all bytes have arrived."""
        return self.number >= 0 and not self.bytes_left

    def left(self, now: float) -> float:
        """Return the bytes that have not arrived by ``now``, at the current rate."""
        if self.arrived:
            return 0.0
        return self.bytes_left if self.number < 0 else max(self.bytes_left - self.rate * (now - self.since_s), 0.0)

    def copy(self) -> LinkFlow:
        twin = LinkFlow.__new__(LinkFlow)
        for name in LinkFlow.__slots__:
            setattr(twin, name, getattr(self, name))
        return twin


class SharedLinks:
    """The current flows on links with the given ``bandwidths`` (bytes per second)."""

    def __init__(self, bandwidths: Sequence[float]) -> None:
        self._bandwidths = list(bandwidths)
        self._on: list[dict[LinkFlow, None]] = [{} for _ in bandwidths]
        self._changed: dict[int, None] = {}
        """Links whose flows or bandwidth have changed since the last update."""
        self._alone: list[LinkFlow] = []
        """New flows that use no link."""
        self._ends: list[tuple[float, int, int, LinkFlow]] = []
        """Expected ends; an entry is outdated if its flow now has a different end."""
        self._expected = 0
        self._started = 0

    def start(self, flow: LinkFlow, now: float) -> None:
        """Add ``flow`` to its links from time ``now`` onwards. The next call of ``update`` sets its
        rate.
        """
        flow.number = self._started
        self._started += 1
        flow.since_s = now
        for link in flow.route:
            self._on[link][flow] = None
            self._changed[link] = None
        if not flow.route:
            self._alone.append(flow)

    def adopt(self, flow: LinkFlow) -> None:
        """Add a copy of a flow in progress, without changing its rate. The flows on each link stay
        in the order in which they started, because floating-point sums depend on the order of their
        terms.
        """
        self._started = max(self._started, flow.number + 1)
        for link in flow.route:
            flows = self._on[link]
            flows[flow] = None
            self._on[link] = dict.fromkeys(sorted(flows, key=_number))
        self._expect(flow)

    def without_flows(self) -> SharedLinks:
        """Return a copy of the links that has the pending changes but no flows. Copies of the flows
        can be added to it.
        """
        twin = SharedLinks(self._bandwidths)
        twin._changed = dict(self._changed)
        return twin

    def copy(self) -> SharedLinks:
        """Return a copy of the links with copies of the current flows."""
        twin = self.without_flows()
        twins = {flow: flow.copy() for flows in self._on for flow in flows}
        twin._on = [{twins[flow]: None for flow in flows} for flows in self._on]
        twin._started = self._started
        for flow in twins.values():
            twin._expect(flow)
        return twin

    def stop(self, flow: LinkFlow) -> None:
        """Remove ``flow`` from its links, whether it has finished or not."""
        flow.ends_s = inf
        for link in flow.route:
            del self._on[link][flow]
        self.touch(flow.route)

    def touch(self, links: Iterable[int]) -> None:
        """Make the next update recompute the rates on ``links``."""
        self._changed.update(dict.fromkeys(links))

    def set_bandwidth(self, link: int, bandwidth: float) -> None:
        """Change the bandwidth of a link while flows use it."""
        self._bandwidths[link] = bandwidth
        self._changed[link] = None

    def update(self, now: float) -> list[LinkFlow]:
        """Set the rates and ends of all flows that are affected by the changes since the last call.
        Return the flows whose rates have changed, in the order in which they started.
        """
        others = []
        for flow in self._alone:
            flow.next_rate = flow.cap
            self._set(flow, flow.cap, now)
        self._alone.clear()
        if self._changed:
            for flow in self._affected():
                if flow.next_rate != flow.rate:
                    self._set(flow, flow.next_rate, now)
                    others.append(flow)
            self._changed.clear()
            others.sort(key=_number)
        return others

    def rate_of(self, flow: LinkFlow) -> float:
        """Return the rate in bytes per second that a flow would have if it started next to the
        current flows, after the pending changes. Nothing is changed."""
        if not flow.route:
            return flow.cap
        before, changed = flow.number, self._changed
        flow.number, self._changed = self._started, changed | dict.fromkeys(flow.route)
        for link in flow.route:
            self._on[link][flow] = None
        bottlenecks = {other: other.bottleneck for links in self._on for other in links}
        affected = self._affected()
        rate = flow.next_rate
        for other in affected:
            other.next_rate, other.bottleneck = other.rate, bottlenecks[other]
        for link in flow.route:
            del self._on[link][flow]
        flow.number, self._changed = before, changed
        return rate

    def next_end_s(self) -> float:
        """Return the time at which the next flow ends, or ``inf`` if no flow will end."""
        ends = self._ends
        while ends and ends[0][0] != ends[0][3].ends_s:
            heappop(ends)
        return ends[0][0] if ends else inf

    def ended(self, now: float) -> list[LinkFlow]:
        """Stop the flows that have ended by ``now`` and return them in the order of their ends."""
        flows = []
        while self.next_end_s() <= now:
            flow = heappop(self._ends)[3]
            self.stop(flow)
            flow.bytes_left = 0.0
            flows.append(flow)
        return flows

    def load(self, link: int) -> float:
        """Return the bytes per second that cross a link."""
        return ordered_sum([flow.rate * _streams(flow, link) for flow in self._on[link]])

    def _set(self, flow: LinkFlow, rate: float, now: float) -> None:
        if flow.rate:
            # Never set this to 0, because only ``ended`` may decide that a flow is complete.
            flow.bytes_left = max(flow.bytes_left - flow.rate * (now - flow.since_s), _TINY)
        flow.rate, flow.since_s = rate, now
        flow.ends_s = now + flow.bytes_left / rate if rate else inf
        self._expect(flow)

    def _expect(self, flow: LinkFlow) -> None:
        if flow.ends_s < inf:
            self._expected += 1
            heappush(self._ends, (flow.ends_s, flow.number, self._expected, flow))

    def _affected(self) -> dict[LinkFlow, None]:
        """Set ``next_rate`` of the flows on changed links, and of as many other flows as necessary."""
        affected = {flow: None for link in self._changed for flow in self._on[link]}
        while True:
            more = self._unsettled(self._fill(affected))
            if not more:
                return affected
            affected.update(more)

    def _fill(self, affected: dict[LinkFlow, None]) -> dict[int, list[LinkFlow]]:
        """Set the max-min rates of the ``affected`` flows, which share the capacity that is left by
        all other flows. Return the affected flows on each link."""
        flows = sorted(affected, key=_number)
        links: dict[int, list[LinkFlow]] = {}
        for flow in flows:
            flow.next_rate = -1.0
            for link in flow.route:
                if link in links:
                    links[link].append(flow)
                else:
                    links[link] = [flow]
        capped = sorted([(flow.cap, flow.number, flow) for flow in flows if flow.cap < inf], reverse=True)
        weighted = any(flow.weights is not None for flow in flows)
        free: dict[int, float] = {}
        counts: dict[int, int] = {}
        """Streams without a rate yet."""
        heap: list[tuple[float, int]] = []
        for link, sharing in links.items():
            alone = len(sharing) == len(self._on[link])
            left = self._bandwidths[link] if alone else self._left_by_others(link, affected)
            free[link] = left = left if left > 0 else 0.0
            # this sum is exact, because the numbers are whole
            count = whole_sum([_streams(flow, link) for flow in sharing]) if weighted else len(sharing)
            counts[link] = count
            heap.append((left / count, link))
        heapify(heap)
        remaining = len(affected)
        while remaining:
            rate, bottleneck = heap[0]
            if capped and capped[-1][0] <= rate:
                rate, _, flow = capped.pop()
                fixed, bottleneck = [flow] if flow.next_rate < 0 else [], _CAP
            else:
                count = counts[bottleneck]
                if not count:
                    heappop(heap)
                    continue
                share = free[bottleneck] / count
                if share != rate:
                    heapreplace(heap, (share, bottleneck))
                    continue
                fixed = [flow for flow in links[bottleneck] if flow.next_rate < 0]
            remaining -= len(fixed)
            for flow in fixed:
                flow.next_rate, flow.bottleneck = rate, bottleneck
                if flow.weights is None:
                    for link in flow.route:
                        counts[link] -= 1
                        left = free[link] - rate
                        free[link] = left if left > 0 else 0.0
                else:
                    for link, streams in flow.weights.items():
                        counts[link] -= streams
                        left = free[link] - rate * streams
                        free[link] = left if left > 0 else 0.0
        return links

    def _left_by_others(self, link: int, affected: dict[LinkFlow, None]) -> float:
        """Return the capacity of a link that is left by its unaffected flows."""
        left = self._bandwidths[link]
        for other in self._on[link]:
            if other not in affected:
                left -= other.rate if other.weights is None else other.rate * other.weights[link]
        return left

    def _unsettled(self, links: dict[int, list[LinkFlow]]) -> dict[LinkFlow, None]:
        """Return flows that were not in the last ``_fill`` but lost their bottleneck in it, or that
        are faster than a flow whose bottleneck is a common link."""
        more: dict[LinkFlow, None] = {}
        for link, filled in links.items():
            flows = self._on[link]
            if len(filled) == len(flows):
                continue
            high, low, full = inf, 0.0, None
            for flow in filled:
                rate = flow.next_rate
                if rate > low:
                    low = rate
                if rate < high and flow.bottleneck == link:
                    high = rate
            high, low = high * (1 + _ROUNDING), low * (1 - _ROUNDING)
            for flow in flows:
                rate = flow.next_rate
                if rate > high:
                    more[flow] = None
                elif flow.bottleneck == link:
                    if full is None:
                        used = ordered_sum(
                            [
                                flow.next_rate if flow.weights is None else flow.next_rate * flow.weights[link]
                                for flow in flows
                            ]
                        )
                        full = used >= self._bandwidths[link] * (1 - _ROUNDING)
                    if not full or rate < low:
                        more[flow] = None
            for flow in filled:
                more.pop(flow, None)
        return more


def _streams(flow: LinkFlow, link: int) -> int:
    return 1 if flow.weights is None else flow.weights[link]


_number = attrgetter("number")
