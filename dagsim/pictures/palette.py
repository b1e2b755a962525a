"""The colours of every picture, plot and page, chosen for colour-blind readers."""

from __future__ import annotations

import colorsys

# Okabe & Ito's palette ("Color universal design", 2008) without its yellow, which is too pale for lines.
BLUE, ORANGE, GREEN, SKY, VERMILION, PURPLE = "#0072B2", "#E69F00", "#009E73", "#56B4E9", "#D55E00", "#CC79A7"
COLOURS = (BLUE, ORANGE, GREEN, SKY, VERMILION, PURPLE)

_LIGHTEST = 0.82
_SHADES = (1.0, 1.35, 0.7)


def rgb(colour: str) -> tuple[int, int, int]:
    """Red, green and blue of ``#rrggbb``, 0 to 255."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def job_colour(number: int) -> tuple[float, float, float]:
    """Return the colour of a job as red, green and blue from 0 to 1.

    Jobs use each hue unchanged, then lighter, then darker; consecutive jobs differ.
    """
    hue, light, strength = colorsys.rgb_to_hls(*(part / 255 for part in rgb(COLOURS[number % len(COLOURS)])))
    factor = _SHADES[number // len(COLOURS) % len(_SHADES)]
    return colorsys.hls_to_rgb(hue, min(light * factor, _LIGHTEST), strength)
