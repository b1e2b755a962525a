"""What the compiled engine says of scenarios that it cannot carry out."""

from __future__ import annotations

import ast
import inspect
import random
import sys
from dataclasses import fields
from functools import partial
from importlib import import_module
from math import inf
from operator import attrgetter
from pathlib import Path
from types import MethodType, ModuleType
from typing import Any

import numpy as np
import pytest

from dagsim.errors import ConfigError, ModelError
from dagsim.families.compiled import jit, list_scheduling
from dagsim.families.compiled.choice import plan_for, unplayable, why_not
from dagsim.families.compiled.drive import compile_loop, is_warm
from dagsim.families.compiled.memory import SLOTS
from dagsim.families.compiled.reading import read_scenario
from dagsim.families.compiled.rules import (
    ARRIVED,
    COMPLETED,
    FINISHED,
    PREEMPTED,
    REJECTED,
    STARTED_ROW,
    run_entry,
    slot_of,
)
from dagsim.model import (
    Cluster,
    Job,
    JobSuspension,
    Kind,
    Node,
    NodePartition,
    QueueTree,
    Request,
    Task,
)
from dagsim.systems.cluster import Estimates, MovingDelay, NodeFailures, Preemption, UniformNetwork
from dagsim.systems.cluster.api import TaskState
from dagsim.systems.cluster.models.runtime import Recorded
from dagsim.systems.cluster.policies import POLICIES
from dagsim.systems.cluster.policies.orders import LongestWait, Ordered, TypedOrdered, by_seconds
from dagsim.systems.cluster.policies.preemption import LeastRemaining
from dagsim.systems.cluster.scenario import ClusterScenario
from dagsim.systems.seam import drive
from dagsim.testing import engine_cases
from dagsim.workload.arrays import JobArrays

FOUR = Cluster.of({"V100": 4})
NAMES = [name for names in engine_cases.KINDS.values() for name in names]
SORTED = [
    name
    for name in dict.fromkeys(NAMES)
    if isinstance(POLICIES.create(name), Ordered | TypedOrdered | LongestWait | LeastRemaining)
]


def why(policy: str, **models: Any) -> str:
    """The reason against the compiled engine, asked for."""
    return why_not(ClusterScenario(models.pop("cluster", FOUR), [], engine="compiled", **models), policy)


@pytest.mark.parametrize("policy", NAMES)
@pytest.mark.parametrize("placement", ["best-fit", "fastest", "first-fit", "worst-fit", "consolidate"])
def test_it_knows_every_policy_with_every_placement(policy: str, placement: str) -> None:
    assert why(f"{policy}[placement={placement}]") == ""


