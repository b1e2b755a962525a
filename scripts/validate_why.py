"""``dagsim why --state`` against the reasons of real Slurm controllers, job by job.

    python scripts/validate_why.py DATA [--seed 20261128] [--jobs 40] [--out results/validation/why.txt]
    python scripts/validate_why.py DATA --kueue [--seed 44] [--jobs 40] [--out results/validation/why_kueue.txt]

DATA is a folder with ``golden/slurm``. Waiting jobs of site-A (snapshots made from its log by ``make_snapshots.py``)
and site-C (its own ``squeue --json``) are drawn so that each reason of a site comes about equally often. Each is
explained twice: with the scheduler's reasons in the snapshot, and with all reasons removed, so that only the rules of
the site can find them. Right is an answer with the name of the scheduler's reason, or with what the site's special.md
says is the true one: a job that is never permitted is listed under other reasons until the scheduler comes to it.

With ``--kueue``, waiting workloads of the states in ``golden/kueue`` are drawn instead, in turn from each family and
each outcome. Right is an answer that states Kueue's last message, or for a workload that Kueue admits before it rests,
that the next cycles admit it, or for one that was never a head, that it waits for its turn.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from kubernetes_golden import kueue
from make_snapshots import RecordedSite

from dagsim import services
from dagsim.config.schema import load_config
from dagsim.config.yaml import Setting
from dagsim.experiment.scenario import on_its_cluster
from dagsim.families.forecast.explanation import Explanation, explain_wait, same_reason
from dagsim.families.forecast.question import Question, workload_of

SITES = ("site-A", "site-C")
SEED, JOBS, GATE = 20261128, 40, 36
_HOURS = 17


class Case:
    """A waiting job of a snapshot."""

    def __init__(self, site: str, at: str, job: str, reason: str, snapshot: dict[str, Any]) -> None:
        self.site, self.at, self.job, self.reason, self.snapshot = site, at, job, reason, snapshot


def cases(data: Path) -> list[Case]:
    """All waiting jobs of all hourly snapshots, arrays once."""
    found = []
    for site in SITES:
        folder = data / "golden/slurm" / site
        snapshots: dict[str, dict[str, Any]] = {}
        if site == "site-C":
            for path in sorted(folder.glob("snap/*/squeue.json.gz")):
                snapshots[path.parent.name] = json.loads(gzip.decompress(path.read_bytes()))
        else:
            recorded = RecordedSite(folder)
            times = sorted(recorded.queue)
            for hour in range(1, _HOURS):
                epoch = min(times, key=lambda time: abs(time - times[0] - 3600 * hour))
                snapshots[str(epoch)] = recorded.snapshot(epoch)
        for at, snapshot in snapshots.items():
            seen: set[str] = set()
            for job in snapshot["jobs"]:
                state = job["job_state"] if isinstance(job["job_state"], str) else job["job_state"][0]
                name = str(job["array_job_id"] or job["job_id"])
                reason, words = job["state_reason"], job.get("state_description") or ""
                reason = words if words.startswith(f"{reason}, ") else reason
                if state == "PENDING" and name not in seen and reason not in ("", "None"):
                    seen.add(name)
                    found.append(Case(site, at, name, reason, snapshot))
    return found


def drawn(all_cases: list[Case], count: int, seed: int) -> list[Case]:
    """Cases in turn from each reason of each site; no job twice."""
    rng = random.Random(seed)
    groups: dict[tuple[str, str], list[Case]] = defaultdict(list)
    for case in all_cases:
        groups[case.site, case.reason.partition(",")[0].partition("(")[0].strip()].append(case)
    for group in groups.values():
        rng.shuffle(group)
    chosen: list[Case] = []
    taken: set[tuple[str, str]] = set()
    while len(chosen) < count and any(groups.values()):
        names = sorted(groups)
        rng.shuffle(names)
        for name in names:
            while groups[name] and (groups[name][-1].site, groups[name][-1].job) in taken:
                groups[name].pop()
            if groups[name] and len(chosen) < count:
                case = groups[name].pop()
                taken.add((case.site, case.job))
                chosen.append(case)
    return chosen


def answers(case: Case, site: Path, log: Path, folder: Path) -> tuple[Explanation, Explanation]:
    """The explanation with the scheduler's reasons, and without."""
    found = []
    for name in ("stated", "removed"):
        snapshot = json.loads(json.dumps(case.snapshot))
        if name == "removed":
            for job in snapshot["jobs"]:
                job["state_reason"] = "None"
        state = folder / f"{name}.json"
        state.write_text(json.dumps(snapshot))
        config = on_its_cluster(load_config(site, [Setting("state", "workload", workload_of(state))], own=False))
        question = Question.read(config, state, log, None, 2, 0)
        found.append(explain_wait(question, case.job, 1))
    return found[0], found[1]


