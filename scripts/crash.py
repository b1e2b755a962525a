"""Kill dagsim at random moments, check what is left, and resume it: ``python scripts/crash.py --kills 100 [--json]``.

Every command is run once undisturbed, then killed (SIGKILL) ``--kills`` times in all at moments drawn from its time.
After each kill no process of it may be left, the run folder must open, ``runs.jsonl`` must list exactly the runs whose
rows are in the tables, every listed schedule must be readable, and ``--resume`` must end with the bytes of the
undisturbed run (``timing.jsonl`` aside). Of ``train`` only this is checked: no process is left, the folder opens, and
``--resume`` either ends well or says why it cannot. Ends with 1 if anything was at fault.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory

from dagsim.errors import DagsimError
from dagsim.experiment.folder import RunFolder
from dagsim.experiment.sweep.folder import SweepFolder

__all__ = ["COMMANDS", "Outcome", "crash"]

ROOT = Path(__file__).parents[1]
TRACE = ROOT / "workloads" / "samples" / "plain" / "jobs.csv"
SMALL = ("--set", "cluster.groups=[{name: t4, gpu: T4, gpus: 8}]", "--set", "workload.count=20")
COMMANDS: dict[str, tuple[str, ...]] = {
    "eval": ("eval", "--algo", "sjf", *SMALL, "--seeds", "40", "--no-plots", "--quiet"),
    "baseline": ("baseline", "-a", "sjf", "-a", "heft", *SMALL, "--seeds", "15", "--no-plots", "--quiet"),
    "replay": ("replay", "--trace", str(TRACE), "--cluster", "sized", "--seeds", "40", "--no-plots", "--quiet"),
    "tune": ("tune", "--algo", "eft-wait", "--param", "theta=0.8,0.9", *SMALL, "--seeds", "15", "--quiet"),
    "sweep": ("sweep", str(Path(__file__).with_name("crash.yaml")), "--quiet"),
    "train": ("train", "--algo", "ppo", *SMALL, "--iterations", "2", "--no-report", "--quiet"),
}
OF_THE_CLOCK = {"progress.jsonl", "timing.jsonl", "manifest.json", "status.json", "command.txt", "lock"}
"""What a sweep may say otherwise after a kill: times, and its own folder."""
SAME = ("config.yaml", "manifest.json", "runs.jsonl", "jobs.csv.gz", "tasks.csv.gz", "summary.json")


@dataclass(slots=True)
class Outcome:
    """Kills of one command, and what was found."""

    kills: int = 0
    before_its_folder: int = 0
    """Killed before there was a run folder: nothing to check but processes."""
    after_its_end: int = 0
    """It was through when it should have been killed."""
    resumed: int = 0
    runs_kept: int = 0
    not_resumable: list[str] = field(default_factory=list)
    """Why a training could not go on."""
    faults: list[str] = field(default_factory=list)


def crash(command: str, kills: int, root: Path, chance: random.Random, workers: int | None = None) -> Outcome:
    """Kill ``command`` so many times in folders below ``root``."""
    outcome = Outcome()
    how_many = (
        () if workers is None else ("--on", f"local:{workers}") if command == "sweep" else ("--workers", str(workers))
    )
    arguments = (*COMMANDS[command], *how_many)
    began = time.monotonic()
    whole = root / f"{command}-whole"
    _started(arguments, whole).wait()
    lasted_s = time.monotonic() - began
    (reference,) = whole.iterdir()
    for number in range(kills):
        out = root / f"{command}-{number}"
        process = _started(arguments, out)
        time.sleep(chance.uniform(0.0, lasted_s))
        ours = [process.pid, *_below(process.pid)]
        outcome.kills += 1
        outcome.after_its_end += process.poll() is not None
        process.kill()
        process.wait()
        at = f"{command}, kill {number}"
        outcome.faults += [f"{at}: process {pid} lives on" for pid in _left(ours)]
        found = [path for path in out.iterdir() if not path.name.startswith(".")] if out.exists() else []
        if not found:
            outcome.before_its_folder += 1
        for path in found:
            if command == "sweep":
                _check_sweep(arguments, path, reference, outcome, at)
            else:
                _check(command, path, reference, outcome, at)
        rmtree(out, ignore_errors=True)
    return outcome


def _check(command: str, path: Path, reference: Path, outcome: Outcome, at: str) -> None:
    """Check what is left of a run, and go on with it."""
    try:
        folder = RunFolder.open(path)
        listed = [(line.policy, line.seed) for line in folder.lines()]
        assert folder.state in ("interrupted", "done"), f"its state is {folder.state}"
        for name in ("jobs.csv.gz", "tasks.csv.gz"):
            assert _runs_in(path / name) == listed, f"{name} does not hold the runs that are listed"
        for number, (_, seed) in enumerate(listed):
            assert folder.schedule(number).seed == seed, f"schedule {number} is of another seed"
        outcome.runs_kept += len(listed)
        del folder
    except (AssertionError, DagsimError, OSError, EOFError) as error:
        outcome.faults.append(f"{at}: {error}")
        return
    done = subprocess.run(
        [
            *_dagsim(command, "--resume", str(path), "--quiet"),
            *(() if command in ("tune", "train") else ("--no-plots",)),
        ],
        env=_environment(),
        capture_output=True,
        text=True,
    )
    if done.returncode and command == "train" and "Traceback" not in done.stderr:
        outcome.not_resumable.append(done.stderr.strip())
    elif done.returncode:
        outcome.faults.append(f"{at}: --resume ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    else:
        outcome.resumed += 1
        if command != "train":
            outcome.faults += [f"{at}: {name} differs after --resume" for name in _differing(path, reference)]


def _check_sweep(arguments: Sequence[str], path: Path, reference: Path, outcome: Outcome, at: str) -> None:
    """Check what is left of a sweep, and start it again: that is to resume it."""
    try:
        if (path / "manifest.json").exists() and (path / "sweep.yaml").exists():
            folder = SweepFolder.open(path)
            outcome.runs_kept += len(folder.lines())
            del folder
    except DagsimError as error:
        outcome.faults.append(f"{at}: {error}")
        return
    again = _started(arguments, path.parent).wait()
    if again:
        outcome.faults.append(f"{at}: started again it ended with {again}")
        return
    outcome.resumed += 1
    made = [
        {file.relative_to(folder) for file in folder.rglob("*") if file.is_file() and file.name not in OF_THE_CLOCK}
        for folder in (path, reference)
    ]
    differing = made[0] ^ made[1] | {
        name for name in made[0] & made[1] if (path / name).read_bytes() != (reference / name).read_bytes()
    }
    outcome.faults += [f"{at}: {name} differs after it was started again" for name in sorted(map(str, differing))]


def _differing(path: Path, reference: Path) -> Iterator[str]:
    """The files that are not as they would be had nothing happened."""
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
    """Policy and seed of the rows of a table, in order, each once."""
    if not path.exists():
        return []
    rows = gzip.decompress(path.read_bytes()).decode().splitlines()[1:]
    return list(dict.fromkeys((row.split(",")[0], int(row.split(",")[1])) for row in rows))


def _dagsim(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from dagsim.cli import main; main()", *arguments]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def _started(arguments: Sequence[str], out: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(_dagsim(*arguments, "--out", str(out)), env=_environment(), stderr=subprocess.DEVNULL)


def _below(pid: int) -> list[int]:
    """The children of a process, and theirs."""
    try:
        children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [*children, *(each for child in children for each in _below(child))]


def _left(pids: Sequence[int], wait_s: float = 10.0) -> list[int]:
    """Which of the processes live on."""
    until = time.monotonic() + wait_s
    while (alive := [pid for pid in pids if _lives(pid)]) and time.monotonic() < until:
        time.sleep(0.05)
    return alive


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
            if not options.json:
                print(f"{command}: {asdict(outcomes[command])}", flush=True)
    faults = sum(len(outcome.faults) for outcome in outcomes.values())
    if options.json:
        told = {command: asdict(outcome) for command, outcome in outcomes.items()}
        print(json.dumps({"kills": options.kills, "faults": faults, "commands": told}))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
