"""Kill dagsim at random moments, check what is left, and resume it: ``python scripts/crash.py --kills 100 [--json]``.

Every command is run once undisturbed, then killed (SIGKILL) ``--kills`` times in all: mostly at a moment drawn from the
time from the first sight of its run folder to its end, one in ``EARLY`` from the time before that. So most kills meet a
folder, however busy the machine is. The commands are forked from a process that has imported dagsim, to spend the time
on kills and not on imports; each has workers, files and signals of its own, as it has from a shell.

After each kill no process of it may be left, the run folder must open, ``runs.jsonl`` must list exactly the runs whose
rows are in the tables, every listed schedule must be readable, and ``--resume`` must end with the bytes of the
undisturbed run (``timing.jsonl`` aside). Trainings have two processes for their episodes, and must end with the bytes
of the undisturbed best agent, its log without the columns of a clock, and the same checkpoint. Ends with 1 if anything
was at fault. A further command is a line in ``COMMANDS``, a further training one in ``TRAININGS``.
"""

from __future__ import annotations

import argparse
import atexit
import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory, mkstemp
from typing import Any, ClassVar

import torch

from dagsim.agents.checkpoint import read_plain
from dagsim.errors import DagsimError
from dagsim.experiment.store import Store
from dagsim.experiment.training.log import read_log

ROOT = Path(__file__).parents[1]
TRACE = ROOT / "workloads" / "samples" / "plain" / "jobs.csv"
SMALL = ("--set", "cluster.groups=[{name: t4, gpu: T4, gpus: 8}]", "--set", "workload.count=20")
COMMANDS: dict[str, tuple[str, ...]] = {
    "eval": ("eval", "--algo", "sjf", *SMALL, "--seeds", "40", "--no-plots", "--quiet"),
    "baseline": ("baseline", "-a", "sjf", "-a", "heft", *SMALL, "--seeds", "15", "--no-plots", "--quiet"),
    "replay": ("replay", "--trace", str(TRACE), "--cluster", "sized", "--seeds", "40", "--no-plots", "--quiet"),
    "tune": ("tune", "--algo", "eft-wait", "--param", "theta=0.8,0.9", *SMALL, "--seeds", "15", "--quiet"),
    "sweep": ("sweep", str(Path(__file__).with_name("crash.yaml")), "--quiet"),
}
TRAINED = ("--iterations", "3", "--workers", "2", "--no-report", "--quiet", "--set", "train.validation_seeds=2")
ON_CLUSTER = (*SMALL, "--set", "train.reference=sjf", "--set", "train.net.hidden=8", "--set", "train.lockstep=1")
ON_SPARK = (
    *("--set", "system={kind: spark, executors: 5, jobs: 3}", "--set", "train.reference=fair"),
    *("--set", "train.time_constant_s=[100.0, 400.0]", "--set", "train.lockstep=1"),
)
ON_POLICY = "sequences: 2, replicas: 2"
OFF_POLICY = "episodes: 2, updates: 5, minibatch: 32, replay: 300"
TRAININGS: dict[str, tuple[tuple[str, ...], str]] = {
    "train-ppo": (ON_CLUSTER, f"{{kind: ppo, {ON_POLICY}}}"),
    "train-reinforce": (ON_CLUSTER, f"{{kind: reinforce, {ON_POLICY}}}"),
    "train-d3qn": (ON_CLUSTER, f"{{kind: d3qn, {OFF_POLICY}}}"),
    "train-rainbow": (ON_CLUSTER, f"{{kind: rainbow, {OFF_POLICY}}}"),
    "train-sac": (ON_CLUSTER, f"{{kind: sac, {OFF_POLICY}}}"),
    "train-ppo-spark": (ON_SPARK, f"{{kind: ppo, advantage: fluid, {ON_POLICY}}}"),
    "train-reinforce-spark": (ON_SPARK, f"{{kind: reinforce, advantage: fluid, {ON_POLICY}}}"),
}
COMMANDS |= {
    name: ("train", *where, *TRAINED, "--set", f"train.algorithm={algorithm}")
    for name, (where, algorithm) in TRAININGS.items()
}
EARLY = 10
CLOCKED = ("seconds", "samples_per_s")
OF_THE_CLOCK = {"progress.jsonl", "timing.jsonl", "manifest.json", "status.json", "command.txt", "lock"}
"""Fields of a sweep that may differ after a kill: times, and its own folder."""
SAME = ("config.yaml", "manifest.json", "runs.jsonl", "jobs.csv.gz", "tasks.csv.gz", "summary.json")


