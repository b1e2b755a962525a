"""``scripts/which_tests.py`` names the tests that run a line."""

from __future__ import annotations

import mutate
import which_tests

FILE = "dagsim/metrics/jct.py"


def test_tests_of_a_line_come_by_folder_then_by_time() -> None:
    first, *_, last = sorted(set(mutate.blocks_of(FILE).values()))
    seconds = {
        "tests/metrics/test_jct.py::a": 2.0,
        "tests/metrics/test_sums.py::b": 1.0,
        "tests/cli/test_c.py::c": 0.1,
    }
    reach = mutate.Reach(seconds, {FILE: {first: list(seconds), last: ["tests/cli/test_c.py::c"]}})
    assert which_tests.tests_of(reach, f"{FILE}:{last}") == ["tests/cli/test_c.py::c"]
    assert which_tests.tests_of(reach, FILE) == list(seconds)
    assert which_tests.tests_of(reach, "dagsim/registry.py:1") == []
