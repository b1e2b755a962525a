"""Computation graphs from files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dagsim.errors import DagsimError, GraphError, InputError, ModelError, TraceError
from dagsim.families.ramp.api import read_graph, read_graphs

PIPEDREAM = """\
node1 -- Input0 -- forward_compute_time=2.000, backward_compute_time=0.000, activation_size=64.0, parameter_size=0.000
node2 -- LSTM(8, 8) -- forward_compute_time=3.5, backward_compute_time=4, activation_size=[6; 1; 1], parameter_size=5.0
\tnode1 -- node2
"""

COST_GRAPH = """\
node {
  name: "_SOURCE"
  id: 0
}
node {
  id: 1
  input_info {
    preceding_node: 0
    preceding_port: 1
  }
  output_info {
    size: 40
    alias_input_port: -1
  }
  output_info {
    size: 2
  }
  control_input: 0
  compute_cost: 7
}
node {
  id: 2
  input_info {
    preceding_node: 1
  }
  compute_cost: 3
}
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_pipedream_times_are_milliseconds(tmp_path: Path) -> None:
    graph = read_graph(write(tmp_path / "m.txt", PIPEDREAM))
    assert graph.costs() == (0.002, 0.0035, 0.0, 0.004)
    assert graph.model == "m"


def test_time_unit_is_what_it_is_said_to_be(tmp_path: Path) -> None:
    graph = read_graph(write(tmp_path / "m.txt", PIPEDREAM), "s")
    assert graph.costs() == (2.0, 3.5, 0.0, 4.0)


def test_outputs_in_a_list_are_summed(tmp_path: Path) -> None:
    lstm = read_graph(write(tmp_path / "m.txt", PIPEDREAM)).ops[1]
    assert (lstm.activation_bytes, lstm.parameter_bytes, lstm.memory_bytes) == (8.0, 5.0, 13.0)
    assert lstm.name == "LSTM(8, 8)"


def test_cost_graph_has_data_and_control_edges_once(tmp_path: Path) -> None:
    graph = read_graph(write(tmp_path / "m.pbtxt", COST_GRAPH))
    assert [op.id for op in graph.ops] == ["0", "1", "2"]
    assert graph.edges == ((0, 1), (1, 2))
    assert graph.ops[1].activation_bytes == 42.0
    assert graph.costs()[1] == pytest.approx(0.007)


def test_own_json_has_times_by_gpu_type(tmp_path: Path) -> None:
    document = {
        "model": "net",
        "time_unit": "us",
        "ops": [
            {"id": "a", "forward": 5, "backward": 7, "activation_bytes": 3, "parameter_bytes": 2},
            {
                "id": "b",
                "forward": 1,
                "backward": 1,
                "activation_bytes": 3,
                "parameter_bytes": 2,
                "seconds_on": {"T4": [4, 6]},
            },
        ],
        "edges": [["a", "b"]],
    }
    graph = read_graph(write(tmp_path / "m.json", json.dumps(document)))
    assert graph.model == "net"
    assert graph.costs() == pytest.approx((5e-6, 1e-6, 7e-6, 1e-6))
    assert graph.costs("T4") == pytest.approx((5e-6, 4e-6, 7e-6, 6e-6))


def own(**changes: object) -> str:
    op = {"id": "a", "forward": 5, "backward": 7, "activation_bytes": 3, "parameter_bytes": 2}
    for key, value in changes.items():
        if value is None:
            del op[key]
        else:
            op[key] = value
    return json.dumps({"ops": [op], "edges": []})


@pytest.mark.parametrize(
    ("name", "text", "error", "words"),
    [
        ("m.txt", PIPEDREAM.replace(", activation_size=64.0", ""), TraceError, r"m.txt:1: node1 lacks activation_size"),
        (
            "m.txt",
            PIPEDREAM.replace("2.000", "x"),
            TraceError,
            r"m.txt:1: node1 has a time or size that is not a number",
        ),
        (
            "m.txt",
            PIPEDREAM.replace("2.000", "-2"),
            ModelError,
            r"m.txt: op '1': forward_s must be .* 0 or more, got -0.002",
        ),
        ("m.txt", PIPEDREAM + "\tnode2 -- node9\n", GraphError, r"the edge '2' -> '9' names '9', which does not exist"),
        ("m.txt", PIPEDREAM + "\tnode2 -- node1\n", GraphError, r"in a cycle"),
        ("m.txt", PIPEDREAM + "\tnode2\n", TraceError, r"m.txt:4: expected an edge"),
        ("m.txt", "layer1 -- x -- y", TraceError, r"m.txt:1: expected node and a number, got 'layer1'"),
        ("m.txt", "", GraphError, r"has no operations"),
        (
            "m.pbtxt",
            COST_GRAPH.replace("  compute_cost: 3\n", ""),
            TraceError,
            r"m.pbtxt:\d+: node 2 lacks compute_cost",
        ),
        (
            "m.pbtxt",
            COST_GRAPH.replace("    size: 40\n", "").replace("    size: 2\n", ""),
            TraceError,
            "without a size",
        ),
        (
            "m.pbtxt",
            COST_GRAPH.replace("preceding_node: 1", "preceding_node: 8"),
            TraceError,
            "node 8, which does not exist",
        ),
        ("m.pbtxt", "node {\n  id: 1\n", TraceError, r"m.pbtxt:1: this node has no closing bracket"),
        ("m.json", "{", TraceError, r"m.json:1: invalid JSON"),
        ("m.json", "[]", TraceError, r"expected .*ops"),
        ("m.json", own(activation_bytes=None), TraceError, r"op 0 lacks 'activation_bytes'"),
        ("m.json", own(forward="long"), TraceError, r"not a number"),
        ("m.json", own(forward=-5), ModelError, r"forward_s must be"),
        ("m.onnx", "", TraceError, r"allowed: \*.txt, \*.pbtxt, \*.json"),
    ],
)
def test_a_malformed_file_is_refused_in_words(
    tmp_path: Path, name: str, text: str, error: type[DagsimError], words: str
) -> None:
    with pytest.raises(error, match=words):
        read_graph(write(tmp_path / name, text))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"gone.txt: no such file"):
        read_graph(tmp_path / "gone.txt")


def test_an_unknown_time_unit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown time_unit 'h'; allowed: s, ms, us"):
        read_graph(write(tmp_path / "m.txt", PIPEDREAM), "h")  # type: ignore[arg-type]


def test_graphs_are_found_by_name(tmp_path: Path) -> None:
    write(tmp_path / "m.txt", PIPEDREAM)
    assert list(read_graphs(tmp_path, ("m",))) == ["m"]
    with pytest.raises(TraceError, match="there is no graph 'n'; available: m"):
        read_graphs(tmp_path, ("n",))


@pytest.mark.data
def test_every_pipedream_graph_is_read(data: Path) -> None:
    step_s = {
        "alexnet": 36061.15,
        "gnmt": 4470.80,
        "resnet18": 36668.35,
        "squeezenet1_0": 38000.15,
        "vgg16": 34525.35,
    }
    folder = data / "traces/pipedream"
    paths = [path for path in folder.glob("*.txt") if path.stem not in ("LICENSE", "README")]
    assert len(paths) == 14
    for path in paths:
        graph = read_graph(path, "s")
        if path.stem in step_s:
            assert 50 * graph.step_s == pytest.approx(step_s[path.stem], rel=1e-9)


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagsim.files.LONGEST_LINE_B", 1 << 16)
    (tmp_path / "table.txt").write_text("1 " * (1 << 17))
    with pytest.raises(TraceError, match="the line has more than 65,536 bytes"):
        read_graph(tmp_path / "table.txt")
