from __future__ import annotations

import gzip
import itertools
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from support.command_line import fine, invoke
from support.written_schedules import ScheduleWriter

from dagsim import simulate
from dagsim.errors import InputError
from dagsim.experiment.store import Store
from dagsim.metrics import columns
from dagsim.model import Cluster, Kind, Node, gpu_type
from dagsim.model.log import Schedule
from dagsim.report.perfetto import trace_events, write_perfetto

OUTCOMES = (Kind.FINISHED, Kind.PREEMPTED, Kind.FAILED)


def random_schedule(seed: int) -> Schedule:
    """Whole GPUs, shares, CPU-only runs and runs on a node too large to name its GPUs, each with room; outages."""
    rng = np.random.default_rng(seed)
    nodes = (Node("a", gpu_type("T4"), 4), Node("big", gpu_type("T4"), 64), Node("cpu", cpus=8))
    writer = ScheduleWriter(Cluster(nodes))
    free_s = {("a", gpu): 0.0 for gpu in range(4)} | {("big", gpu): 0.0 for gpu in range(64)}
    for _number in range(60):
        length_s = float(rng.exponential(3.0))
        where = int(rng.integers(3))
        count = int(rng.integers(1, 4)) if where == 0 else int(rng.integers(1, 30))
        name = nodes[where].name
        start_s, held = float(rng.uniform(0, 50)), 0.0
        gpus: list[int] = []
        if where < 2:
            slots = sorted((key for key in free_s if key[0] == name), key=lambda key: free_s[key])[:count]
            start_s = max(free_s[slot] for slot in slots) + float(rng.choice([0.0, 0.1, 1e-7]))
            free_s |= dict.fromkeys(slots, start_s + length_s)
            held = float(count)
            gpus = [gpu for _, gpu in slots] if where == 0 else []  # the other is too large to name them
            if where == 0 and count == 1 and rng.random() < 0.6:
                held = 0.5
        pieces = 2 if held == 0.5 else 1
        for piece in range(pieces):
            outcome = OUTCOMES[rng.integers(3)]
            facts = {"id": f"job<{len(writer.jobs)}>", "ideal_s": length_s, "ideal_gpu_s": length_s, "gpus": held}
            job = writer.job(start_s, **facts, tasks=("t",))
            late_s = length_s * piece * float(rng.random())
            writer.run(job, start_s + late_s, start_s + length_s, {where: gpus}, held=held, outcome=outcome)
    for turn in range(3):
        writer.down(2, 20.0 * turn, 20.0 * turn + float(rng.uniform(0, 20)))
    return writer.schedule()


