from __future__ import annotations

import inspect
import re
import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from dagsim import registry
from dagsim.errors import ConfigError, PluginError, UnknownName
from dagsim.registry import Entry, Registry
from dagsim.specs import Spec
from dagsim.spelling import nearest, nearest_file
from dagsim.systems.cluster.policies import POLICIES


class Order:
    def __init__(self, seed: int = 0, *, strict: bool = False, placement: object = "best") -> None:
        self.seed = seed
        self.strict = strict
        self.placement = placement

    def decide(self) -> None:
        """The method that makes it a policy."""


def orders(**options: object) -> Registry[Order]:
    policies: Registry[Order] = Registry(
        "policy",
        [Entry("heft", "not.imported:Heft", "earliest finish")],
        listing="dagsim list policies",
        method="decide",
        **options,
    )
    policies.register("order", "an order", tags=["strict"])(Order)
    return policies


def test_a_name_makes_an_object_with_the_defaults_given() -> None:
    order = orders().create("order", seed=5)
    assert (order.seed, order.strict) == (5, False)


def test_parameters_in_brackets_win_over_defaults() -> None:
    order = orders().create("order[seed=3, strict=true]", seed=5)
    assert (order.seed, order.strict) == (3, True)


def test_defaults_that_nobody_asked_for_are_left_out() -> None:
    assert orders().create("order", cluster=None).seed == 0


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("sjf", ("sjf", {})),
        ("sjf[]", ("sjf", {})),
        (" sjf [ a = 1 ] ", ("sjf", {"a": 1})),
        ("x[alpha=3e-4,mode=off,on=false,none=~]", ("x", {"alpha": 3e-4, "mode": "off", "on": False, "none": None})),
        ("x[policy=sjf[strict=true,k=2],n=1]", ("x", {"policy": "sjf[strict=true,k=2]", "n": 1})),
        ("x[sizes=[1,2.5,big]]", ("x", {"sizes": (1, 2.5, "big")})),
        ("x[name='a,b]',n=\"7\"]", ("x", {"name": "a,b]", "n": "7"})),
    ],
)
def test_a_spec_reads_as_yaml_scalars(text: str, spec: tuple[str, dict[str, object]]) -> None:
    assert Spec.parse(text) == spec


@pytest.mark.parametrize("text", ["", "[a=1]", "x[a=1", "x[a]", "x[=1]", "x[a=1]]", "x[a=[1]", "x[a='1]", "x[a=1,a=2]"])
def test_a_malformed_spec_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot read|twice"):
        Spec.parse(text)


def test_a_miss_suggests_the_nearest_name() -> None:
    with pytest.raises(UnknownName) as refused:
        orders().create("hefft")
    assert str(refused.value) == "unknown policy 'hefft'; did you mean 'heft'? (dagsim list policies)"


def test_a_far_miss_lists_what_there_is() -> None:
    with pytest.raises(UnknownName, match=r"unknown policy 'zzz'; allowed: heft, order"):
        orders().create("zzz")


def test_an_unknown_parameter_names_the_allowed_ones() -> None:
    with pytest.raises(UnknownName) as refused:
        orders().create("order[strikt=true]")
    assert str(refused.value) == (
        "policy 'order' has no parameter 'strikt'; did you mean 'strict'? allowed: seed, strict, placement"
    )


def test_a_missing_parameter_is_named() -> None:
    pairs: Registry[tuple[int, int]] = Registry("pair")
    pairs.register("pair")(lambda a, b: (a, b))
    with pytest.raises(ConfigError, match=r"pair 'pair' needs b: pair\[b=\.\.\.\]"):
        pairs.create("pair[a=1]")


def test_what_is_not_of_the_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'dagsim.errors:InputError' is not a policy: it has no method decide\(\)"):
        orders().create("dagsim.errors:InputError")
    with pytest.raises(ConfigError, match=r"'dagsim.errors:InputError' is not a pair: no such name is accepted"):
        Registry[object]("pair").create("dagsim.errors:InputError")


def test_listing_imports_nothing() -> None:
    assert orders().names() == ("heft", "order")
    assert [(entry.summary, entry.tags) for entry in orders().describe()] == [
        ("earliest finish", ()),
        ("an order", ("strict",)),
    ]
    assert "not.imported" not in sys.modules


def test_a_name_is_registered_once() -> None:
    with pytest.raises(ValueError, match="'order' is already registered"):
        orders().register("order")(Order)


