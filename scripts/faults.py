"""Faults in writes and output steps of dagsim's commands: ``crash.py --faults`` lets each of them fail once.

A *write* is a call that changes a file or a standard stream: opening a new file, each chunk of bytes, a renaming, a new
folder, cutting a file off, waiting for the disk. An *output step* is a call from the rest of dagsim into the code that
makes tables, plots, films and pages (``OUTPUT``), which fails there with an error that nobody expects.

Each command is played once in a process of its own, which loads all modules and fills all caches. Everything else is a
fork of that process, so a play costs what the command itself costs.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import io
import json
import os
import re
import shlex
import signal
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from pathlib import Path
from shutil import rmtree
from types import FrameType
from typing import Any

from crash import COMMANDS, FORKING, SMALL, TRACE, Outcome, differing_trainings, kept, progress

import dagsim.cli
from dagsim.errors import DagsimError
from dagsim.experiment.grid_store import GridStore
from dagsim.experiment.store import Store
from dagsim.traces import catalogue

ROOT = Path(__file__).parents[1]
SITE = ROOT / "workloads" / "site"
WORKFLOW = ROOT / "workloads" / "samples" / "wfcommons" / "v15.json"
LOG = ("--trace", str(SITE / "sacct.txt.gz"), "--config", str(SITE / "slurm.yaml"))
ALONE = ("--workers", "1")
HERE = ("--executor", "local:1")
GROUP = ("--set", "cluster.groups=[{name: t4, gpu: T4, gpus: 8}]")
TWO = (*SMALL, *ALONE, "--seeds", "2")
SLURM_LOG = str(SITE / "sacct.txt.gz")
PODS = str(ROOT / "workloads" / "samples" / "openb2023" / "openb_pod_list_sample.csv")
GRAPHS = str(ROOT / "workloads" / "samples" / "stg")
CONVERTED = {
    "jsonl": (str(TRACE), "OUT/t.jsonl.gz"),
    "parquet": ("JOBS", "OUT/t.parquet"),
    "batsim": ("RUN", "OUT/t.json"),
    "wfcommons": (str(WORKFLOW), "OUT/graphs"),
    "sacct": (SLURM_LOG, "OUT/t.txt"),
    "openb2023": (PODS, "OUT/pods"),
    "plain": (str(TRACE), "OUT/t.csv"),
    "plain-arrow": (str(TRACE), "OUT/t.arrow"),
    "plain-parquet": (str(TRACE), "OUT/t.parquet"),
    "slurm-events": (SLURM_LOG, "OUT/t.events"),
    "stg": (GRAPHS, "OUT/graphs"),
    "swf": (SLURM_LOG, "OUT/t.swf"),
    "tiresias": ("SINGLE", "OUT/t.csv"),
}
"""What is converted to each format, and the file or folder that is made."""
FAULTY: dict[str, tuple[str, ...]] = {
    "eval": ("eval", "--policy", "sjf", *TWO, "--plots", "--out", "OUT"),
    "baseline": ("baseline", "-a", "sjf", "-a", "heft", *TWO, "--plots", "--out", "OUT"),
    "replay": (
        *("replay", "--trace", str(TRACE), *GROUP, *ALONE, "--plots", "--dropped", "OUT/rows.txt"),
        *("--out", "OUT/runs"),
    ),
    "tune": (
        *("tune", "--policy", "eft-wait", "--param", "theta=0.8,0.9", *TWO, "--yaml", "OUT/t.yaml"),
        *("--out", "OUT/runs"),
    ),
    "sweep": ("sweep", str(Path(__file__).with_name("faults.yaml")), *HERE, "--out", "OUT"),
    "whatif": ("whatif", "--trace", "JOBS", *GROUP, "--add", "8xT4", *HERE, "--out", "OUT"),
    "plan": (
        *("plan", "--trace", "JOBS", *GROUP, "--target", "wait_s.mean<100", *HERE, "--plot", "OUT/p.png"),
        *("--out", "OUT/runs"),
    ),
    "train": (*COMMANDS["train-ppo"], *ALONE, "--out", "OUT"),
    "train --report": (
        *COMMANDS["train-reinforce"],
        *(*ALONE, "--iterations", "1", "--report", "--set", "train.report_seeds=2", "--out", "OUT"),
    ),
    "bench run": ("bench", "run", "--policy", "sjf", "--task", "batch", "--seeds", "1", *HERE, "--out", "OUT"),
    "calibrate": ("calibrate", *LOG, "--max-jobs", "40", "--out", "OUT/fitted.yaml"),
    "compare": ("compare", "RUN", "--csv", "OUT/c.csv", "--plot", "OUT/c.png"),
    "report": ("report", "RUN", "-o", "OUT/r.html"),
    "plot": ("plot", "RUN", "--out", "OUT/plots", "--file-type", "svg"),
    "plot --perfetto": ("plot", "RUN", "--perfetto", "OUT/p.json"),
    "record": ("record", "RUN", "-o", "OUT/f.gif", "--frames", "2"),
    "why": ("why", "RUN", "#1"),
    "serve": ("serve", "RUN/..", "--port", "PORT"),
    "serve --watch": (
        *("serve", "OUT", "--watch", "--command", f"cat {SITE / 'squeue.json'}", "--every", "30"),
        *(*LOG[2:], "--samples", "2", "--port", "PORT"),
    ),
    "eta --backtest": ("eta", "--backtest", *LOG[1:], "--samples", "2", *ALONE, "--html", "OUT/b.html"),
    "eta": ("eta", "--state", str(SITE / "squeue.json"), *LOG[2:], "--samples", "2", "--html", "OUT/eta.html"),
    "bound": ("bound", "--workload", "heterogeneous", "--set", "workload.count=3"),
    "paper": ("paper",),
    "bench tasks": ("bench", "tasks"),
    "bench verify": ("bench", "verify", "ENTRY", "--sample", "1", "--seed", "1", *HERE),
    "bench table": ("bench", "table", "ENTRY", "--html", "OUT/t.html", "--markdown", "OUT/t.md"),
    "site import": ("site", "import", str(SITE / "nodes.txt"), "--out", "OUT/site.yaml"),
    "trace info": ("trace", "info", str(TRACE), "--plots", "--out", "OUT"),
    "trace sample": ("trace", "sample", "--out", "OUT/site"),
    "trace fetch": ("trace", "fetch", "faulty", "--out", "OUT"),
    "trace list": ("trace", "list"),
    "trace anonymise": ("trace", "anonymise", str(SITE / "nodes.txt"), str(SITE / "sacct.txt.gz"), "--out", "OUT"),
    "workload info": ("workload", "info", "heterogeneous-dag"),
    "workload save": ("workload", "save", "heterogeneous-dag", "OUT/jobs.jsonl", "--set", "workload.count=20"),
    "config show": ("config", "show"),
    "config check": ("config", "check", str(SITE / "slurm.yaml")),
    "config schema": ("config", "schema"),
    "list": ("list", "policies"),
    "warm": ("warm", "--policy", "fifo"),
    **{f"trace convert ({form})": ("trace", "convert", *of, "--to-format", form) for form, of in CONVERTED.items()},
}
"""Commands whose writes fail. ``OUT`` is a folder of their own; the other capitals are made first (``MADE``)."""
MADE: dict[str, tuple[str, ...]] = {
    "RUN": (*FAULTY["eval"][:-1], "OUT"),
    "JOBS": ("workload", "save", "heterogeneous", "OUT/log.jsonl", "--set", "workload.count=60", *GROUP),
    "ENTRY": FAULTY["bench run"],
    "SINGLE": (
        *("workload", "save", "like-itp", "OUT/log.jsonl"),
        *("--set", "workload.count=20", "--set", "workload.measure=null"),
    ),
}
FINDING = {"RUN": "*", "JOBS": "log.jsonl", "SINGLE": "log.jsonl", "ENTRY": "*.json"}
"""Patterns of what these commands make."""
OUTPUT = ("dagsim/report/", "dagsim/pictures/", "dagsim/families/web/")
"""Folders of the code that only shows what was computed, beside the modules ``*_page`` and ``texts`` of families."""

FULL = OSError(errno.ENOSPC, "No space left on device")
GONE = BrokenPipeError(errno.EPIPE, "Broken pipe")
NO_TEXT = UnicodeEncodeError("ascii", "\u00e9", 0, 1, "ordinal not in range(128)")
STOP = KeyboardInterrupt()


class Bug(Exception):
    """A fault in the code of an output step."""


class Killed(Exception):
    """The process is killed (SIGKILL), which no code can hear."""


BUG, KILLED = Bug("a fault in an output step"), Killed()
CODES = {FULL: (1, 2), GONE: (141,), NO_TEXT: (1,), STOP: (130,), BUG: (1,), KILLED: (-signal.SIGKILL,)}
"""Exit codes of a command in which a write or a step failed so."""
LONGEST_S = 600.0
"""A play that takes longer hangs."""
IGNORED = {"lock", "warming"}
"""Files that may be there after a fault: they hold nothing."""


class _Writes:
    """Counts the writes of this process. The one that stands at ``number`` fails, after half of its bytes."""

    def __init__(self, number: int | str | None, error: BaseException) -> None:
        self.labels: list[str] = []
        self._number, self._error = number, error
        self._write, self._open, self._open_handle = os.write, io.open, os.open
        self._names: dict[int, str] = {1: "stdout", 2: "stderr"}

    def fails(self, label: str) -> bool:
        """Count a write; True if this one fails."""
        self.labels.append(label)
        return len(self.labels) - 1 == self._number

    def fail(self) -> None:
        """Raise the error, or send the signal of kill -9, or of Ctrl-C, which the command may hold for a moment."""
        if isinstance(self._error, Killed):
            os.kill(os.getpid(), signal.SIGKILL)
        if not isinstance(self._error, KeyboardInterrupt):
            raise self._error
        signal.raise_signal(signal.SIGINT)

    def halve(self, write: Callable[[Any], int], data: Any) -> int:
        """Write half of the data, and fail; return the bytes that were written if that was held back."""
        half = write(bytes(memoryview(data).cast("B")[: (len(data) + 1) // 2]))
        self.fail()
        return half

    def install(self) -> None:
        """Count from now on."""
        os.write = self._written
        os.open = self._opened_handle
        io.open = builtins.open = self._opened
        for name, place in (
            ("replace", 1),
            ("rename", 1),
            ("mkdir", 0),
            ("truncate", 0),
            ("ftruncate", 0),
            ("fsync", 0),
        ):
            setattr(os, name, self._before(name, getattr(os, name), place))

    def _written(self, number: int, data: Any) -> int:
        if number in self._names and self.fails(self._names[number]):
            return self.halve(lambda half: self._write(number, half), data)
        return self._write(number, data)

    def _before(self, what: str, call: Callable[..., Any], place: int) -> Callable[..., Any]:
        """The call, which counts under its name and that of the file at ``place`` of its arguments."""

        def called(*args: Any, **options: Any) -> Any:
            file = args[place]
            name = self._names.get(file, "") if isinstance(file, int) else _stable(Path(file).name)
            if self.fails(f"{what} {name}"):
                self.fail()
            return call(*args, **options)

        return called

    def _opened_handle(self, path: Any, flags: int, *rest: Any, **options: Any) -> int:
        writes = flags & (os.O_WRONLY | os.O_RDWR) and str(path) != os.devnull
        if writes and flags & os.O_CREAT and self.fails(f"open {_stable(Path(path).name)}"):
            self.fail()
        handle = self._open_handle(path, flags, *rest, **options)
        self._names.pop(handle, None)
        if writes:
            self._names[handle] = _stable(Path(path).name)
        return handle

    def _opened(self, file: Any, mode: str = "r", buffering: int = -1, *rest: Any, **options: Any) -> Any:
        if isinstance(file, int) or not set(mode) & set("wax+") or str(file) == os.devnull:
            return self._open(file, mode, buffering, *rest, **options)
        if self.fails(f"open {_stable(Path(file).name)}"):
            self.fail()
        # NumPy and Pillow write past files that they know: this one they do not.
        stream: Any = io.BufferedRandom(_CountedFile(file, mode.replace("b", "").replace("t", ""), self))
        return stream if "b" in mode else io.TextIOWrapper(stream, *rest, **options)


class _CountedFile(io.FileIO):
    """A file whose writes count."""

    def __init__(self, file: Any, mode: str, writes: _Writes) -> None:
        self._readable = "+" in mode
        super().__init__(file, mode)
        self._writes, self._label = writes, _stable(Path(file).name)

    def readable(self) -> bool:
        """Always: ``BufferedRandom`` asks for it."""
        return True

    def fileno(self) -> int:
        """Refuse: everything goes through ``write``."""
        raise io.UnsupportedOperation("fileno")

    def write(self, data: Any) -> int:
        """Write, or fail after half of the data."""
        if self._writes.fails(self._label):
            return self._writes.halve(super().write, data)
        return super().write(data)


def _stable(name: str) -> str:
    """The name of a file without what differs from one play to the next."""
    return re.sub(r"\d{8}T\d{6}Z|[0-9a-f]{6,}|\.\d+(?=\.part)", "*", name)


class _Steps:
    """Lists the calls into the code of outputs, each once. The one called ``label`` fails."""

    def __init__(self, label: int | str | None) -> None:
        self.labels: dict[str, None] = {}
        self._label = label
        self._is_output: dict[str, bool] = {}
        self._seen: set[tuple[int, int, int]] = set()

    def install(self) -> None:
        """List from now on, in this thread and in those that it starts."""
        threading.setprofile(self._hear)
        sys.setprofile(self._hear)

    def _hear(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not self._shows(frame.f_code.co_filename) or frame.f_back is None:
            return
        caller, name = frame.f_back, frame.f_code.co_qualname
        # A thread's first call is no step: what the thread does is called from there.
        if self._shows(caller.f_code.co_filename) or caller.f_code.co_filename == threading.__file__:
            return
        if name == "<module>" or name.endswith("_init_"):
            return
        place = (id(caller.f_code), caller.f_lineno, id(frame.f_code))
        if place in self._seen:
            return
        self._seen.add(place)
        label = f"{Path(caller.f_code.co_filename).name}:{caller.f_lineno} {name}"
        self.labels[label] = None
        if label == self._label:
            sys.setprofile(None)
            raise BUG

    def _shows(self, file: str) -> bool:
        known = self._is_output.get(file)
        if known is None:
            inside = any(folder in file for folder in OUTPUT)
            known = inside or ("dagsim/" in file and file.endswith(("page.py", "/texts.py", "_plot.py")))
            self._is_output[file] = known
        return known


def _faulty(arguments: Sequence[str], streams: Path, at: int | str | None, error: BaseException) -> None:
    """Run a command in this process, with its output in files. The write or the step ``at`` fails."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _redirect(streams)
    plain_open = io.open
    counted: _Writes | _Steps = (
        _Steps(None if at is None else str(at))
        if isinstance(error, Bug)
        else _Writes(-1 if at is None else int(at), error)
    )
    _visit_if_served(arguments)
    sys.argv = ["dagsim", *arguments]
    counted.install()
    try:
        dagsim.cli.main()
    finally:
        sys.setprofile(None)
        with plain_open(streams / "labels.json", "w") as file:
            json.dump(list(counted.labels), file)


