"""A table of the fields that describe a job besides its graph. Columns, records, plain tables and
exports are derived from this table, so a field added to ``Job`` appears in all of them.
"""

from __future__ import annotations

from dataclasses import fields
from math import inf, nan
from typing import Any, NamedTuple

from dagsim.model.job import Job

_BEFORE = ("id", "graph", "arrival_s")
"""The fields that every job has; these three are not optional columns."""


class JobField(NamedTuple):
    """An optional field of a job."""

    name: str
    kind: str
    """Its annotation: ``float``, ``float | None``, ``str``, or a structure."""
    absent: Any
    """The value that the column contains for a job without this field."""

    @property
    def is_number(self) -> bool:
        """True if the field's column contains numbers. The columns of other fields contain indices
        of their distinct values.
        """
        return self.kind.startswith("float")

    @property
    def is_text(self) -> bool:
        """True if the field's values are strings."""
        return self.kind == "str"

    @property
    def in_tables(self) -> bool:
        """True if a plain table has a column with the name of the field. In plain tables, observed
        values have different names.
        """
        return (self.is_number or self.is_text) and not self.name.startswith("observed_")


def _field(name: str, kind: str, default: Any) -> JobField:
    """Return a field. In a column of numbers, a missing deadline is stored as infinity, and any
    other unknown time as NaN.
    """
    unknown = inf if name == "deadline_s" else nan
    return JobField(name, kind, unknown if kind == "float | None" else default)


JOB_FIELDS = tuple(
    _field(field.name, str(field.type), field.default) for field in fields(Job) if field.name not in _BEFORE
)
"""All optional fields, in the order of ``Job``."""
