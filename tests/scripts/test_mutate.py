"""``scripts/mutate.py``: the faults that it makes, and that it knows a test that notices from one that does not."""

from __future__ import annotations

import ast
from pathlib import Path

import mutate
import pytest

ROOT = Path(__file__).parents[2]
FILE = "dagsim/module.py"
SOURCE = '''
"""A module."""
LIMIT: int = 3

def f(a: int, b: int = 2) -> int:
    """Its docstring."""
    if a < b and not a:
        return min(a, b) + 1
    raise ValueError(f"{a + 1}")
'''


def test_every_place_is_found_and_what_only_speaks_is_left_out() -> None:
    changes = [site.what for site in mutate.sites(ast.parse(SOURCE))]
    assert changes == [
        "3 -> 4",
        "2 -> 3",
        "condition reversed",
        "And -> Or",
        "Lt -> LtE",
        "not dropped",
        "Add -> Sub",
        "min -> max",
        "1 -> 2",
    ]


def test_a_mutant_is_the_module_with_one_change() -> None:
    mutants = [ast.unparse(mutate.mutated(SOURCE, number)) for number in range(9)]
    whole = ast.unparse(ast.parse(SOURCE))
    assert len({whole, *mutants}) == 10
    assert "if a <= b and (not a)" in mutants[4]
    assert "return max(a, b) + 1" in mutants[7]


def test_names_of_fields_are_changed_where_they_are_asked_for() -> None:
    source = 'def f(row):\n    return row["plan cpu"] * 100 if row else row[0] + 1\n'
    strings = [site.what for site in mutate.sites(ast.parse(source), strings=True)]
    assert strings == [
        *("condition reversed", "Mult -> Div", "'plan cpu' -> 'plan cpux'", "100 -> 101"),
        *("Add -> Sub", "0 -> 1", "1 -> 2"),
    ]
    assert len(mutate.sites(ast.parse(source))) == len(strings) - 1


def test_every_module_is_in_one_group_and_no_group_is_empty() -> None:
    files = [file for group in mutate.GROUPS for file in mutate.files_of(group)]
    assert sorted(files) == sorted(str(path.relative_to(ROOT)) for path in (ROOT / "dagsim").rglob("*.py"))
    assert all(mutate.files_of(group) for group in mutate.GROUPS)


def test_the_same_seed_draws_the_same_mutants() -> None:
    groups = ["metrics", "ramp"]
    mutants = mutate.drawn(60, 0, groups)
    assert len({mutant.name for mutant in mutants}) == 60
    assert {mutant.group for mutant in mutants} == set(groups)
    assert mutants == mutate.drawn(60, 0, groups) != mutate.drawn(60, 1, groups)


def test_a_draw_over_modules_takes_one_place_of_each_and_small_modules_as_often_as_large_ones() -> None:
    files = list(dict.fromkeys(place.file for place in mutate.places("metrics")))
    assert sorted(mutant.file for mutant in mutate.drawn(len(files), 0, ["metrics"], "modules")) == sorted(files)
    assert len({mutate.drawn(1, seed, ["metrics"], "modules")[0].file for seed in range(200)}) > 0.9 * len(files)


def test_a_fork_tells_what_became_of_the_tests() -> None:
    def endless() -> tuple[int, str]:
        while True:
            pass

    assert mutate.run(lambda: (0, ""), 10).end == "survived"
    assert mutate.run(lambda: (1, "test_x"), 10)[::2] == ("caught", "test_x")
    assert mutate.run(lambda: 1 // 0, 10)[::2] == ("caught", "ZeroDivisionError: integer division or modulo by zero")
    assert mutate.run(endless, 1).end == "ran too long"


def test_a_mutant_that_no_test_runs_survives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutate, "_put_in_place", lambda mutant: None)
    plugin = mutate.InPlace({}, mutate.Reach({}, {}), print)
    assert plugin._run([], mutate.Mutant("rest", "dagsim/seeds.py", 0, 1, 0, "")) == (0, "")