def _redirect(streams: Path) -> None:
    streams.mkdir(parents=True, exist_ok=True)
    for stream in (1, 2):
        handle = os.open(streams / str(stream), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, stream)
        os.close(handle)


def _visit_if_served(arguments: Sequence[str]) -> None:
    if arguments[0] == "serve":
        watched = Path(arguments[1], "forecasts.jsonl") if "--watch" in arguments else None
        threading.Thread(target=_visit, args=(int(arguments[-1]), watched), daemon=True).start()


def _visit(port: int, watched: Path | None) -> None:
    """Read the pages of a server in this process, after a forecast of a watched queue, and end it as Ctrl-C does."""
    address, until = f"http://127.0.0.1:{port}", time.monotonic() + (20 if watched is None else 60)
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            if watched is not None and b'"forecasts"' not in watched.read_bytes():
                time.sleep(0.1)
                continue
            listed = urllib.request.urlopen(f"{address}/", timeout=20).read().decode()
            for link in dict.fromkeys(re.findall(r'href="/?(runs/[^"#?]+)"', listed)):
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(f"{address}/{link}", timeout=20).read()
            break
        time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGINT)


def inject(name: str, root: Path, step: int = 1, first: int = 0, match: str = "", *, killed: bool = False) -> Outcome:
    """Make writes and output steps of a command fail, one in each play: every ``step``-th, from ``first`` on, of those
    whose names contain a match of the pattern ``match``. With ``killed``, the process is killed at each write instead.
    """
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", DAGSIM_WARM="0")
    with ProcessPoolExecutor(1, mp_context=FORKING) as pool:
        return pool.submit(_Injection(name, root).work, step, first, match, killed).result()


