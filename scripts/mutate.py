"""Put faults into dagsim, one at a time, and see which the tests notice: ``python scripts/mutate.py [--mutants 300]``.

Mutants are drawn at random, with a fixed seed, over the kernel of the GPU cluster, the metrics, the choice of
references and seeds, the field maps of the readers and the losses of learning; so many of each group, evenly over all
places in its files that an operator fits (``OPERATORS``). Each is run, in a process of its own, against the tests of
its group (``GROUPS``), the quick ones first and up to the first that fails. A mutant is *caught* if a test fails, the
module cannot be imported, or the tests take ten times the processor time that they take without it. First the tests run
without a mutant: they must pass.

mutmut and cosmic-ray start a process and import everything anew for each mutant, some five seconds; this forks a
process that holds the foreign libraries already. Files are never changed: the mutant is compiled in the place of its
module. Survivors are listed with the reason why they live where one stands in ``--reasons`` (``ID: reason`` per line).
"""

from __future__ import annotations

import argparse
import ast
import importlib.machinery
import io
import json
import os
import random
import re
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["GROUPS", "Group", "Mutant", "drawn", "mutated", "sites", "tests_of"]

ROOT = Path(__file__).parents[1]
_PRELOADED = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
REASONS = ROOT / "results" / "validation" / "mutant_reasons.txt"


@dataclass(frozen=True, slots=True)
class Group:
    """Files that mutants are drawn from, their share of 300, and the tests that should notice."""

    files: tuple[str, ...]
    share: int
    tests: tuple[str, ...]
    fields: bool = False
    """Names and numbers only: field maps and units."""


CLUSTER = "dagsim/systems/cluster"
_KERNEL = ("kernel", "state", "nodes", "legality", "jobs", "run", "fork", "stalling", "clock", "view")
_LOSSES = ("ppo", "reinforce", "d3qn", "q_learning", "rainbow", "sac", "policy_gradient", "returns", "replay", "ragged")
GROUPS: dict[str, Group] = {
    "kernel": Group(
        tuple(f"{CLUSTER}/{name}.py" for name in _KERNEL),
        120,
        (
            "tests/systems/cluster/test_worked_examples.py",
            "tests/systems/cluster/test_small_faults.py",
            "tests/systems/cluster/test_departures.py",
            "tests/systems/cluster/test_promises.py",
            "tests/systems/cluster/test_legality.py",
            "tests/systems/cluster/policies/test_placements.py",
            "tests/test_referee.py",
        ),
    ),
    "metrics": Group(("dagsim/metrics/*.py",), 80, ("tests/metrics/test_*.py",)),
    "choice": Group(
        ("dagsim/seeds.py", "dagsim/experiment/training/reference.py", "dagsim/experiment/tune.py"),
        20,
        ("tests/experiment/test_tune.py", "tests/experiment/test_choice.py", "tests/experiment/test_windows.py"),
    ),
    "readers": Group(("dagsim/traces/formats/*.py",), 40, ("tests/traces/formats/test_[!f]*.py",), fields=True),
    "losses": Group(
        tuple(f"dagsim/agents/{name}.py" for name in _LOSSES),
        40,
        (
            "tests/agents/test_losses.py",
            "tests/agents/test_returns.py",
            "tests/agents/test_ragged.py",
            "tests/agents/test_golden.py::test_the_cluster_learns_as_it_did",
            "tests/agents/test_learning.py::test_a_resumed_learner_goes_on_bit_for_bit",
        ),
    ),
}

COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.Pow: ast.Mult,
}
OPERATORS = "a comparison, an operator, and for or, a condition or its opposite, a number, a name, min for max, a call"
SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any"}


class Site(NamedTuple):
    """A place that a mutant can be made at."""

    line: int
    column: int
    what: str
    change: Callable[[], None]


class Mutant(NamedTuple):
    """One fault: the place in a file, and what is changed there."""

    group: str
    file: str
    number: int
    """Of the site in its file."""
    line: int
    column: int
    what: str

    @property
    def name(self) -> str:
        """How it is told: place and change."""
        return f"{self.file}:{self.line}:{self.column} {self.what}"


def sites(tree: ast.Module, *, fields: bool = False) -> list[Site]:
    """Every place of the module that an operator fits, in order."""
    return [site for node in _nodes(tree, fields) for site in _changes(node, fields)]


