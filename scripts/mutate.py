"""Put faults into dagsim, one at a time, and list those that no test notices.

    python scripts/mutate.py [--mutants 300] [--seed 0] [--over modules] [--groups ramp,spark] [--reach FOLDER]

Mutants are drawn at random, with a fixed seed, evenly over every place of the package that an operator fits
(``OPERATORS``), or evenly over its modules (``--over modules``): one place each of that many modules. They are judged
in the order of the draw, so that the first ones of a draw that was stopped are a draw too. A *group* is a folder of
the package (``GROUPS``). Each mutant is judged in a process of its own by the tests that run its block of statements,
those of the closest folder first and the quick ones among them, then by the other tests of their files (a test may
use what an earlier one has cached), until ``--seconds`` of their usual processor time are spent or a test fails. A
mutant outside of functions is judged by the tests that run lines with the name that its statement binds, then by
those that run any line of its file or whose file is named like it. A mutant is *caught* if a test fails, if the
module cannot be imported, or if a test takes four times its usual processor time plus ten seconds.

Left out, since no test could or should see a change: annotations, type aliases and type variables, docstrings,
decorators, imports, ``__all__``, ``raise`` and ``assert`` with their texts, f-strings, the names and summaries of
registries, and the arguments in ``UNSEEN``. Every other survivor counts as one, whether a test could see it or not.

Every test first runs once without a mutant, with a probe in each block of statements, which shows the blocks that it
runs; a test that fails there is left out, and so is one that takes more than ``LONGEST_S``. The folder ``--reach``
keeps the result. Later only changed test files run again, and the blocks of changed modules are found by comparing the
texts. A map that is a little old does no harm: it only chooses tests. All tests run with ``NUMBA_DISABLE_JIT=1``: the
compiled engine can be changed only if numba does not compile it.

mutmut and cosmic-ray start a process, import everything and collect the tests for each mutant: some five seconds of
processor time. Here one process collects all tests and forks for each mutant, which gets the code of one function
changed in place; only mutants outside of functions are imported again. Files are never changed. Survivors are listed
with the reason why they live where ``--reasons`` has one: a line ``ID :: reason`` each, the ID as in the table.
A run that was stopped continues from its ``--log``. Judge survivors longer with ``--survivors LOG --seconds 600``.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import difflib
import gc
import hashlib
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
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import accumulate, groupby, zip_longest
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
_PRELOADED = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
UNLIMITED_S = 100_000
LONGEST_S = 2.0
"""Processor time of the longest test that judges mutants."""
FILES_AFRESH = 12
"""Test files at most that are collected for a mutant outside of functions."""
SPARE_S = 10.0
"""Extra time of a test in seconds, since an earlier test may have done part of its work."""
OPTIONS = ("-q", "-n", "0", "-p", "no:cacheprovider", "--no-header", "-W", _PRELOADED, "-o", "timeout=120")
REASONS = ROOT / "results" / "validation" / "mutant_reasons.txt"


GROUPS = {
    "kernel": "dagsim/systems",
    "policies": "dagsim/systems/cluster/policies",
    "metrics": "dagsim/metrics",
    "workload": "dagsim/workload",
    "traces": "dagsim/traces",
    "envs": "dagsim/envs",
    "experiment": "dagsim/experiment",
    "config": "dagsim/config",
    "model": "dagsim/model",
    "report": "dagsim/report",
    "cli": "dagsim/cli",
    "rest": "dagsim",
} | {
    path.parent.name: f"dagsim/families/{path.parent.name}" for path in sorted(ROOT.glob("dagsim/families/*/family.py"))
}
"""Folders of the package. A file belongs to the group of the deepest folder that holds it."""
WITH_STRINGS = ("formats",)
"""Groups in which strings are changed as well: the names of fields."""


@cache
def files_of(group: str) -> tuple[str, ...]:
    """Return the files of a group, relative to the repository."""
    return tuple(file for file in _package() if _group_of(file) == group)


@cache
def _package() -> tuple[str, ...]:
    return tuple(sorted(str(path.relative_to(ROOT)) for path in (ROOT / "dagsim").rglob("*.py")))


def _group_of(file: str) -> str:
    inside = [name for name, folder in GROUPS.items() if file.startswith(f"{folder}/")]
    return max(inside, key=lambda name: len(GROUPS[name]))


def _operators(both_ways: str, one_way: str = "") -> dict[type[ast.AST], type[ast.AST]]:
    """Operators of ``ast``, each with the one that takes its place: pairs that change places, and others."""
    pairs = [pair.split("-") for pair in f"{both_ways} {one_way}".split()]
    pairs += [pair.split("-")[::-1] for pair in both_ways.split()]
    return {getattr(ast, name): getattr(ast, other) for name, other in pairs}


COMPARED = _operators("Lt-LtE Gt-GtE Eq-NotEq Is-IsNot In-NotIn")
COMPUTED = _operators("Add-Sub Mult-Div BitAnd-BitOr LShift-RShift", "FloorDiv-Mult Mod-FloorDiv BitXor-BitOr Pow-Mult")
OPERATORS = "a comparison, an operator, and for or, a condition or its opposite, a number, a name, min for max, a call"
UNSEEN = {("zip", "strict"), ("field", "repr")}
"""Arguments that say what holds anyway, as an assertion does, or how an object looks to a developer."""
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
    """Yield all nodes worth a change. See ``UNSEEN`` and the module's docstring for what is left out."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "msg"):
            continue
        if name == "keywords" and isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            value = [keyword for keyword in value if (node.func.id, keyword.arg) not in UNSEEN]
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
    strings = group in WITH_STRINGS
    return tuple(
        Mutant(group, file, number, *site[:3])
        for file in files_of(group)
        for number, site in enumerate(sites(ast.parse((ROOT / file).read_text()), strings=strings))
    )


