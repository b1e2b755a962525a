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
