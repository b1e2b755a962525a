from __future__ import annotations

from math import inf, isnan

import pytest

from dagsim.specs import scalar


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3e-4", 3e-4),
        ("1e6", 1e6),
        (".5", 0.5),
        ("5.", 5.0),
        ("-0.25", -0.25),
        ("-.inf", -inf),
        ("12", 12),
        ("+7", 7),
        ("010", 10),
        ("0o10", 8),
        ("0xff", 255),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("null", None),
        ("off", "off"),
        ("yes", "yes"),
        ("2026-11-20", "2026-11-20"),
        ("12:30:45", "12:30:45"),
        ("1_000", "1_000"),
        (".", "."),
        ("e5", "e5"),
        ("T4", "T4"),
    ],
)
def test_a_word_means_what_people_mean(text: str, value: object) -> None:
    meant = scalar(text)
    assert meant == value
    assert type(meant) is type(value)


def test_nan_is_a_number() -> None:
    meant = scalar(".nan")
    assert isinstance(meant, float)
    assert isnan(meant)
