"""Put faults into dagsim, one at a time, and see which the tests notice: ``python scripts/mutate.py [--mutants 300]``.

Mutants are drawn at random, with a fixed seed, over the kernel of the GPU cluster, the metrics, the choice of
references and seeds, the field maps of the readers and the losses of learning; so many of each group, evenly over all
places in its files that an operator fits (``OPERATORS``). Each is run, in a process of its own, against the tests of
its group (``GROUPS``), the quick ones first and up to the first that fails. A mutant is *caught* if a test fails, the
module cannot be imported, or a test takes four times the processor time that it takes without it, and ten seconds.
First the tests run without a mutant, and must pass: coverage tells which of them run which lines. A mutant is shown to
the tests that run its statement, then to the others of their files (what one of them made may be kept for the next);
one outside of functions to all, those first that run anything of its file.

mutmut and cosmic-ray start a process, import everything and collect the tests anew for each mutant: some five seconds
of processor time. Here one process collects the tests of a group and forks for each mutant, which gets the code of one
function changed in place; only mutants outside of functions are imported afresh. Files are never changed. Survivors
are listed with the reason why they live where one stands in ``--reasons``: a line ``ID :: reason`` each, the ID as in
the table. A run that was stopped goes on from its ``--log``.
"""

from __future__ import annotations

import argparse
import ast
import gc
import importlib
import importlib.machinery
import inspect
import json
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

__all__ = ["GROUPS", "Group", "Mutant", "drawn", "mutated", "sites", "tests_of"]

ROOT = Path(__file__).parents[1]
_PRELOADED = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
SPARE_S = 10.0
"""What a test may take beyond that, since another one may have left it less to do."""
OPTIONS = ("-q", "-n", "0", "-p", "no:cacheprovider", "--no-header", "-W", _PRELOADED)
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
_LOSSES = (
    "ppo",
    "reinforce",
    "d3qn",
    "q_learning",
    "rainbow",
    "sac",
    "policy_gradient",
    "advantages",
    "replay",
    "cloning",
)
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
            "tests/systems/cluster/test_engine.py",
            "tests/systems/cluster/test_free_index.py",
            "tests/systems/cluster/test_jobs.py",
            "tests/systems/cluster/test_kill.py",
            "tests/systems/cluster/test_runtime.py",
            "tests/systems/cluster/test_stock_simpy.py",
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
            "tests/agents/test_updates.py",
            "tests/agents/test_learning.py::test_a_resumed_learner_goes_on_bit_for_bit",
            "tests/agents/test_learning.py::test_the_learning_rate_falls_as_training_goes_on",
            "tests/agents/test_learning.py::test_reinforce_takes_one_step_on_the_whole_batch",
            "tests/agents/test_learning.py::test_ppo_clips_where_it_is_told_to",
            "tests/agents/test_learning.py::test_what_follows_is_valued_by_the_target_network",
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


def tests_of(group: str) -> list[str]:
    """The test files of a group."""
    paths: list[str] = []
    for pattern in GROUPS[group].tests:
        found = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob(pattern))
        paths += found or [pattern]
    return list(dict.fromkeys(paths))


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


@dataclass(slots=True)
class Reach:
    """What each test takes, and what it runs, without a mutant."""

    cpu_s: dict[str, float] = field(default_factory=dict)
    lines: dict[str, dict[int, list[str]]] = field(default_factory=dict)
    """File, line: the tests that run it."""

    def ranked(self, tests: Sequence[str], mutant: Mutant, *, inside: bool) -> list[str]:
        """The tests for a mutant, the quick ones first among those that run it, then the others worth a try."""
        of_file = self.lines.get(mutant.file, {})
        span = _statement((ROOT / mutant.file).read_text(), mutant.line) if inside else set(of_file)
        running = {test for line in span for test in of_file.get(line, ())}
        beside = {test.partition("::")[0] for test in running}
        wanted = [test for test in tests if not inside or test.partition("::")[0] in beside]
        return sorted(wanted, key=lambda test: (test not in running, self.cpu_s.get(test, 0.0)))

    def limit_s(self, test: str) -> float:
        """The processor time that is left to a test: many loops go on for ever with a fault in them."""
        return 4 * self.cpu_s.get(test, 10.0) + SPARE_S


def _statement(source: str, line: int) -> set[int]:
    """The lines of the innermost statement at a line; of one that holds others, those of its head."""
    spans = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt | ast.match_case | ast.ExceptHandler):
            body = getattr(node, "body", None)
            first = node.pattern.lineno if isinstance(node, ast.match_case) else node.lineno
            last = max(first, body[0].lineno - 1) if body else node.end_lineno or first
            spans += [range(first, last + 1)] if first <= line <= last else []
    return set(min(spans, key=len)) if spans else {line}