@dataclass(slots=True)
class Outcome:
    """Number of kills of one command, and their results."""

    kills: int = 0
    before_its_folder: int = 0
    """Kills before there was a run folder. Only processes are checked."""
    after_its_end: int = 0
    """Commands that had ended before they could be killed."""
    resumed: int = 0
    runs_kept: int = 0
    """Finished runs, or iterations of trainings."""
    faults: list[str] = field(default_factory=list)


NURSERY = """
import json, os, sys
import rich.live, rich.progress, rich.table, scipy.stats, torch._dynamo
import dagsim.agents.rollouts, dagsim.cli, dagsim.experiment.simulate, dagsim.experiment.carry_out
import dagsim.experiment.training, dagsim.experiment.tune, dagsim.report.comparison, dagsim.traces.formats
print(flush=True)
for line in sys.stdin:
    word, value = json.loads(line)
    if word == "start":
        pid = os.fork()
        if pid == 0:
            said = os.open(value[0], os.O_WRONLY | os.O_CREAT, 0o600)
            nothing = os.open(os.devnull, os.O_RDWR)
            for number, copy in ((nothing, 0), (nothing, 1), (said, 2)):
                os.dup2(number, copy)
            sys.argv = ["dagsim", *value[1]]
            break
        print(pid, flush=True)
    else:
        ended, status = os.waitpid(value, os.WNOHANG)
        print(json.dumps(os.waitstatus_to_exitcode(status) if ended else None), flush=True)
else:
    sys.exit()
dagsim.cli.main()
"""
"""A process that has imported the modules of commands. Each command is a fork of it."""


