"""A schedule as a film: its Gantt chart, uncovered from left to right."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dagsim.errors import InputError
from dagsim.metrics.columns import columns
from dagsim.model import Kind
from dagsim.model.schedule import Schedule

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["film"]

_FRAMES_PER_S = 12
_DPI = 80
_BAND = 20
"""Pixels above the chart, for the words."""
_ENDINGS = (".gif", ".mp4")


def film(schedule: Schedule, path: Path, title: str, frames: int = 90) -> Path:
    """Write the film of ``schedule`` to ``path`` (.gif, or .mp4 where ffmpeg is installed).

    Each frame shows what ran until its time, how many jobs are in the system and how many are done.

    Raises:
        InputError: The name ends otherwise, ffmpeg is missing, or the file cannot be written.
    """
    if path.suffix not in _ENDINGS:
        raise InputError(f"{path}: a film is a file {' or '.join(_ENDINGS)}")
    if path.suffix == ".mp4" and shutil.which("ffmpeg") is None:
        raise InputError(f"{path}: .mp4 needs the program ffmpeg, which is not installed; .gif needs nothing")
    images = _frames(schedule, title, frames)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        (_write_mp4 if path.suffix == ".mp4" else _write_gif)(images, path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
    return path


def _frames(schedule: Schedule, title: str, count: int) -> list[Image]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image, ImageDraw

    from dagsim.report.plots.gantt import gantt

    drawn = gantt(schedule)
    drawn.set_dpi(_DPI)
    canvas = FigureCanvasAgg(drawn)
    canvas.draw()  # type: ignore[no-untyped-call]
    pixels = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
    chart = Image.fromarray(pixels).convert("RGB")
    whole = Image.new("RGB", (chart.width, chart.height + _BAND), "white")
    whole.paste(chart, (0, _BAND))
    axes = drawn.axes[0]
    box = axes.get_window_extent()
    left, right = int(np.ceil(box.x0)) + 1, int(box.x1)
    top, bottom = whole.height - int(box.y1), whole.height - int(np.ceil(box.y0)) - 1
    made = columns(schedule)
    rows = schedule.log.rows()
    arrived = rows["time_s"][rows["kind"] == int(Kind.ARRIVED)]
    done = rows["time_s"][np.isin(rows["kind"], (int(Kind.COMPLETED), int(Kind.REJECTED)))]
    images = []
    for number in range(1, count + 1):
        share = number / count
        now_s = made.start_s + share * (made.end_s - made.start_s)
        image = whole.copy()
        pen = ImageDraw.Draw(image)
        edge = round(left + share * (right - left))
        if edge < right:
            pen.rectangle((edge, top, right, bottom), fill="white")
        pen.line((edge, top, edge, bottom), fill="black")
        finished = int(np.count_nonzero(done <= now_s))
        present = int(np.count_nonzero(arrived <= now_s)) - finished
        text = f"{title}   {now_s:,.0f} s: {present:,} jobs in the system, {finished:,} done"
        pen.text((8, 4), text, fill="black")
        images.append(image)
    return images


def _write_gif(images: list[Image], path: Path) -> None:
    first, *rest = [image.quantize(64) for image in images]
    first.save(path, save_all=True, append_images=rest, duration=1000 // _FRAMES_PER_S, loop=0)


def _write_mp4(images: list[Image], path: Path) -> None:
    width, height = (side - side % 2 for side in images[0].size)
    command = ["ffmpeg", "-loglevel", "error", "-y", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}"]
    command += ["-r", str(_FRAMES_PER_S), "-i", "-", "-pix_fmt", "yuv420p", str(path)]
    frames = b"".join(image.crop((0, 0, width, height)).tobytes() for image in images)
    ran = subprocess.run(command, input=frames, capture_output=True, check=False)
    if ran.returncode:
        raise OSError(ran.stderr.decode(errors="replace").strip()[:200])
