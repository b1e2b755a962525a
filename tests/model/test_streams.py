from __future__ import annotations

import numpy as np
import pytest

from dagsim.errors import InputError
from dagsim.model.streams import stream


def test_first_values_are_pinned():
    # default_rng([0, crc32("arrivals") = 3612958146, 0])
    assert stream(0, "arrivals").random(3).tolist() == [0.8632685306420923, 0.46725008682847047, 0.3399235283292704]


def test_equal_arguments_give_equal_numbers():
    assert np.array_equal(stream(7, "shapes", 2).random(100), stream(7, "shapes", 2).random(100))


def test_root_name_and_index_each_give_another_stream():
    first = [stream(*key).random() for key in [(0, "a", 0), (1, "a", 0), (0, "b", 0), (0, "a", 1)]]
    assert len(set(first)) == 4


def test_a_new_stream_moves_no_other():
    alone = stream(3, "arrivals").random(10)
    shapes, arrivals = stream(3, "shapes"), stream(3, "arrivals")
    interleaved = [(shapes.random(), arrivals.random())[1] for _ in range(10)]
    assert interleaved == alone.tolist()


def test_consecutive_seeds_share_no_stream():
    # With seed + index as the key, (root 0, index 1) would equal (root 1, index 0).
    assert stream(0, "failures", 1).random() != stream(1, "failures", 0).random()


@pytest.mark.parametrize(("root", "index"), [(-1, 0), (0, -1)])
def test_a_negative_seed_is_refused(root, index):
    with pytest.raises(InputError, match="0 or more"):
        stream(root, "arrivals", index)
