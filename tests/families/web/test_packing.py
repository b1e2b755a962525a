from __future__ import annotations

import base64
import gzip
import json

import numpy as np
import pytest

from dagsim.families.web.charts import Packer


def test_arrays_lie_at_multiples_of_eight_and_read_back() -> None:
    packer = Packer()
    arrays = [("u1", [1, 2, 3]), ("f8", [0.1, np.pi]), ("i4", [-7]), ("f4", [])]
    assert [packer.add(values, kind) for kind, values in arrays] == [0, 1, 2, 3]
    whole = gzip.decompress(base64.b64decode(packer.packed({"name": "é", "at": 1})))
    length = int.from_bytes(whole[:4], "little")
    assert (4 + length) % 8 == 0
    header = json.loads(whole[4 : 4 + length])
    assert header["facts"] == {"name": "é", "at": 1}
    for (kind, values), (_, offset, count) in zip(arrays, header["arrays"], strict=True):
        assert offset % 8 == 0
        assert np.frombuffer(whole, f"<{kind}", count, 4 + length + offset).tolist() == values


def test_what_json_cannot_say_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        Packer().packed({"x": float("nan")})