def test_a_users_own_class_is_found_by_module_and_attribute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_policies.py").write_text(
        "class Mine:\n    def __init__(self, k=1):\n        self.k = k\n    def decide(self, view): ...\n"
        "READY = Mine(9)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert orders().create("own_policies:Mine[k=4]").k == 4  # type: ignore[attr-defined]
    assert orders().create("own_policies:READY").k == 9  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"'own_policies:READY' takes no parameters, got k"):
        orders().create("own_policies:READY[k=4]")
    with pytest.raises(UnknownName, match=r"'own_policies:Yours': module 'own_policies' has no attribute 'Yours'"):
        orders().create("own_policies:Yours")
    with pytest.raises(UnknownName, match=r"policy 'absent_policies:Mine': there is no module 'absent_policies'"):
        orders().create("absent_policies:Mine")


def test_what_a_users_module_lacks_is_not_mistaken_for_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needs_more.py").write_text("import not_installed_anywhere\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PluginError, match=r"cannot be imported: ModuleNotFoundError: .*not_installed_anywhere"):
        orders().create("needs_more:Mine")


def test_other_packages_add_names_by_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint("ours", f"{__name__}:Order", "g"), EntryPoint("heft", "theirs:Heft", "g")]
    monkeypatch.setattr(registry, "_installed", lambda path: EntryPoints(points))
    monkeypatch.setitem(sys.modules, __name__, sys.modules[Order.__module__])
    policies = orders(group="g")
    assert policies.names() == ("heft", "order", "ours")  # no entry point hides a built-in
    assert policies.create("ours[seed=2]").seed == 2


@pytest.mark.family("gavel")
def test_a_parameter_that_moved_to_another_name_is_refused_with_its_successor() -> None:
    with pytest.raises(UnknownName, match=r"'gavel' no longer has 'objective'; use gavel-events\[objective=...\]"):
        POLICIES.create("gavel[objective=makespan]")


SYSTEMS = ("allox", "gavel", "kube", "kueue", "pollux", "sia", "slurm", "tetris", "themis", "tiresias")


@pytest.mark.parametrize("name", [name for name in POLICIES.names() if name.startswith(SYSTEMS)])
def test_a_policy_named_after_a_system_says_whether_it_is_that_system(name: str) -> None:
    summary = next(entry.summary for entry in POLICIES.describe() if entry.name == name)
    if "as published" in summary:  # then a script holds it to the system's own results
        checks = re.findall(r"scripts/validate_\w+\.py", inspect.getdoc(POLICIES.get(name)) or "")
        assert checks
        assert all((Path(__file__).parent.parent / check).is_file() for check in checks)
    else:
        assert summary.startswith(("after ", "based on "))


@pytest.mark.parametrize(
    ("typed", "near"),
    [("T5", "T4"), ("t5", "T4"), ("h10", "H100"), ("SFJ", "sjf"), ("sfj", "sjf"), ("A100-8", "A100-80")],
)
def test_the_nearest_name_needs_the_fewest_edits(typed: str, near: str) -> None:
    """A wrong digit and two swapped letters count less than another letter."""
    names = ["MI325X", "T4", "L4", "H100", "H200", "A100-40", "A100-80", "TPU-v5p", "sjf", "srtf"]
    assert nearest(typed, names) == f"; did you mean {near!r}?"


def test_a_missing_file_suggests_the_nearest_beside_it(tmp_path: Path) -> None:
    for name in ("jobs.csv", "jobs.yaml"):
        (tmp_path / name).touch()
    assert nearest_file(tmp_path / "jobs.cvs") == f"; did you mean {str(tmp_path / 'jobs.csv')!r}?"
    assert nearest_file(tmp_path / "jobs.cvs", ".yaml") == f"; did you mean {str(tmp_path / 'jobs.yaml')!r}?"
    assert nearest_file(tmp_path / "nowhere" / "jobs.csv") == nearest_file(tmp_path / "x") == ""


def test_a_word_of_the_description_finds_names_and_an_alias_is_suggested() -> None:
    policies = orders(aliases={"csv": "heft"})
    policies.register("easy", "backfilling")(Order)
    with pytest.raises(UnknownName, match="the descriptions of these contain this word: easy"):
        policies.create("backfill")
    with pytest.raises(UnknownName, match="did you mean 'csv'"):
        policies.create("cvs")
