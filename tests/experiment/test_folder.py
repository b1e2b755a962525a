from __future__ import annotations

import csv
import gzip
import json
import zipfile
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from math import inf
from pathlib import Path

import pytest
from support.runs import kept

from dagsim.config.schema import load_config
from dagsim.errors import RunFolderError
from dagsim.experiment.run_store import RunStore
from dagsim.experiment.scenario import replicate_seeds
from dagsim.experiment.simulate import Outcome, run_policy
from dagsim.experiment.store import Store, run_folders
from dagsim.metrics import summarize
from dagsim.model import Decision, Job, Start, Task
from dagsim.systems.cluster.kernel import ClusterKernel
from dagsim.systems.cluster.view import ClusterView
from dagsim.workload.records import write_jobs

NOW = datetime(2026, 11, 20, 19, 30, tzinfo=UTC)
CONFIG = load_config(None, ["cluster.groups=[{name: t4, gpu: T4, gpus: 2}]", "seeds=2"])
JOBS = {"jobs": 3, "warning": None}


class Greedy:
    def decide(self, view: ClusterView) -> Iterator[Decision]:
        for task in list(view.ready):
            placement = view.fit(task)
            if placement is not None:
                yield Start(task, placement)


def result(seed: int) -> Outcome:
    # Two GPUs, three jobs of 10, 20 and 30 s that come at once: the last waits for the first and ends at 40 s.
    jobs = [Job.single(f"j{n}", Task("t", 10.0 * n + seed), tenant="a,b") for n in (1, 2, 3)]
    schedule = ClusterKernel(CONFIG.build_cluster(), jobs, seed=seed).run(Greedy())
    return Outcome(schedule, summarize(schedule), "greedy", seed, JOBS, 0.5)


def make(root: Path) -> Store:
    folder = RunStore.create(root, "eval", CONFIG, argv=["dagsim", "eval", "--set", "a=b c"], now=NOW)
    for seed in (0, 1):
        folder.add(result(seed))
    folder.finish()
    return folder


