from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagsim.config.yaml import dump, load, read_yaml
from dagsim.errors import ConfigError


def test_words_are_read_as_people_mean_them() -> None:
    text = "rate: 3e-4\nmode: off\nflag: true\nnothing:\nday: 2026-11-20\nmask: 0xff\nquoted: '3e-4'\nblock: |\n  12\n"
    assert load(text, "x.yaml").value == {
        "rate": 3e-4,
        "mode": "off",
        "flag": True,
        "nothing": None,
        "day": "2026-11-20",
        "mask": 255,
        "quoted": "3e-4",
        "block": "12\n",
    }


def test_keys_are_text() -> None:
    assert load("on: 1\n3: 2\n", "x.yaml").value == {"on": 1, "3": 2}


def test_every_value_and_key_knows_its_place() -> None:
    document = load("cluster:\n  groups:\n    - {name: big, count: two}\n", "x.yaml")
    count = ("cluster", "groups", 0, "count")
    assert document.place(count) == "x.yaml:3:26"
    assert document.key_place(count) == "x.yaml:3:19"
    assert document.place(("cluster", "groups", 0, "gpu")) == "x.yaml:3:7"  # not there: what is around it


def test_an_empty_document_is_nothing() -> None:
    assert load("# only a comment\n", "x.yaml").value is None


def test_anchors_repeat_a_part() -> None:
    assert load("a: &x [1, 2]\nb: *x\n", "x.yaml").value == {"a": [1, 2], "b": [1, 2]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: 1\nseeds: 2\nseed: 3\n", "x.yaml:3:1: key 'seed' is given twice (first on line 1)"),
        (
            "a: [1,\n",
            "x.yaml:2:1: invalid YAML: the text ends in the middle of a list or mapping; write the missing ']' or '}'",
        ),
        ("a: b: c\n", "x.yaml:1:5: invalid YAML: this colon is a second one in the same value; put a text"),
        (
            "a: [1\nb: 2\n",
            "x.yaml:1:4: invalid YAML: this '[' begins a list that is not closed properly",
        ),
        (
            "a: {b: 1\n",
            "x.yaml:1:4: invalid YAML: this '{' begins a mapping that is not closed properly",
        ),
        ("a:\n   b: 1\n  c: 2\n", "x.yaml:3:3: invalid YAML: this line does not fit the lines above it"),
        ("a:\n  b: 1\n  - c\n", "x.yaml:3:3: invalid YAML: this line does not fit the lines above it"),
        ("a: 'b\nc: d\n", "x.yaml:1:4: invalid YAML: the text that begins with a quote here is not closed"),
        ("a: 'it's'\n", "x.yaml:1:8: invalid YAML: the value ends before this text; put the whole value in quotes"),
        ("a: >>\n", "x.yaml:1:5: invalid YAML: while scanning a block scalar, expected chomping or indentation"),
        ("a: @b\n", "x.yaml:1:4: invalid YAML: a value cannot begin with @; put the value in quotes"),
        ("a: *b\n", "x.yaml:1:4: invalid YAML: b is used as an alias but not defined"),
        ('a: "\\q"\n', "x.yaml:1:6: invalid YAML: in double quotes, a backslash begins an escape such as \\n, but \\q"),
        ("a: 1\nb: c\x01\n", "x.yaml:2:5: invalid YAML: the character U+0001 is not allowed; delete it"),
        ("a: 1\nb\nc: 2\n", "x.yaml:3:1: invalid YAML: this line is not a 'key: value' pair"),
        ("a: 1\n---\nb: 2\n", "x.yaml:2:1: invalid YAML: a second document begins with '---', but only one is"),
        ("a: !!python/name:os.system x\n", "x.yaml:1:4: tags such as '!!python/name:os.system' are not supported"),
        ("a: &x [*x]\n", "x.yaml:1:4: an alias refers to a value that contains the alias"),
        ("[1, 2]: 3\n", "x.yaml:1:1: a key must be a plain word"),
        ("[" * 5000, "x.yaml: nested too deeply"),
    ],
)
def test_what_is_no_yaml_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(text, "x.yaml")
    assert str(refused.value).startswith(message)


