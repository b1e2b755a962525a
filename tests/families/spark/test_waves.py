from __future__ import annotations

import pytest

from dagsim.errors import ModelError
from dagsim.families.spark.api import Waves
from dagsim.families.spark.spark_job import bracket


def test_a_number_of_executors_lies_between_two_levels() -> None:
    levels = [bracket(executors) for executors in (1, 5, 6, 10, 19, 55, 100, 250)]
    assert levels == [(5, 5), (5, 5), (5, 10), (10, 10), (10, 20), (50, 60), (100, 100), (100, 100)]


def test_fresh_samples_leave_the_first_wave_as_often_as_they_are_there() -> None:
    waves = Waves.of({5: [7, 7, 9]}, {5: [3]}, {5: [7]})
    assert waves.at[5] == ([7], [7, 9], [3])
    assert waves.tasks == 4
    assert waves.rough_ms == (7 + 7 + 9 + 3) / 4


def test_an_empty_first_wave_inherits_from_fewer_executors() -> None:
    waves = Waves.of({5: [8], 10: [6]}, {5: [], 10: []}, {5: [], 10: [6]})
    assert waves.at[10] == ([6], [8], [8])


def test_without_fresh_samples_an_executor_warms_up() -> None:
    assert Waves.of({5: [8]}, {}, {}, warmup_ms=1000).at[5] == ([1008], [8], [8])


def test_levels_beyond_the_samples_use_the_most_executors() -> None:
    waves = Waves.of({2: [50], 5: [40]}, {}, {})
    assert waves.at[100] == waves.at[5] == ([1040], [40], [40])


def test_a_stage_without_samples_is_refused() -> None:
    with pytest.raises(ModelError, match="at least one observed duration"):
        Waves.of({5: []}, {5: []}, {5: []})