def rows(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", newline="") as file:
        return list(csv.DictReader(file))


def test_the_name_says_when_what_and_which_seed(tmp_path: Path) -> None:
    name = make(tmp_path).path.name
    assert name.startswith("20261120T193000Z-eval-fifo-s0-")
    assert len(name.rpartition("-")[2]) == 6


def test_a_run_is_never_overwritten(tmp_path: Path) -> None:
    first, second = make(tmp_path), make(tmp_path)
    assert second.path.name == first.path.name + "-2"


def test_the_same_run_writes_the_same_bytes(tmp_path: Path) -> None:
    first, second = make(tmp_path).path, make(tmp_path).path
    same = ["config.yaml", "runs.jsonl", "summary.json", "jobs.csv.gz", "tasks.csv.gz"]
    same += [f"schedules/00{n}.{kind}" for n in (0, 1) for kind in ("npy", "json.gz")]
    for name in same:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


def test_lines_are_read_back_with_what_the_clock_said(tmp_path: Path) -> None:
    run, read = result(1), Store.open(make(tmp_path).path).lines()[1]
    assert (read.policy, read.seed, read.workload, read.metrics) == ("greedy", 1, JOBS, run.summary.to_dict())


def test_the_tables_hold_all_seeds(tmp_path: Path) -> None:
    path = make(tmp_path).path
    jobs = rows(path / "jobs.csv.gz")
    assert [(row["policy"], row["seed"], row["job"], row["completed_s"]) for row in jobs] == [
        ("greedy", "0", "j1", "10.0"),
        ("greedy", "0", "j2", "20.0"),
        ("greedy", "0", "j3", "40.0"),
        ("greedy", "1", "j1", "11.0"),
        ("greedy", "1", "j2", "21.0"),
        ("greedy", "1", "j3", "42.0"),
    ]
    assert jobs[0]["tenant"] == "a,b"
    assert [row["start_s"] for row in rows(path / "tasks.csv.gz")] == ["0.0", "0.0", "10.0", "0.0", "0.0", "11.0"]


def test_the_summary_is_the_mean_over_seeds(tmp_path: Path) -> None:
    summary = json.loads((make(tmp_path).path / "summary.json").read_text())
    assert summary["greedy"]["seeds"] == 2
    # (10 + 20 + 40) / 3 and (11 + 21 + 42) / 3
    assert summary["greedy"]["jct_s.mean"] == pytest.approx((70 / 3 + 74 / 3) / 2)


def test_what_was_given_is_kept(tmp_path: Path) -> None:
    folder = make(tmp_path)
    manifest = json.loads((folder.path / "manifest.json").read_text())
    assert (folder.path / "command.txt").read_text() == "dagsim eval --set 'a=b c'\n"
    assert load_config(folder.path / "config.yaml") == CONFIG
    assert manifest["seeds"] == list(replicate_seeds(0, 2))
    assert manifest["created"] == "2026-11-20T19:30:00+00:00"
    assert {"numpy", "simpy"} <= set(manifest["versions"])


def test_the_trace_is_known_by_its_hash(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_bytes(b"abc")
    config = load_config(None, [f"workload={trace}"])
    folder = RunStore.create(tmp_path, "replay", config, argv=[])
    # SHA-256 of "abc", FIPS 180-2, appendix B.1
    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert folder.manifest["trace"] == {"path": str(trace), "sha256": abc}


def test_a_schedule_is_read_back_equal(tmp_path: Path) -> None:
    schedule = result(1).schedule
    read = Store.open(make(tmp_path).path).schedule(1)
    assert (read.cluster, read.jobs, read.log, read.seed, read.ended_s) == (
        schedule.cluster,
        schedule.jobs,
        schedule.log,
        schedule.seed,
        schedule.ended_s,
    )


def test_the_state_follows_the_run(tmp_path: Path) -> None:
    folder = RunStore.create(tmp_path, "eval", CONFIG, argv=[])
    assert folder.state == "running"
    folder.finish("interrupted")
    assert Store.open(folder.path).state == "interrupted"
    assert not [path for path in folder.path.iterdir() if path.name.startswith(".")]


def test_what_lies_beside_run_folders_is_left_out(tmp_path: Path) -> None:
    """A shell includes it in ``results/*``."""
    run, own, inside = tmp_path / "one", tmp_path / "sub" / "references", tmp_path / "old" / "one"
    for folder in (run, own, inside):
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text("{}")
    references, seeds, notes, old = (tmp_path / name for name in ("references", "seeds.yaml", "notes.txt", "old"))
    references.mkdir()
    seeds.touch()
    notes.touch()
    assert run_folders([run, references, seeds, own]) == ([run, own], [])
    assert run_folders([seeds]) == ([seeds], [])
    assert run_folders([old, seeds]) == ([old], [])
    assert run_folders([notes, run, old, tmp_path / "none"]) == (
        [run, tmp_path / "none"],
        [
            f"{notes}: a file, not a run folder; it is left out",
            f"{old}: not a run folder, because it has no manifest.json; it contains 1 run folder, such as {inside}; "
            "it is left out",
        ],
    )


def damage(path: Path, name: str, content: bytes | None) -> None:
    (path / name).unlink()
    if content is not None:
        (path / name).write_bytes(content)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("manifest.json", None, r"not a run folder, because it has no manifest\.json"),
        (
            "manifest.json",
            b'{"schema": 99}',
            r"manifest\.json: this version only reads run folders with schema 2",
        ),
        ("manifest.json", b"[", r"manifest\.json: cannot be read as JSON"),
        ("config.yaml", b"sed: 1\n", r"config\.yaml: was changed after the run"),
        ("config.yaml", b"seed: 1\n", r"config\.yaml: was changed after the run"),
        ("runs.jsonl", b"{\n", r"runs\.jsonl:1: damaged: this line is not valid JSON"),
        (
            "runs.jsonl",
            b'{"policy": "x"}\n',
            r"runs\.jsonl: a line has no 'seed', so another version of dagsim must have written the file",
        ),
        ("schedules/000.npy", b"\x93NUMPY", r"000\.npy: the schedule log cannot be read"),
        ("schedules/000.json.gz", b"\x1f\x8b", r"000\.json\.gz: cannot be read as a list of jobs"),
        ("schedules/000.json.gz", None, r"000\.json\.gz: cannot be read as a list of jobs"),
        (
            "schedules/000.json.gz",
            gzip.compress(b'{"fields": ["id"]}', mtime=0),
            r"written by another version of dagsim \(its fields are id\)",
        ),
        ("status.json", b"", r"status\.json: cannot be read as JSON"),
        ("status.json", b"[]", r"status\.json: the state must be one of running, done, failed, interrupted"),
    ],
)
def test_damage_is_refused_with_the_file(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    path = make(tmp_path).path
    damage(path, name, content)
    with pytest.raises(RunFolderError, match=message):
        read_all(path)


def read_all(path: Path) -> None:
    folder = Store.open(path)
    assert folder.state
    folder.lines()
    folder.schedule(0)


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="no such run folder"):
        Store.open(tmp_path / "none")