def drawn(count: int, seed: int, groups: Sequence[str], over: str = "places") -> list[Mutant]:
    """Draw ``count`` mutants in random order, evenly over all places or over all modules of the groups."""
    every = [mutant for group in groups for mutant in places(group)]
    rng = random.Random(seed)
    if over == "places":
        return rng.sample(every, count)
    modules = [list(mutants) for _, mutants in groupby(every, key=lambda mutant: mutant.file)]
    return [rng.choice(mutants) for mutants in rng.sample(modules, count)]


class Outcome(NamedTuple):
    """Result of one process: "caught", "survived" or "ran too long", and the time used."""

    end: str
    cpu_s: float
    test: str = ""
    """Test that failed."""


class Reach:
    """Time of each test and the tests that run each block, by its file and first line, without a mutant."""

    def __init__(self, cpu_s: Mapping[str, float], lines: Mapping[str, Mapping[int, Collection[str]]]) -> None:
        self.cpu_s = dict(cpu_s)
        self.lines = {file: {line: set(tests) for line, tests in of.items()} for file, of in lines.items()}

    def chosen(self, mutant: Mutant, seconds: float, *, inside: bool) -> list[str]:
        """Return the tests that judge a mutant, in order, for ``seconds`` of their processor time."""
        first = self.running(mutant.file, [mutant.line]) if inside else self._using(mutant)
        beside = {test.partition("::")[0] for test in first}
        others = {test for test in self.cpu_s if test.partition("::")[0] in beside}
        if not inside:  # a test of constants runs no block of the module
            others |= self.running(mutant.file, blocks_of(mutant.file))
            others |= {test for test in self.cpu_s if nearness(mutant.file, test) >= _NAMESAKE}
        near = partial(nearness, mutant.file)
        ranked = sorted(first | others, key=lambda test: (test not in first, -near(test), self.cpu_s[test], test))
        ends_s = accumulate(self.cpu_s[test] for test in ranked)
        return [test for test, end_s in zip(ranked, ends_s, strict=True) if end_s <= seconds]

    def running(self, file: str, lines: Collection[int]) -> set[str]:
        """Tests that run the block of one of these lines and passed."""
        of_file, blocks = self.lines.get(file, {}), blocks_of(file)
        return {test for line in lines for test in of_file.get(blocks.get(line, 0), ()) if test in self.cpu_s}

    def _using(self, mutant: Mutant) -> set[str]:
        """Tests that run a line with a name that the mutant's statement binds: in its file, else anywhere."""
        names = _bound((ROOT / mutant.file).read_text(), mutant.line)
        if not names:
            return set()
        word = re.compile(rf"\b({'|'.join(map(re.escape, sorted(names)))})\b")
        for files in ((mutant.file,), _package()):
            tests = {test for file in files for test in self.running(file, _lines_with(word, file))}
            if tests:
                return tests
        return set()

    def limit_s(self, test: str) -> float:
        """Processor time left to a test. Many loops never end with a fault in them."""
        return 4 * self.cpu_s.get(test, 10.0) + SPARE_S

    @classmethod
    def kept(cls, folder: Path, tests: Sequence[str], processes: int) -> Reach:
        """Read the map of each test file from a folder, after measuring those that it lacks."""
        todo = [file for file in tests if _record(folder, file) is None]
        shards = [todo[at::processes] for at in range(processes)]
        forks = [Fork(partial(_run_pytest, shard, Measure(folder)), UNLIMITED_S) for shard in shards if shard]
        for fork in forks:
            os.waitpid(fork.pid, 0)
        reach = cls({}, {})
        for file in tests:
            if record := _record(folder, file):
                reach.add(record, folder)
        return reach

    def add(self, record: Mapping[str, Any], folder: Path) -> None:
        """Add the map of a test file."""
        names = record["tests"]
        self.cpu_s |= record["cpu_s"]
        for file, (version, lines) in record["lines"].items():
            moves = _moves(folder / version, file) if (ROOT / file).exists() else {}
            of_file = self.lines.setdefault(file, {})
            for line, tests in lines.items():
                if moves.get(int(line)):
                    of_file.setdefault(moves[int(line)], set()).update(names[test] for test in tests)


