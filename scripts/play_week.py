"""Plays recorded Slurm sites through ``dagsim serve --watch`` for a week, one snapshot per minute of the recordings.

    python scripts/play_week.py SITE [SITE ...] [--snapshots 10080] [--samples 3] [--kills 3] [--minutes N] [--out FILE]

Each SITE is a folder like ``golden/slurm/site-A``: several recordings of one site. They are repeated one after the
other, with later times and new job ids, until there are enough snapshots. The server gets each snapshot as soon as it
has dealt with the one before, is killed with SIGKILL at random moments, and started again. Then the script compares

- the snapshots in ``forecasts.jsonl`` with those that were written: each must be there exactly once;
- the coverage that the server states with that of the same forecasts by the accounting records: a back-test that reads
  neither the server's memory nor its outcomes;
- the memory of the server and of its forecasting process over time.

``--minutes`` stops earlier, and ``--folder`` keeps what was played, so that the next call continues there.
``--skip`` leaves out the first snapshots: the server starts with an empty journal in the middle of the week.
``--journal`` plays the week without the server and without simulations: the forecasts are the past waits of the
account, and everything is recorded and scored as the server does it, in seconds per thousand snapshots.
Exits with 1 if a snapshot is lost or the coverages differ.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from make_snapshots import RecordedSite

from dagsim.families.forecast.journal import STATED, Journal, Watched
from dagsim.families.forecast.past_waits import History
from dagsim.services import import_site

MINUTE_S, WEEK_S, IDS = 60, 7 * 86400, 100_000
AHEAD = 8
"""Most snapshots that are written before the server has dealt with them."""


class Part:
    """One recording within the week: its times and ids are moved, and its reservations have names of their own."""

    def __init__(self, folder: Path, number: int, begins: int | None) -> None:
        self._folder, self._number = folder, number
        first = min(RecordedSite(folder).queue)
        self.shift = 0 if begins is None else begins - first
        self._site = RecordedSite(folder, self.shift)
        self.epochs = sorted(self._site.queue)
        self.ends = self.epochs[-1] + self.shift

    def reservation(self, name: str) -> str:
        """The name of a reservation in this part."""
        return name if not self._number or not name else f"{name}-{self._number}"

    def snapshots(self, after_s: float = 0.0) -> Iterator[tuple[int, str]]:
        """Yield the time and the JSON of each listing after a time."""
        more = self._number * IDS
        for epoch in [epoch for epoch in self.epochs if epoch + self.shift > after_s]:
            state = self._site.snapshot(epoch)
            for job in state["jobs"]:
                job["job_id"] += more
                job["array_job_id"] += more if job["array_job_id"] else 0
                job["dependency"] = re.sub(r"(?<=:)\d+", lambda id: str(int(id[0]) + more), job["dependency"])
                job["resv_name"] = self.reservation(job["resv_name"])
            yield epoch + self.shift, json.dumps(state)

    def accounting(self) -> list[str]:
        """The rows of accounting."""
        head, *lines = (self._folder / "sacct-aDX.txt").read_text().splitlines()
        names = head.split("|")
        rows = [head]
        for line in lines:
            fields = line.split("|")
            for place, name in enumerate(names):
                if name in ("Submit", "Eligible", "Start", "End") and fields[place].isdigit():
                    fields[place] = str(int(fields[place]) + self.shift)
                elif name in ("JobID", "JobIDRaw"):
                    fields[place] = re.sub(r"^\d+", lambda id: str(int(id[0]) + self._number * IDS), fields[place])
            rows.append("|".join(fields))
        return rows


def week_of(sites: list[Path], count: int) -> list[Part]:
    """The recordings in turn, until they have enough snapshots."""
    parts: list[Part] = []
    while sum(len(part.epochs) for part in parts) < count:
        begins = parts[-1].ends + MINUTE_S if parts else None
        parts.append(Part(sites[len(parts) % len(sites)], len(parts), begins))
    return parts


def write_site(site: Path, parts: list[Part], out: Path) -> None:
    """Import the first recording, with the reservations of every part."""
    import_site([site], out)
    config = yaml.safe_load(out.read_text())
    known = config["queues"].get("reservations", [])
    config["queues"]["reservations"] = [
        own
        | {"name": part.reservation(own["name"]), "start_s": own["start_s"] + part.shift}
        | {"end_s": own["end_s"] + part.shift}
        for part in parts
        for own in known
    ]
    out.write_text(yaml.safe_dump(config, sort_keys=False))


def memory_mb(pid: int) -> float:
    """Resident memory of a process and its children."""
    total, pids = 0, [pid]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                    pids.append(int(entry.name))
            except OSError:
                continue
    for one in pids:
        try:
            status = Path(f"/proc/{one}/status").read_text()
        except OSError:
            continue
        total += int((re.search(r"VmRSS:\s+(\d+)", status) or [0, 0])[1])
    return total / 1024


def cpu_s(pid: int) -> float:
    """CPU seconds of a process and of its children."""
    total = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if pid in (int(entry.name), int(fields[1])):
                total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


class Server:
    """``dagsim serve --watch`` on a folder, which can be killed and started again."""

    def __init__(self, folder: Path, config: Path, history: Path, samples: int, policy: str | None) -> None:
        self._words = [sys.executable, "-m", "dagsim", "serve", str(folder), "--port", "0", "--config", str(config)]
        self._words += ["--history", str(history), "--watch", "--every", "600", "--samples", str(samples)]
        self._words += [] if policy is None else ["--policy", policy]
        self.journal = folder / "forecasts.jsonl"
        self.start()

    def start(self) -> None:
        """Start the server and read its address."""
        self._process = subprocess.Popen(self._words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._process.stdout is not None
        self._address = self._process.stdout.readline().split()[0].rstrip("/")

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def kill(self) -> None:
        """End the process with SIGKILL."""
        os.kill(self.pid, signal.SIGKILL)
        self._process.wait()

    def get(self, path: str) -> str:
        """The server's answer to a request."""
        with urllib.request.urlopen(self._address + path) as answer:
            return str(answer.read().decode())

    def done(self) -> int:
        """The number of complete lines in the journal."""
        return self.journal.read_bytes().count(b"\n") if self.journal.exists() else 0