def test_an_unwritable_root_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="cannot be written"):
        RunStore.create(tmp_path / "file", "eval", CONFIG, argv=[])


def test_a_name_stands_in_folder_labels_and_tables(tmp_path: Path) -> None:
    named = [
        RunStore.create(tmp_path, "eval", load_config(None, changes), argv=["x"], name=name)
        for name, changes in (("before .. x", ()), ("after", ("workload.count=90",)))
    ]
    assert [folder.path.parent for folder in named] == [tmp_path, tmp_path]
    assert "-eval-fifo-before-..-x-s0-" in named[0].path.name
    assert named[1].label == "after: heterogeneous, count 90"
    assert Store.open(named[0].path).name == "before .. x"
    for name in ("", "a\nb", "x" * 81, "../x", "a\\b"):
        with pytest.raises(RunFolderError, match="--name"):
            RunStore.create(tmp_path, "eval", load_config(None), argv=["x"], name=name)


def test_a_large_schedule_is_kept_in_columns_and_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config(None, ["workload={preset: heterogeneous-dag, count: 9}", "seeds=2"])
    small = RunStore.create(tmp_path, "eval", config, argv=["dagsim"], policies=["sjf"])
    kept(small, config, ["sjf"])
    monkeypatch.setattr("dagsim.experiment.schedule_files.LARGE_ROWS", 10)
    folder = RunStore.create(tmp_path, "eval", config, argv=["dagsim"], policies=["sjf"])
    kept(folder, config, ["sjf"])
    assert sorted(file.name for file in (folder.path / "schedules").iterdir()) == ["000.npz", "001.npz"]
    for number in range(2):
        one, other = small.schedule(number), Store.open(folder.path).schedule(number)
        assert (one.log, one.jobs, one.seed, one.ended_s) == (other.log, other.jobs, other.seed, other.ended_s)
    with zipfile.ZipFile(folder.path / "schedules" / "000.npz") as archive:
        raw, packed = archive.read("time_s.npy"), archive.getinfo("time_s.npy").compress_size
    assert packed == len(zlib.compress(raw, 1, -15))  # the level that was chosen, not the default
    assert (folder.path / "runs.jsonl").read_text().count("sjf") == 2
    text = gzip.decompress((folder.path / "tasks.csv.gz").read_bytes()).decode()
    assert text.splitlines() == gzip.decompress((small.path / "tasks.csv.gz").read_bytes()).decode().splitlines()[:1]
    (folder.path / "schedules" / "000.npz").write_bytes(b"PK\x03\x04 cut off")
    with pytest.raises(RunFolderError, match=r"000\.npz: cannot be read as a schedule"):
        folder.schedule(0)


def test_a_run_with_a_job_that_can_run_nowhere_is_read_back(tmp_path: Path) -> None:
    jobs = [Job.single("fits", Task("a", 10.0)), Job.single("other", Task("a", 10.0, gpu_types=("V100-16",)))]
    write_jobs(tmp_path / "jobs.jsonl", jobs)
    config = load_config(None, ["cluster.groups=[{name: t4, gpu: T4, gpus: 2}]", f"workload={tmp_path / 'jobs.jsonl'}"])
    store = RunStore.create(tmp_path, "eval", config, argv=["dagsim"], policies=("fifo",))
    store.add(run_policy(config, "fifo", config.seed))
    store.finish("done")
    facts = Store.open(store.path).schedule(0).jobs
    assert {job.id: job.ideal_s for job in facts} == {"fits": 10.0, "other": inf}