@pytest.mark.parametrize(
    ("models", "named"),
    [
        ({"setup": MovingDelay(2.0)}, "a set-up model"),
        ({"network": UniformNetwork()}, "a network"),
        ({"failures": (NodeFailures(1e5, 1e3),)}, "failures"),
        ({"admission": True}, "admission"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_refusal_names_the_feature(models: dict[str, Any], named: str) -> None:
    assert named in why("fifo", **models)


def test_observers_are_refused() -> None:
    assert "observers" in why_not(ClusterScenario(FOUR, []), "fifo", observed=True)


@pytest.mark.parametrize(
    ("policy", "named"),
    [
        ("heft", "policy 'heft'"),
        ("gittins", "policy 'gittins'"),
        ("sjf[placement=fgd]", "placement 'fgd'"),
        ("fifo[patience=3]", "patience"),
        ("las[lead=0.1]", "policy 'las'"),
        ("graham[order=[t1,t2]]", "policy 'graham': its key cannot be evaluated for all tasks at once"),
    ],
)
def test_an_unknown_policy_is_refused_by_name(policy: str, named: str) -> None:
    assert named in why(policy)


def test_rounds_that_lose_work_are_refused() -> None:
    assert "lose their work" in why("las", preemption=Preemption("restart"))
    assert not why("srtf", preemption=Preemption("restart"))


def test_preemption_that_takes_time_is_refused() -> None:
    assert "take time" in why("srtf", preemption=Preemption(restart_s=1.0))


def test_without_numba_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagsim.families.compiled.choice.is_installed", lambda: False)
    assert "pip install -e '.[fast]'" in why("fifo")


def of_own(monkeypatch: pytest.MonkeyPatch, policy: object) -> str:
    """The name under which a policy of a user's own can be asked for."""
    module = ModuleType("my_policies")
    if inspect.isfunction(policy):
        policy.__annotations__["return"] = type(policy())  # a function has to promise a policy
    module.mine = policy  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_policies", module)
    return "my_policies:mine"


def aged_area(task: TaskState) -> float:
    return task.best_s * task.demand.width / task.job.job.weight - task.rank_s


def area_by_type(task: TaskState, type_: int) -> float:
    return task.seconds[type_] * task.task.instances


@pytest.mark.parametrize(
    "mine",
    [
        lambda: Ordered(aged_area, "first-fit"),
        lambda: Ordered(aged_area, strict=True),
        lambda: Ordered(aged_area, "consolidate", ageing=0.01),
        lambda: TypedOrdered(area_by_type, "worst-fit"),
        TypedOrdered(area_by_type),
    ],
    ids=["first-fit", "strict", "ageing", "typed", "object"],
)
def test_an_order_of_a_users_own_plays_compiled_to_the_same_log(monkeypatch: pytest.MonkeyPatch, mine: Any) -> None:
    name = of_own(monkeypatch, mine)
    for number in range(8):
        rng = random.Random(f"own {number}")
        cluster, jobs = engine_cases.random_cluster(rng), engine_cases.jobs_of(rng)
        if any(node.gpus > 62 for node in cluster.nodes):
            jobs = [engine_cases.without_shares(job) for job in jobs]
        kernel = ClusterScenario(cluster, jobs).kernel(number)
        assert (
            engine_cases.compiled_schedule(cluster, jobs, name, seed=number).log
            == drive(kernel, POLICIES.create(name)).log
        )


class Counting:
    def __init__(self) -> None:
        self.asked = 0.0

    def __call__(self, task: TaskState) -> float:
        self.asked += 1.0
        return task.best_s + self.asked


class Impatient(Ordered):
    """May decide in another way."""


class Asked:
    """Stands for the seconds of a task where a method of dagsim reads them."""

    seconds = property(lambda self: self)

    def __init__(self) -> None:
        self.count = Counting()

    def __getitem__(self, task: TaskState) -> float:
        return self.count(task)


@pytest.mark.parametrize(
    ("mine", "named"),
    [
        (lambda: Ordered(lambda task: task.ready_s), "AttributeError"),
        (lambda: Ordered(lambda task: 0.0 if task.best_s < 9 else task.best_s), "ValueError"),
        (lambda: Ordered(lambda task: len(task.task.name)), "AttributeError"),
        (lambda: Ordered(Counting()), "for a single task"),
        (lambda: Ordered(partial(Counting())), "for a single task"),
        (lambda: Ordered(MethodType(by_seconds, Asked())), "for a single task"),
        (lambda: Ordered(attrgetter("job.job.deadline_s")), "for a single task"),
        (lambda: LeastRemaining(Counting()), "for a single task"),
        (lambda: LongestWait(aged_area, since=Counting()), "for a single task"),
        (lambda: Ordered(lambda task: 1.0), "one number per task"),
        (lambda: Impatient(aged_area), "not compiled"),
        (lambda: Ordered(aged_area, "fgd"), "Fgd is not compiled"),
    ],
    ids=[
        *("dynamic", "branches", "names", "counts", "partial", "method", "attribute", "weight", "since"),
        *("constant", "subclass", "placement"),
    ],
)
def test_an_order_that_columns_cannot_answer_is_refused(monkeypatch: pytest.MonkeyPatch, mine: Any, named: str) -> None:
    assert named in why(of_own(monkeypatch, mine))


@pytest.mark.parametrize("policy", SORTED)
def test_a_key_of_dagsim_is_the_same_for_a_single_task_and_for_all_tasks(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jit, "jitted", lambda: False)
    made: Any = POLICIES.create(policy)
    order = made.order if isinstance(made, LeastRemaining) else made
    compared = []
    monkeypatch.setattr(list_scheduling, "_is_shipped", lambda key: compared.append(key))
    monkeypatch.setattr(list_scheduling, "_SAMPLE", 10**6)
    for number in range(8):
        rng = random.Random(f"keys {number}")
        cluster, jobs = engine_cases.random_cluster(rng), engine_cases.jobs_of(rng)
        scene = read_scenario(cluster, JobArrays.of(jobs), Recorded(), Estimates(), 0)
        list_scheduling.key_columns(order, list_scheduling.KeyColumns(scene.work, scene.classes))
    assert len(compared) >= 8


def test_warm_is_a_policy_whose_loop_was_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "is_kept", lambda name: name == "advance_easy")
    plans = [plan_for(policy, Preemption()) for policy in ("easy-sjf", "easy", "sjf", "las")]
    assert [is_warm(plan) for plan in plans] == [True, True, False, False]


@pytest.mark.timeout(600)
@pytest.mark.skipif(not jit.jitted(), reason="numba is not installed")
def test_what_was_compiled_once_is_kept() -> None:
    assert not jit.is_kept("advance_nothing")
    compile_loop(plan_for("fifo", Preemption()))
    assert is_warm(plan_for("sjf", Preemption()))
    assert not compile_loop(plan_for("sjf", Preemption()))


def test_memory_without_end_is_refused() -> None:
    node = Node("n", FOUR.nodes[0].gpu, 4, memory_gb=inf)
    assert "GB of memory" in why("fifo", cluster=Cluster((node,)))


def test_jobs_must_come_in_order_of_arrival() -> None:
    jobs = [Job.single(f"j{at}", Task("t", 1.0), float(at)) for at in (3, 1)]
    with pytest.raises(ModelError, match=r"'j1' \(1.0 s\) follows a job that arrives at 3.0 s"):
        engine_cases.compiled_schedule(FOUR, jobs, "fifo")


def test_the_users_claim_must_be_an_amount_of_work() -> None:
    with pytest.raises(ModelError, match="the estimate of task j/t is inf"):
        engine_cases.compiled_schedule(
            FOUR, [Job.single("j", Task("t", 1.0, estimate=inf))], "sjf", estimates=Estimates("predicted")
        )


def test_no_jobs_leave_an_empty_log() -> None:
    schedule = engine_cases.compiled_schedule(FOUR, [], "fifo")
    assert (len(schedule.log), schedule.jobs, schedule.ended_s) == (0, [], 0.0)


def test_rows_are_of_the_kinds_of_the_log() -> None:
    kinds = (ARRIVED, REJECTED, STARTED_ROW, FINISHED, PREEMPTED, COMPLETED)
    assert kinds == (Kind.ARRIVED, Kind.REJECTED, Kind.STARTED, Kind.FINISHED, Kind.PREEMPTED, Kind.COMPLETED)


def _names(code: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(code) if isinstance(node, ast.Name)}


def _compiled_names(tree: ast.Module) -> set[str]:
    """Names in compiled functions of a module and in the constants that these functions use, and functions that the
    module has compiled."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    marked = [one for one in functions if {"inner", "outer"} & {ast.unparse(mark) for mark in one.decorator_list}]
    calls = [
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) in ("inner", "outer")
    ]
    used = {name for one in marked for line in one.body for name in _names(line)}
    for assigned in reversed([node for node in tree.body if isinstance(node, ast.Assign)]):
        if used & set().union(*map(_names, assigned.targets)):
            used |= _names(assigned.value)
    return used | {ast.unparse(call.args[0]) for call in calls}


def test_compiled_code_is_kept_under_a_digest_of_all_files_that_it_is_made_of() -> None:
    used = 0
    for file in jit.sources():
        tree = ast.parse(file.read_text())
        names = _compiled_names(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and names & {alias.name for alias in node.names}:
                module = import_module(str(node.module))
                if not module.__name__.startswith("dagsim."):
                    continue
                assert Path(str(module.__file__)) in jit.sources(), f"{file.name} takes {ast.unparse(node)}"
                used += 1
    assert used > 20


@pytest.mark.skipif(not jit.jitted(), reason="numba is not installed")
def test_without_a_folder_to_write_to_functions_are_compiled_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setattr(jit, "folder", lambda: tmp_path / "file" / "lane")

    def doubled(numbers: np.ndarray) -> None:
        for place in range(len(numbers)):
            numbers[place] *= 2

    with jit.alone():
        jit.outer(doubled)(numbers := np.array([1.5]))
    assert numbers.tolist() == [3.0]
    assert not jit.is_kept("doubled")


def test_a_numba_that_cannot_be_imported_leaves_simpy_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a NumPy that is newer than an old numba allows."""
    (tmp_path / "numba.py").write_text("raise ImportError('Numba needs NumPy 2.3 or less')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    monkeypatch.setattr("dagsim.families.compiled.drive.is_warm", lambda plan: False)
    jobs = [Job.single(str(at), Task("t", 5.0), float(at)) for at in range(3)]
    scenario = ClusterScenario(FOUR, jobs, engine="compiled")
    with pytest.raises(ConfigError, match="cannot be imported: Numba needs NumPy"):
        scenario.engaged("fifo", 0)


def test_the_compiled_engine_refuses_jobs_that_wait_for_others() -> None:
    jobs = [
        Job.single(name, Task("t", 1.0), request=request)
        for name, request in (("a", None), ("b", Request(after=("a",))))
    ]
    assert unplayable(JobArrays.of(jobs)) == "the compiled engine does not support jobs that wait for others"
    assert not unplayable(JobArrays.of([Job.single("a", Task("t", 1.0), request=Request("x"))]))


def test_the_compiled_engine_refuses_the_rules_of_a_site() -> None:
    rules = why("fifo", queues=QueueTree(partitions=(NodePartition("slow", ("a100-0",)),)))
    assert "partitions, features, reservations and licences" in rules


def test_the_compiled_engine_refuses_suspensions() -> None:
    suspended = QueueTree(suspensions=(JobSuspension("j", 10.0, 50.0),))
    assert "suspensions of jobs" in why("fifo", queues=suspended)


IN_THE_JOBS = "`unplayable` asks these jobs"
WITH_OTHERS = "matters only to parts that are refused, or to policies that are not compiled"
PARTS: dict[type, dict[str, str]] = {
    ClusterScenario: {
        "computed": "cluster runtime estimates preemption queues",
        "refused": "setup network sharing failures admission elastic outages",
        IN_THE_JOBS: "workload accept request begins_s left",
        WITH_OTHERS: "communication",
        "the engine itself": "engine",
    },
    Preemption: {
        "computed": "on_resume",
        "refused": "restart_s checkpoint_s_per_gb checkpoint_interval_s",
        WITH_OTHERS: "on_failure checkpoint_write_s",
    },
    Estimates: {"computed": "kind sigma"},
    Node: {
        "computed": "name gpu gpus cpus memory_gb",
        "refused": "features mig_s on_demand",
        WITH_OTHERS: "weight manifest",
    },
    QueueTree: {
        "computed": "partitions qos",  # their time limits; nodes of partitions are refused
        "refused": "reservations outages suspensions licences",
        WITH_OTHERS: "tree scheduler kueue",
    },
    Request: {
        "refused": "after after_one array_limit begin_s nodes excluded",
        WITH_OTHERS: "constraint partitions reservation licences exclusive exclusive_user spread array level "
        "level_required segment together least_nodes most_nodes",
    },
}


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_the_compiled_engine_knows_of_every_part_of_a_scenario(part: Any) -> None:
    """A part that it ignored would change its schedules without a word: state here what it does with a new one."""
    assert {one.name for one in fields(part) if one.init} == set(" ".join(PARTS[part].values()).split())


def test_an_entry_holds_the_number_and_the_slot_of_a_run() -> None:
    for number in (0, 1, 1 << 38):
        for slot in (0, 5, (1 << SLOTS) - 1):
            entry = run_entry(number, slot)
            assert (entry >> SLOTS, slot_of(entry)) == (number, slot)
            assert entry < 1 << 63