@pytest.mark.parametrize("seed", range(25))
def test_the_events_keep_the_rules_of_the_format(seed: int) -> None:
    events = list(trace_events(random_schedule(seed)))
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    processes = {event["pid"] for event in events if event["name"] == "process_name"}
    slices = defaultdict(list)
    for event in events:
        assert event["ph"] in "MXiCsf"
        assert event["pid"] in processes
        if event["ph"] == "M":
            assert isinstance(event["args"]["name"], str)
            continue
        assert isinstance(event["ts"], int)
        if event["ph"] in "Xi":
            assert (event["pid"], event["tid"]) in named
        if event["ph"] == "X":
            assert event["dur"] >= 0
            slices[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        if event["ph"] == "i":
            assert event["s"] == "t"
        if event["ph"] == "C":
            assert all(isinstance(value, float) for value in event["args"].values())
    for spans in slices.values():
        spans.sort()
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


@pytest.mark.parametrize("seed", range(5))
def test_every_run_is_a_slice_on_each_of_its_gpus(seed: int) -> None:
    schedule = random_schedule(seed)
    slices = defaultdict(int)
    for event in trace_events(schedule):
        if event["ph"] == "X" and event["cat"] == "run":
            slices[event["args"]["run"]] += 1
    runs = columns(schedule).runs
    took_time = runs.end_s > runs.start_s
    expected = dict(zip(runs.run[took_time].tolist(), np.maximum(np.ceil(runs.held[took_time]), 1), strict=True))
    assert slices == expected


@pytest.mark.parametrize("seed", range(2))
def test_an_arrow_follows_every_edge_from_inside_a_slice_to_the_start_of_one(seed: int) -> None:
    schedule = simulate("heterogeneous-dag", seed=seed).schedule
    events = list(trace_events(schedule))
    starts, ends = ({e["id"]: e for e in events if e["ph"] == kind} for kind in "sf")
    edges = sum(len(parents) for job in schedule.jobs for parents in job.parents)
    assert edges == len(starts) == len(ends) > 20
    slices = defaultdict(list)
    for event in events:
        if event["ph"] == "X" and event["cat"] == "run":
            slices[event["pid"], event["tid"]].append(event)

    def under(flow):
        matches = [s for s in slices[flow["pid"], flow["tid"]] if s["ts"] <= flow["ts"] <= s["ts"] + s["dur"]]
        return {(s["args"]["job"], s["args"]["task"]) for s in matches}

    arrows = set()
    for number, start in starts.items():
        end = ends[number]
        assert start["ts"] <= end["ts"]
        assert end["bp"] == "e"
        both = [(one, other) for one in under(start) for other in under(end) if one[0] == other[0]]
        assert both
        arrows.update((job, parent, child) for (job, parent), (_, child) in both)
    for job in schedule.jobs:
        for child, parents in enumerate(job.parents):
            assert all((job.id, job.tasks[parent], job.tasks[child]) in arrows for parent in parents)


def test_stops_are_instants_and_outages_slices() -> None:
    schedule = random_schedule(0)
    events = list(trace_events(schedule))
    rows = schedule.log.rows()["kind"]
    for kind, name in ((Kind.PREEMPTED, "preempted"), (Kind.FAILED, "failed")):
        runs = {event["args"]["run"] for event in events if event["ph"] == "X" and event["args"].get("outcome") == name}
        assert len(runs) == np.count_nonzero(rows == kind)
        assert sum(event["ph"] == "i" and event["name"] == name for event in events) >= len(runs)
    assert sum(event["name"] == "node down" for event in events) == 3


def test_the_counters_are_those_of_the_metrics() -> None:
    # 2 T4s for 10 s, one of them held from 2 to 6: 9 W idle, 56 W busy (0.8 of 70 W)
    writer = ScheduleWriter(Cluster.of({"T4": 2}))
    writer.run(writer.job(ideal_s=4.0, ideal_gpu_s=4.0, completed_s=6.0), 2.0, 6.0)
    counters = {(e["name"], e["ts"]): e["args"] for e in trace_events(writer.schedule()) if e["ph"] == "C"}
    assert counters["jobs", 0] == {"waiting": 1.0, "running": 0.0}
    assert counters["jobs", 2_000_000] == {"waiting": 0.0, "running": 1.0}
    assert counters["GPUs", 2_000_000] == {"held": 1.0, "up": 2.0}
    idle = gpu_type("T4").idle_watts
    assert counters["watts", 0] == {"GPUs": 2 * idle}
    assert counters["watts", 2_000_000] == {"GPUs": pytest.approx(idle + 0.8 * 70.0)}


def test_a_written_trace_reads_back_and_is_the_same_each_time(tmp_path: Path) -> None:
    schedule = simulate("heterogeneous", seed=1).schedule
    one, other = (write_perfetto(schedule, tmp_path / name, "fifo") for name in ("a.json.gz", "b.json.gz"))
    assert one.read_bytes() == other.read_bytes()
    read = json.loads(gzip.decompress(one.read_bytes()))
    assert read["traceEvents"] == list(trace_events(schedule))
    plain = write_perfetto(schedule, tmp_path / "c.json", "fifo")
    assert json.loads(plain.read_text()) == read


def test_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.json or \.json\.gz"):
        write_perfetto(random_schedule(0), tmp_path / "run.pftrace", "fifo")


def test_plot_writes_a_trace_of_the_run_asked_for(tmp_path: Path) -> None:
    arguments = ["eval", "--set", "workload.count=5", "--seeds", "2", "--no-plots", "--quiet", "--workers", "1"]
    fine(*arguments, "-o", tmp_path / "runs")
    (run,) = (tmp_path / "runs").iterdir()
    file = tmp_path / "run.json.gz"
    fine("plot", run, "--run", "1", "--perfetto", file)
    line = Store.open(run).lines()[1]
    read = json.loads(gzip.decompress(file.read_bytes()))
    assert read["otherData"]["run"] == f"{line.policy}, seed {line.seed}"
    fine("plot", run, "--perfetto", file)
    first = Store.open(run).lines()[0]
    assert json.loads(gzip.decompress(file.read_bytes()))["otherData"]["run"] == f"{first.policy}, seed {first.seed}"
    refused = invoke("plot", run, "--run", "2", "--perfetto", file)
    assert refused.exit_code == 2
    assert "there is no run 2" in refused.stderr
