"""Measured applications: interpolation, refusals, and files."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from families.elastic.elastic_cases import profile

from dagsim.errors import ModelError, TraceError
from dagsim.families.elastic.profiles import read_applications


def test_a_measured_placement_is_linear_in_the_local_batch() -> None:
    assert profile().times((2,), 10) == pytest.approx((0.12, 0.02))


def test_a_node_holds_as_many_replicas_as_the_fullest_measured_one() -> None:
    assert profile().per_node == 3


def test_a_ring_has_no_first_node_and_no_empty_nodes() -> None:
    assert profile().times((0, 1, 0, 1), 10) == profile().times((1, 1), 10)


def test_other_placements_are_interpolated_in_nodes_replicas_and_batch() -> None:
    # halfway between 2 and 4 replicas on 2 nodes
    assert profile().times((1, 2), 10) == pytest.approx((0.1 + 0.15, 0.15))


@pytest.mark.parametrize(
    ("placement", "local", "words"),
    [
        ((2,), 21, "a local batch of 21 samples on 2 GPUs per node; measured: 5 to 20"),
        ((4, 4), 10, "8 replicas on 2 nodes"),
        ((0,), 10, "at least one replica"),
    ],
)
def test_times_outside_the_measured_range_are_refused(placement: tuple[int, ...], local: int, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        profile().times(placement, local)


def test_noise_is_linear_between_validated_batches() -> None:
    assert profile().noise(10, 0) == (2.0, 0.0)
    assert profile().noise(20, 1) == pytest.approx((3.0, 2.0))


@pytest.mark.parametrize(
    ("batch", "epoch", "words"),
    [(41, 0, "a batch of 41 samples; validated batches: 10 to 40"), (10, 2, "epoch 2; the profile has epochs 0 to 1")],
)
def test_noise_outside_the_measured_range_is_refused(batch: int, epoch: int, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        profile().noise(batch, epoch)


def write(folder: Path) -> None:
    """ncf in one layout and yolov3, compressed, in the other."""
    tables = {
        "placements.csv": "placement,local_bsz,step_time,sync_time\n1,8,.2,0\n11,8,.3,.1\n",
        "scalability.csv": "num_nodes,num_replicas,local_bsz,step_time,sync_time\n2,8,8,.4,.2\n",
        "validation-8.csv": "progress,iteration,metric,grad_sqr,grad_var\n50,50,.5,1,2\n100,100,.6,1,1\n",
    }
    (folder / "ncf").mkdir()
    for name, text in tables.items():
        (folder / "ncf" / name).write_text(text)
        (folder / f"yolov3__{name}.gz").write_bytes(gzip.compress(text.encode()))


def test_both_layouts_read_alike(tmp_path: Path) -> None:
    write(tmp_path)
    profiles = read_applications(tmp_path)
    assert list(profiles) == ["ncf", "yolov3"]
    assert profiles["ncf"].times((1, 1), 8) == profiles["yolov3"].times((1, 1), 8) == (0.3, 0.1)
    assert profiles["yolov3"].iterations(8, 2) == profiles["yolov3"].progress_at(2) == 100


def test_an_application_without_files_is_named(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(TraceError, match=r"profile of bert lacks placements\.csv"):
        read_applications(tmp_path, ["bert"])
    with pytest.raises(TraceError, match="unknown application 'vgg'; known: bert"):
        read_applications(tmp_path, ["vgg"])


def test_a_folder_without_profiles_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no profiles found"):
        read_applications(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("placements.csv", "placement,local_bsz\n", "placements.csv:1: no column 'step_time'"),
        (
            "placements.csv",
            "placement,local_bsz,step_time,sync_time\n1,8,x,0\n",
            "csv:2: step_time is not a number: 'x'",
        ),
        (
            "placements.csv",
            "placement,local_bsz,step_time,sync_time\n1-1,8,1,0\n",
            "csv:2: placement must be one digit per node",
        ),
        ("validation-8.csv", "", "validation-8.csv:1: no column 'progress'"),
    ],
)
def test_a_malformed_file_is_named_with_its_line(tmp_path: Path, name: str, text: str, words: str) -> None:
    write(tmp_path)
    (tmp_path / "ncf" / name).write_text(text)
    with pytest.raises(TraceError, match=words):
        read_applications(tmp_path)


def test_files_of_another_cluster_are_read_by_its_name(tmp_path: Path) -> None:
    write(tmp_path)
    other = tmp_path / "sia/ncf"
    other.mkdir(parents=True)
    (other / "placements-azure.csv").write_text("local_bsz,step_time,sync_time,placement\n8,.1,0,1\n")
    (other / "scalability-azure.csv").write_text("num_nodes,num_replicas,local_bsz,step_time,sync_time\n2,8,8,.2,.1\n")
    profiles = read_applications([tmp_path / "ncf", tmp_path / "sia"], cluster="azure")
    assert list(profiles) == ["ncf"]
    assert profiles["ncf"].times((1,), 8) == (0.1, 0.0)
    assert profiles["ncf"].progress_at(2) == 100
    with pytest.raises(TraceError, match=r"no profiles found \(expected APP__placements-rtx\.csv"):
        read_applications(tmp_path, cluster="rtx")


@pytest.mark.data
@pytest.mark.parametrize(("cluster", "samples_per_s"), [("aws", 1461.35), ("azure", 4268.53), ("dgx-ext", 7825.62)])
def test_sias_profiles_give_the_measured_speeds_of_their_gpus(data: Path, cluster: str, samples_per_s: float) -> None:
    # CIFAR-10 on one GPU with 725 samples
    folders = [data / "golden/elastic/inputs/pollux", data / "traces/gpu-throughputs/sia"]
    profiles = read_applications(folders, cluster=cluster)
    assert set(profiles) == {"bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"}
    assert 725 / profiles["cifar10"].times((1,), 725).step_s == pytest.approx(samples_per_s, abs=0.005)
