"""Files are data: what names code outside dagsim in a file, and which commands import it (docs/security.md)."""

from __future__ import annotations

import json
import shutil
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from support.command_line import fine, invoke, json_of
from support.own_code import MARK, POLICY, SHORT, begin_in, imported

from dagsim.config.dumping import dump_config, foreign_parts
from dagsim.config.schema import load_config
from dagsim.errors import CodeNotAllowed, ConfigError
from dagsim.experiment.provenance import provenance
from dagsim.experiment.store import Store
from dagsim.own_code import Allowed, allow, attribute, own_names, source_file, source_sha256
from dagsim.sections import Foreign
from dagsim.systems.cluster.policies import POLICIES


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return begin_in(tmp_path, monkeypatch)


def run_folder(*args: str) -> Path:
    return Path(json_of("eval", *args, *SHORT)["run"])


def changed(path: Path, old: str, new: str, *, signed: bool) -> None:
    """Change the configuration of a run folder, and with ``signed`` the hash of it in the manifest."""
    config = path / "config.yaml"
    config.write_text(config.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    if signed:
        manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
        manifest["config_sha256"] = sha256(config.read_bytes()).hexdigest()
        (path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


@pytest.mark.parametrize("policy", ["os:system[command='touch ran']", "evil_policy:Mine", "exec:touch ran"])
def test_config_check_imports_and_runs_nothing(policy: str, folder: Path) -> None:
    (folder / "a.yaml").write_text(f'policy: "{policy}"\n', encoding="utf-8")
    ended = invoke("config", "check", "a.yaml")
    assert (ended.exit_code, ended.output) == (0, f"a.yaml: valid, but code outside dagsim was not checked: {policy}\n")
    assert not (folder / "ran").exists()
    assert imported(folder) == []


@pytest.mark.parametrize(
    "train",
    [
        "algorithm: {kind: ppo, advantage: 'evil_policy:Mine'}",
        "reward: {'evil_policy:Mine': 1.0}",
        "rivals: ['evil_policy:Mine']",
        "reference: 'evil_policy:Mine'",
    ],
)
def test_config_check_names_the_code_of_a_training_without_importing_it(train: str, folder: Path) -> None:
    (folder / "a.yaml").write_text(f"train: {{{train}}}\n", encoding="utf-8")
    ended = invoke("config", "check", "a.yaml")
    assert ended.output == "a.yaml: valid, but code outside dagsim was not checked: evil_policy:Mine\n"
    assert imported(folder) == []


def test_config_check_and_show_read_a_part_of_ones_own_without_importing_it(folder: Path) -> None:
    (folder / "a.yaml").write_text("network: {kind: 'evil_net:Slow', latency_s: 3}\n", encoding="utf-8")
    assert "was not checked: evil_net:Slow" in invoke("config", "check", "a.yaml").output
    shown = invoke("config", "show", "--config", "a.yaml")
    assert "network:\n  kind: evil_net:Slow\n  latency_s: 3\n" in shown.output
    assert imported(folder) == []


@pytest.mark.parametrize("where", ["file", "command"])
def test_what_is_not_a_policy_is_refused_before_it_is_called(where: str, folder: Path) -> None:
    policy = "os:system[command='touch ran']"
    (folder / "a.yaml").write_text(f'policy: "{policy}"\n', encoding="utf-8")
    ended = invoke("eval", *(("--config", "a.yaml") if where == "file" else ("--algo", policy)), *SHORT)
    assert ended.exit_code == 2
    assert "'os:system' is not a policy: it has no method decide()" in ended.output
    assert not (folder / "ran").exists()


@pytest.mark.parametrize(
    "policy", ["subprocess:Popen[args='touch ran']", "sjf[placement='os:system']", "evil_policy:bare"]
)
def test_only_what_the_key_asks_for_is_accepted(policy: str, folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not a (policy|placement): it has no method (decide|place)\(\)"):
        POLICIES.create(policy)
    assert not (folder / "ran").exists()


def test_a_function_that_promises_a_policy_is_accepted() -> None:
    assert callable(POLICIES.create("evil_policy:ready").decide)


def test_a_file_given_to_config_may_name_code(folder: Path) -> None:
    (folder / "a.yaml").write_text("policy: evil_policy:Fifo\nnetwork: {kind: 'evil_net:Slow'}\n", encoding="utf-8")
    fine("eval", "--config", "a.yaml", *SHORT)
    assert imported(folder) == ["evil_net", "evil_policy"]


@pytest.mark.parametrize(
    "command",
    [
        ("replay", "--trace"),
        ("eval", "--workload"),
        ("workload", "info"),
        ("trace", "info"),
        ("trace", "convert", "-o", "out.jsonl"),
        ("bound", "--trace"),
        ("whatif", "--add", "4xT4", "--cluster", "c.yaml", "--trace"),
        ("plan", "--target", "wait_s.mean<30", "--cluster", "c.yaml", "--trace"),
    ],
)
def test_a_trace_imports_nothing(command: tuple[str, ...], folder: Path) -> None:
    (folder / "c.yaml").write_text("cluster: {groups: [{name: t, gpu: T4, gpus: 4}]}\n", encoding="utf-8")
    meta = {"runtime": {"kind": "evil_net:Slow"}, "summary": "x", "seed": 0}
    lines = [{"format": "dagsim-workload", "version": 1, "meta": meta}]
    lines += [{"id": id_, "tasks": [{"name": "t", "work": 1.0}], "edges": []} for id_ in "ab"]
    (folder / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    ended = invoke(*command, "t.jsonl")
    if command[0] != "trace":
        assert ended.exit_code == 2
        assert "t.jsonl:1: the runtime model saved in this file is code outside dagsim, 'evil_net:Slow'" in ended.output
    assert imported(folder) == []


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("command", ["report", "compare", "plot", "why", "record"])
def test_reading_a_run_folder_imports_nothing(command: str, signed: bool, folder: Path) -> None:
    path = run_folder("--algo", "fifo")
    changed(path, "network: null", "network:\n  kind: evil_net:Slow", signed=signed)
    ended = invoke(command, path, *(["0"] if command == "why" else []))
    assert imported(folder) == []
    if not signed:
        assert ended.exit_code == 2
        assert "was changed after the run" in ended.output


def test_a_run_with_a_network_of_ones_own_is_reported_without_it(folder: Path) -> None:
    path = run_folder("--algo", "fifo", "--set", "network.kind=evil_net:Slow")
    (folder / "evil_net.py").unlink()
    for command in ("report", "compare", "plot"):
        fine(command, path)
    read = Store.read(path)
    assert foreign_parts(read.config) == ["evil_net:Slow"]
    assert isinstance(read.config.network, Foreign)
    assert dump_config(read.config) == (path / "config.yaml").read_text(encoding="utf-8")


def test_a_system_of_ones_own_is_read_with_its_code_only_if_that_is_allowed(folder: Path) -> None:
    text = (
        "from dataclasses import dataclass\nfrom dagsim.families.spark.scenario import SparkScenario\n"
        "@dataclass(frozen=True)\nclass World(SparkScenario):\n    jobs: int = 3\n    executors: int = 3\n"
    )
    (folder / "own_world.py").write_text(MARK + text, encoding="utf-8")
    path = Path(json_of("eval", "--system", "own_world:World", "--algo", "fifo", "--seeds", "1", "--no-plots")["run"])
    (folder / "own_world.imported").unlink()
    del sys.modules["own_world"]
    fine("compare", path)
    refused = invoke("report", path)
    assert refused.exit_code == 2
    assert "the system 'own_world:World' is code outside dagsim, which was not imported" in refused.output
    assert imported(folder) == []
    fine("report", path, "--allow-code")
    assert imported(folder) == ["own_world"]


def test_a_run_folder_is_run_again_only_with_the_code_that_it_recorded(folder: Path) -> None:
    path = run_folder("--algo", "evil_policy:Fifo")
    manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["code"]["evil_policy:Fifo"]["sha256"] == source_sha256("evil_policy:Fifo")
    fine("eval", "--config", path, *SHORT)

    (folder / "evil_policy.py").write_text(POLICY + "\n# changed\n", encoding="utf-8")
    ended = invoke("eval", "--config", path, *SHORT)
    assert ended.exit_code == 2
    assert (
        "recorded another SHA-256 for it; look at the code, then repeat the command with --allow-code" in ended.output
    )
    fine("eval", "--config", path, *SHORT, "--allow-code")

    (path / "manifest.json").write_text(json.dumps({**manifest, "code": {}}), encoding="utf-8")
    ended = invoke("eval", "--config", path, *SHORT)
    assert "did not record the SHA-256 of its source" in ended.output
    fine("eval", "--config", path, "--algo", "evil_policy:Fifo", *SHORT)


def test_a_program_in_a_run_folder_is_not_started(folder: Path) -> None:
    path = run_folder("--algo", "fifo")
    changed(path, "policy: fifo", "policy: exec:touch ran", signed=True)
    ended = invoke("eval", "--config", path, *SHORT)
    assert (ended.exit_code, (folder / "ran").exists()) == (2, False)
    assert "policy 'exec:touch ran' is named by" in ended.output


def test_a_policy_is_found_by_the_path_of_its_file(folder: Path) -> None:
    (folder / "own").mkdir()
    shutil.copy(folder / "evil_policy.py", folder / "own" / "queue.py")  # a name of the standard library
    for algo in ("./own/queue.py:Fifo", str(folder / "own" / "queue.py:Fifo"), "evil_policy.py:Fifo"):
        fine("eval", "--algo", algo, *SHORT)
    missing = invoke("eval", "--algo", "./none.py:Fifo", *SHORT)
    assert "policy './none.py:Fifo': none.py: there is no such file" in missing.output


def test_the_source_of_a_name_is_found_without_importing_it(folder: Path) -> None:
    (folder / "pack" / "deep").mkdir(parents=True)
    for path in ("pack/__init__.py", "pack/deep/__init__.py", "pack/deep/mine.py"):
        (folder / path).write_text(MARK, encoding="utf-8")
    assert source_file("pack.deep.mine:X") == folder / "pack" / "deep" / "mine.py"
    assert source_file("./evil_net.py:Slow") == Path("evil_net.py")
    assert source_file("no_such_module:X") is None
    assert source_sha256("sys:path") is None
    assert list(folder.rglob("*.imported")) == []


def test_every_name_of_ones_own_is_recorded_with_its_source(folder: Path) -> None:
    policy = "sjf[placement=./rules.py:Rule]"
    (folder / "rules.py").write_text(
        "class Rule:\n    def place(self, view, task, type_=None):\n        return None\n", encoding="utf-8"
    )
    config = load_config(None, ["network.kind=evil_net:Slow", "train.reward={evil_policy:Fifo: 1.0}"])
    code = provenance(config, [policy, "evil_policy:Mine[a=1]"])["code"]
    assert sorted(code) == ["./rules.py:Rule", "evil_net:Slow", "evil_policy:Fifo", "evil_policy:Mine"]


def test_a_command_allows_whole_names_only() -> None:
    names = Allowed(["--algo", "sjf[placement=mine:Rule]"])
    with pytest.raises(CodeNotAllowed, match="not imported, because this command does not run code outside dagsim"):
        names.check("placement", "mine:Rule")
    names.trust_command_line()
    names.check("placement", "mine:Rule")
    for other in ("ine:Rule", "mine:Ru", "mine:Rules"):
        with pytest.raises(CodeNotAllowed):
            names.check("placement", other)


def test_a_name_may_be_a_key_of_yaml_on_the_command_line() -> None:
    command = Allowed(["train", "--set", "train.reward={mine.py:Flowtime: 1.0}"])
    command.trust_command_line()
    command.check("reward term", "mine.py:Flowtime")
    with pytest.raises(CodeNotAllowed):
        command.check("reward term", "mine.py")


def test_nothing_is_allowed_to_the_threads_of_a_restricted_block() -> None:
    with allow(Allowed()), pytest.raises(CodeNotAllowed):
        POLICIES.create("evil_policy:Fifo")
    assert POLICIES.create("evil_policy:Fifo")


def test_a_class_that_was_imported_by_its_path_is_written_with_it(folder: Path) -> None:
    config = load_config(None, [f"network.kind={folder / 'evil_net.py'}:Slow"])
    assert f"kind: {folder / 'evil_net.py'}:Slow" in dump_config(config)
    assert type(config.network) is attribute(f"{folder / 'evil_net.py'}:Slow")


def test_names_in_keys_and_lists_of_a_file_are_allowed() -> None:
    names = Allowed()
    names.trust_values({"train": {"reward": {"mine:Term": 1.0}}, "over": {"policy": ["mine:A", "mine:B"]}})
    for name in ("mine:Term", "mine:A", "mine:B"):
        names.check("policy", name)


def test_a_relative_path_allows_the_absolute_path_of_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A configuration that was read names a class by its absolute path, and is checked again."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").touch()
    names = Allowed(["--set", "system.kind=./mine.py:World"])
    names.trust_command_line()
    names.check("system", f"{tmp_path / 'mine.py'}:World")
    for other in (f"{tmp_path / 'mine.py'}:Other", f"{tmp_path / 'else.py'}:World"):
        with pytest.raises(CodeNotAllowed):
            names.check("system", other)


def test_a_module_of_the_same_name_from_another_folder_is_not_taken_for_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_config(None, [f"network.kind={folder / 'evil_net.py'}:Slow"])
    (folder / "other").mkdir()
    shutil.copy(folder / "evil_net.py", folder / "other")
    monkeypatch.delitem(sys.modules, "evil_net")
    monkeypatch.syspath_prepend(str(folder / "other"))
    assert "kind: evil_net:Slow" in dump_config(load_config(None, ["network.kind=evil_net:Slow"]))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("mine:Fifo", ["mine:Fifo"]),
        ("'lab/my-own.py:Fifo[k=3]', x", ["lab/my-own.py:Fifo"]),
        ("[a.b:c.d,e:f]", ["a.b:c.d", "e:f"]),
        ("my-own:Fifo 2x:y :z 10:20", ["own:Fifo", "x:y"]),
        ("a:b-c:d", ["a:b", "c:d"]),
        ("x" * 3_000_000 + "-:y", []),  # which takes for ever if each of its signs is tried as the first of a name
    ],
)
def test_names_of_code_in_a_text(text: str, names: list[str]) -> None:
    assert own_names(text) == names