class _Injection:
    """Plays of one command."""

    def __init__(self, name: str, root: Path) -> None:
        self.name, self.root, self.streams = name, root, root / "streams"
        self.outcome = Outcome()
        self.words: dict[str, str] = {}

    def work(self, step: int, first: int, match: str, killed: bool) -> Outcome:
        """Play the command with each fault."""
        terminal = os.dup(2)  # standard error goes to a file as soon as something is played
        if self.name == "trace fetch":
            self._publish()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.words["PORT"] = str(free.getsockname()[1])
        for word in MADE:
            if any(word in part for part in FAULTY[self.name]):
                self.words[word] = str(self._made(word))
        if self.name != "warm":  # which is about what is not there yet
            self._load(self._arguments(self.root / f"{self.name}-first"))
        whole = self.root / f"{self.name}-whole"
        cases: list[tuple[int | str, str, BaseException]] = []
        if not killed:
            assert self._play(self._arguments(whole), error=BUG) == 0, self.said
            cases += [(label, label, BUG) for label in self._labels()]
            rmtree(whole)
        assert self._play(self._arguments(whole)) == 0, self.said
        for number, label in enumerate(self._labels()):
            errors = {"stdout": (FULL, STOP, GONE, NO_TEXT), "stderr": (FULL,)}.get(label, (FULL, STOP))
            cases += [(number, label, error) for error in ((KILLED,) if killed else errors)]
        chosen = [case for case in cases if re.search(match, case[1])][first::step]
        for number, (at, label, error) in enumerate(chosen, 1):
            out = self.root / f"{self.name}-out"
            code = self._play(self._arguments(out), at, error)
            self.outcome.kills += 1
            where = f"{self.name}, {at} ({label}), {type(error).__name__}"
            found = self._left(out, whole, code) if killed else self._faults(out, whole, code, error, label)
            faults = [f"{where}: {fault}" for fault in found]
            self.outcome.faults += faults
            rmtree(out, ignore_errors=True)
            progress("\n".join((f"{number} of {len(chosen)}: {where}: ended with {code}", *faults)), terminal)
        return self.outcome

    @property
    def said(self) -> str:
        """Standard error of the last play."""
        return (self.streams / "2").read_text(errors="replace")

    def _labels(self) -> list[str]:
        labels: list[str] = json.loads((self.streams / "labels.json").read_text())
        return labels

    def _arguments(self, out: Path, command: Sequence[str] | None = None) -> list[str]:
        """The command's words for an empty folder of its own."""
        out.mkdir(parents=True)
        if self.name == "warm":
            os.environ["NUMBA_CACHE_DIR"] = str(out)
        words = self.words | {"OUT": str(out)}
        meant = re.compile(rf"\b({'|'.join(words)})\b")
        return [meant.sub(lambda match: words[match[0]], word) for word in command or FAULTY[self.name]]

    def _made(self, word: str) -> Path:
        """Return the folder that a command of ``MADE`` made; the command runs if it is not there."""
        folder = self.root / word
        if not folder.exists():
            assert self._play(self._arguments(folder, MADE[word])) == 0, self.said
        return next(path for path in sorted(folder.glob(FINDING[word])) if not path.name.startswith("."))

    def _publish(self) -> None:
        """Serve a file as a published trace."""
        content = (SITE / "nodes.txt").read_bytes()
        folder = self.root / "published"
        folder.mkdir()
        (folder / "nodes.txt").write_bytes(content)

        class Files(SimpleHTTPRequestHandler):
            def __init__(self, *args: Any) -> None:
                super().__init__(*args, directory=str(folder))

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Files)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        file = catalogue.Remote(
            f"http://127.0.0.1:{server.server_port}/nodes.txt", len(content), sha256(content).hexdigest()
        )
        catalogue.CATALOGUE["faulty"] = catalogue.PublishedTrace("nodes", "sacct", "", "none", (file,))

    def _load(self, arguments: Sequence[str]) -> None:
        """Play the command in this process."""
        _redirect(self.streams)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.argv = ["dagsim", *arguments]
        _visit_if_served(arguments)
        with contextlib.suppress(SystemExit):
            dagsim.cli.main()

    def _play(self, arguments: Sequence[str], at: int | str | None = None, error: BaseException = FULL) -> int | None:
        """Play a command in a fork of this process. Return its exit code, or None if it hangs."""
        process = get_context("fork").Process(target=_faulty, args=(arguments, self.streams, at, error))
        process.start()
        process.join(LONGEST_S)
        if process.exitcode is None:
            process.kill()
            process.join()
            return None
        return process.exitcode

    def _faults(self, out: Path, whole: Path, code: int | None, error: BaseException, label: str) -> Iterator[str]:
        """Yield what is wrong after a write or an output step of the command has failed."""
        said = self.said
        survived = code == 0  # the command can do without it
        expected = next(codes for kind, codes in CODES.items() if type(kind) is type(error))
        ended_by_ctrl_c = self.name.startswith("serve") and isinstance(error, KeyboardInterrupt)
        if code not in expected and not (survived and (label != "stdout" or ended_by_ctrl_c)):
            yield f"ended with {code}: {said[-300:]}"
        if "Traceback" in said and not isinstance(error, Bug):
            yield f"a traceback: {said[-600:]}"
        if not survived and error is FULL and "error: " not in said:
            yield "no error is named"
        folder = _run_folder(out)
        go_on = re.search(r"continue with: (.*)", said)
        done = 0
        if folder is not None:
            try:
                store = Store.open(folder)
                done = len(store.cells() if isinstance(store, GridStore) else store.lines())
            except DagsimError as wrong:
                yield f"its folder cannot be opened: {wrong}"
            if done and not survived and not (go_on and str(folder) in said):
                yield f"{done} runs are done, but it does not say how to go on: {said[-300:]}"
        if go_on:
            again = shlex.split(go_on[1])[1:]
            self.outcome.resumed += 1
            if self._play(again):
                yield f"{go_on[1]}: ended with an error: {self.said[-300:]}"
            elif folder is not None:
                self.outcome.runs_kept += done
                yield from _unlike(folder, whole)
        elif survived and folder is not None:
            yield from _unlike(folder, whole)
        yield from (f"{path.relative_to(out)} is left" for path in out.rglob(".*.part"))
        if folder is None and (left := _files(out)):
            yield from self._half(left, out, whole)

    def _left(self, out: Path, whole: Path, code: int | None) -> Iterator[str]:
        """Yield what is wrong after the process was killed: a half file under its own name, a run folder that cannot be
        opened, or a command that cannot be started again.
        """
        if code not in CODES[KILLED]:
            yield f"ended with {code}: {self.said[-300:]}"
        folder = _run_folder(out)
        if folder is not None:
            try:
                Store.open(folder)
            except DagsimError as wrong:
                yield f"its folder cannot be opened: {wrong}"
        within = "" if folder is None else _stable(str(folder.relative_to(out)))
        beside = {path: content for path, content in _files(out).items() if not within or not path.startswith(within)}
        parts = [path for path in beside if Path(path).name.startswith(".") and path.endswith(".part")]
        yield from self._half({path: beside[path] for path in beside if path not in parts}, out, whole)

    def _half(self, left: dict[str, bytes], out: Path, whole: Path) -> Iterator[str]:
        """Yield files that are half written, and what is wrong if the command is started again."""
        expected = _files(whole)
        for path, content in left.items():
            if expected.get(path) != content and not (self.name == "trace fetch" and ".part" in path):
                yield f"{path} is half written, or left"
        again = self._again(out)
        if self._play(again):
            yield f"started again, it ended with an error: {self.said[-300:]}"
        elif _run_folder(whole) is None and (now := _files(out)) != expected:
            differing = sorted(path for path in now.keys() | expected.keys() if now.get(path) != expected.get(path))
            # warm itself ends with an error unless all that it needs can be loaded afterwards
            if self.name != "warm":
                yield f"started again, it made other files: {differing}"

    def _again(self, out: Path) -> list[str]:
        """The command's words for a folder that is there."""
        aside = out.with_name(f"{out.name}-aside")
        out.rename(aside)
        words = self._arguments(out)
        out.rmdir()
        aside.rename(out)
        return words


