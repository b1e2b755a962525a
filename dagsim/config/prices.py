"""Price files, to which a configuration may refer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import Field, ValidationError

from dagsim.config.faults import explain
from dagsim.config.yaml import read_yaml
from dagsim.errors import ConfigError
from dagsim.model.gpu import canonical
from dagsim.sections import Section

_Amount: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class PriceFile(Section):
    """Prices for machines and power, all in the same currency."""

    rent: Mapping[str, _Amount] = {}
    """Price of a GPU hour by GPU type, including the GPU's share of the node."""
    buy: Mapping[str, _Amount] = {}
    """Purchase price of a GPU by GPU type, including its share of the node."""
    years: float = Field(default=4.0, gt=0, allow_inf_nan=False)
    """Number of years over which purchases are written off."""
    power: _Amount = 0.0
    """Price of a kWh."""
    pue: float = Field(default=1.0, ge=1, allow_inf_nan=False)
    """Power usage effectiveness: the site's total energy divided by the energy of the machines."""


def read_prices(path: Path) -> PriceFile:
    """Read a price file.

    Raises:
        ConfigError: The file cannot be read, its contents are wrong, or a type is both rented and
            bought.
    """
    document = read_yaml(path)
    try:
        prices = PriceFile.model_validate({} if document.value is None else document.value)
    except ValidationError as error:
        raise ConfigError(*explain(error, document, PriceFile.model_json_schema())) from None
    both = {canonical(name) for name in prices.rent} & {canonical(name) for name in prices.buy}
    if both:
        raise ConfigError(f"{path}: {min(both)} is listed under rent and under buy; keep only one of them")
    return prices
