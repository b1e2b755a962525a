from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from dagsim import simulate
from dagsim.errors import InputError
from dagsim.report.film import film


def test_a_film_uncovers_the_schedule_frame_by_frame(tmp_path: Path) -> None:
    schedule = simulate("heterogeneous", seed=1).schedule
    path = film(schedule, tmp_path / "run.gif", "fifo, seed 1", frames=6)
    with Image.open(path) as shown:
        assert getattr(shown, "n_frames", 1) == 6
        coloured = []
        for frame in range(6):
            shown.seek(frame)
            pixels = shown.convert("HSV").getchannel("S").histogram()
            coloured.append(sum(pixels[64:]))
    assert coloured == sorted(coloured)
    assert coloured[0] < coloured[-1]


@pytest.mark.parametrize("name", ["run.avi", "run"])
def test_another_ending_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"\.gif or \.mp4"):
        film(simulate("heterogeneous", seed=1).schedule, tmp_path / name, "fifo")
