"""``scripts/mutate.py``: the faults that it makes, and that it knows a test that notices from one that does not."""

from __future__ import annotations

import ast
from pathlib import Path

import mutate

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


def test_fields_are_names_and_units_only() -> None:
    source = 'def f(row):\n    return row["plan cpu"] * 100 if row else row[0] + 1\n'
    found = [site.what for site in mutate.sites(ast.parse(source), fields=True)]
    assert found == ["Mult -> Div", "'plan cpu' -> 'plan cpux'", "100 -> 101", "0 -> 1", "1 -> 2"]


def test_the_same_seed_draws_the_same_three_hundred() -> None:
    drawn = mutate.drawn(300, 0, list(mutate.GROUPS))
    assert len(drawn) == 300 == len({mutant.name for mutant in drawn})
    assert drawn == mutate.drawn(300, 0, list(mutate.GROUPS))
    assert {mutant.name for mutant in drawn} != {m.name for m in mutate.drawn(300, 1, list(mutate.GROUPS))}


def test_a_fork_tells_what_became_of_the_tests() -> None:
    def endless() -> tuple[int, str]:
        while True:
            pass

    assert mutate.run(lambda: (0, ""), 10).outcome == "survived"
    assert mutate.run(lambda: (1, "test_x"), 10)[::2] == ("caught", "test_x")
    assert mutate.run(lambda: 1 // 0, 10).outcome == "caught"
    assert mutate.run(endless, 1).outcome == "ran too long"


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
    mutant = mutate.Mutant("choice", file, 0, line, 0, "")
    assert reach.ranked(list(seconds), mutant, inside=True) == ["a::quick", "a::slow", "a::beside"]
    assert reach.ranked(list(seconds), mutant, inside=False)[:2] == ["a::quick", "a::slow"]
    assert reach.limit_s("a::slow") > 36 > reach.limit_s("a::quick")
