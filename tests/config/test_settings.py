"""A setting has an effect, or is refused."""

import json

import pytest

from dagsim.config.bundled import shipped
from dagsim.config.dumping import config_hash, plain
from dagsim.config.schema import json_schema, load_config
from dagsim.errors import ConfigError, DagsimError

SCHEMA = json_schema()
NUMBERS = (3, 7, 0.25, 0.75, 1.5, 2, 1)


def branches(node):
    """The alternatives of a node of the schema."""
    if "$ref" in node:
        return branches(SCHEMA["$defs"][node["$ref"].rpartition("/")[2]])
    alternatives = node.get("anyOf") or node.get("oneOf")
    return [branch for one in alternatives for branch in branches(one)] if alternatives else [node]


def values(branch):
    """Values of different sizes that the schema allows."""
    low, high = branch.get("minimum", branch.get("exclusiveMinimum", 0)), branch.get("maximum", 1e9)
    match branch.get("type"):
        case _ if "enum" in branch:
            return branch["enum"]
        case "boolean":
            return [True, False]
        case "integer":
            return [number for number in NUMBERS if number == int(number) and low <= number <= high]
        case "number":
            return [number for number in NUMBERS if low <= number <= high]
        case "string":
            return ["other"]
        case "array":
            return [[], [3, 7]]
    return []


def keys(node, key="", settings=(), within=()):
    """Yield each key that may be set, with the settings that bring the part that has it, and values."""
    for branch in branches(node):
        kind = branch.get("properties", {}).get("kind", {}).get("const")
        there = [*settings, f"{key}.kind={kind}"] if kind and key else settings
        if id(branch) not in within:
            for name, part in branch.get("properties", {}).items():
                if name not in ("kind", "preset") and name[0] not in "_$":
                    yield from keys(part, f"{key}.{name}".strip("."), there, (*within, id(branch)))
        if key:
            yield key, settings, values(branch)


def part_of(config, key):
    """The part of a configuration as it is written."""
    for word in key.split("."):
        config = config[int(word)] if isinstance(config, list) else config.get(word)
    return config


def test_every_key_that_may_be_set_changes_the_configuration_or_is_refused():
    loaded = {}
    tried = 0
    for key, settings, choices in keys(SCHEMA):
        try:
            before = loaded.setdefault(tuple(settings), load_config(None, settings))
        except DagsimError:
            continue  # the part needs further keys
        for value in choices:
            try:
                config = load_config(None, [*settings, f"{key}={json.dumps(value)}"])
            except DagsimError:
                continue
            tried += 1
            assert config != before or not value or part_of(plain(config), key) == value, (settings, key, value)
    assert tried > 500


def test_a_preset_brings_all_that_the_other_settings_do_not_change(tmp_path):
    whole = load_config(None, ["workload={preset: heterogeneous-dag, count: 10}"])
    assert load_config(None, ["workload.preset=heterogeneous-dag", "workload.count=10"]) == whole
    assert load_config(None, ["workload.count=10", "workload.preset=heterogeneous-dag"]) == whole
    file = tmp_path / "mine.yaml"
    file.write_text("workload: {preset: steady, count: 10}\n")
    assert load_config(file, ["workload.preset=heterogeneous-dag"]) == whole


def test_a_preset_replaces_a_workload_that_a_file_spells_out():
    dags = load_config(shipped("configs")["default"], ["workload.preset=heterogeneous-dag"])
    assert config_hash(dags) == config_hash(load_config(None, ["workload.preset=heterogeneous-dag"]))


def test_a_setting_that_another_key_hides_is_refused(monkeypatch):
    settings = ["workload.preset=heterogeneous-dag"]
    monkeypatch.setattr("dagsim.config.layers._PRESET", "none")  # the keys of the default workload hide it again
    with pytest.raises(ConfigError, match="has no effect"):
        load_config(None, settings)