def test_all_keys_given_twice_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as refused:
        load("a: 1\nb: {c: 1, c: 2}\na: 2\n", "x.yaml")
    assert str(refused.value).splitlines() == [
        "x.yaml:2:11: key 'c' is given twice (first on line 2)",
        "x.yaml:3:1: key 'a' is given twice (first on line 1)",
    ]


def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: no such file"):
        read_yaml(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    with pytest.raises(
        ConfigError, match=r"latin\.yaml: is not UTF-8 text \(.* at byte 9\); expected a text file in YAML"
    ):
        read_yaml(tmp_path / "latin.yaml")


DEFAULT = {"more": [{"n": 5, "m": 6}], "net": {"kind": "x", "rate": 1, "delay": 1}}


@pytest.mark.parametrize(
    ("settings", "value"),
    [
        (["a.b=2"], {"a": {"b": 2, "c": 3}, "list": [{"n": 1}]}),
        (["a.d.e=off"], {"a": {"b": 1, "c": 3, "d": {"e": "off"}}, "list": [{"n": 1}]}),
        (["list.0.n=3e-4"], {"a": {"b": 1, "c": 3}, "list": [{"n": 3e-4}]}),
        (["a=[1, {x: y}]"], {"a": [1, {"x": "y"}], "list": [{"n": 1}]}),
        (["a=", "a.b=4"], {"a": {"b": 4}, "list": [{"n": 1}]}),
        (["net.rate=2"], {"a": {"b": 1, "c": 3}, "list": [{"n": 1}], "net": {"kind": "x", "rate": 2, "delay": 1}}),
        (["net.kind=y", "net.k=2"], {"a": {"b": 1, "c": 3}, "list": [{"n": 1}], "net": {"kind": "y", "k": 2}}),
        (["more.0.n=7"], {"a": {"b": 1, "c": 3}, "list": [{"n": 1}], "more": [{"n": 7, "m": 6}]}),
    ],
)
def test_settings_are_applied_in_order(settings: list[str], value: object) -> None:
    document = load("a: {b: 1, c: 3}\nlist: [{n: 1}]\n", "x.yaml")
    for setting in settings:
        document.override(setting, DEFAULT)
    assert DEFAULT == {"more": [{"n": 5, "m": 6}], "net": {"kind": "x", "rate": 1, "delay": 1}}
    assert document.value == value


def test_a_setting_names_itself_as_the_source() -> None:
    document = load("a:\n  b: 1\n  c: 2\n", "x.yaml")
    document.override("a.b={d: 5}")
    assert document.place(("a", "b", "d")) == "--set a.b={d: 5}"
    assert document.place(("a", "c")) == "x.yaml:3:6"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("a.b", "--set a.b: expected key=value, as in --set policy=sjf or --set cluster.groups.0.count=4"),
        ("=1", "--set =1: expected key=value, as in --set policy=sjf or --set cluster.groups.0.count=4"),
        (
            "a.b=[1",
            "--set a.b=[1: value:1:1: invalid YAML: this '[' begins a list that is not closed properly "
            "(problem at line 1, column 3); a comma or the closing ']' is missing",
        ),
        ("a.b.c=1", "--set a.b.c=1: a.b is 1, which has no key 'c'"),
        ("list.1.n=1", "--set list.1.n=1: list is a list and has no entry '1'; allowed: an index in 0..0"),
        ("list.n=1", "--set list.n=1: list is a list and has no entry 'n'; allowed: an index in 0..0"),
        (
            "none.0=1",
            "--set none.0=1: none is an empty list; set all of its entries, as in --set 'none=[...]'",
        ),
    ],
)
def test_a_setting_that_cannot_be_is_refused(setting: str, message: str) -> None:
    document = load("a: {b: 1}\nlist: [{n: 1}]\n", "x.yaml")
    with pytest.raises(ConfigError) as refused:
        document.override(setting)
    assert str(refused.value) == message


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    SCALARS
    | st.sampled_from(["3e-4", "off", "0xff", "1e5", "null", "1_0", "=", "<<", "2026-11-20", "1:30", " a ", "\n"]),
    lambda parts: st.lists(parts) | st.dictionaries(st.text(), parts),
    max_leaves=8,
)


@settings(max_examples=40)
@given(VALUES)
def test_what_is_dumped_is_read_back_equal(value: Any) -> None:
    assert load(dump(value), "x.yaml").value == value
