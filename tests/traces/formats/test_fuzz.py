"""Damaged traces: whatever is done to a sample, a reader reads on with counts or says file and line. Never a traceback.

``scripts/fuzz_readers.py`` tries thousands of damages per format, under limits of time and memory.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from traces.formats.fuzzing import SAMPLES, try_case

from dagsim.traces import READERS

CASES = 40
"""Per format."""


@pytest.fixture(scope="module")
def folder(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz") / "samples"
    shutil.copytree(samples, folder)
    return folder


def test_every_format_has_a_sample_to_damage() -> None:
    assert {sample.format for sample in SAMPLES} == set(READERS.names())


@pytest.mark.parametrize("format_", READERS.names())
def test_damage_is_counted_or_named(folder: Path, samples: Path, format_: str) -> None:
    mine = [sample for sample in SAMPLES if sample.format == format_]
    for seed in range(CASES):
        sample = mine[seed % len(mine)]
        try:
            try_case(sample, seed, samples, folder)
        except Exception as error:
            error.add_note(f"scripts/fuzz_readers.py --format {format_} --first {seed} --count 1")
            raise