class Fork:
    """Tests under way in a fork of this process; ``work`` returns 0 if all passed, and the first that failed."""

    def __init__(self, work: Callable[[], tuple[int, str]], limit_s: int) -> None:
        self._pipe, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code, failed = 3, ""
            try:
                resource.setrlimit(resource.RLIMIT_CPU, (limit_s, resource.RLIM_INFINITY))
                signal.signal(signal.SIGXCPU, signal.SIG_DFL)
                silence = os.open(os.devnull, os.O_WRONLY)
                os.dup2(silence, 1)
                os.dup2(silence, 2)
                code, failed = work()
            finally:
                os.write(writing, failed.encode()[:4000])
                os._exit(code)
        os.close(writing)

    def told(self, status: int, usage: resource.struct_rusage) -> Told:
        """What became of it, once it has ended."""
        with os.fdopen(self._pipe) as pipe:
            failed = pipe.read()
        cpu_s = usage.ru_utime + usage.ru_stime
        if os.WIFSIGNALED(status):
            by = signal.Signals(os.WTERMSIG(status))
            return Told("ran too long" if by == signal.SIGXCPU else "caught", cpu_s, by.name)
        return Told("survived" if os.WEXITSTATUS(status) == 0 else "caught", cpu_s, failed)


def run(work: Callable[[], tuple[int, str]], limit_s: int) -> Told:
    """Do it in a fork, and wait for it."""
    fork = Fork(work, limit_s)
    _, status, usage = os.wait4(fork.pid, 0)
    return fork.told(status, usage)


class InPlace:
    """A pytest plugin that does not run the tests once, but once for each mutant, in forks."""

    def __init__(
        self, mutants: Sequence[Mutant], told: Callable[[Mutant | None, Told], None], reach: Path, at_once: int = 1
    ) -> None:
        self._mutants, self._told, self._reach, self._at_once = mutants, told, reach, at_once
        self._failed: list[str] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self._failed.append(report.nodeid)

    def pytest_runtestloop(self, session: Any) -> bool:
        base = run(lambda: self._measure(session.items), 1000)
        self._told(None, base)
        waiting = list(self._mutants) if base.outcome == "survived" else []
        reach = read_reach(self._reach)
        items = {item.nodeid: item for item in session.items}
        under_way: dict[int, tuple[Mutant, Fork]] = {}
        while waiting or under_way:
            while waiting and len(under_way) < self._at_once:
                mutant = waiting.pop(0)
                shown = [items[test] for test in reach.ranked(list(items), mutant, inside=True)]
                fork = Fork(partial(self._run, shown, mutant, reach), 1000)
                under_way[fork.pid] = mutant, fork
            pid, status, usage = os.wait4(-1, 0)
            if pid in under_way:
                mutant, fork = under_way.pop(pid)
                self._told(mutant, fork.told(status, usage))
        return True

    def _measure(self, items: Sequence[Any]) -> tuple[int, str]:
        """All tests without a mutant; their reach is left in a file."""
        import coverage

        traced = coverage.Coverage(data_file=None, config_file=False, include=[str(ROOT / "dagsim" / "*")])
        traced.start()
        reach = Reach()
        for item in items:
            traced.switch_context(item.nodeid)
            began = time.process_time()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            reach.cpu_s[item.nodeid] = time.process_time() - began
            if self._failed:
                return 1, self._failed[0]
        traced.stop()
        found = traced.get_data()
        for file in found.measured_files():
            reach.lines[str(Path(file).relative_to(ROOT))] = found.contexts_by_lineno(file)
        self._reach.write_text(json.dumps({"cpu_s": reach.cpu_s, "lines": reach.lines}))
        return 0, ""

    def _run(self, items: Sequence[Any], mutant: Mutant, reach: Reach) -> tuple[int, str]:
        """The tests up to the first that fails, in this process."""
        _put_in_place(mutant)
        for item, following in zip(items, [*items[1:], None], strict=True):
            _leave(reach.limit_s(item.nodeid))
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._failed:
                return 1, self._failed[0]
        return 0, ""


class Afresh:
    """A pytest plugin that takes the tests for one mutant in their order."""

    def __init__(self, mutant: Mutant, reach: Reach) -> None:
        self._mutant, self._reach = mutant, reach
        self.failed = ""

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        found = {item.nodeid: item for item in items}
        items[:] = [found[test] for test in self._reach.ranked(list(found), self._mutant, inside=False)]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        _leave(self._reach.limit_s(nodeid))

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid


def read_reach(path: Path) -> Reach:
    """What the run without a mutant left, nothing if it failed."""
    text = path.read_text()
    kept = json.loads(text) if text else {"cpu_s": {}, "lines": {}}
    lines = {file: {int(line): tests for line, tests in of.items()} for file, of in kept["lines"].items()}
    return Reach(kept["cpu_s"], lines)


def _leave(limit_s: float) -> None:
    """End this process once it has used so much more processor time."""
    resource.setrlimit(resource.RLIMIT_CPU, (round(time.process_time() + limit_s), resource.RLIM_INFINITY))


def _put_in_place(mutant: Mutant) -> None:
    """Give the one function that the mutant is in its new code, wherever it lives."""
    path, (old, new) = str(ROOT / mutant.file), _codes(mutant)
    (changed,) = _changed(old, new) or ()
    where = changed.co_filename, changed.co_qualname, changed.co_firstlineno
    importlib.import_module(mutant.file.removesuffix(".py").replace("/", "."))  # it may be imported on demand
    for each in gc.get_objects():
        if type(each) is FunctionType:  # isinstance asks the object, and some warn
            code = each.__code__
            if (code.co_filename, code.co_qualname, code.co_firstlineno) == where:
                each.__code__ = changed
    assert path == where[0]


