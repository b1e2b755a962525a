from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dagsim import simulate
from dagsim.errors import InputError
from dagsim.report.drawing import film


def test_a_film_shows_the_use_of_the_gpus_up_to_each_frame(tmp_path: Path) -> None:
    schedule = simulate("heterogeneous", seed=1).schedule
    path = film(schedule, tmp_path / "run.gif", "fifo, seed 1", frames=6)
    with Image.open(path) as shown:
        assert getattr(shown, "n_frames", 1) == 6
        blue = []
        for frame in range(6):
            shown.seek(frame)
            strip = np.asarray(shown.convert("RGB").crop((200, 430, 960, 509)), int)
            blue.append(np.flatnonzero((abs(strip - [0, 114, 178]).sum(axis=2) < 60).any(axis=0)).max())
    assert blue == sorted(blue)
    assert blue[-1] > 700 > 200 > blue[0]


@pytest.mark.parametrize("name", ["run.avi", "run"])
def test_another_ending_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"\.gif or \.mp4"):
        film(simulate("heterogeneous", seed=1).schedule, tmp_path / name, "fifo")


def test_ffmpeg_gets_every_frame_and_its_complaint_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "ffmpeg"
    program.write_text(
        '#!/bin/sh\nfor last; do :; done\nwc -c > "$last"\ntest -z "$BROKEN" || { echo no room >&2; exit 1; }\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    schedule = simulate("heterogeneous", seed=1).schedule
    path = film(schedule, tmp_path / "run.mp4", "fifo", frames=2, width=301)
    with Image.open(film(schedule, tmp_path / "run.gif", "fifo", frames=2, width=301)) as shown:
        assert int(path.read_text()) == 2 * 3 * 300 * (shown.height - shown.height % 2)
    monkeypatch.setenv("BROKEN", "1")
    with pytest.raises(InputError, match=r"run\.mp4: cannot be written: no room"):
        film(schedule, path, "fifo", frames=2)
