"""``scripts/mutate.py``: the faults that it makes, and that it knows a test that notices from one that does not."""

from __future__ import annotations

import ast
from pathlib import Path

import mutate
import pytest

ROOT = Path(__file__).parent.parent
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
    found = [site.what for site in mutate.sites(ast.parse(SOURCE))]
    assert found == [
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
    made = [ast.unparse(mutate.mutated(SOURCE, number)) for number in range(9)]
    whole = ast.unparse(ast.parse(SOURCE))
    assert len({whole, *made}) == 10
    assert "if a <= b and (not a)" in made[4]
    assert "return max(a, b) + 1" in made[7]


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


def test_the_closest_test_files_judge_a_module(tmp_path: Path) -> None:
    files = {
        "dagsim/orders/__init__.py": 'from dagsim.orders.queue import Queue\nTABLE = {"las": ".least:Las"}\n',
        "dagsim/orders/queue.py": "",
        "dagsim/orders/least.py": "from dagsim.orders.queue import Queue\n",
        "tests/test_names_it.py": "from dagsim.orders import Queue\n",
        "tests/test_one_more.py": "from dagsim.orders.least import Las\n",
        "tests/test_by_registry.py": "import dagsim.orders\n",
        "tests/test_unrelated.py": "import json\n",
        "tests/orders/test_same_folder.py": "import json\n",
    }
    for file, text in files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    related = mutate.Related(tmp_path)
    assert related.nearest("dagsim/orders/queue.py", 2) == ["tests/test_names_it.py", "tests/test_by_registry.py"]
    assert related.nearest("dagsim/orders/least.py", 3) == [
        *("tests/test_one_more.py", "tests/test_by_registry.py", "tests/orders/test_same_folder.py")
    ]


def test_a_fork_tells_what_became_of_the_tests() -> None:
    def endless() -> tuple[int, str]:
        while True:
            pass

    assert mutate.run(lambda: (0, ""), 10).end == "survived"
    assert mutate.run(lambda: (1, "test_x"), 10)[::2] == ("caught", "test_x")
    assert mutate.run(lambda: 1 // 0, 10)[::2] == ("caught", "ZeroDivisionError: integer division or modulo by zero")
    assert mutate.run(endless, 1).end == "ran too long"


def test_a_mutant_that_no_test_runs_survives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutate, "_put_in_place", lambda mutant: None)
    plugin = mutate.InPlace([], {}, print, tmp_path / "reach.json")
    mutant = mutate.Mutant("rest", "dagsim/seeds.py", 0, 1, 0, "")
    assert plugin._run([], mutant, mutate.Reach()) == (0, "")


def test_code_is_changed_in_place_where_one_function_differs() -> None:
    whole = compile(SOURCE, "m.py", "exec")
    inside = mutate._changed(whole, compile(mutate.mutated(SOURCE, 4), "m.py", "exec"))
    assert [code.co_name for code in inside] == ["f"]
    assert mutate._changed(whole, compile(mutate.mutated(SOURCE, 0), "m.py", "exec")) is None
    assert mutate._changed(whole, compile(mutate.mutated(SOURCE, 1), "m.py", "exec")) is None


def test_a_mutant_is_shown_to_the_tests_that_run_its_statement_the_quick_ones_first() -> None:
    assert mutate._statement(SOURCE, 8) == {8}
    assert mutate._statement(SOURCE.replace("a < b and", "a < b\\\n and"), 8) == {7, 8}  # the head of the ``if``
    file = "dagsim/seeds.py"
    body = next(node for node in ast.parse((ROOT / file).read_text()).body if isinstance(node, ast.FunctionDef)).body
    line = body[-1].lineno
    seconds = {"a::slow": 9.0, "a::quick": 1.0, "a::beside": 0.1, "b::elsewhere": 0.1}
    reach = mutate.Reach(seconds, {file: {line: ["a::slow", "a::quick"]}})
    mutant = mutate.Mutant("rest", file, 0, line, 0, "")
    assert reach.ranked(list(seconds), mutant, inside=True) == ["a::quick", "a::slow", "a::beside"]
    assert reach.ranked(list(seconds), mutant, inside=False)[:2] == ["a::quick", "a::slow"]
    assert reach.limit_s("a::slow") > 36 > reach.limit_s("a::quick")
