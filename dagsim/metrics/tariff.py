"""Hourly prices and carbon intensities, and what the energy used by a schedule costs and emits.

A series is a CSV file with the columns ``time`` and ``value``. Times are ISO dates with a time
zone. Values are the price of a kWh in any currency (which may be negative) or grams of CO2 per kWh.
Each value is valid until the time of the next value, and the last value is valid for as long as the
value before it. After that, the series repeats from its beginning. With ``repeats=False``, it does
not repeat, and a run that lasts longer than the series is rejected.

If the log contains dates (as Slurm's logs do), the values for those dates apply. In a run with
generated jobs, 0 s is the first time in the series, or ``begins``.
"""

from __future__ import annotations

import csv
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate, pairwise
from math import floor, isfinite
from pathlib import Path

from dagsim.errors import ConfigError, require
from dagsim.files import why_unreadable
from dagsim.metrics.columns import columns
from dagsim.metrics.utilization import watts
from dagsim.model.arithmetic import ordered_sum
from dagsim.model.log import Schedule

ENERGY = ("energy_cost", "carbon_kg")
"""The metrics that are computed from a series of prices and a series of carbon intensities, in this
order.
"""
_DATED_S = 631_152_000.0
"""Times above this number of seconds, which corresponds to 1990, are dates."""
_J_PER_KWH, _G_PER_KG = 3.6e6, 1e3


@dataclass(frozen=True, slots=True)
class Tariff:
    """A value per kWh as a step function of time. Its arithmetic gives the same results on every
    machine.

    ``edges_s`` contains the time at which each value begins, and the end of the last one, in
    seconds since 1970.
    """

    name: str
    edges_s: tuple[float, ...]
    values: tuple[float, ...]
    repeats: bool = True
    shift_s: float = 0.0
    """Seconds to add to a time of the simulation."""
    _sums: tuple[float, ...] = field(init=False, repr=False, compare=False)
    """Integral of the value from the beginning to each edge."""

    def __post_init__(self) -> None:
        spans = zip(self.values, pairwise(self.edges_s), strict=True)
        sums = accumulate([value * (end_s - start_s) for value, (start_s, end_s) in spans], initial=0.0)
        object.__setattr__(self, "_sums", tuple(sums))

    def on_clock(self, first_s: float, begins: str = "") -> Tariff:
        """Return the tariff for a simulation whose first event is at ``first_s``. Time 0 of the
        simulation is ``begins`` (an ISO date with a time zone), or the first time in the series. If
        the times of the simulation are already dates, the tariff is returned unchanged.

        Raises:
            ConfigError: ``begins`` is not such a date, or the times are already dates.
        """
        if first_s > _DATED_S:
            if begins:
                raise ConfigError(f"{self.name}: begins={begins}: the log already contains dates, so leave out begins")
            return self
        begins_s = _moment(begins, f"{self.name}: begins") if begins else self.edges_s[0]
        return Tariff(self.name, self.edges_s, self.values, self.repeats, begins_s)

    def integral(self, start_s: float, end_s: float) -> float:
        """Integrate the value over an interval of simulated time. The unit of the result is the
        unit of the value times seconds.

        Raises:
            ConfigError: The series does not repeat, and does not cover the interval.
        """
        first_s, last_s = self.edges_s[0], self.edges_s[-1]
        start_s, end_s = start_s + self.shift_s, end_s + self.shift_s
        if not self.repeats and (start_s < first_s or end_s > last_s):
            raise ConfigError(
                f"{self.name}: the series covers {_date(first_s)} to {_date(last_s)}, but the run needs "
                f"{_date(start_s)} to {_date(end_s)}; give more rows, or leave out repeats=false"
            )
        return self._until(end_s) - self._until(start_s)

    def changes(self, start_s: float, end_s: float) -> Iterator[float]:
        """Yield the times at which the value changes, in simulated time, from ``start_s`` to
        ``end_s``.
        """
        first_s, period_s = self.edges_s[0], self.edges_s[-1] - self.edges_s[0]
        lap = floor((start_s + self.shift_s - first_s) / period_s) if self.repeats else 0
        while True:
            for edge_s in self.edges_s[:-1]:
                time_s = edge_s + lap * period_s - self.shift_s
                if time_s >= end_s:
                    return
                if time_s > start_s:
                    yield time_s
            if not self.repeats:
                return
            lap += 1

    def _until(self, time_s: float) -> float:
        """Return the integral from the beginning of the series to ``time_s``."""
        edges_s, sums = self.edges_s, self._sums
        period_s = edges_s[-1] - edges_s[0]
        laps = floor((time_s - edges_s[0]) / period_s) if self.repeats else 0
        rest_s = time_s - laps * period_s
        place = min(max(bisect_right(edges_s, rest_s) - 1, 0), len(self.values) - 1)
        return laps * sums[-1] + sums[place] + self.values[place] * (rest_s - edges_s[place])