def _codes(mutant: Mutant) -> tuple[CodeType, CodeType]:
    """The module as it is, and with the fault."""
    path = ROOT / mutant.file
    source = path.read_text()
    tree = mutated(source, mutant.number, fields=GROUPS[mutant.group].fields)
    return compile(source, str(path), "exec"), compile(tree, str(path), "exec")


def _changed(old: CodeType, new: CodeType) -> list[CodeType] | None:
    """The new codes of outermost functions that differ; ``None`` if something outside of functions does."""
    if old.co_code != new.co_code or old.co_names != new.co_names or len(old.co_consts) != len(new.co_consts):
        return None
    found: list[CodeType] = []
    for one, other in zip(old.co_consts, new.co_consts, strict=True):
        if isinstance(one, CodeType) and isinstance(other, CodeType):
            if one.co_flags & inspect.CO_OPTIMIZED:
                found += [other] if one != other else []
            elif (inner := _changed(one, other)) is None:
                return None
            else:
                found += inner
        elif (type(one), one) != (type(other), other):
            return None
    return found


def _afresh(mutant: Mutant, tests: Sequence[str], reach: Reach) -> tuple[int, str]:
    """Import everything with the mutant in the place of its module, and run the tests."""
    path, code = str(ROOT / mutant.file), _codes(mutant)[1]
    before = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: Any, fullname: str) -> Any:
        return code if self.path == path else before(self, fullname)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
    import pytest

    notes = Afresh(mutant, reach)
    ended = pytest.main([*OPTIONS, "-x", *tests], plugins=[notes])
    return int(ended), notes.failed


def table(results: Mapping[Mutant, Told], reasons: Mapping[str, str], seed: int, of: int) -> str:
    """What was caught, by group, and the survivors; it says if not all that were drawn were run."""
    lines = [
        f"# python scripts/mutate.py --mutants {of} --seed {seed}",
        *([f"# NOT ALL WERE RUN: {len(results)} of {of}, group after group"] if len(results) < of else []),
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
    parser.add_argument("--processes", type=int, default=2, help="mutants that are run at a time")
    parser.add_argument("--table", action="store_true", help="run nothing: only the table of the log")
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
    count = 0

    def tell(mutant: Mutant | None, told: Told) -> None:
        nonlocal count
        if mutant is None:
            print(f"without a mutant: {told.outcome} {told.test} ({told.cpu_s:.1f} s)", flush=True)
            return
        count += 1
        done[mutant.name] = told
        with options.log.open("a") as log:
            log.write(json.dumps({"name": mutant.name, **told._asdict()}) + "\n")
        print(f"{count}/{len(todo)} {told.outcome}: {mutant.name} ({told.cpu_s:.1f} s) {told.test}", flush=True)

    for name in () if options.table else groups:
        run_group(name, [mutant for mutant in todo if mutant.group == name], tell, options.processes)
    results = {mutant: done[mutant.name] for mutant in mutants if mutant.name in done}
    text = table(results, _reasons(options.reasons), options.seed, len(mutants))
    print(text)
    if options.out:
        options.out.write_text(text)
    return 0 if len(results) == len(mutants) else 1


def run_group(
    name: str, mutants: Sequence[Mutant], tell: Callable[[Mutant | None, Told], None], at_once: int = 1
) -> None:
    """Run the mutants of one group, in a process of its own, so that no group has what another imported."""
    if not mutants:
        return
    inside = [mutant for mutant in mutants if _changed(*_codes(mutant)) is not None]
    tests, passed = tests_of(name), False

    def told(mutant: Mutant | None, how: Told) -> None:
        nonlocal passed
        passed |= how.outcome == "survived" and mutant is None
        tell(mutant, how)

    with tempfile.NamedTemporaryFile() as kept:
        _forked(tests, inside, told, Path(kept.name), at_once)
        reach = read_reach(Path(kept.name))
        for mutant in mutants if passed else ():
            if mutant not in inside:
                tell(mutant, run(partial(_afresh, mutant, tests, reach), 1000))


def _forked(
    tests: Sequence[str],
    mutants: Sequence[Mutant],
    tell: Callable[[Mutant | None, Told], None],
    reach: Path,
    at_once: int,
) -> None:
    """Collect the tests in a fork, and hear from it what became of the mutants."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        with os.fdopen(writing, "w") as pipe:

            def told(mutant: Mutant | None, how: Told) -> None:
                print(json.dumps([None if mutant is None else mutants.index(mutant), *how]), file=pipe, flush=True)

            import pytest

            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, 1)
            pytest.main([*OPTIONS, *tests], plugins=[InPlace(mutants, told, reach, at_once)])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        for line in pipe:
            number, *how = json.loads(line)
            tell(None if number is None else mutants[number], Told(*how))
    os.waitpid(pid, 0)


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