_NAMESAKE = 3


def nearness(file: str, test: str) -> int:
    """Number of folders that a module and a test share, and ``_NAMESAKE`` if the test file is named like the module."""
    folders, module, tests = set(Path(file).parts[1:-1]), Path(file).stem, Path(test.partition("::")[0])
    return len(folders & set(tests.parts[1:-1])) + _NAMESAKE * tests.stem.startswith(f"test_{module}")


@cache
def _lines_with(word: re.Pattern[str], file: str) -> tuple[int, ...]:
    lines = (ROOT / file).read_text().splitlines()
    return tuple(number for number, line in enumerate(lines, 1) if word.search(line))


@cache
def _moves(old: Path, file: str) -> dict[int, int]:
    """New number of each line of an old text that is still in the file."""
    one, other = old.read_text().splitlines(), (ROOT / file).read_text().splitlines()
    blocks = difflib.SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
    return {block.a + step + 1: block.b + step + 1 for block in blocks for step in range(block.size)}


def _record_path(folder: Path, test_file: str) -> Path:
    return folder / f"{test_file.removesuffix('.py').replace('/', '-')}-{_version(test_file)}.json"


def _record(folder: Path, test_file: str) -> dict[str, Any] | None:
    path = _record_path(folder, test_file)
    return json.loads(path.read_text()) if path.exists() else None


@cache
def _version(file: str) -> str:
    return hashlib.sha256((ROOT / file).read_bytes()).hexdigest()[:16]


def _run_pytest(files: Sequence[str], plugin: Any) -> tuple[int, str]:
    return int(pytest.main([*OPTIONS, *files], plugins=[plugin])), ""