def _nodes(node: ast.AST, fields: bool) -> Iterator[ast.AST]:
    """All nodes that are worth a change: neither annotations, docstrings, messages, decorators, nor what an assertion
    says."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "msg"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_skipped(child, fields):
                yield from _nodes(child, fields)


def _is_skipped(node: ast.AST, fields: bool) -> bool:
    match node:
        case ast.Raise() | ast.Assert() | ast.Import() | ast.ImportFrom() | ast.JoinedStr():
            return True
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name in ("__all__", "name", "summary", "uses") or name.endswith(("T", "Var"))
        case ast.AnnAssign(annotation=ast.Name(id="TypeAlias")):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
    return False


def _changes(node: Any, fields: bool) -> Iterator[Site]:
    for what, change in _of(node, fields):
        yield Site(node.lineno, node.col_offset, what, change)


def _of(node: ast.AST, fields: bool) -> Iterator[tuple[str, Callable[[], None]]]:
    match node:
        case ast.Constant(value=bool() as value) if not fields:
            yield f"{value} -> {not value}", lambda: setattr(node, "value", not value)
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            yield f"{number} -> {number + 1}", lambda: setattr(node, "value", number + 1)
        case ast.Constant(value=str() as text) if fields and re.fullmatch(r"[A-Za-z_][\w ./-]*", text):
            yield f"{text!r} -> {text + 'x'!r}", lambda: setattr(node, "value", text + "x")
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in COMPUTED:
            if not fields or isinstance(op, ast.Mult | ast.Div):
                other = COMPUTED[type(op)]
                yield f"{type(op).__name__} -> {other.__name__}", lambda: setattr(node, "op", other())
    if not fields:
        yield from _logic(node)


def _logic(node: Any) -> Iterator[tuple[str, Callable[[], None]]]:
    match node:
        case ast.Compare(ops=[op]):
            swapped = COMPARED[type(op)]
            yield f"{type(op).__name__} -> {swapped.__name__}", lambda: setattr(node, "ops", [swapped()])
        case ast.BoolOp(op=op):
            either = ast.Or if isinstance(op, ast.And) else ast.And
            yield f"{type(op).__name__} -> {either.__name__}", lambda: setattr(node, "op", either())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "not dropped", lambda: setattr(node, "operand", ast.UnaryOp(ast.Not(), operand))
        case ast.UnaryOp(op=ast.USub()):
            yield "minus dropped", lambda: setattr(node, "op", ast.UAdd())
        case ast.If(test=test) | ast.IfExp(test=test):
            yield "condition reversed", lambda: setattr(node, "test", ast.UnaryOp(ast.Not(), test))
        case ast.Call(func=ast.Name(id=name)) if name in SWAPPED:
            yield f"{name} -> {SWAPPED[name]}", lambda: setattr(node.func, "id", SWAPPED[name])
        case ast.Expr(value=ast.Call() as call):
            yield f"{ast.unparse(call)[:40]} dropped", lambda: setattr(node, "value", ast.Constant(None))


def mutated(source: str, number: int, *, fields: bool = False) -> ast.Module:
    """The module with its site ``number`` changed."""
    tree = ast.parse(source)
    sites(tree, fields=fields)[number].change()
    return ast.fix_missing_locations(tree)


def tests_of(group: str, file: str) -> list[str]:
    """The tests of a group, those named after the file first."""
    paths: list[str] = []
    for pattern in GROUPS[group].tests:
        found = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob(pattern))
        paths += found or [pattern]
    stem = Path(file).stem.split("_")[0]
    return sorted(paths, key=lambda path: (f"test_{stem}" not in path, "student" in path))


def drawn(count: int, seed: int, groups: Sequence[str]) -> list[Mutant]:
    """``count`` mutants in all, each group by its share, evenly over its places."""
    total = sum(group.share for group in GROUPS.values())
    chosen: list[Mutant] = []
    for name in groups:
        group, found = GROUPS[name], []
        for path in sorted(path for pattern in group.files for path in ROOT.glob(pattern)):
            file = str(path.relative_to(ROOT))
            places = sites(ast.parse(path.read_text()), fields=group.fields)
            found += [Mutant(name, file, at, *place[:3]) for at, place in enumerate(places)]
        chosen += random.Random(f"{seed} {name}").sample(found, round(count * group.share / total))
    return chosen


class Told(NamedTuple):
    """The end of one process: caught, survived, or caught as it ran too long; and how long it took."""

    outcome: str
    cpu_s: float
    test: str = ""
    """The test that failed."""


def run(mutant: Mutant | None, tests: Sequence[str], limit_s: int) -> Told:
    """Run the tests in a fork of this process, with the mutant in the place of its module."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 3
        try:
            os.close(reading)
            resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
            signal.alarm(20 * limit_s)  # it may also wait for ever
            code, failed = _in_child(mutant, tests)
            os.write(writing, failed.encode()[:4000])
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        failed = pipe.read()
    _, status, usage = os.wait4(pid, 0)
    outcome = "ran too long" if os.WIFSIGNALED(status) else "survived" if os.WEXITSTATUS(status) == 0 else "caught"
    return Told(outcome, usage.ru_utime + usage.ru_stime, failed)


def _in_child(mutant: Mutant | None, tests: Sequence[str]) -> tuple[int, str]:
    if mutant is not None:
        _put_in(mutant)
    failed: list[str] = []

    class Notes:
        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed:
                failed.append(report.nodeid)

    import pytest

    options = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--no-header", "-W", _PRELOADED]
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        code = pytest.main([*options, *tests], plugins=[Notes()])
    return int(code), failed[0] if failed else ""