class Recorder:
    """Records a week as the server does, with past waits of the account as forecasts."""

    def __init__(self, folder: Path, accounting: list[str]) -> None:
        self._folder, self.journal = folder, Journal(folder)
        self._past = History()
        self._waits: list[tuple[int, str, int]] = []
        self._runs: list[tuple[int, int, str]] = []
        names = accounting[0].split("|")
        for line in accounting[1:]:
            row = dict(zip(names, line.split("|"), strict=False))
            if row["Start"].isdigit() and row["NodeList"] != "None assigned":
                start_s, name = int(row["Start"]), row["JobID"].partition("_")[0]
                self._waits.append((start_s, row["Account"], start_s - int(row["Submit"])))
                if row["End"].isdigit():
                    self._runs.append((int(row["End"]), start_s, name))
        self._waits.sort(reverse=True)

    def take(self, t: int, snapshot: str, state: dict[str, Any]) -> None:
        """Record a snapshot: the starts since the last one, and forecasts for the waiting jobs."""
        while self._waits and self._waits[-1][0] <= t:
            _, account, wait_s = self._waits.pop()
            self._past.add(account, wait_s)
        rows: dict[str, Watched] = {}
        started: dict[str, list[float]] = {}
        for job in state["jobs"]:
            name = str(job["array_job_id"] or job["job_id"])
            if job["job_state"] != ["PENDING"]:
                started.setdefault(name, []).append(float(job["start_time"]))
            elif name not in rows:
                levels = np.expm1(self._past.quantiles(job["account"], t - job["submit_time"])).tolist()
                stated = {STATED: max(job["start_time"] - t, 0.0)} if job["start_time"] else {}
                own = name, job["user_name"], job["partition"], job["state_reason"]
                rows[name] = Watched(*own, True, levels[0], levels[9], levels[17], levels[18], stated)
        for end_s, start_s, name in self._runs:
            if self.journal.latest_s < start_s and end_s <= t:
                started.setdefault(name, []).append(float(start_s))
        starts = {name: tuple(sorted(starts_s)) for name, starts_s in started.items()}
        self.journal.seen(float(t), list(rows.values()), starts, [t * 10**9, snapshot, 1])

    def reopen(self) -> None:
        """Forget everything, and read the journal again."""
        self.journal = Journal(self._folder)