class Measure:
    """A pytest plugin that writes, for each test file, the time of its tests and the blocks that they run."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True, parents=True)
        self._folder = folder
        self._failed: set[str] = set()
        self._blocks: list[tuple[str, int]] = []
        """File and first line of each block; a probe reports its place in this list."""
        self._hits: set[int] = set()
        builtins.__hit__ = self._hits.add  # type: ignore[attr-defined]
        _replace_code(self._probed)

    def _probed(self, path: str) -> CodeType | None:
        file = path.removeprefix(f"{ROOT}/")
        if not file.startswith("dagsim/"):
            return None
        tree = ast.parse((ROOT / file).read_text())
        for suite in list(_suites(tree)):
            for start in reversed(_starts(suite)):
                line = suite[start].lineno
                probe = ast.parse(f"__hit__({len(self._blocks)})").body[0]
                suite.insert(start, ast.copy_location(probe, suite[start]))
                self._blocks.append((file, line))
        return compile(ast.fix_missing_locations(tree), path, "exec")

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self._failed.add(report.nodeid)

    def pytest_runtestloop(self, session: Any) -> bool:
        signal.signal(signal.SIGPROF, _end_test)
        cpu_s: dict[str, float] = {}
        running: dict[int, list[str]] = {}
        for item, following in zip_longest(session.items, session.items[1:]):
            self._hits.clear()
            began = sum(os.times()[:4])  # with its processes
            try:
                signal.setitimer(signal.ITIMER_PROF, LONGEST_S)
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                signal.setitimer(signal.ITIMER_PROF, 0)
            except Exception:  # the time ended between two steps of pytest, or left its fixtures half made
                signal.setitimer(signal.ITIMER_PROF, 0)
                self._failed.add(item.nodeid)
                with suppress(Exception):
                    session._setupstate.teardown_exact(None)
            if item.nodeid not in self._failed:
                cpu_s[item.nodeid] = sum(os.times()[:4]) - began
                for block in self._hits:
                    running.setdefault(block, []).append(item.nodeid)
            file = item.nodeid.partition("::")[0]
            if following is None or not following.nodeid.startswith(f"{file}::"):
                self._write(file, cpu_s, running)
                cpu_s, running = {}, {}
        return True

    def _write(self, test_file: str, cpu_s: Mapping[str, float], running: Mapping[int, Sequence[str]]) -> None:
        number = {test: place for place, test in enumerate(cpu_s)}
        lines: dict[str, tuple[str, dict[int, list[int]]]] = {}
        for block, tests in running.items():
            file, line = self._blocks[block]
            if file not in lines:
                lines[file] = _version(file), {}
                (self._folder / _version(file)).write_bytes((ROOT / file).read_bytes())
            lines[file][1][line] = [number[test] for test in tests]
        record = {"tests": list(cpu_s), "cpu_s": cpu_s, "lines": lines}
        _record_path(self._folder, test_file).write_text(json.dumps(record))


def _replace_code(code_of: Callable[[str], CodeType | None]) -> None:
    """Import modules with the code that the function returns for their paths, if any."""
    before = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: Any, fullname: str) -> Any:
        code = code_of(self.path)
        return before(self, fullname) if code is None else code

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]


def _suites(node: ast.AST, inside: bool = False) -> Iterator[list[ast.stmt]]:
    """Every list of statements inside of functions."""
    inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or inside
    for name in ("body", "orelse", "finalbody"):
        suite = getattr(node, name, None)
        if inside and isinstance(suite, list) and suite:
            yield suite
    for child in ast.iter_child_nodes(node):
        yield from _suites(child, inside and not isinstance(child, ast.ClassDef))


def _starts(suite: Sequence[ast.stmt]) -> list[int]:
    """Places in a list of statements where a block starts: the first, and after each that has a body."""
    first = isinstance(suite[0], ast.Expr) and isinstance(suite[0].value, ast.Constant)  # a docstring
    return [
        place for place in range(len(suite)) if place == first or (place > first and hasattr(suite[place - 1], "body"))
    ]


@cache
def blocks_of(file: str) -> dict[int, int]:
    """First line of the block of every line inside of functions; a body's lines belong to the body."""
    blocks: dict[int, int] = {}
    for suite in _suites(ast.parse((ROOT / file).read_text())):  # bodies come after the statements that hold them
        starts = _starts(suite)
        for place, statement in enumerate(suite):
            start = max((begin for begin in starts if begin <= place), default=0)
            span = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
            blocks |= dict.fromkeys(span, suite[start].lineno)
    return blocks


def _end_test(*_: object) -> None:
    raise TimeoutError(f"a test that takes more than {LONGEST_S} s is too long to judge mutants")


