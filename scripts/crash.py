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

With ``--faults 1``, nothing is killed. Instead each write of each command, and each of its output steps, fails once
(``faults.py``): the disk is full, the reader is gone, the text cannot be encoded, Ctrl-C comes, or the code has a
fault. The command must end with the right code, no file may be half written, and what it says to go on with must end
with the bytes of the undisturbed command. ``--faults 20`` tries every 20th of them, and ``--match png`` only those that
name ``png``. With ``--killed``, the process is killed (SIGKILL) in the middle of each write: no file may be half
written, its run folder must open, and the command must run again.

Each kill and each play with a fault is a line on standard error as soon as it has been judged.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Any

import command
import torch

import dagsim.cli
from dagsim.errors import DagsimError
from dagsim.experiment.grid_store import GridStore
from dagsim.experiment.store import Store
from dagsim.experiment.training_log import read_log
from dagsim.families.learning.checkpoint_file import read_plain

ROOT = Path(__file__).parents[1]
TRACE = ROOT / "workloads" / "samples" / "plain" / "jobs.csv"
SMALL = ("--set", "cluster.groups=[{name: t4, gpu: T4, gpus: 8}]", "--set", "workload.count=20")
COMMANDS: dict[str, tuple[str, ...]] = {
    "eval": ("eval", "--policy", "sjf", *SMALL, "--seeds", "40", "--no-plots", "--quiet"),
    "baseline": ("baseline", "-a", "sjf", "-a", "heft", *SMALL, "--seeds", "15", "--no-plots", "--quiet"),
    "replay": ("replay", "--trace", str(TRACE), "--cluster", "sized", "--seeds", "40", "--no-plots", "--quiet"),
    "tune": ("tune", "--policy", "eft-wait", "--param", "theta=0.8,0.9", *SMALL, "--seeds", "15", "--quiet"),
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
"""Files that may differ after a kill: they have times, and the path of the folder."""


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


FORKING = get_context("forkserver")
"""Starts each command as a fork of a process that has imported its modules."""
FORKING.set_forkserver_preload(
    [
        *("rich.live", "rich.progress", "rich.table", "scipy.stats", "torch._dynamo", "dagsim.cli"),
        *("dagsim.families.learning.training.rollouts", "dagsim.experiment.simulate", "dagsim.experiment.carry_out"),
        *("dagsim.families.learning", "dagsim.experiment.tune", "dagsim.report.comparison", "dagsim.traces.formats"),
    ]
)


def _started(arguments: Sequence[str], errors: Path) -> BaseProcess:
    """Start a ``dagsim`` command in a process of its own, with standard error in a file."""
    process = FORKING.Process(target=_command, args=(arguments, errors))
    process.start()
    return process


def _command(arguments: Sequence[str], errors: Path) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for number, copy in ((nothing, 0), (nothing, 1), (os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)):
        os.dup2(number, copy)
    sys.argv = ["dagsim", *arguments]
    dagsim.cli.main()


def crash(name: str, kills: int, root: Path, chance: random.Random, workers: int | None = None) -> Outcome:
    """Kill a command this many times in folders below ``root``."""
    outcome = Outcome()
    how_many = (
        () if workers is None else ("--on", f"local:{workers}") if name == "sweep" else ("--workers", str(workers))
    )
    arguments = (*COMMANDS[name], *how_many)
    whole = root / f"{name}-whole"
    errors = root / "errors.txt"
    process = _started((*arguments, "--out", str(whole)), errors)
    seen_s, began = _seen_after_s(process, whole), time.monotonic()
    process.join()
    lasted_s = time.monotonic() - began
    (reference,) = whole.iterdir()
    for number in range(kills):
        out = root / f"{name}-{number}"
        early = chance.randrange(EARLY) == 0
        moment_s = chance.uniform(0.0, seen_s if early else lasted_s)
        process = _started((*arguments, "--out", str(out)), errors)
        if not early:
            _seen_after_s(process, out)
        time.sleep(moment_s)
        assert process.pid is not None
        ours = [process.pid, *_below(process.pid)]
        outcome.kills += 1
        outcome.after_its_end += not process.is_alive()
        process.kill()
        process.join()
        at = f"{name}, kill {number}"
        outcome.faults += [f"{at}: process {pid} lives on" for pid in _left(ours)]
        made = folders(out)
        if not made:
            outcome.before_its_folder += 1
        for path in made:
            try:
                outcome.runs_kept += _sweep_cells(path) if name == "sweep" else _runs(path)
                _resume(arguments, path, errors)
            except (AssertionError, DagsimError, OSError, EOFError) as error:
                outcome.faults.append(f"{at}: {error}")
                continue
            outcome.resumed += 1
            differing = differing_trainings if name in TRAININGS else _differing
            outcome.faults += [f"{at}: {file} differs after it was resumed" for file in differing(path, reference)]
        rmtree(out, ignore_errors=True)
        progress(f"{name}: kill {number + 1} of {kills}, {len(outcome.faults)} faults")
    return outcome


def progress(line: str, stream: int = 2) -> None:
    """Print a line to standard error at once, so that a script which is cut off has told what it did."""
    os.write(stream, f"{line}\n".encode())


def folders(out: Path) -> list[Path]:
    return [path for path in out.iterdir() if not path.name.startswith(".")] if out.exists() else []


def _seen_after_s(process: BaseProcess, out: Path) -> float:
    """Wait for the run folder of a command, or its end. Return the elapsed seconds."""
    began = time.monotonic()
    while not folders(out) and process.is_alive():
        time.sleep(0.002)
    return time.monotonic() - began


def _runs(path: Path) -> int:
    """Check the remains of a command. Return the number of runs, or iterations of a training, that it has kept."""
    folder = Store.open(path)
    listed = [(line.policy, line.seed) for line in folder.lines()]
    assert folder.state in ("interrupted", "done"), f"its state is {folder.state}"
    for name in ("jobs.csv.gz", "tasks.csv.gz"):
        assert _runs_in(path / name) == listed, f"{name} does not hold the runs that are listed"
    for number, (_, seed) in enumerate(listed):
        assert folder.schedule(number).seed == seed, f"schedule {number} is of another seed"
    checkpoint = path / "checkpoint.pt"
    return len(listed) + (read_plain(checkpoint)["iteration"] if checkpoint.exists() else 0)


def _sweep_cells(path: Path) -> int:
    """Number of cells that a sweep has kept."""
    begun = (path / "manifest.json").exists() and (path / "sweep.yaml").exists()
    store = Store.open(path) if begun else None
    return len(store.cells()) if isinstance(store, GridStore) else 0


def _resume(arguments: Sequence[str], path: Path, errors: Path) -> None:
    """Resume a command; a sweep resumes if it is started again.

    Raises:
        AssertionError: It has not ended well.
    """
    name = arguments[0]
    quiet = ("--quiet",) if name == "tune" else ("--quiet", "--no-report" if name == "train" else "--no-plots")
    again = (*arguments, "--out", str(path.parent)) if name == "sweep" else (name, "--resume", str(path), *quiet)
    process = _started(again, errors)
    process.join()
    assert not process.exitcode, (
        f"resumed, it ended with {process.exitcode}: {errors.read_text(errors='replace')[-300:]}"
    )


def differing_trainings(path: Path, reference: Path) -> Iterator[str]:
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


def _differing(path: Path, reference: Path) -> list[str]:
    """List the files that differ from those of the undisturbed command."""
    files, expected = kept(path), kept(reference)
    return sorted(name for name in files.keys() | expected.keys() if files.get(name) != expected.get(name))


def kept(folder: Path) -> dict[str, bytes]:
    """The files of a run folder except those of the clock, and what the manifest says of the run itself."""
    files = {file for file in folder.rglob("*") if file.is_file() and file.name not in OF_THE_CLOCK}
    manifest = json.loads((folder / "manifest.json").read_text()) | {"created": "", "git_commit": ""}
    contents = {str(file.relative_to(folder)): file.read_bytes() for file in files}
    return contents | {"manifest.json": json.dumps(manifest).encode()}


def _runs_in(path: Path) -> list[tuple[str, int]]:
    """Policy and seed of the rows of a table, in order, without repeats."""
    if not path.exists():
        return []
    rows = gzip.decompress(path.read_bytes()).decode().splitlines()[1:]
    return list(dict.fromkeys((row.split(",")[0], int(row.split(",")[1])) for row in rows))


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
    used, until = 0, time.monotonic() + wait_s
    while (alive := [pid for pid in pids if _stat(pid)[:1] not in ([], ["Z"])]) and time.monotonic() < until:
        time.sleep(0.05)
        now = sum(int(ticks) for pid in alive for ticks in _stat(pid)[11:13])
        if now != used and now < wait_s:
            used, until = now, time.monotonic() + wait_s
    return alive


def _stat(pid: int) -> list[str]:
    """What Linux says of a process, from its state on; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _work(options: command.Options, say: command.Say) -> dict[str, Any]:
    chance, outcomes, names = random.Random(options.seed), {}, options.commands.split(",")
    if options.faults:
        return _inject(options, say)
    with TemporaryDirectory() as root:
        for place, name in enumerate(names):
            kills = options.kills // len(names) + (place < options.kills % len(names))
            outcomes[name] = asdict(crash(name, kills, Path(root), chance, options.workers))
            say(f"{name}: {outcomes[name]}")
    faults = sum(len(outcome["faults"]) for outcome in outcomes.values())
    return {"kills": options.kills, "faults": faults, "commands": outcomes}


def _inject(options: command.Options, say: command.Say) -> dict[str, Any]:
    from faults import FAULTY, inject

    outcomes = {}
    for name in FAULTY if options.commands == ",".join(COMMANDS) else options.commands.split(","):
        with TemporaryDirectory() as root:
            outcomes[name] = asdict(
                inject(name, Path(root), options.faults, options.seed, options.match, killed=options.killed)
            )
        say(f"{name}: {outcomes[name]}")
    writes, faults = (
        sum(counted) for counted in zip(*((it["kills"], len(it["faults"])) for it in outcomes.values()), strict=True)
    )
    return {"writes": writes, "faults": faults, "commands": outcomes}


def main() -> int:
    parser = command.arguments(__doc__)
    parser.add_argument("--kills", type=int, default=100, help="kills in all, spread evenly over the commands")
    parser.add_argument("--commands", default=",".join(COMMANDS), help="which commands, separated by commas")
    parser.add_argument("--workers", type=int, help="processes of each command (default: its own)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments; with --faults the first write that fails")
    parser.add_argument("--faults", type=int, default=0, metavar="N", help="let every N-th write fail instead")
    parser.add_argument(
        "--match", default="", help="with --faults, only writes and steps whose names match this pattern"
    )
    parser.add_argument("--killed", action="store_true", help="with --faults, kill the process at each write instead")
    return command.run(parser, _work, holds=lambda result: not result["faults"])


if __name__ == "__main__":
    raise SystemExit(main())
