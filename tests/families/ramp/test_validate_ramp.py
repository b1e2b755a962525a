"""RAMP against results of ddls itself."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import validate_ramp
from support.scripting import run_script


@pytest.mark.data
def test_every_golden_lookahead_and_episode_is_equal(data: Path) -> None:
    rows = list(validate_ramp.golden(data / "golden/ddls", data / "traces/pipedream"))
    assert len(rows) == 21
    assert not [f"{row.file}: {row.what}" for row in rows if row.what]


@pytest.mark.data
@pytest.mark.parametrize(
    ("model", "degree", "jct_s"),
    [
        ("resnet18", 2, 18336.3351),
        ("resnet18", 6, 6114.3934),
        ("resnet18", 16, 2295.8188),
        ("squeezenet1_0", 4, 9503.3294),
        ("squeezenet1_0", 16, 2379.1975),
    ],
)
def test_completion_times_of_the_published_table(data: Path, model: str, degree: int, jct_s: float) -> None:
    graph = validate_ramp.read_graph(data / f"traces/pipedream/{model}.txt", "s")
    assert validate_ramp.job(graph, degree, validate_ramp.planner())["jct_s"] == pytest.approx(jct_s, abs=6e-5)


@pytest.mark.data
def test_constant_degrees_block_as_published(data: Path) -> None:
    results = validate_ramp.constant_degrees(data / "golden/ddls", data / "traces/pipedream")
    for row in results.values():
        assert row["got"] == pytest.approx(row["expected"], abs=0.001)


@pytest.mark.data
def test_a_difference_is_found(data: Path, tmp_path: Path) -> None:
    path = data / "golden/ddls/lookahead_4x4x2_alexnet_2.json.gz"
    recording = json.loads(gzip.decompress(path.read_bytes()))
    recording["deps"][5][3] += 1e-7
    (tmp_path / path.name).write_bytes(gzip.compress(json.dumps(recording).encode()))
    (row,) = validate_ramp.golden(tmp_path, data / "traces/pipedream")
    assert "dependency" in row.what


@pytest.mark.parametrize(("degree", "words"), [("12", "split 12 ways does not fit into"), ("3", "1 or even, got 3")])
def test_a_degree_that_does_not_fit_is_said_in_words(tmp_path: Path, degree: str, words: str) -> None:
    op = {"id": "1", "forward": 9, "backward": 9, "activation_bytes": 1, "parameter_bytes": 1}
    (tmp_path / "m.json").write_text(json.dumps({"ops": [op], "edges": []}), encoding="utf-8")
    done = run_script("validate_ramp", "--graph", tmp_path / "m.json", "--degree", degree)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