def _bound(source: str, line: int) -> set[str]:
    """Names that the statement at a line binds: a constant, a field, a function with its default values."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]
    around = [node for node in nodes if node.lineno <= line <= (node.end_lineno or line)]
    match around[-1] if around else None:  # walking is breadth-first, so the innermost comes last
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case ast.Assign(targets=targets):
            return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
    return set()


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
                os.setpgid(0, 0)
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
        """Result of the process. Call it only after the process has ended; it ends those that it left."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
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
        mutants: All inside a function, with their tests in order.
        reach: The time of each test.
        report: Called with each mutant and its outcome.
        processes: Forks at a time.
    """

    def __init__(
        self,
        mutants: Mapping[Mutant, Sequence[str]],
        reach: Reach,
        report: Callable[[Mutant, Outcome], None],
        processes: int = 1,
    ) -> None:
        self._mutants, self._reach, self._report, self._processes = mutants, reach, report, processes
        self._failed: list[str] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self._failed.append(report.nodeid)

    def pytest_runtestloop(self, session: Any) -> bool:
        items = {item.nodeid: item for item in session.items}
        waiting = list(self._mutants.items())
        running: dict[int, tuple[Mutant, Fork]] = {}
        gc.freeze()  # forks share the objects of this process as long as nothing collects them
        while waiting or running:
            while waiting and len(running) < self._processes:
                mutant, tests = waiting.pop(0)
                chosen = [items[test] for test in tests if test in items]
                fork = Fork(partial(self._run, chosen, mutant), UNLIMITED_S)
                running[fork.pid] = mutant, fork
            pid, status, usage = os.wait4(-1, 0)
            if pid in running:
                mutant, fork = running.pop(pid)
                self._report(mutant, fork.outcome(status, usage))
        return True

    def _run(self, items: Sequence[Any], mutant: Mutant) -> tuple[int, str]:
        """Run the tests in this process, up to the first that fails."""
        gc.unfreeze()
        _put_in_place(mutant)
        for item, following in zip_longest(items, items[1:]):
            _leave(self._reach.limit_s(item.nodeid))
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._failed:
                return 1, self._failed[0]
        return 0, ""


class Afresh:
    """A pytest plugin that puts the tests for one mutant outside of functions in order."""

    def __init__(self, tests: Sequence[str], reach: Reach) -> None:
        self._tests, self._reach = tests, reach
        self.failed = ""

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        by_name = {item.nodeid: item for item in items}
        items[:] = [by_name[test] for test in self._tests if test in by_name]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        _leave(self._reach.limit_s(nodeid))

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid


def _leave(limit_s: float) -> None:
    """End this process once it has used ``limit_s`` more seconds of processor time."""
    resource.setrlimit(resource.RLIMIT_CPU, (round(time.process_time() + limit_s), resource.RLIM_INFINITY))


def _put_in_place(mutant: Mutant) -> None:
    """Replace the code of the one function that contains the mutant, wherever the function is
    referenced.
    """
    path, (old, new) = str(ROOT / mutant.file), _codes(mutant)
    (changed,) = _changed(old, new) or [old]
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
    tree = mutated(source, mutant.number, strings=mutant.group in WITH_STRINGS)
    return compile(source, str(path), "exec"), compile(tree, str(path), "exec")


def _changed(old: CodeType, new: CodeType) -> list[CodeType] | None:
    """Return the new code of outermost functions that differ, or None if code outside of functions
    differs.
    """
    if old.co_code != new.co_code or old.co_names != new.co_names or len(old.co_consts) != len(new.co_consts):
        return None
    changed: list[CodeType] = []
    for one, other in zip(old.co_consts, new.co_consts, strict=True):
        if isinstance(one, CodeType) and isinstance(other, CodeType):
            if one.co_flags & inspect.CO_OPTIMIZED:
                changed += [other] if one != other else []
            elif (inner := _changed(one, other)) is None:
                return None
            else:
                changed += inner
        elif (type(one), one) != (type(other), other):
            return None
    return changed


def _afresh(mutant: Mutant, tests: Sequence[str], reach: Reach) -> tuple[int, str]:
    """Import everything with the mutant instead of its module, and run the tests."""
    path, code = str(ROOT / mutant.file), _codes(mutant)[1]
    _replace_code(lambda other: code if other == path else None)
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))[:FILES_AFRESH]
    notes = Afresh(tests, reach)
    ended = pytest.main([*OPTIONS, "-x", *files], plugins=[notes]) if files else 0
    return int(ended), notes.failed


def table(outcomes: Mapping[Mutant, Outcome], reasons: Mapping[str, str], draw: str, count: int) -> str:
    """Report the caught mutants by group, and the survivors. The head says if some drawn mutants
    did not run.
    """
    lines = [
        f"# python scripts/mutate.py {draw}",
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
    parser.add_argument("--over", choices=("places", "modules"), default="places", help="what the draw is even over")
    parser.add_argument("--groups", default=",".join(GROUPS), help="which groups, separated by commas")
    parser.add_argument("--reach", type=Path, default=Path("reach"), help="folder of the maps of tests and lines")
    parser.add_argument("--seconds", type=float, default=60.0, help="processor time of the tests that judge a mutant")
    parser.add_argument("--only", help="the mutants whose names hold this")
    parser.add_argument("--survivors", type=Path, metavar="JSONL", help="run the survivors of that log again")
    parser.add_argument("--log", type=Path, default=Path("mutants.jsonl"), help="a line per mutant; continued if there")
    parser.add_argument("--processes", type=int, default=2, help="mutants that are run at a time")
    parser.add_argument("--table", action="store_true", help="run nothing: only the table of the log")
    parser.add_argument("--out", type=Path, help="write the table there")
    parser.add_argument("--reasons", type=Path, default=REASONS)
    options = parser.parse_args()
    prepare()
    mutants = drawn(options.mutants, options.seed, options.groups.split(","), options.over)
    mutants = [mutant for mutant in mutants if (options.only or "") in mutant.name]
    if options.survivors:
        survivors = {name for name, outcome in _read(options.survivors).items() if outcome.end == "survived"}
        mutants = [mutant for mutant in mutants if mutant.name in survivors]
    done = _read(options.log)
    todo = [mutant for mutant in mutants if mutant.name not in done]
    if todo and not options.table:
        print(f"{len(todo)} mutants", file=sys.stderr)
        judge(todo, options.reach, options.seconds, partial(_report, options.log), options.processes)
        done = _read(options.log)
    outcomes = {mutant: done[mutant.name] for mutant in mutants if mutant.name in done}
    draw = f"--mutants {options.mutants} --seed {options.seed} --over {options.over}"
    text = table(outcomes, _reasons(options.reasons), draw, len(mutants))
    print(text)
    if options.out:
        options.out.write_text(text)
    return 0 if len(outcomes) == len(mutants) else 1


def prepare() -> None:
    """Make this process one in which tests can be measured and judge mutants."""
    os.chdir(ROOT)
    os.environ["NUMBA_DISABLE_JIT"] = "1"
    os.environ.pop("DAGSIM_DATA", None)  # faults must be caught by tests that everybody can run
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    _preload()


def test_files() -> list[str]:
    """Return all test files, relative to the repository."""
    return sorted(str(file.relative_to(ROOT)) for file in (ROOT / "tests").rglob("test_*.py"))


def _report(log: Path, mutant: Mutant, outcome: Outcome) -> None:
    with log.open("a") as file:
        file.write(json.dumps({"name": mutant.name, **outcome._asdict()}) + "\n")
    print(f"{outcome.end}: {mutant.name} ({outcome.cpu_s:.1f} s) {outcome.test}", file=sys.stderr, flush=True)


def judge(
    mutants: Sequence[Mutant],
    folder: Path,
    seconds: float,
    report: Callable[[Mutant, Outcome], None],
    processes: int = 1,
) -> None:
    """Run the mutants, each in a process of its own."""
    reach = Reach.kept(folder, test_files(), processes)
    inside = [mutant for mutant in mutants if _changed(*_codes(mutant)) is not None]
    if inside:
        chosen = {mutant: reach.chosen(mutant, seconds, inside=True) for mutant in inside}
        _forked(chosen, reach, report, processes)
    for mutant in mutants:
        if mutant not in inside:
            tests = reach.chosen(mutant, seconds, inside=False)
            report(mutant, run(partial(_afresh, mutant, tests, reach), UNLIMITED_S))


def _forked(
    mutants: Mapping[Mutant, Sequence[str]], reach: Reach, report: Callable[[Mutant, Outcome], None], processes: int
) -> None:
    """Collect the tests in a fork, since mutants outside of functions need a process without dagsim, and run them."""
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        files = sorted({test.partition("::")[0] for tests in mutants.values() for test in tests})
        pytest.main([*OPTIONS, *files], plugins=[InPlace(mutants, reach, report, processes)])
        os._exit(0)
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


def _read(path: Path) -> dict[str, Outcome]:
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {row.pop("name"): Outcome(**row) for row in rows}


if __name__ == "__main__":
    raise SystemExit(main())