def test_code_is_changed_in_place_where_one_function_differs() -> None:
    whole = compile(SOURCE, "m.py", "exec")
    inside = mutate._changed(whole, compile(mutate.mutated(SOURCE, 4), "m.py", "exec"))
    assert [code.co_name for code in inside] == ["f"]
    assert mutate._changed(whole, compile(mutate.mutated(SOURCE, 0), "m.py", "exec")) is None
    assert mutate._changed(whole, compile(mutate.mutated(SOURCE, 1), "m.py", "exec")) is None


def test_a_mutant_is_shown_to_the_tests_that_run_its_block_the_quick_ones_first(tmp_path: Path, monkeypatch) -> None:
    write(tmp_path, monkeypatch, SOURCE)
    seconds = {"a::slow": 9.0, "a::quick": 1.0, "a::beside": 0.1, "b::elsewhere": 0.1}
    reach = mutate.Reach(seconds, {FILE: {8: ["a::slow", "a::quick"], 9: ["b::elsewhere", "b::fails"]}})
    mutant = mutate.Mutant("rest", FILE, 0, 8, 0, "")
    assert reach.chosen(mutant, 100, inside=True) == ["a::quick", "a::slow", "a::beside"]
    assert reach.chosen(mutant, 5, inside=True) == ["a::quick"]
    assert reach.chosen(mutant._replace(line=9), 100, inside=True) == ["b::elsewhere"]
    assert reach.limit_s("a::slow") > 36 > reach.limit_s("a::quick")
    # tests beside the module come before quicker ones elsewhere
    near = {"tests/test_a.py::quick": 0.1, "tests/test_module.py::slow": 1.0}
    assert (
        mutate.Reach(near, {FILE: {8: list(near)}}).chosen(mutant, 100, inside=True)[0] == "tests/test_module.py::slow"
    )
    # A constant is judged by the tests that run a line with its name, then by those that run any line of its file.
    monkeypatch.setattr(mutate, "_package", lambda: (FILE,))
    constant = mutant._replace(line=3)
    assert reach.chosen(constant, 100, inside=False) == ["b::elsewhere", "a::quick", "a::slow"]
    write(tmp_path, monkeypatch, SOURCE.replace("+ 1\n", "+ LIMIT\n"))
    assert reach.chosen(constant, 100, inside=False) == ["a::quick", "a::slow", "a::beside", "b::elsewhere"]


def test_a_probe_is_in_each_block_and_a_block_starts_after_each_statement_that_may_not_go_on(
    tmp_path: Path, monkeypatch
) -> None:
    write(tmp_path, monkeypatch, SOURCE)
    assert mutate.blocks_of(FILE) == {6: 6, 7: 7, 8: 8, 9: 9}
    suites = list(mutate._suites(ast.parse(SOURCE)))
    assert [[suite[start].lineno for start in mutate._starts(suite)] for suite in suites] == [[7, 9], [8]]


def test_blocks_are_found_again_after_an_edit(tmp_path: Path, monkeypatch) -> None:
    write(tmp_path, monkeypatch, SOURCE)
    old = tmp_path / "old"
    old.write_text(SOURCE)
    record = {"tests": ["t::one"], "cpu_s": {"t::one": 1.0}, "lines": {FILE: ["old", {"7": [0], "8": [0]}]}}
    write(tmp_path, monkeypatch, SOURCE.replace("LIMIT: int = 3", "LIMIT: int = 3\nMORE = 4"))
    reach = mutate.Reach({}, {})
    reach.add(record, tmp_path)
    assert reach.lines == {FILE: {8: {"t::one"}, 9: {"t::one"}}}
    assert reach.running(FILE, [9]) == {"t::one"}


def write(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    """Make a package of one module, and let the tool work there."""
    monkeypatch.setattr(mutate, "ROOT", folder)
    (folder / FILE).parent.mkdir(exist_ok=True)
    (folder / FILE).write_text(source)
    mutate.blocks_of.cache_clear()
    mutate._lines_with.cache_clear()
    mutate._moves.cache_clear()
