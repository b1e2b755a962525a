"""Shipped agents play the same schedules as when they were published, to the last digit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from dagsim.config.schema import load_config
from dagsim.errors import RunFolderError
from dagsim.experiment.simulate import run_policy
from dagsim.families.learning.checkpoint import Checkpoint

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SHIPPED = sorted((ROOT / "dagsim" / "families" / "learning").glob("*.pt"))
ALL = sorted((ROOT / "dagsim").rglob("*.pt"))
GOLDEN: dict[str, Any] = json.loads((HERE / "golden.json").read_text())


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_agents_play_the_same_schedules(path: Path) -> None:
    config = load_config(None, ["workload=heterogeneous", "workload.count=60"])
    for seed in (1, 2):
        result = run_policy(config, f'ppo[checkpoint="{path}"]', seed)
        assert result.summary.jct_s.mean == GOLDEN["schedules"][f"agents/{path.name} {seed}"]


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_every_shipped_agent_has_a_digest_that_protects_it(path: Path, tmp_path: Path) -> None:
    Checkpoint.load(path)
    content = torch.load(path, weights_only=True)
    next(iter(content["weights"].values())).view(-1)[0] += 1e-3
    torch.save(content, tmp_path / "changed.pt")
    with pytest.raises(RunFolderError, match="the content does not match the digest"):
        Checkpoint.load(tmp_path / "changed.pt")
    del content["digest"]
    torch.save(content, tmp_path / "bare.pt")
    with pytest.raises(RunFolderError, match="it has no digest"):
        Checkpoint.load(tmp_path / "bare.pt")