NIGHTS = Tariff("nights at half the price", (0.0, 21_600.0, 79_200.0, 86_400.0), (0.5, 1.0, 0.5))
"""A day (in UTC) on which the hours from 22 to 6 cost half as much. It is used if no series is
given.
"""


def read_tariff(path: Path | str, repeats: bool = True, least: float | None = None) -> Tariff:
    """Read a series from a CSV file.

    Raises:
        ConfigError: The file cannot be read, or has no rows or the wrong columns. A time has no
            zone, or is not after the previous time. A value is not a number, or is below ``least``.
    """
    path = Path(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            times_s, values = _rows(csv.reader(file), path, least)
    except OSError as error:
        raise ConfigError(f"{path}: {why_unreadable(error)}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path}: not a CSV file with a time series: {error}") from None
    if not values:
        raise ConfigError(f"{path}: the series has no rows; expected lines such as 2026-01-05T00:00+01:00,0.21")
    lasts_s = times_s[-1] - times_s[-2] if len(times_s) > 1 else 3600.0
    return Tariff(str(path), (*times_s, times_s[-1] + lasts_s), tuple(values), repeats)


def is_series(path: Path) -> bool:
    """Return True if the file's name (.csv) or its first row shows that it contains a series."""
    if path.suffix.lower() == ".csv":
        return True
    try:
        if not path.is_file():
            return False
        with path.open(encoding="utf-8-sig", newline="") as file:
            return [cell.strip().lower() for cell in file.readline(80).split(",")] == ["time", "value"]
    except (OSError, ValueError):
        return False


def _rows(lines: Iterable[list[str]], path: Path, least: float | None) -> tuple[list[float], list[float]]:
    times_s: list[float] = []
    values: list[float] = []
    head: list[str] | None = None
    for number, cells in enumerate(lines, 1):
        cells = [cell.strip() for cell in cells]
        if not any(cells):
            continue
        place = f"{path}:{number}"
        if head is None:
            head = [cell.lower() for cell in cells]
            if head != ["time", "value"]:
                raise ConfigError(f"{place}: expected the columns time,value, got {','.join(cells)[:80]!r}")
            continue
        if len(cells) != 2:
            raise ConfigError(f"{place}: expected a time and a value, got {len(cells)} cells")
        times_s.append(_moment(cells[0], place))
        if len(times_s) > 1 and times_s[-1] <= times_s[-2]:
            raise ConfigError(f"{place}: the time {cells[0]} must be later than the time in the previous row")
        try:
            value = float(cells[1])
        except ValueError:
            value = float("nan")
        if not isfinite(value) or (least is not None and value < least):
            wanted = "a number" if least is None else f"a number from {least:g}"
            raise ConfigError(f"{place}: expected {wanted}, got {cells[1][:80]!r}")
        values.append(value)
    return times_s, values


def _moment(text: str, place: str) -> float:
    """Return the seconds since 1970 of an ISO date with its time zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{place}: {text[:80]!r} is not an ISO date such as 2026-01-05T00:00+01:00") from None
    if moment.tzinfo is None:
        raise ConfigError(f"{place}: the time {text} has no time zone; write {text}Z for UTC, or {text}+01:00")
    return moment.timestamp()


def _date(time_s: float) -> str:
    return datetime.fromtimestamp(time_s).astimezone().isoformat(timespec="minutes")


class _Priced:
    """The energy of all GPUs that were up (held or idle), multiplied by the values of a series.

    Args:
        series: A CSV file with the columns time and value.
        begins: ISO date of time 0 in a run with generated jobs (default: the first date in the
            series).
        repeats: If false, a run that lasts longer than the series is rejected.
        pue: Total energy of the site divided by the energy of the GPUs (power usage effectiveness).
    """

    least: float | None = None
    per = 1.0

    def __init__(self, series: str, begins: str = "", repeats: bool = True, pue: float = 1.0) -> None:
        require(pue >= 1, "pue must be 1 or more", pue)
        self._tariff = read_tariff(series, repeats, self.least)
        self._begins, self._pue = begins, pue

    def of(self, schedule: Schedule) -> float:
        """Return the total over the whole schedule."""
        cols = columns(schedule)
        tariff = self._tariff.on_clock(cols.start_s, self._begins)
        drawn = watts(cols)
        edges_s = [*drawn.time_s.tolist(), drawn.end_s]
        spans = zip(drawn.value.tolist(), pairwise(edges_s), strict=True)
        parts = [power * tariff.integral(*span) for power, span in spans]
        return ordered_sum(parts) / _J_PER_KWH * self._pue / self.per


class EnergyCost(_Priced):
    """Cost of energy: the sum of power x price x time. The series contains the price of a kWh, and the
    result is in the same currency.
    """


class CarbonKg(_Priced):
    """Emissions from energy in kg of CO2: the sum of power x intensity x time. The series contains
    grams of CO2 per kWh.
    """

    least = 0.0
    per = _G_PER_KG