class Command:
    """A running ``dagsim`` command in a process of its own."""

    _nursery: ClassVar[subprocess.Popen[str] | None] = None

    def __init__(self, arguments: Sequence[str]) -> None:
        handle, name = mkstemp()
        os.close(handle)
        self._errors, self._code, self.said = Path(name), None, ""
        self.pid: int = self._asked("start", [name, list(arguments)])

    @classmethod
    def _asked(cls, word: str, value: Any) -> Any:
        if cls._nursery is None:
            cls._nursery = subprocess.Popen(
                [sys.executable, "-c", NURSERY],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            atexit.register(cls._nursery.communicate)
            cls._answer()
        assert cls._nursery.stdin is not None
        print(json.dumps([word, value]), file=cls._nursery.stdin, flush=True)
        return json.loads(cls._answer())

    @classmethod
    def _answer(cls) -> str:
        assert cls._nursery is not None
        assert cls._nursery.stdout is not None
        return cls._nursery.stdout.readline()

    def poll(self) -> int | None:
        """Exit code, if the command has ended."""
        if self._code is None:
            self._code = self._asked("poll", self.pid)
            if self._code is not None:
                self.said = self._errors.read_text(errors="replace").strip()
                self._errors.unlink()
        return self._code

    def wait(self) -> int:
        """Wait for the command and return its exit code."""
        while (code := self.poll()) is None:
            time.sleep(0.01)
        return code

    def kill(self) -> None:
        """Kill the command without a message."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def crash(command: str, kills: int, root: Path, chance: random.Random, workers: int | None = None) -> Outcome:
    """Kill ``command`` this many times in folders below ``root``."""
    outcome = Outcome()
    how_many = (
        () if workers is None else ("--on", f"local:{workers}") if command == "sweep" else ("--workers", str(workers))
    )
    arguments = (*COMMANDS[command], *how_many)
    whole = root / f"{command}-whole"
    process = _started(arguments, whole)
    seen_s, began = _seen_after_s(process, whole), time.monotonic()
    process.wait()
    lasted_s = time.monotonic() - began
    (reference,) = whole.iterdir()
    for number in range(kills):
        out = root / f"{command}-{number}"
        early = chance.randrange(EARLY) == 0
        moment_s = chance.uniform(0.0, seen_s if early else lasted_s)
        process = _started(arguments, out)
        if not early:
            _seen_after_s(process, out)
        time.sleep(moment_s)
        ours = [process.pid, *_below(process.pid)]
        outcome.kills += 1
        outcome.after_its_end += process.poll() is not None
        process.kill()
        process.wait()
        at = f"{command}, kill {number}"
        outcome.faults += [f"{at}: process {pid} lives on" for pid in _left(ours)]
        folders = _folders(out)
        if not folders:
            outcome.before_its_folder += 1
        for path in folders:
            if command == "sweep":
                _check_sweep(arguments, path, reference, outcome, at)
            else:
                _check(command, path, reference, outcome, at)
        rmtree(out, ignore_errors=True)
    return outcome


def _folders(out: Path) -> list[Path]:
    return [path for path in out.iterdir() if not path.name.startswith(".")] if out.exists() else []


def _seen_after_s(process: Command, out: Path) -> float:
    """Wait for the run folder of a command, or its end. Return the elapsed seconds."""
    began = time.monotonic()
    while not _folders(out) and process.poll() is None:
        time.sleep(0.002)
    return time.monotonic() - began


def _check(command: str, path: Path, reference: Path, outcome: Outcome, at: str) -> None:
    """Check the remains of a run, and resume it."""
    try:
        folder = Store.open(path)
        listed = [(line.policy, line.seed) for line in folder.lines()]
        assert folder.state in ("interrupted", "done"), f"its state is {folder.state}"
        if (path / "checkpoint.pt").exists():
            outcome.runs_kept += read_plain(path / "checkpoint.pt")["iteration"]
        for name in ("jobs.csv.gz", "tasks.csv.gz"):
            assert _runs_in(path / name) == listed, f"{name} does not hold the runs that are listed"
        for number, (_, seed) in enumerate(listed):
            assert folder.schedule(number).seed == seed, f"schedule {number} is of another seed"
        outcome.runs_kept += len(listed)
        del folder
    except (AssertionError, DagsimError, OSError, EOFError) as error:
        outcome.faults.append(f"{at}: {error}")
        return
    training = COMMANDS[command][0] == "train"
    more = ("--no-report",) if training else () if command == "tune" else ("--no-plots",)
    resumed = Command((COMMANDS[command][0], "--resume", str(path), "--quiet", *more))
    if code := resumed.wait():
        outcome.faults.append(f"{at}: --resume ended with {code}: {resumed.said[-300:]}")
        return
    outcome.resumed += 1
    differing = _differing_trainings if training else _differing
    outcome.faults += [f"{at}: {name} differs after --resume" for name in differing(path, reference)]


def _differing_trainings(path: Path, reference: Path) -> Iterator[str]:
    """List the parts of a training that differ from those of the undisturbed run."""
    if (path / "best.pt").read_bytes() != (reference / "best.pt").read_bytes():
        yield "best.pt"
    rows = [[dict(row, **dict.fromkeys(CLOCKED)) for row in read_log(folder)] for folder in (path, reference)]
    if rows[0] != rows[1]:
        yield "progress.csv"
    states = [read_plain(folder / "checkpoint.pt") for folder in (path, reference)]
    for name in states[1]:
        if name not in CLOCKED and not _same(states[0].get(name), states[1][name]):
            yield f"checkpoint.pt: {name}"


def _same(one: Any, other: Any) -> bool:
    """True if two values are equal, including every bit of their tensors."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def _check_sweep(arguments: Sequence[str], path: Path, reference: Path, outcome: Outcome, at: str) -> None:
    """Check the remains of a sweep, and start it again, which resumes it."""
    try:
        if (path / "manifest.json").exists() and (path / "sweep.yaml").exists():
            folder = Store.open(path)
            outcome.runs_kept += len(folder.cells())
            del folder
    except DagsimError as error:
        outcome.faults.append(f"{at}: {error}")
        return
    again = _started(arguments, path.parent).wait()
    if again:
        outcome.faults.append(f"{at}: started again it ended with {again}")
        return
    outcome.resumed += 1
    files = [
        {file.relative_to(folder) for file in folder.rglob("*") if file.is_file() and file.name not in OF_THE_CLOCK}
        for folder in (path, reference)
    ]
    differing = files[0] ^ files[1] | {
        name for name in files[0] & files[1] if (path / name).read_bytes() != (reference / name).read_bytes()
    }
    outcome.faults += [f"{at}: {name} differs after it was started again" for name in sorted(map(str, differing))]


def _differing(path: Path, reference: Path) -> Iterator[str]:
    """List the files that differ from those of the undisturbed run."""
    schedules = {file.name for folder in (path, reference) for file in (folder / "schedules").iterdir()}
    for name in (*SAME, *(f"schedules/{name}" for name in sorted(schedules))):
        files = (path / name, reference / name)
        if name == "manifest.json":
            same = (
                len({json.dumps({**json.loads(file.read_text()), "created": "", "git_commit": ""}) for file in files})
                == 1
            )
        else:
            same = all(file.exists() for file in files) and files[0].read_bytes() == files[1].read_bytes()
        if not same:
            yield name


def _runs_in(path: Path) -> list[tuple[str, int]]:
    """Policy and seed of the rows of a table, in order, without repeats."""
    if not path.exists():
        return []
    rows = gzip.decompress(path.read_bytes()).decode().splitlines()[1:]
    return list(dict.fromkeys((row.split(",")[0], int(row.split(",")[1])) for row in rows))


def _started(arguments: Sequence[str], out: Path) -> Command:
    return Command((*arguments, "--out", str(out)))


def _below(pid: int) -> list[int]:
    """Return the descendants of a process."""
    try:
        children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [*children, *(descendant for child in children for descendant in _below(child))]


def _left(pids: Sequence[int], wait_s: float = 60.0) -> list[int]:
    """Return the processes that survive: idle for this long, or busy for this much processor time.

    A process that is still starting ends after its imports, which takes longer on a busy machine.
    """
    used, until = 0.0, time.monotonic() + wait_s
    while (alive := [pid for pid in pids if _lives(pid)]) and time.monotonic() < until:
        time.sleep(0.05)
        now = sum(map(_used_s, alive))
        if now != used and now < wait_s:
            used, until = now, time.monotonic() + wait_s
    return alive


def _used_s(pid: int) -> float:
    """Processor time of a process."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="kills in all, spread evenly over the commands")
    parser.add_argument("--commands", default=",".join(COMMANDS), help="which commands, separated by commas")
    parser.add_argument("--workers", type=int, help="processes of each command (default: its own)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    chance, outcomes = random.Random(options.seed), {}
    commands = options.commands.split(",")
    with TemporaryDirectory() as root:
        for place, command in enumerate(commands):
            kills = options.kills // len(commands) + (place < options.kills % len(commands))
            outcomes[command] = crash(command, kills, Path(root), chance, options.workers)
            stream = sys.stderr if options.json else sys.stdout
            print(f"{command}: {asdict(outcomes[command])}", file=stream, flush=True)
    faults = sum(len(outcome.faults) for outcome in outcomes.values())
    if options.json:
        by_command = {command: asdict(outcome) for command, outcome in outcomes.items()}
        print(json.dumps({"kills": options.kills, "faults": faults, "commands": by_command}))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