def _put_in(mutant: Mutant) -> None:
    path = str(ROOT / mutant.file)
    tree = mutated(Path(path).read_text(), mutant.number, fields=GROUPS[mutant.group].fields)
    code, before = compile(tree, path, "exec"), importlib.machinery.SourceFileLoader.get_code

    def get_code(self: Any, fullname: str) -> Any:
        return code if self.path == path else before(self, fullname)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


def table(results: Mapping[Mutant, Told], reasons: Mapping[str, str], seed: int) -> str:
    """What was caught, by group, and the survivors."""
    lines = [
        f"# python scripts/mutate.py --mutants {len(results)} --seed {seed}",
        f"# one change each: {OPERATORS}",
        "",
        f"{'group':10}{'places':>8}{'mutants':>9}{'caught':>8}{'ran too long':>14}{'survived':>10}{'caught, %':>11}",
    ]
    for name in (*GROUPS, "all"):
        told = Counter(told.outcome for mutant, told in results.items() if name in ("all", mutant.group))
        if not told:
            continue
        caught = told["caught"] + told["ran too long"]
        places = sum(_places(each) for each in GROUPS if name in ("all", each))
        lines.append(
            f"{name:10}{places:8}{told.total():9}{told['caught']:8}{told['ran too long']:14}{told['survived']:10}"
            f"{100 * caught / told.total():11.1f}"
        )
    lines += ["", "Survivors:"]
    for mutant, told in results.items():
        if told.outcome == "survived":
            lines += [f"- {mutant.name}", f"  {reasons.get(mutant.name, 'not looked into')}"]
    return "\n".join(lines) + "\n"


def _places(name: str) -> int:
    group = GROUPS[name]
    paths = [path for pattern in group.files for path in ROOT.glob(pattern)]
    return sum(len(sites(ast.parse(path.read_text()), fields=group.fields)) for path in paths)


def _reasons(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    pairs = (line.split(" :: ", 1) for line in path.read_text().splitlines() if " :: " in line)
    return {name.strip(): reason.strip() for name, reason in pairs}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--groups", default=",".join(GROUPS), help="which groups, separated by commas")
    parser.add_argument("--only", help="the mutants whose names hold this")
    parser.add_argument("--survivors", type=Path, metavar="JSONL", help="run the survivors of that log again")
    parser.add_argument("--log", type=Path, default=Path("mutants.jsonl"), help="a line per mutant; it goes on with it")
    parser.add_argument("--out", type=Path, help="write the table there")
    parser.add_argument("--reasons", type=Path, default=REASONS)
    options = parser.parse_args()
    os.chdir(ROOT)
    os.environ.pop("DAGSIM_DATA", None)  # the tests that everybody can run must notice
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    _preload()
    groups = options.groups.split(",")
    mutants = [each for each in drawn(options.mutants, options.seed, groups) if (options.only or "") in each.name]
    done = _read(options.log)
    again = {name for name, told in _read(options.survivors).items() if told.outcome == "survived"}
    if options.survivors:
        mutants = [mutant for mutant in mutants if mutant.name in again]
    todo = [mutant for mutant in mutants if mutant.name not in done]
    limits = {name: _baseline(name) for name in dict.fromkeys(mutant.group for mutant in todo)}
    for place, mutant in enumerate(todo, 1):
        began = time.monotonic()
        told = done[mutant.name] = run(mutant, tests_of(mutant.group, mutant.file), limits[mutant.group])
        with options.log.open("a") as log:
            log.write(json.dumps({"name": mutant.name, **told._asdict()}) + "\n")
        took = f"{told.cpu_s:.1f} s, {time.monotonic() - began:.0f} s on the wall"
        print(f"{place}/{len(todo)} {told.outcome}: {mutant.name} ({took}) {told.test}", flush=True)
    results = {mutant: done[mutant.name] for mutant in mutants}
    text = table(results, _reasons(options.reasons), options.seed)
    print(text)
    if options.out:
        options.out.write_text(text)
    return 0


def _baseline(name: str) -> int:
    """The limit of processor time for a group: ten times what its tests take without a mutant, which must pass."""
    told = run(None, tests_of(name, ""), 1000)
    print(f"{name}: without a mutant {told.outcome} {told.test} in {told.cpu_s:.1f} s", flush=True)
    if told.outcome != "survived":
        sys.exit(f"the tests of {name} do not pass without a mutant")
    return round(10 * told.cpu_s) + 5


def _preload() -> None:
    """Import what dagsim and its tests import from elsewhere."""
    import gymnasium  # noqa: F401
    import hypothesis  # noqa: F401
    import numpy  # noqa: F401
    import pydantic  # noqa: F401
    import pytest  # noqa: F401
    import scipy.stats  # noqa: F401
    import simpy  # noqa: F401
    import torch

    torch.set_num_threads(1)
    assert not any(name.split(".")[0] == "dagsim" for name in sys.modules)


def _read(path: Path | None) -> dict[str, Told]:
    if path is None or not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {row.pop("name"): Told(**row) for row in rows}


if __name__ == "__main__":
    sys.exit(main())