def record_week(
    parts: list[Part], count: int, accounting: list[str], folder: Path, tell: Callable[[str], None]
) -> bool:
    """Play the week without simulations; True if nothing is lost and both coverages are the same."""
    recorder, same = Recorder(folder, accounting), True
    first_s = recorder.journal.latest_s
    done = sum(epoch + part.shift <= first_s for part in parts for epoch in part.epochs)
    played = (one for part in parts for one in part.snapshots(first_s))
    for number, (epoch, text) in enumerate(islice(played, count - done), done + 1):
        recorder.take(epoch, f"{epoch}.json", json.loads(text))
        if number % 1000 == 0 or number == count:
            before = recorder.journal.figures(), recorder.journal.coverage()
            recorder.reopen()
            same &= before == (recorder.journal.figures(), recorder.journal.coverage())
            size_mb = recorder.journal.path.stat().st_size / 1e6
            size = f"{memory_mb(os.getpid()):7.1f} MB, journal {size_mb:.1f} MB"
            tell(f"{number:6,} snapshots {size}, same when reopened: {same}")
    entries = [json.loads(line) for line in recorder.journal.path.read_bytes().splitlines()]
    (share, scored), truth = recorder.journal.coverage(), truth_of(entries, accounting)
    tell(f"recorded: coverage {share:.4f} of {scored:,} forecasts; by accounting {truth[0]:.4f} of {truth[1]:,}")
    return same and len(entries) == count and scored == truth[1] and abs(share - truth[0]) < 1e-9


def truth_of(entries: list[dict[str, Any]], history: list[str]) -> tuple[float, int]:
    """Coverage of the forecasts in a journal by accounting: each forecast is for the next task of its submission."""
    names = history[0].split("|")
    starts: dict[str, list[int]] = {}
    for line in history[1:]:
        row = dict(zip(names, line.split("|"), strict=False))
        if row["Start"].isdigit() and row["NodeList"] != "None assigned":
            starts.setdefault(row["JobID"].partition("_")[0], []).append(int(row["Start"]))
    last_s = max(entry["t"] for entry in entries)
    held = [
        entry["t"] + low_s - 1 <= min(later) <= entry["t"] + high_s + 1
        for entry in entries
        for job, low_s, _, high_s, *_ in entry.get("forecasts", ())
        if (later := [start for start in starts.get(job, ()) if entry["t"] < start <= last_s])
    ]
    return (sum(held) / len(held) if held else 0.0), len(held)


class Played(NamedTuple):
    """What the server stated at the end of the week, and its journal."""

    written: list[str]
    entries: list[dict[str, Any]]
    stated: dict[str, Any]
    restarted: dict[str, Any]
    """What it stated after a restart."""
    page: str
    each_s: float
    """CPU seconds per snapshot."""


