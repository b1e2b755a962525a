"""Put faults into dagsim, one at a time, and list those that no test notices.

    python scripts/mutate.py [--mutants 300] [--seed 0] [--groups ramp,spark] [--files 8]

Mutants are drawn at random, with a fixed seed, evenly over every place of the package that an operator fits
(``OPERATORS``). A *group* is a folder of the package (``GROUPS``). Each mutant is judged, in a process of its own, by
the ``--files`` test files that are closest to its file (``Related``): few imports away, in the folder of the same name.
The quick tests that run its statement come first, and the first failure ends it. A mutant is *caught* if a test fails,
if the module cannot be imported, or if a test takes four times its usual processor time plus ten seconds.

The tests of a group first run without a mutant, under coverage, which tells which tests run which lines; a test that
fails there is left out. A mutant inside a function is shown to the tests that run its statement, then to the other
tests of their files (a test may use what an earlier one has cached). A mutant outside of functions is shown to all.
Judge survivors again with more files before you count them: ``--survivors LOG --files 1000 --log OTHER``.

mutmut and cosmic-ray start a process, import everything and collect the tests for each mutant: some five seconds of
processor time. Here one process collects the tests of a group and forks for each mutant, which gets the code of one
function changed in place; only mutants outside of functions are imported again. Files are never changed. Survivors are
listed with the reason why they live where ``--reasons`` has one: a line ``ID :: reason`` each, the ID as in the table.
A run that was stopped continues from its ``--log``.
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import zip_longest
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import pytest

__all__ = ["GROUPS", "Group", "Mutant", "Related", "drawn", "files_of", "mutated", "sites"]

ROOT = Path(__file__).parents[1]
_PRELOADED = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
SPARE_S = 10.0
"""Extra time of a test in seconds, since an earlier test may have done part of its work."""
OPTIONS = ("-q", "-n", "0", "-p", "no:cacheprovider", "--no-header", "-W", _PRELOADED)
REASONS = ROOT / "results" / "validation" / "mutant_reasons.txt"


@dataclass(frozen=True, slots=True)
class Group:
    """A folder of the package. A file belongs to the group of the deepest folder that holds it."""

    folder: str
    strings: bool = False
    """True to change strings as well: the names of fields."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment of its tests. The lane can be changed only if numba does not compile it."""


GROUPS: dict[str, Group] = {
    "kernel": Group("dagsim/systems"),
    "lane": Group("dagsim/systems/cluster/lane", environment={"NUMBA_DISABLE_JIT": "1"}),
    "policies": Group("dagsim/systems/cluster/policies"),
    "spark": Group("dagsim/systems/spark"),
    "ramp": Group("dagsim/systems/ramp"),
    "metrics": Group("dagsim/metrics"),
    "workload": Group("dagsim/workload"),
    "traces": Group("dagsim/traces"),
    "readers": Group("dagsim/traces/formats", strings=True),
    "envs": Group("dagsim/envs"),
    "agents": Group("dagsim/agents"),
    "experiment": Group("dagsim/experiment"),
    "config": Group("dagsim/config"),
    "model": Group("dagsim/model"),
    "report": Group("dagsim/report"),
    "cli": Group("dagsim/cli"),
    "rest": Group("dagsim"),
}


@cache
def files_of(group: str) -> tuple[str, ...]:
    """Return the files of a group, relative to the repository."""
    return tuple(file for file in _package() if _group_of(file) == group)


@cache
def _package() -> tuple[str, ...]:
    return tuple(sorted(str(path.relative_to(ROOT)) for path in (ROOT / "dagsim").rglob("*.py")))


def _group_of(file: str) -> str:
    inside = [name for name, group in GROUPS.items() if file.startswith(f"{group.folder}/")]
    return max(inside, key=lambda name: len(GROUPS[name].folder))


