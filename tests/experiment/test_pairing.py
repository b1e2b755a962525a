from __future__ import annotations

from pathlib import Path

import pytest
from support.runs import kept

from dagsim.config.schema import load_config
from dagsim.errors import InputError
from dagsim.experiment.compare import paired_lines
from dagsim.experiment.run_store import RunStore
from dagsim.experiment.store import Store

SMALL = ("cluster.groups=[{name: t4, gpu: T4, gpus: 8}]", "workload.count=5", "seeds=2")


def ran(root: Path, policy: str, *settings: str) -> Store:
    config = load_config(None, [*SMALL, f"policy={policy}", *settings])
    folder = RunStore.create(root, "eval", config, argv=[])
    kept(folder, config, (policy,))
    return folder


def test_runs_on_the_same_jobs_stand_side_by_side(tmp_path: Path) -> None:
    lines, differences, _ = paired_lines([ran(tmp_path, "fifo"), ran(tmp_path, "sjf")])
    assert [line.policy for line in lines] == ["fifo", "fifo", "sjf", "sjf"]
    assert differences == []


def test_only_seeds_in_common_are_compared(tmp_path: Path) -> None:
    more = ran(tmp_path, "sjf", "seeds=3")
    lines, *_ = paired_lines([ran(tmp_path, "fifo"), more])
    assert sorted({line.seed for line in lines}) == sorted(more.manifest["seeds"][:2])


def test_one_policy_twice_is_labelled_with_what_differs(tmp_path: Path) -> None:
    one, other = ran(tmp_path, "fifo"), ran(tmp_path, "fifo", "preemption.on_resume=restart")
    lines, differences, _ = paired_lines([one, other])
    assert {line.policy for line in lines} == {
        "fifo @ preemption.on_resume=resume",
        "fifo @ preemption.on_resume=restart",
    }
    assert differences == [
        f"preemption.on_resume: resume in {one.path.name}, restart in {other.path.name}",
    ]


def test_equal_runs_are_labelled_with_their_folders(tmp_path: Path) -> None:
    one, other = ran(tmp_path, "fifo"), ran(tmp_path, "fifo")
    lines, *_ = paired_lines([one, other])
    assert {line.policy for line in lines} == {f"fifo @ {one.path.name}", f"fifo @ {other.path.name}"}


def test_runs_on_other_jobs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the runs have different jobs: workload\.count: 5 in .*, 6 in "):
        paired_lines([ran(tmp_path, "fifo"), ran(tmp_path, "sjf", "workload.count=6")])
    with pytest.raises(InputError, match=r"the runs have different jobs: seed: 0 in .*, 1 in "):
        paired_lines([ran(tmp_path, "fifo"), ran(tmp_path, "sjf", "seed=1")])