def kueue_cases(data: Path) -> list[Case]:
    """Waiting workloads of Kueue's states; ``reason`` is its message, or ``admitted`` or ``behind a head``."""
    found = []
    for file in sorted((data / "golden/kueue").glob("*/states.json*")):
        text = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        for case in json.loads(text):
            state, decisions = case["state"], case["decisions"]
            if state["configuration"].get("featureGates") or decisions.get("truncated"):
                continue
            admitted, messages = kueue.outcomes(decisions)
            for one in state["workloads"]:
                if "admission" in one or messages.get(one["name"], "") is None:
                    continue
                reason = "admitted" if one["name"] in admitted else messages.get(one["name"]) or "behind a head"
                found.append(Case(file.parent.name, case["name"], one["name"], reason, state))
    return found


def is_explained(case: Case, folder: Path) -> tuple[bool, str]:
    """Return whether ``why`` says what Kueue did with a workload, and its sentence."""
    objects, nodes = kueue.manifests(case.snapshot)
    snapshot, site = folder / "now.json", folder / "site.yaml"
    snapshot.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*objects, *nodes]}))
    services.import_site([snapshot], site)
    workload = {"kind": "trace", "path": str(snapshot), "format": "kubernetes-now"}
    question = Question.read(load_config(site).changed("check", {"workload": workload}), snapshot, None, None, 2, 0)
    answer = explain_wait(question, f"{kueue.NAMESPACE}/{case.job}", 1)
    if case.reason == "admitted":
        return any(words in answer.sentence for words in ("is admitted in", "and is admitted")), answer.sentence
    if case.reason == "behind a head":
        return "its turn" in answer.sentence or "never" in answer.sentence, answer.sentence
    return case.reason in answer.sentence, answer.sentence


def check_kueue(given: argparse.Namespace) -> list[str]:
    """Explain drawn workloads of Kueue's states; return a summary and a line for each."""
    lines, right = [], 0
    with tempfile.TemporaryDirectory() as name:
        for number, case in enumerate(drawn(kueue_cases(given.data), given.jobs, given.seed), 1):
            is_right, sentence = is_explained(case, Path(name))
            right += is_right
            mark = "right" if is_right else f"WRONG ({case.reason})"
            lines.append(f"{number:3} {case.at:24} {case.job:8} {mark} | {sentence}")
            print(lines[-1], flush=True)
    return [f"seed {given.seed}: of {len(lines)} workloads, right {right}", "", *lines]


def never_reasons(data: Path) -> dict[str, str]:
    """The true reasons of jobs of site-C that are never permitted, by what special.md says was meant."""
    true: dict[str, str] = {}
    for line in (data / "golden/slurm/site-C/special.md").read_text().splitlines():
        parts = [part.strip() for part in line.split("|")]
        if len(parts) > 6 and parts[2].isdigit():
            for words, reason in (("AllowAccounts", "AccountNotAllowed"), ("AllowQos", "QOSNotAllowed")):
                if parts[5].startswith(words):
                    true[parts[2]] = reason
    return true


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--kueue", action="store_true", help="workloads of Kueue's states")
    given = parser.parse_args()
    if given.kueue:
        found = check_kueue(given)
        print(found[0])
        if given.out is not None:
            given.out.write_text("\n".join([__doc__.strip(), "", *found]) + "\n")
        sys.exit(0 if all(" right | " in line for line in found[2:]) else 1)
    true, lines, right = never_reasons(given.data), [], Counter[str]()
    with tempfile.TemporaryDirectory() as name:
        folder, sites = Path(name), {}
        for site in SITES:
            sites[site] = folder / f"{site}.yaml"
            services.import_site([given.data / "golden/slurm" / site], sites[site])
        for number, case in enumerate(drawn(cases(given.data), given.jobs, given.seed), 1):
            log = given.data / "golden/slurm" / case.site / "sacct-aDX.txt"
            stated, removed = answers(case, sites[case.site], log, folder)
            wanted = [case.reason, *([true[case.job]] if case.site == "site-C" and case.job in true else [])]
            marks = []
            for kind, answer in (("with", stated), ("without", removed)):
                is_right = any(same_reason(reason, answer.reason) for reason in wanted)
                right[kind] += is_right
                marks.append("right" if is_right else "WRONG")
            right["rules"] += any(same_reason(reason, stated.hindrance.reason) for reason in wanted)
            reason = case.reason.partition("(")[0].strip()[:40]
            told = f"{number:3} {case.site} {case.at:>10} job {case.job:5} {reason:40}"
            line = f"{told} {marks[0]} {marks[1]} | {removed.sentence}"
            print(line, flush=True)
            lines.append(line)
    total = len(lines)
    summary = (
        f"seed {given.seed}: of {total} jobs, right with the scheduler's reasons {right['with']}, by the rules of the "
        f"site alone {right['without']} (reasons removed from the snapshot); gate {GATE} of {JOBS}"
    )
    print(summary)
    if given.out is not None:
        given.out.write_text("\n".join([__doc__.strip(), "", summary, "", *lines]) + "\n")
    sys.exit(0 if min(right["with"], right["without"]) * JOBS >= GATE * total else 1)


if __name__ == "__main__":
    main()
