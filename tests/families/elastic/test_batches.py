"""Trainings whose batch grows, and the jobs of Shockwave's cluster."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from families.elastic.shockwave_jobs import batch_schedule, epoch_table
from support.scripting import run_script

from dagsim.errors import ModelError
from dagsim.families.elastic.batches import EpochTraining
from dagsim.model import Cluster, Elastic, Job, Node, Task, gpu_type
from dagsim.model.log import Kind
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.scenario import ClusterScenario

V100 = gpu_type("V100")
SCHEDULE = {0: 16, 10: 32}
SECONDS = {V100.name: {16: 10.0, 32: 6.0}}


def test_the_batch_doubles_up_to_the_largest_one_with_gradient_noise():
    assert batch_schedule("LM", 20, 1, "gns", 100) == {0: 20, 11: 40, 41: 80}
    assert batch_schedule("LM", 20, 1, "gns", 12) == {0: 20, 11: 40}
    assert batch_schedule("Transformer", 16, 1, "gns", 100) == {0: 16}


def test_accordion_keeps_the_first_batch_in_critical_phases():
    assert batch_schedule("ResNet-18", 32, 1, "accordion", 300) == {
        0: 32,
        91: 256,
        150: 32,
        160: 256,
        250: 32,
        260: 256,
    }
    assert batch_schedule("LM", 10, 1, "accordion", 20) == {0: 10, 10: 80}
    assert batch_schedule("LM", 80, 1, "accordion", 200) == {0: 80}


def _added_up(model: str, batch: int, gpus: int, mode: str, epochs: int) -> int:
    """Sum of the batches of all epochs."""
    starts = sorted(batch_schedule(model, batch, gpus, mode, epochs).items())
    ends = [start for start, _ in starts[1:]] + [epochs]
    return sum(size * (end - start) for (start, size), end in zip(starts, ends, strict=True))


@pytest.mark.parametrize(
    ("model", "gpus", "sums"),
    [
        ("ResNet-18", 1, {16: 164784, 32: 169760, 64: 174272, 128: 177536}),
        ("ResNet-18", 2, {16: 157584, 32: 172000, 64: 172352, 128: 173696}),
        ("ResNet-18", 4, {16: 161264, 32: 168480, 64: 170432, 128: 177536}),
        ("ResNet-50", 1, {64: 83008}),
        ("ResNet-50", 2, {32: 79136, 64: 84288}),
        ("ResNet-50", 4, {32: 71136, 64: 77248}),
        ("LM", 1, {5: 51295, 10: 53750, 20: 54060, 40: 55480}),
        ("LM", 2, {5: 51195, 10: 53550, 20: 53660, 40: 55480}),
        ("LM", 4, {5: 50495, 10: 52750, 20: 53260, 40: 53480}),
        ("Recommendation", 1, {512: 5155328, 1024: 5227520, 2048: 5515264, 4096: 5558272}),
    ],
)
def test_with_gradient_noise_699_epochs_add_up_as_in_the_authors_program(model: str, gpus: int, sums: dict[int, int]):
    """The sums of what ``get_gns_bs_pattern`` in their scheduler/utils.py returns for 700 epochs, without the last
    epoch, which it never doubles."""
    assert {batch: _added_up(model, batch, gpus, "gns", 699) for batch in sums} == sums


@pytest.mark.parametrize(
    ("model", "sums"),
    [
        ("ResNet-18", {16: (18160, 126160), 64: (19648, 136768), 128: (21632, 150912), 256: (25600, 179200)}),
        ("ResNet-50", {16: (6080, 51520), 32: (7040, 56960), 64: (8960, 67840), 128: (12800, 89600)}),
        ("LM", {5: (5675, 40175), 20: (6140, 43340), 40: (6760, 47560), 80: (8000, 56000)}),
        ("Recommendation", {512: (427520, 4113920), 1024: (453632, 4221952), 2048: (450560, 4438016)}),
        ("Recommendation", {4096: (610304, 4870144), 8192: (819200, 5734400)}),
        ("Transformer", {16: (1600, 11200)}),
    ],
)
def test_with_accordion_100_and_700_epochs_add_up_as_in_the_authors_program(
    model: str, sums: dict[int, tuple[int, int]]
):
    """The sums of what ``get_accordion_bs_pattern`` in their scheduler/utils.py returns."""
    for batch, added_up in sums.items():
        assert tuple([_added_up(model, batch, 1, "accordion", epochs) for epochs in (100, 700)]) == added_up, batch


def test_an_unknown_mode_is_refused():
    with pytest.raises(ModelError, match="static, gns or accordion, got 'pollux'"):
        batch_schedule("LM", 10, 1, "pollux", 20)


def test_a_batch_that_was_not_measured_names_those_that_were():
    training = EpochTraining(20, {0: 16, 10: 64}, SECONDS).start()
    training.place([1], V100.name)
    training.end_epoch()
    with pytest.raises(
        ModelError, match=r"the duration of an epoch with batch 64 on V100-16 was not measured.*\[16, 32\]"
    ):
        training.pace()


def test_a_job_that_starts_again_counts_its_epoch_again_but_keeps_its_work():
    """Stopped in the middle of epoch 3 of 4: the batch changes when 4.5 epochs are done, which count as 5."""
    training = EpochTraining(10, {0: 16, 4: 32}, SECONDS).start()
    training.place([1], V100.name)
    training.advance(3.5)
    training.place([])
    training.place([1], V100.name)
    assert training.pace().until == 4.5
    training.advance(1.0)
    training.end_epoch()
    assert training.progress == 5.0
    assert training.pace().until == 10.0


def _job(change_s: float, restart_s: float, epochs: float = 12.5) -> Job:
    training = EpochTraining(epochs, SCHEDULE, SECONDS, change_s)
    elastic = Elastic(1, 1, training, restart_s)
    return Job.single("a", Task("train", training.alone_s(V100.name), 1, gang=True, elastic=elastic), 0.0)


def _end_s(job: Job, policy: str) -> float:
    schedule = ClusterScenario(Cluster((Node("n", V100, 1),)), [job]).kernel(0).run(POLICIES.create(policy))
    return next(row.time_s for row in schedule.log if row.kind == Kind.COMPLETED)


@pytest.mark.parametrize(
    "policy", ["fifo", pytest.param("gavel[policy=max_min_fairness]", marks=pytest.mark.family("gavel"))]
)
def test_the_kernel_adds_up_epochs_a_pause_and_the_restart(policy: str):
    assert _end_s(_job(0.0, 0.0), policy) == pytest.approx(10 * 10.0 + 2.5 * 6.0)
    assert _end_s(_job(80.0, 20.0), policy) == pytest.approx(20.0 + 100.0 + 80.0 + 15.0)


@pytest.mark.data
def test_seconds_alone_are_those_that_shockwaves_fairness_implies(data: Path):
    """Shockwave counts batches of an epoch without rounding up, which is at most 4.3 % less here."""
    golden = data / "golden/elastic"
    with gzip.open(golden / "inputs/shockwave/tacc_throughputs.json.gz", "rt") as file:
        rates = json.load(file)["v100"]
    with gzip.open(golden / "shockwave/tacc_32gpus_comparison__allox__simulation.csv.gz", "rt") as file:
        rows = [line.split(",") for line in file.read().splitlines()[1:]]
    with gzip.open(golden / "inputs/shockwave/tacc_120.trace.gz", "rt") as file:
        lines = [line.split("\t") for line in file]
    for fields, (_, jct_s, static, _) in zip(lines, rows, strict=True):
        model, _, batch = fields[0].partition(" (batch size ")
        size, gpus, steps = int(batch[:-1]), int(fields[6]), int(fields[5])
        table = epoch_table(rates, model, gpus)
        per_epoch = table[size] * rates[f"('{fields[0]}', {gpus})"]["null"]
        epochs = -(-steps // round(per_epoch))
        training = EpochTraining(epochs, batch_schedule(model, size, gpus, fields[7], epochs), {"v100": table})
        assert training.alone_s("v100") == pytest.approx(float(jct_s) / (float(static) * 120 / 32), rel=0.043)


@pytest.mark.data
def test_allox_on_the_real_cluster_is_met_closer_than_by_its_authors_simulator(data: Path):
    golden = data / "golden/elastic"
    arguments = ("--inputs", golden / "inputs", "--measured", golden / "shockwave", "--policy", "allox", "--json")
    done = run_script("validate_shockwave", *arguments)
    assert done.returncode == 0, done.stderr
    allox = json.loads(done.stdout)["policies"]["allox"]
    assert len(allox["jobs"]) == len(allox["job_errors"]) == 120
    assert abs(allox["error"]) < 0.0199
    assert sorted(map(abs, allox["job_errors"].values()))[60] < 0.06


def test_missing_inputs_are_an_error_without_a_traceback(tmp_path: Path):
    done = run_script("validate_shockwave", "--inputs", tmp_path)
    assert done.returncode == 2
    assert "tacc_throughputs.json.gz" in done.stderr
    assert "Traceback" not in done.stderr