class Related:
    """The test files that are closest to a file of the package, by imports.

    A test file that imports a module, itself or from the package that re-exports it, is one import away. A module that
    a registry names as a string counts as imported.
    """

    def __init__(self, folder: Path = ROOT) -> None:
        sources = {
            str(path.relative_to(folder)): path.read_text(encoding="utf-8")
            for top in ("dagsim", "tests")
            for path in (folder / top).rglob("*.py")
        }
        self._texts = {file: text for file, text in sources.items() if _is_test(file)}
        modules = {_dotted(file): file for file in sources}
        trees = {file: ast.parse(text) for file, text in sources.items()}
        names = {module: _re_exported(trees[file]) for module, file in modules.items() if file.endswith("__init__.py")}
        self._importers: dict[str, set[str]] = {}
        for file, tree in trees.items():
            for module in _imported(file, tree, modules, names):
                self._importers.setdefault(modules[module], set()).add(file)

    def nearest(self, file: str, count: int) -> list[str]:
        """Return the ``count`` closest test files, the closest first.

        The distance is the number of imports between the two, minus 0.5 for each common folder of
        their paths, and minus 1 if the test file names the module.
        """
        away = self._imports_away(file)
        word = re.compile(rf"\b{Path(file).stem.replace('_', '[-_ ]')}\b")
        folders = set(Path(file).parts[1:-1])

        def distance(test: str) -> tuple[float, str]:
            shared = len(folders & set(Path(test).parts[1:-1]))
            return away.get(test, 9) - shared / 2 - bool(word.search(self._texts[test])), test

        return sorted(self._texts, key=distance)[:count]

    def _imports_away(self, file: str) -> dict[str, int]:
        away, edge = {file: 0}, [file]
        while edge:
            found = {importer for each in edge for importer in self._importers.get(each, ())} - set(away)
            away |= dict.fromkeys(found, away[edge[0]] + 1)
            edge = sorted(found)
        return away


def _is_test(file: str) -> bool:
    return Path(file).name.startswith("test_")


def _dotted(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".").removeprefix("tests.")


def _re_exported(tree: ast.Module) -> dict[str, str]:
    """Names that a package imports, and their modules."""
    froms = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module)
    return {alias.asname or alias.name: str(node.module) for node in froms for alias in node.names}


