"""A run folder remembers the agent that decided it."""

from __future__ import annotations

from pathlib import Path

import pytest
from experiment.manifests import SMALL, folder_in, manifest_of, sha
from support.command_line import invoke

from dagsim.families.learning.agents import shipped_agent
from dagsim.systems import system_named


def test_a_repetition_takes_the_agent_that_was_recorded_not_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shipped = shipped_agent("ppo", system_named("cluster"))
    invoke("eval", "--policy", "ppo", *SMALL, "-o", "first")
    run = folder_in(tmp_path / "first")
    assert manifest_of(run)["checkpoints"] == {"ppo": {"file": str(shipped), "sha256": sha(shipped)}}
    newer = tmp_path / "results" / "20990101T000000Z-train-ppo-s0-000000" / "best.pt"
    newer.parent.mkdir(parents=True)
    newer.write_bytes(shipped.read_bytes())
    invoke("eval", "--config", run, "--no-plots", "-o", "again")
    assert manifest_of(folder_in(tmp_path / "again"))["checkpoints"].keys() == {"ppo"}
    assert (run / "runs.jsonl").read_bytes() == (folder_in(tmp_path / "again") / "runs.jsonl").read_bytes()
    invoke("eval", "--policy", "ppo", *SMALL, "-o", "fresh")
    (checkpoint,) = manifest_of(folder_in(tmp_path / "fresh"))["checkpoints"].values()
    assert Path(checkpoint["file"]) == newer
