"""Your own metrics: classes with a method ``of(schedule)``, named in the configuration.

    metrics: ["my_metrics.py:UrgentWait[least=2]"]

The value appears in every table and file of the run, beside the metrics in ``dagsim list metrics``.
Its name is the name of the class or entry point.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from dagsim.errors import ConfigError, DagsimError, PluginError, one_line
from dagsim.model.log import Schedule
from dagsim.registry import Entry, Registry
from dagsim.specs import Spec


class OwnMetric(Protocol):
    """A single number computed from a schedule."""

    def of(self, schedule: Schedule) -> float:
        """Return the value, or NaN if it is undefined for this schedule."""


METRICS: Registry[OwnMetric] = Registry(
    "metric",
    [
        Entry("energy_cost", ".tariff:EnergyCost", "cost of the energy at hourly prices: [series=prices.csv]"),
        Entry(
            "carbon_kg",
            ".tariff:CarbonKg",
            "kg of CO2 emitted for the energy, from hourly grams per kWh: [series=carbon.csv]",
        ),
    ],
    group="dagsim.metrics",
    home="dagsim.metrics",
    listing="dagsim list metrics",
    method="of",
)
"""Metrics that need a file, and metrics from other packages, by name."""


def value_name(spec: str) -> str:
    """Return the name under which a metric's value appears: the name of its class or entry point."""
    return Spec.parse(spec).name.rpartition(":")[2]


def own_values(specs: Iterable[str], schedule: Schedule) -> dict[str, float]:
    """Return the value of each metric by the metric's name.

    Raises:
        ConfigError: There is no such metric, or two have the same name.
        PluginError: A metric raised an exception or did not return a number.
    """
    values: dict[str, float] = {}
    for spec in specs:
        name = value_name(spec)
        if name in values:
            raise ConfigError(f"metrics: two metrics are called {name!r}; rename one of the classes")
        metric = METRICS.create(spec)
        try:
            value: Any = metric.of(schedule)
            values[name] = float(value)
        except DagsimError:
            raise
        except Exception as error:
            raise PluginError(f"metric {spec!r}: {type(error).__name__}: {one_line(error)}") from error
    return values