def _imported(
    file: str, tree: ast.Module, modules: Mapping[str, str], names: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    """Modules that a file imports, or names as a string."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                wanted = [alias.name for alias in aliases]
            case ast.ImportFrom(module=str(package), names=aliases):
                wanted = [f"{package}.{alias.name}" for alias in aliases]
                wanted = [
                    name if name in modules else names.get(package, {}).get(name.rpartition(".")[2], package)
                    for name in wanted
                ]
            case ast.Constant(value=str(text)) if text.startswith("dagsim."):
                wanted = [text.partition(":")[0]]
            case ast.Constant(value=str(text)) if re.match(r"(\.\w+)+:\w+$", text):
                wanted = [_dotted(str(Path(file).parent)) + text.partition(":")[0]]
            case _:
                continue
        yield from (name for name in wanted if name in modules)


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
    """A place where a mutant can be made."""

    line: int
    column: int
    what: str
    change: Callable[[], None]


class Mutant(NamedTuple):
    """One fault: the place in a file, and the change."""

    group: str
    file: str
    number: int
    """Number of the site in its file."""
    line: int
    column: int
    what: str

    @property
    def name(self) -> str:
        """Its place and its change, as shown in tables."""
        return f"{self.file}:{self.line}:{self.column} {self.what}"


def sites(tree: ast.Module, *, strings: bool = False) -> list[Site]:
    """Every place of the module that an operator fits, in order."""
    return [site for node in _nodes(tree, strings) for site in _changes(node, strings)]


def _nodes(node: ast.AST, strings: bool) -> Iterator[ast.AST]:
    """Yield all nodes worth a change.

    Annotations, docstrings, messages, decorators and the messages of assertions are left out.
    """
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "msg"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_skipped(child, strings):
                yield from _nodes(child, strings)


def _is_skipped(node: ast.AST, strings: bool) -> bool:
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


def _changes(node: Any, strings: bool) -> Iterator[Site]:
    for what, change in _of(node, strings):
        yield Site(node.lineno, node.col_offset, what, change)


def _of(node: ast.AST, strings: bool) -> Iterator[tuple[str, Callable[[], None]]]:
    match node:
        case ast.Constant(value=bool() as value):
            yield f"{value} -> {not value}", lambda: setattr(node, "value", not value)
        case ast.Constant(value=int() | float() as number):
            yield f"{number} -> {number + 1}", lambda: setattr(node, "value", number + 1)
        case ast.Constant(value=str() as text) if strings and re.fullmatch(r"[A-Za-z_][\w ./-]*", text):
            yield f"{text!r} -> {text + 'x'!r}", lambda: setattr(node, "value", text + "x")
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in COMPUTED:
            other = COMPUTED[type(op)]
            yield f"{type(op).__name__} -> {other.__name__}", lambda: setattr(node, "op", other())
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


def mutated(source: str, number: int, *, strings: bool = False) -> ast.Module:
    """Return the module with its site ``number`` changed."""
    tree = ast.parse(source)
    sites(tree, strings=strings)[number].change()
    return ast.fix_missing_locations(tree)


@cache
def places(group: str) -> tuple[Mutant, ...]:
    """Return every mutant that can be made in a group."""
    strings = GROUPS[group].strings
    return tuple(
        Mutant(group, file, number, *site[:3])
        for file in files_of(group)
        for number, site in enumerate(sites(ast.parse((ROOT / file).read_text()), strings=strings))
    )


def drawn(count: int, seed: int, groups: Sequence[str]) -> list[Mutant]:
    """Draw ``count`` mutants, evenly over all places of the groups. They come in the order of the
    groups.
    """
    every = [mutant for group in groups for mutant in places(group)]
    return sorted(random.Random(seed).sample(every, count), key=lambda mutant: groups.index(mutant.group))


class Outcome(NamedTuple):
    """Result of one process: "caught", "survived" or "ran too long", and the time used."""

    end: str
    cpu_s: float
    test: str = ""
    """Test that failed."""


@dataclass(slots=True)
class Reach:
    """Time of each test and lines that it runs, without a mutant."""

    cpu_s: dict[str, float] = field(default_factory=dict)
    lines: dict[str, dict[int, list[str]]] = field(default_factory=dict)
    """Tests that run a line, by file and line."""

    def ranked(self, tests: Sequence[str], mutant: Mutant, *, inside: bool) -> list[str]:
        """Return the tests for a mutant: first those that run it, the quick ones first, then others
        worth a try.
        """
        of_file = self.lines.get(mutant.file, {})
        span = _statement((ROOT / mutant.file).read_text(), mutant.line) if inside else set(of_file)
        running = {test for line in span for test in of_file.get(line, ())}
        beside = {test.partition("::")[0] for test in running}
        wanted = [test for test in tests if not inside or test.partition("::")[0] in beside]
        return sorted(wanted, key=lambda test: (test not in running, self.cpu_s.get(test, 0.0)))

    def limit_s(self, test: str) -> float:
        """Processor time left to a test. Many loops never end with a fault in them."""
        return 4 * self.cpu_s.get(test, 10.0) + SPARE_S


def _statement(source: str, line: int) -> set[int]:
    """Lines of the innermost statement at a line; for a compound statement, those of its head."""
    spans = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt | ast.match_case | ast.ExceptHandler):
            body = getattr(node, "body", None)
            first = node.pattern.lineno if isinstance(node, ast.match_case) else node.lineno
            last = max(first, body[0].lineno - 1) if body else node.end_lineno or first
            spans += [range(first, last + 1)] if first <= line <= last else []
    return set(min(spans, key=len)) if spans else {line}


class Fork:
    """Tests that run in a fork of this process. ``work`` returns 0 if all passed, and the first
    that failed.
    """

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
            except BaseException as error:
                failed = f"{type(error).__name__}: {error}"
            finally:
                os.write(writing, failed.encode()[:4000])
                os._exit(code)
        os.close(writing)

    def outcome(self, status: int, usage: resource.struct_rusage) -> Outcome:
        """Result of the process. Call it only after the process has ended."""
        with os.fdopen(self._pipe) as pipe:
            failed = pipe.read()
        cpu_s = usage.ru_utime + usage.ru_stime
        if os.WIFSIGNALED(status):
            by = signal.Signals(os.WTERMSIG(status))
            return Outcome("ran too long" if by == signal.SIGXCPU else "caught", cpu_s, by.name)
        return Outcome("survived" if os.WEXITSTATUS(status) == 0 else "caught", cpu_s, failed)


def run(work: Callable[[], tuple[int, str]], limit_s: int) -> Outcome:
    """Run ``work`` in a fork, and wait for it."""
    fork = Fork(work, limit_s)
    _, status, usage = os.wait4(fork.pid, 0)
    return fork.outcome(status, usage)


class InPlace:
    """A pytest plugin that runs the tests once for each mutant, in forks.

    Args:
        mutants: All inside a function.
        related: The test files of each mutant.
        report: Called with each mutant and its outcome, and first with ``None`` and that of the run without a mutant.
        reach: Where the reach of the tests is written.
        at_once: Forks at a time.
    """

    def __init__(
        self,
        mutants: Sequence[Mutant],
        related: Mapping[str, Sequence[str]],
        report: Callable[[Mutant | None, Outcome], None],
        reach: Path,
        at_once: int = 1,
    ) -> None:
        self._mutants, self._related, self._report, self._reach = mutants, related, report, reach
        self._at_once = at_once
        self._failed: list[str] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self._failed.append(report.nodeid)

    def pytest_runtestloop(self, session: Any) -> bool:
        base = run(lambda: self._measure(session.items), 4000)
        self._report(None, base)
        waiting = list(self._mutants) if base.end == "survived" else []
        reach = read_reach(self._reach)
        items = {item.nodeid: item for item in session.items if item.nodeid in reach.cpu_s}
        running: dict[int, tuple[Mutant, Fork]] = {}
        while waiting or running:
            while waiting and len(running) < self._at_once:
                mutant = waiting.pop(0)
                tests = _in_files(items, self._related[mutant.file])
                chosen = [items[test] for test in reach.ranked(tests, mutant, inside=True)]
                fork = Fork(partial(self._run, chosen, mutant, reach), 4000)
                running[fork.pid] = mutant, fork
            pid, status, usage = os.wait4(-1, 0)
            if pid in running:
                mutant, fork = running.pop(pid)
                self._report(mutant, fork.outcome(status, usage))
        return True

    def _measure(self, items: Sequence[Any]) -> tuple[int, str]:
        """Run all tests without a mutant, and write their reach to the file. Tests that fail are
        left out.
        """
        import coverage

        traced = coverage.Coverage(data_file=None, config_file=False, include=[str(ROOT / "dagsim" / "*")])
        traced.start()
        reach = Reach()
        for item in items:
            traced.switch_context(item.nodeid)
            began = time.process_time()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
            reach.cpu_s[item.nodeid] = time.process_time() - began
        traced.stop()
        for test in self._failed:
            reach.cpu_s.pop(test, None)
        lines = traced.get_data()
        for file in lines.measured_files():
            reach.lines[str(Path(file).relative_to(ROOT))] = lines.contexts_by_lineno(file)
        self._reach.write_text(json.dumps({"cpu_s": reach.cpu_s, "lines": reach.lines}))
        return 0, f"without {', '.join(self._failed)}" if self._failed else ""

    def _run(self, items: Sequence[Any], mutant: Mutant, reach: Reach) -> tuple[int, str]:
        """Run the tests in this process, up to the first that fails."""
        _put_in_place(mutant)
        for item, following in zip_longest(items, items[1:]):
            _leave(reach.limit_s(item.nodeid))
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._failed:
                return 1, self._failed[0]
        return 0, ""


class Afresh:
    """A pytest plugin that orders the tests for one mutant outside of functions."""

    def __init__(self, mutant: Mutant, reach: Reach) -> None:
        self._mutant, self._reach = mutant, reach
        self.failed = ""

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        by_name = {item.nodeid: item for item in items if item.nodeid in self._reach.cpu_s}
        items[:] = [by_name[test] for test in self._reach.ranked(list(by_name), self._mutant, inside=False)]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        _leave(self._reach.limit_s(nodeid))

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid


def _in_files(tests: Iterable[str], files: Sequence[str]) -> list[str]:
    wanted = set(files)
    return [test for test in tests if test.partition("::")[0] in wanted]


def read_reach(path: Path) -> Reach:
    """Return the reach that the run without a mutant wrote; empty if that run failed."""
    text = path.read_text()
    kept = json.loads(text) if text else {"cpu_s": {}, "lines": {}}
    lines = {file: {int(line): tests for line, tests in of.items()} for file, of in kept["lines"].items()}
    return Reach(kept["cpu_s"], lines)


def _leave(limit_s: float) -> None:
    """End this process once it has used ``limit_s`` more seconds of processor time."""
    resource.setrlimit(resource.RLIMIT_CPU, (round(time.process_time() + limit_s), resource.RLIM_INFINITY))


def _put_in_place(mutant: Mutant) -> None:
    """Replace the code of the one function that contains the mutant, wherever the function is
    referenced.
    """
    path, (old, new) = str(ROOT / mutant.file), _codes(mutant)
    (changed,) = _changed(old, new) or ()
    where = changed.co_filename, changed.co_qualname, changed.co_firstlineno
    importlib.import_module(mutant.file.removesuffix(".py").replace("/", "."))  # it may be imported on demand
    for candidate in gc.get_objects():
        if type(candidate) is FunctionType:  # isinstance asks the object, and some warn
            code = candidate.__code__
            if (code.co_filename, code.co_qualname, code.co_firstlineno) == where:
                candidate.__code__ = changed
    assert path == where[0]


def _codes(mutant: Mutant) -> tuple[CodeType, CodeType]:
    """Return the original module, and the one with the fault."""
    path = ROOT / mutant.file
    source = path.read_text()
    tree = mutated(source, mutant.number, strings=GROUPS[mutant.group].strings)
    return compile(source, str(path), "exec"), compile(tree, str(path), "exec")


def _changed(old: CodeType, new: CodeType) -> list[CodeType] | None:
    """Return the new code of outermost functions that differ, or None if code outside of functions
    differs.
    """
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
    """Import everything with the mutant instead of its module, and run the tests."""
    path, code = str(ROOT / mutant.file), _codes(mutant)[1]
    before = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: Any, fullname: str) -> Any:
        return code if self.path == path else before(self, fullname)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
    notes = Afresh(mutant, reach)
    ended = pytest.main([*OPTIONS, "-x", *tests], plugins=[notes])
    return int(ended), notes.failed


def table(outcomes: Mapping[Mutant, Outcome], reasons: Mapping[str, str], seed: int, count: int) -> str:
    """Report the caught mutants by group, and the survivors. The head says if some drawn mutants
    did not run.
    """
    lines = [
        f"# python scripts/mutate.py --mutants {count} --seed {seed}",
        *([f"# NOT ALL WERE RUN: {len(outcomes)} of {count}"] if len(outcomes) < count else []),
        f"# one change each: {OPERATORS}",
        "",
        f"{'group':10}{'places':>8}{'mutants':>9}{'caught':>8}{'ran too long':>14}{'survived':>10}{'caught, %':>11}",
    ]
    chosen = [name for name in GROUPS if any(mutant.group == name for mutant in outcomes)]
    for name in (*chosen, "all"):
        ends = Counter(outcome.end for mutant, outcome in outcomes.items() if name in ("all", mutant.group))
        caught = ends["caught"] + ends["ran too long"]
        at = sum(len(places(group)) for group in chosen if name in ("all", group))
        lines.append(
            f"{name:10}{at:8}{ends.total():9}{ends['caught']:8}{ends['ran too long']:14}{ends['survived']:10}"
            f"{100 * caught / max(1, ends.total()):11.1f}"
        )
    lines += ["", "Survivors:"]
    for mutant, outcome in outcomes.items():
        if outcome.end == "survived":
            lines += [f"- {mutant.name}", f"  {reasons.get(mutant.name, 'not looked into')}"]
    return "\n".join(lines) + "\n"


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
    parser.add_argument("--files", type=int, default=8, help="test files that judge a mutant, the closest ones")
    parser.add_argument("--only", help="the mutants whose names hold this")
    parser.add_argument("--survivors", type=Path, metavar="JSONL", help="run the survivors of that log again")
    parser.add_argument("--log", type=Path, default=Path("mutants.jsonl"), help="a line per mutant; continued if there")
    parser.add_argument("--processes", type=int, default=2, help="mutants that are run at a time")
    parser.add_argument("--table", action="store_true", help="run nothing: only the table of the log")
    parser.add_argument("--out", type=Path, help="write the table there")
    parser.add_argument("--reasons", type=Path, default=REASONS)
    options = parser.parse_args()
    os.chdir(ROOT)
    os.environ.pop("DAGSIM_DATA", None)  # faults must be caught by tests that everybody can run
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    _preload()
    groups = options.groups.split(",")
    mutants = [each for each in drawn(options.mutants, options.seed, groups) if (options.only or "") in each.name]
    done = _read(options.log)
    survivors = {name for name, outcome in _read(options.survivors).items() if outcome.end == "survived"}
    if options.survivors:
        mutants = [mutant for mutant in mutants if mutant.name in survivors]
    todo = [mutant for mutant in mutants if mutant.name not in done]
    count = 0

    def report(mutant: Mutant | None, outcome: Outcome) -> None:
        nonlocal count
        if mutant is None:
            print(f"without a mutant: {outcome.end} {outcome.test} ({outcome.cpu_s:.1f} s)", flush=True)
            return
        count += 1
        done[mutant.name] = outcome
        with options.log.open("a") as log:
            log.write(json.dumps({"name": mutant.name, **outcome._asdict()}) + "\n")
        print(f"{count}/{len(todo)} {outcome.end}: {mutant.name} ({outcome.cpu_s:.1f} s) {outcome.test}", flush=True)

    related = Related()
    for name in () if options.table else groups:
        chosen = [mutant for mutant in todo if mutant.group == name]
        tests = {mutant.file: related.nearest(mutant.file, options.files) for mutant in chosen}
        run_group(GROUPS[name], chosen, tests, report, options.processes)
    outcomes = {mutant: done[mutant.name] for mutant in mutants if mutant.name in done}
    text = table(outcomes, _reasons(options.reasons), options.seed, len(mutants))
    print(text)
    if options.out:
        options.out.write_text(text)
    return 0 if len(outcomes) == len(mutants) else 1


def run_group(
    group: Group,
    mutants: Sequence[Mutant],
    related: Mapping[str, Sequence[str]],
    report: Callable[[Mutant | None, Outcome], None],
    at_once: int = 1,
) -> None:
    """Run the mutants of one group in processes of its own, so that no group sees the imports of
    another.
    """
    if not mutants:
        return
    inside = [mutant for mutant in mutants if _changed(*_codes(mutant)) is not None]
    tests = sorted({file for mutant in mutants for file in related[mutant.file]})
    passed = False

    def note(mutant: Mutant | None, outcome: Outcome) -> None:
        nonlocal passed
        passed |= mutant is None and outcome.end == "survived"
        report(mutant, outcome)

    with tempfile.NamedTemporaryFile() as kept, pytest.MonkeyPatch.context() as patch:
        for key, value in group.environment.items():
            patch.setenv(key, value)
        _forked(tests, inside, related, note, Path(kept.name), at_once)
        reach = read_reach(Path(kept.name))
        for mutant in mutants if passed else ():
            if mutant not in inside:
                report(mutant, run(partial(_afresh, mutant, related[mutant.file], reach), 4000))


def _forked(
    tests: Sequence[str],
    mutants: Sequence[Mutant],
    related: Mapping[str, Sequence[str]],
    report: Callable[[Mutant | None, Outcome], None],
    reach: Path,
    at_once: int,
) -> None:
    """Collect the tests in a fork, and report the outcomes that it sends."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        with os.fdopen(writing, "w") as pipe:

            def send(mutant: Mutant | None, outcome: Outcome) -> None:
                number = None if mutant is None else mutants.index(mutant)
                print(json.dumps([number, *outcome]), file=pipe, flush=True)

            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, 1)
            pytest.main([*OPTIONS, *tests], plugins=[InPlace(mutants, related, send, reach, at_once)])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        for line in pipe:
            number, *outcome = json.loads(line)
            report(None if number is None else mutants[number], Outcome(*outcome))
    os.waitpid(pid, 0)


def _preload() -> None:
    """Import the third-party modules that dagsim and its tests use."""
    import gymnasium  # noqa: F401
    import hypothesis  # noqa: F401
    import numpy  # noqa: F401
    import pydantic  # noqa: F401
    import scipy.stats  # noqa: F401
    import simpy  # noqa: F401
    import torch

    torch.set_num_threads(1)
    assert not any(name.split(".")[0] == "dagsim" for name in sys.modules)


def _read(path: Path | None) -> dict[str, Outcome]:
    if path is None or not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {row.pop("name"): Outcome(**row) for row in rows}


if __name__ == "__main__":
    sys.exit(main())
