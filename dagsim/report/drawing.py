"""Draw run folders as plots and Perfetto traces, and schedules as films in which jobs move from the
queue to the GPUs. This module decides which plots are drawn for a folder, and where the files are
written.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dagsim.errors import InputError
from dagsim.experiment.scenario import metric_of, sample_of
from dagsim.experiment.store import Store
from dagsim.experiment.trace_info import TraceInfo
from dagsim.files import writing
from dagsim.metrics.standings import PolicyResult, standings
from dagsim.model.log import Schedule
from dagsim.pictures import Scene
from dagsim.report.comparison import metric_name
from dagsim.report.perfetto import write_perfetto
from dagsim.report.plots import comparison, draw_all, save
from dagsim.report.plots import workload as workload_figure
from dagsim.text import count_of

if TYPE_CHECKING:
    from PIL.Image import Image


def draw(
    folder: Store,
    number: int | None = None,
    out: Path | None = None,
    kind: str = "png",
    ranked: Sequence[PolicyResult] = (),
) -> list[Path]:
    """Draw the finished run with this number. By default, compare the policies or, if there is only
    one, draw the first run.

    The plots go to ``out`` (default: ``plots/`` in the folder) as png, pdf or svg files. ``ranked``
    contains the standings of the folder's policies, if the caller already has them.

    Raises:
        InputError: There is no such run.
        RunFolderError: The run cannot be read.
    """
    lines, out = folder.lines(), out or folder.path / "plots"
    workload = folder.label
    if number is None and len({line.policy for line in lines}) > 1:
        metric = metric_of(folder.config)
        ranked = ranked or standings(lines, metric, sample=sample_of(folder.config))
        return [draw_comparison(ranked, out / f"comparison.{kind}", metric, workload=workload)]
    chosen = number or 0
    run = folder.line(chosen)
    schedule = folder.schedule(chosen)
    n = f"run {chosen + 1} of {len(lines)}, {count_of(len(schedule.jobs), 'job')}"
    return draw_all(schedule, out, run.policy, f"{run.policy}, seed {run.seed}, {workload}: {n}", kind)


def draw_perfetto(folder: Store, path: Path, number: int = 0) -> Path:
    """Write the finished run with this number as a trace for ui.perfetto.dev.

    Raises:
        InputError: There is no such run, or the file cannot be written.
        RunFolderError: The run cannot be read.
    """
    run = folder.line(number)
    return write_perfetto(folder.schedule(number), path, f"{run.policy}, seed {run.seed}")


def draw_comparison(
    ranked: Sequence[PolicyResult], path: Path, metric: str = "jct_s.mean", *, workload: str = ""
) -> Path:
    """Draw the ratios of all policies to the reference, with intervals. ``ranked`` contains the
    ``standings``.

    Raises:
        InputError: The file cannot be written.
    """
    return save(comparison(ranked, metric_name(metric), workload), path)


def draw_trace(info: TraceInfo, folder: Path) -> Path:
    """Draw the distributions of a workload as a PNG file in ``folder``, named after the trace.
    Return its path.

    Raises:
        InputError: The file cannot be written.
    """
    name = info.trace.source.name
    return save(workload_figure(info.tally, name), folder / f"trace-{name.partition('.')[0] or 'info'}.png")


_FRAMES_PER_S = 12
_COLOURS = 64
_ENDINGS = (".gif", ".mp4")


def film(schedule: Schedule, path: Path, title: str, frames: int = 90, width: int = 960) -> Path:
    """Write the film of ``schedule`` to ``path`` (.gif, or .mp4 if ffmpeg is installed).

    Each frame shows the waiting jobs, the running jobs with their progress on every GPU, and the
    queue length and the utilisation up to that time.

    Raises:
        InputError: The file name has a different ending, ffmpeg is missing, or the file cannot be
            written.
    """
    if path.suffix not in _ENDINGS:
        raise InputError(f"{path}: the name of an animation must end in {' or '.join(_ENDINGS)}")
    if path.suffix == ".mp4" and shutil.which("ffmpeg") is None:
        raise InputError(f"{path}: .mp4 needs the program ffmpeg, which is not installed; .gif needs no other program")
    images = _frames(schedule, title, frames, width)
    with writing(path) as temporary:
        (_write_mp4 if path.suffix == ".mp4" else _write_gif)(images, temporary)
    return path


def _frames(schedule: Schedule, title: str, count: int, width: int) -> list[Image]:
    scene = Scene(schedule, title)
    start_s, end_s = scene.span_s
    step_s = (end_s - start_s) / count
    images = []
    for number in range(1, count + 1):
        image = scene.image(start_s + number * step_s, step_s)
        if width != image.width:
            image = image.resize((width, round(width * image.height / image.width)))
        images.append(image)
    return images


def _write_gif(images: list[Image], path: Path) -> None:
    """Write the images as a GIF. All frames have the same palette, so that unchanged areas take no
    space in the file.
    """
    from PIL import Image

    sample = Image.new("RGB", (images[0].width, images[0].height * 4))
    for place in range(4):
        sample.paste(images[(2 * place + 1) * len(images) // 8], (0, place * images[0].height))
    palette = sample.quantize(_COLOURS)
    first, *rest = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    first.save(path, "GIF", save_all=True, append_images=rest, duration=1000 // _FRAMES_PER_S, loop=0, optimize=True)


def _write_mp4(images: list[Image], path: Path) -> None:
    width, height = (side - side % 2 for side in images[0].size)
    command = ["ffmpeg", "-loglevel", "error", "-y", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}"]
    command += ["-r", str(_FRAMES_PER_S), "-i", "-", "-pix_fmt", "yuv420p", "-f", "mp4", str(path)]
    frames = b"".join(image.crop((0, 0, width, height)).tobytes() for image in images)
    ran = subprocess.run(command, input=frames, capture_output=True, check=False)
    if ran.returncode:
        raise OSError(ran.stderr.decode(errors="replace").strip()[:200])
