"""Tables of jobs and runs as CSV text and as pandas data frames."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dagsim.text import in_spreadsheet

if TYPE_CHECKING:
    import pandas as pd


def to_csv(table: Mapping[str, Sequence[Any] | np.ndarray]) -> str:
    """Return the table as CSV text. Equal tables give equal bytes.

    Floats are written in their shortest exact form, and NaN is left empty. A text that a
    spreadsheet would interpret as a formula gets a leading apostrophe (``text.in_spreadsheet``).
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_cells(list(table)))
    writer.writerows(zip(*(_cells(column) for column in table.values()), strict=True))
    return text.getvalue()


def to_pandas(table: Mapping[str, Sequence[Any] | np.ndarray]) -> pd.DataFrame:
    """Return the table as a pandas ``DataFrame``."""
    import pandas as pd

    return pd.DataFrame(dict(table))


def _cells(column: Sequence[Any] | np.ndarray) -> Sequence[Any]:
    values = column.tolist() if isinstance(column, np.ndarray) else column
    if isinstance(column, np.ndarray) and column.dtype.kind == "f":
        return ["" if math.isnan(value) else repr(value) for value in values]
    if any(in_spreadsheet(value) != value for value in {value for value in values if isinstance(value, str)}):
        return [in_spreadsheet(value) if isinstance(value, str) else value for value in values]
    return values
