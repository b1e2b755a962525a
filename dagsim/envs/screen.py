"""Pictures of an episode, as arrays or in a window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded

from dagsim.errors import ConfigError
from dagsim.systems.seam import Kernel

__all__ = ["FRAMES_PER_S", "RENDER_MODES", "Screen", "check_render_mode", "picture_of"]

RENDER_MODES = ["ansi", "rgb_array", "human"]
FRAMES_PER_S = 4
_INSTANT_S = 1e-6


def check_render_mode(mode: str | None) -> str | None:
    """Return the render mode if it is valid.

    Raises:
        ConfigError: The mode is unknown.
    """
    if mode is not None and mode not in RENDER_MODES:
        raise ConfigError(f"render_mode must be one of {RENDER_MODES}, got {mode!r}")
    return mode


def picture_of(kernel: Kernel[Any, Any] | None, title: str) -> np.ndarray:
    """(540, 960, 3) uint8: the cluster at the present moment of an episode in progress.

    Raises:
        ResetNeeded: The episode has not begun.
    """
    from dagsim.metrics.columns import ScheduleColumns
    from dagsim.pictures import Scene

    if kernel is None:
        raise ResetNeeded("nothing to draw yet: call reset() first")
    now_s = kernel.now
    after_s = now_s + max(_INSTANT_S, now_s * 1e-9)  # include runs that have just begun
    columns = ScheduleColumns.of(kernel.schedule, start_s=0.0, end_s=after_s)
    return Scene(columns, title).array(now_s)


class Screen:
    """A window for ``human``, which opens with the first picture."""

    def __init__(self) -> None:
        self._window: Any = None

    def show(self, image: np.ndarray) -> None:
        """Replace the picture in the window."""
        from matplotlib import pyplot

        if self._window is None:
            self._window, axes = pyplot.subplots(figsize=(9.6, 5.4), layout="constrained")
            axes.axis("off")
            self._shown = axes.imshow(image)
        self._shown.set_data(image)
        pyplot.pause(1 / FRAMES_PER_S)

    def render(self, mode: str | None, line: Callable[[], str], picture: Callable[[], np.ndarray]) -> Any:
        """The result of an environment's ``render()``: a line for ``ansi``, and a picture for
        ``rgb_array``. For ``human`` it is ``None``, and the picture is shown in the window.
        """
        if mode == "ansi":
            return line()
        if mode is None:
            return None
        if mode == "rgb_array":
            return picture()
        self.show(picture())
        return None

    def close(self) -> None:
        """Close the window, if there is one."""
        if self._window is not None:
            from matplotlib import pyplot

            pyplot.close(self._window)
            self._window = None
