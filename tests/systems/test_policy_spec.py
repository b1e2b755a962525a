"""The name of a policy is read in one place, into a kind, a name, parameters and files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dagsim
from dagsim.errors import ConfigError
from dagsim.registry import Entry
from dagsim.specs import Spec
from dagsim.systems.policy_spec import PROGRAMS, PolicyKind, PolicySpec, labelled, split_policies


@pytest.mark.parametrize(
    ("text", "kind", "name", "params"),
    [
        ("sjf", PolicyKind.NAMED, "sjf", {}),
        ("eft-wait[theta=0.8,order=path]", PolicyKind.NAMED, "eft-wait", {"theta": 0.8, "order": "path"}),
        ("own.py:Mine[k=2]", PolicyKind.OWN, "own.py:Mine", {"k": 2}),
    ],
)
def test_a_name_has_a_kind_and_parameters(text: str, kind: PolicyKind, name: str, params: dict[str, object]) -> None:
    spec = PolicySpec.parse(text)
    assert (spec.text, spec.kind, spec.name, spec.params) == (text, kind, name, params)


@pytest.mark.family("learning")
@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("ppo", "ppo"),
        ("sb3:models/a.zip", 'sb3[checkpoint="models/a.zip"]'),
        ("sb3[level=job]:a b.zip", 'sb3[checkpoint="a b.zip",level=job]'),
    ],
)
def test_agents_and_models_in_files_are_agents(text: str, call: str) -> None:
    spec = PolicySpec.parse(text)
    assert spec.names_agent()
    assert str(spec.call) == call


@pytest.mark.family("programs")
def test_a_program_has_an_address_and_the_files_of_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text("")
    spec = PolicySpec.parse("exec[timeout_s=5]:python own.py")
    assert (spec.kind, spec.name, spec.params) == (PolicyKind.PROGRAM, "exec", {"timeout_s": 5})
    assert (spec.address, spec.files()) == ("python own.py", [Path("own.py")])
    assert split_policies(["sjf,easy[a=1,b=2]", "exec:one, two", "sjf"]) == [
        "sjf",
        "easy[a=1,b=2]",
        "exec:one, two",
    ]


def test_every_file_in_the_command_of_any_program_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(PROGRAMS, "_entries", {"new": Entry("new", "module:New")})
    for name in ("run.sh", "two words", "own.conf"):
        Path(name).write_text("")
    spec = PolicySpec.parse("new[setup='sh -c run.sh',binary=\"two words\",n=3]:nice run.sh -f own.conf")
    assert sorted(map(str, spec.files())) == ["own.conf", "run.sh", "two words"]


@pytest.mark.parametrize(
    "params", [{"a": True, "b": None, "c": (1, 2.5, "x")}, {"path": "a b,c.pt", "n": -3, "word": "true", "quoted": '"'}]
)
def test_a_written_name_is_read_as_the_same(params: dict[str, object]) -> None:
    assert Spec.parse(str(Spec("name", params))) == Spec("name", params)


def test_brackets_that_do_not_match_are_refused() -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        PolicySpec.parse("sjf[strict=true")


def test_no_other_module_takes_the_name_of_a_policy_apart() -> None:
    apart = re.compile(r"\b(policy|algo)\w*\.(partition|split)\(|\bSpec\.parse\((policy|algo)")
    package = Path(dagsim.__file__).parent
    assert [path.name for path in package.rglob("*.py") if apart.search(path.read_text())] == []


@pytest.mark.parametrize(
    ("text", "name", "policy"),
    [
        ("sjf", "sjf", "sjf"),
        ("Mine=sjf", "Mine", "sjf"),
        ("Our agent=ppo[checkpoint=best.pt]", "Our agent", "ppo[checkpoint=best.pt]"),
        ("ppo[checkpoint=best.pt]", "ppo[checkpoint=best.pt]", "ppo[checkpoint=best.pt]"),
        ("exec:node a.js --k=2", "exec:node a.js --k=2", "exec:node a.js --k=2"),
        ("sb3[level=job]:model.zip", "sb3[level=job]:model.zip", "sb3[level=job]:model.zip"),
    ],
)
def test_a_policy_may_have_a_name_for_tables(text: str, name: str, policy: str) -> None:
    assert labelled(text) == (name, policy)
