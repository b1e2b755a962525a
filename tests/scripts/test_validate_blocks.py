"""Occupancy of block scheduling beside naive packing, on a small cluster."""

from __future__ import annotations

from importlib import import_module

import pytest

script = import_module("validate_blocks")


def test_blocks_have_eighteen_nodes_and_the_last_one_the_rest() -> None:
    cluster, network = script.blocks(40)
    (level,) = network.levels([node.name for node in cluster.nodes])
    assert level.name == "block"
    assert [level.domains.count(domain) for domain in dict.fromkeys(level.domains)] == [18, 18, 4]


def test_segments_of_sixteen_cannot_use_two_of_eighteen_nodes_and_mixed_jobs_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(script.MIXES, "mixed", {1: 0.6, 2: 0.2, 8: 0.1, 16: 0.1})
    monkeypatch.setitem(script.MIXES, "large", {16: 1.0})
    shares = {(mix, way): script.occupancy(mix, way, 144, 300) for mix in script.MIXES for way in script.POLICY}
    assert shares["large", "block"] == pytest.approx(16 / 18)
    assert shares["large", "naive"] == pytest.approx(1)  # 144 is a multiple of 16
    assert shares["mixed", "block"] > 0.99 * shares["mixed", "naive"]