def _files(folder: Path) -> dict[str, bytes]:
    """The files below a folder that hold something, without the names that differ from one play to the next."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in IGNORED]
    contents = {_stable(str(path.relative_to(folder))): path.read_bytes() for path in files}
    if recorded := _forecasts(contents.pop("forecasts.jsonl", b"")):
        contents["forecasts.jsonl"] = recorded
    return contents


def _forecasts(journal: bytes) -> bytes:
    """The forecasts of a watched queue, without the snapshots that had none and the names of snapshots."""
    entries = [json.loads(line) for line in journal.splitlines()]
    made = [dict(entry, snapshot=None) for entry in entries if "forecasts" in entry]
    return json.dumps(made).encode() if made else b""


def _run_folder(out: Path) -> Path | None:
    """The run folder that a command made."""
    manifests = (path.parent for path in sorted(out.rglob("manifest.json")))
    return next((path for path in manifests if path.parent in (out, out / "runs", out / "bench-exact-dev")), None)


def _unlike(folder: Path, whole: Path) -> Iterator[str]:
    """Yield the files of a run folder that differ from those of the undisturbed command; plots and pages may be
    missing.
    """
    reference = _run_folder(whole)
    assert reference is not None
    if (folder / "best.pt").exists():
        yield from (f"{file} differs" for file in differing_trainings(folder, reference))
        return
    files, expected = kept(folder), kept(reference)
    for name in sorted(files.keys() | expected.keys()):
        if "plots" in name or name == "report.html":
            if name in files and not files[name].rstrip().endswith((b"</html>", b"</svg>", b"\xaeB`\x82")):
                yield f"{name} is half written"
        elif files.get(name) != expected.get(name):
            yield f"{name} differs"
