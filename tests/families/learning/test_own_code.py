"""A checkpoint is data: which code it names, and who may import it (docs/security.md)."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.command_line import fine, invoke
from support.own_code import MARK, SHORT, begin_in, imported

from dagsim.errors import CodeNotAllowed, RunFolderError
from dagsim.families import learning
from dagsim.families.learning.agents import shipped_agent
from dagsim.families.learning.checkpoint import Checkpoint
from dagsim.families.learning.checkpoint_file import read_plain, write_plain
from dagsim.systems import system_named


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return begin_in(tmp_path, monkeypatch)


@pytest.mark.parametrize("part", ["codec", "net"])
def test_a_checkpoint_imports_nothing(part: str, folder: Path) -> None:
    plain = dict(read_plain(shipped_agent("ppo", system_named("cluster"))))
    plain[part] = {**plain[part], "kind": "evil_policy:Codec"}
    write_plain(folder / "evil.pt", plain)
    ended = invoke("eval", "--policy", "ppo", "--checkpoint", "evil.pt", *SHORT)
    assert ended.exit_code == 2
    assert f"evil.pt: the {part} 'evil_policy:Codec' of the agent is code outside dagsim" in ended.output
    assert imported(folder) == []


def test_an_agent_of_an_unknown_system_is_refused(folder: Path) -> None:
    plain = dict(read_plain(shipped_agent("ppo", system_named("cluster"))))
    write_plain(folder / "far.pt", {**plain, "system": "clusters"})
    with pytest.raises(RunFolderError, match=r"far\.pt: .* 'clusters', which is unknown; did you mean 'cluster'"):
        Checkpoint.load(folder / "far.pt")
    ended = invoke("eval", "--policy", "ppo", "--checkpoint", "far.pt", *SHORT)
    assert ended.exit_code == 2
    assert "far.pt: the agent was trained for the system 'clusters', so it cannot schedule 'cluster'" in ended.output


def test_a_codec_of_ones_own_is_named_by_whoever_loads_the_agent(folder: Path) -> None:
    own = MARK + (
        "from dataclasses import dataclass\nfrom dagsim.families.learning.codecs.codec import CandidatesConfig\n"
        "@dataclass(frozen=True)\nclass Codec(CandidatesConfig):\n    pass\n"
    )
    (folder / "own_codec.py").write_text(own, encoding="utf-8")
    plain = dict(read_plain(Path(learning.__file__).with_name("independent-0.9.pt")))
    plain["codec"] = {**plain["codec"], "kind": "own_codec:Codec"}
    write_plain(folder / "own.pt", plain)
    with pytest.raises(CodeNotAllowed, match=r"parameter codec=own_codec:Codec"):
        Checkpoint.load(folder / "own.pt")
    fine("eval", "--policy", "ppo[codec=own_codec:Codec]", "--checkpoint", "own.pt", *SHORT)
    assert imported(folder) == ["own_codec"]