class Week:
    """The snapshots of a week, written for a server that forecasts starts."""

    def __init__(self, server: Server, asked: argparse.Namespace, tell: Callable[[str], None]) -> None:
        self._server, self._asked, self._tell = server, asked, tell
        self._before = server.done()
        self._written: list[str] = []
        self._spent_s, self._shown = 0.0, 0
        to_play = asked.snapshots - asked.skip
        self._kills = sorted(random.Random(asked.seed).sample(range(20, max(to_play // 8, 60)), asked.kills))

    def play(self, parts: Sequence[Part], folder: Path) -> Played:
        """Write the snapshots as the server deals with them. Kill and restart it at the end."""
        asked, server, written = self._asked, self._server, self._written
        until_s = time.monotonic() + 60 * asked.minutes
        skipped_to = sorted(epoch + part.shift for part in parts for epoch in part.epochs)[asked.skip] - 1
        for epoch, text in (one for part in parts for one in part.snapshots(skipped_to)):
            if len(written) == asked.snapshots - asked.skip or time.monotonic() > until_s:
                break
            self._wait_and_kill()
            self._write(folder, epoch, text)
        while server.done() < len(written):
            time.sleep(0.5)
        self._spent_s += cpu_s(server.pid)
        self._tell(f"{server.done():6,} snapshots {memory_mb(server.pid):7.1f} MB at the end")
        stated = json.loads(server.get("/queue.json"))
        server.kill()
        server.start()
        restarted = json.loads(server.get("/queue.json"))
        page = server.get("/metrics")
        server.kill()
        entries = [json.loads(line) for line in server.journal.read_bytes().splitlines()]
        each_s = self._spent_s / max(len(written) - self._before, 1)
        return Played(written, entries, stated, restarted, page, each_s)

    def _wait_and_kill(self) -> None:
        """Wait until few snapshots are ahead of the server. Kill and restart it when it is time."""
        server = self._server
        while len(self._written) - server.done() >= AHEAD:
            time.sleep(0.1)
        done = server.done()
        if self._kills and done >= self._kills[0]:
            self._spent_s += cpu_s(server.pid)
            server.kill()
            self._tell(f"killed after {self._kills.pop(0)} snapshots; {server.done()} lines are in the journal")
            server.start()
        if done >= self._shown + 250:
            self._shown = done
            self._tell(f"{done:6,} snapshots {memory_mb(server.pid):7.1f} MB")

    def _write(self, folder: Path, epoch: int, text: str) -> None:
        path = folder / f"{epoch}.json"
        self._written.append(path.name)
        if len(self._written) <= self._before:  # dealt with by an earlier call
            return
        path.with_suffix(".part").write_text(text)
        os.utime(path.with_suffix(".part"), (epoch, epoch))
        path.with_suffix(".part").rename(path)
        if len(self._written) > 50:
            (folder / self._written[-50]).unlink(missing_ok=True)


def judged(played: Played, accounting: list[str], samples: int, tell: Callable[[str], None]) -> bool:
    """Compare what the server stated with its journal and the accounting records. True if all is the same."""
    stated, restarted = played.stated, played.restarted
    seen = Counter(entry["snapshot"][1] for entry in played.entries)
    lost = [name for name in played.written if seen[name] != 1]
    share, count = truth_of(played.entries, accounting)
    skipped = [entry["skipped"] for entry in played.entries if "skipped" in entry]
    tell(f"{len(played.written):,} snapshots, {len(lost)} of them lost or twice, {len(skipped)} without a forecast")
    tell(f"{played.each_s:.2f} CPU-s a snapshot (server and forecasts, {samples} futures)")
    tell(f"the server states coverage {stated['coverage_90']:.4f} of {stated['scored']:,} forecasts")
    tell(f"after a restart           {restarted['coverage_90']:.4f} of {restarted['scored']:,}")
    tell(f"by accounting             {share:.4f} of {count:,}")
    for name in ("by_partition", "by_horizon"):
        for own, methods in stated[name].items():
            for of, row in methods.items():
                near = " ".join(f"{row[within]:.2f}" for within in ("within_1_min", "within_10_min", "within_1_h"))
                tell(f"  {own:14} {of:16} {row['n']:8,} started within 1 min, 10 min and 1 h of the median: {near}")
    metrics = played.page.count("# TYPE")
    tell(f"reasons of skipped snapshots: {dict(Counter(skipped))}; /metrics has {metrics} metrics")
    same = stated["scored"] == restarted["scored"] == count and abs(stated["coverage_90"] - share) < 1e-9
    return same and not lost


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sites", type=Path, nargs="+", metavar="SITE")
    parser.add_argument("--snapshots", type=int, default=WEEK_S // MINUTE_S)
    parser.add_argument("--skip", type=int, default=0, help="first snapshots that are left out")
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--policy", help="scheduler that the futures simulate (default: that of the site)")
    parser.add_argument("--folder", type=Path, help="folder to keep, and to continue from")
    parser.add_argument("--journal", action="store_true", help="record without a server and without simulations")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many minutes")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def main() -> None:
    asked = options()
    parts, lines = week_of(asked.sites, asked.snapshots), [__doc__.strip(), "", f"$ {' '.join(sys.argv)}"]

    def tell(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    with tempfile.TemporaryDirectory() as name:
        root = asked.folder or Path(name)
        folder, config, history = root / "live", root / "site.yaml", root / "sacct.txt"
        folder.mkdir(parents=True, exist_ok=True)
        accounting = [line for number, part in enumerate(parts) for line in part.accounting()[bool(number) :]]
        if asked.journal:
            is_same = record_week(parts, asked.snapshots, accounting, folder, tell)
        else:
            if not config.exists():
                write_site(asked.sites[0], parts, config)
                history.write_text("\n".join(accounting) + "\n")
            server = Server(folder, config, history, asked.samples, asked.policy)
            is_same = judged(Week(server, asked, tell).play(parts, folder), accounting, asked.samples, tell)
    if asked.out is not None:
        asked.out.write_text("\n".join(lines) + "\n")
    sys.exit(0 if is_same else 1)


if __name__ == "__main__":
    main()
