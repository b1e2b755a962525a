"""The colours of all pictures, plots and pages, which are suitable for colour-blind readers."""

from __future__ import annotations

import colorsys

INK, GREY = "#222222", "#6b6b6b"
# The palette of Okabe and Ito ("Color universal design", 2008) except its yellow, which is too pale
# for lines.
BLUE, ORANGE, GREEN, SKY, VERMILION, PURPLE = "#0072B2", "#E69F00", "#009E73", "#56B4E9", "#D55E00", "#CC79A7"
COLOURS = (BLUE, ORANGE, GREEN, SKY, VERMILION, PURPLE)
_LIGHTEST = 0.82
_SHADES = (1.0, 1.35, 0.7)


def rgb(colour: str) -> tuple[int, int, int]:
    """Return the red, green and blue parts of ``#rrggbb``, each from 0 to 255."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def job_colour(number: int) -> tuple[float, float, float]:
    """Return the colour of a job as red, green and blue from 0 to 1.

    Successive jobs go through all hues, first in the basic shade, then lighter, then darker, so
    that consecutive jobs have different colours.
    """
    hue, light, strength = colorsys.rgb_to_hls(*(part / 255 for part in rgb(COLOURS[number % len(COLOURS)])))
    factor = _SHADES[number // len(COLOURS) % len(_SHADES)]
    return colorsys.hls_to_rgb(hue, min(light * factor, _LIGHTEST), strength)


def readable_on(colour: tuple[float, float, float]) -> str:
    """Return the colour of text that can be read on this colour."""
    red, green, blue = colour
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "#ffffff"
