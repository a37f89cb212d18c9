"""A synthetic census, to try the query room on: made by the project, copied from no data.

    path = census.write(folder)      # census.csv and census.yaml
    with reticent.open(path) as session: ...

Persons are drawn one by one from a few invented rules: incomes are skewed, rise with age until retirement and
hang on hours worked; family income hangs on a person's own; citizenship hangs on race. The bounds, the budget
and the five queries are those of the documents.

Reference: Zhao et al. 2021, section V-A.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reticent.arguments import whole
from reticent.errors import ParameterError
from reticent.files import new_file, write_new
from reticent.randomness import SimulationStream

Floats = NDArray[np.float64]
Columns = dict[str, NDArray[Any]]

RACES = ("white", "black", "asian", "other")
CITIZENSHIP = ("born", "naturalised", "foreign")
SEXES = ("female", "male")
CHILD = 15  # the oldest age without questions about income and hours
SEED = 2026

FIVE: Mapping[str, str] = MappingProxyType(
    {
        "average personal income": "SELECT AVG(income) FROM census",
        "average family income": "SELECT AVG(family_income) FROM census",
        "share of US citizens": (
            "SELECT AVG(CASE WHEN citizenship IN ('born', 'naturalised') THEN 1 ELSE 0 END) FROM census"
        ),
        "share of white race": "SELECT AVG(CASE WHEN race = 'white' THEN 1 ELSE 0 END) FROM census",
        "share older than 60": "SELECT AVG(CASE WHEN age > 60 THEN 1 ELSE 0 END) FROM census",
    }
)

_DECLARATION = """\
# A synthetic census, made by Reticent: invented persons, one row each.
name: census
version: 1
source: census.csv
unit: row                  # one person is one row here
relation: replace one      # so the number of rows is public
rows: {rows}
budget: {{epsilon: 8, delta: 1e-4}}   # as in the documents. 8 is weak: for real people take 1 or less.
policy: share
columns:                   # bounds from public knowledge, never from the rows
  income: {{type: number, low: -10000, high: 1000000, step: 1, missing: 0}}
  family_income: {{type: number, low: -20000, high: 2000000, step: 1, missing: 0}}
  age: {{type: integer, low: 0, high: 120}}
  race: {{type: category, values: [{races}]}}
  citizenship: {{type: category, values: [{citizenship}]}}
  sex: {{type: category, values: [{sexes}]}}
  hours: {{type: integer, low: 0, high: 99, missing: 0}}
"""


def write(folder: str | os.PathLike[str], *, rows: int = 5000, seed: int = SEED) -> Path:
    """Write census.csv and its declaration; return the path of census.yaml.

    Args:
        folder: Folder to write to; created if missing. It must not contain a census.
        rows: Number of persons.
        seed: Seed of the simulation.
    """
    place = Path(folder)
    made = persons(rows, seed=seed)
    table, declaration = place / "census.csv", place / "census.yaml"
    if table.exists() or declaration.exists():
        raise ParameterError(f"folder must not hold a census already, got {place}")
    place.mkdir(parents=True, exist_ok=True)
    text = _DECLARATION.format(
        rows=rows, races=", ".join(RACES), citizenship=", ".join(CITIZENSHIP), sexes=", ".join(SEXES)
    )
    with new_file(table) as target:
        file = io.TextIOWrapper(target, encoding="utf-8", newline="")
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(made)
        lines.writerows(zip(*(_texts(column) for column in made.values()), strict=True))
        file.flush()
        file.detach()
    try:
        write_new(declaration, text)
    except BaseException:
        table.unlink()
        raise
    return declaration


def persons(rows: int = 5000, *, seed: int = SEED) -> Columns:
    """Return the columns of the census, with NaN for questions that are not put to children."""
    rows = whole("rows", rows, low=1, high=10_000_000)
    draws = _Draws(rows, SimulationStream(seed))
    age = _ages(draws)
    male = draws.uniform() < 0.49
    race = np.searchsorted([0.74, 0.85, 0.92], draws.uniform(), side="right")
    hours = _hours(draws, age, male)
    income = _incomes(draws, age, male, hours)
    family = _family_incomes(draws, age, income)
    return {
        "income": income,
        "family_income": family,
        "age": age,
        "race": np.array(RACES)[race],
        "citizenship": np.array(CITIZENSHIP)[_citizenship(draws, age, race)],
        "sex": np.array(SEXES)[male.astype(int)],
        "hours": hours,
    }


class _Draws:
    """A random stream that draws one number for each person at a time."""

    def __init__(self, rows: int, rng: SimulationStream) -> None:
        self._rows, self._rng = rows, rng

    def uniform(self) -> Floats:
        """Return uniform numbers in [0, 1)."""
        return self._rng.units(self._rows) - 1.0

    def normal(self) -> Floats:
        """Return standard normal numbers, by Box and Muller."""
        radius = np.sqrt(-2.0 * np.log1p(-self.uniform()))
        return np.asarray(radius * np.cos(2.0 * np.pi * self.uniform()))

    def skewed(self, median: Floats | float, spread: float) -> Floats:
        """Return log-normal numbers with the given median and spread."""
        return np.asarray(median * np.exp(spread * self.normal()))


def _ages(draws: _Draws) -> NDArray[np.int64]:
    share = [0.0, 0.25, 0.52, 0.78, 0.95, 0.995, 1.0]
    return np.interp(draws.uniform(), share, [0, 20, 40, 60, 78, 92, 105]).astype(np.int64)


def _hours(draws: _Draws, age: NDArray[np.int64], male: NDArray[np.bool_]) -> Floats:
    """Return the weekly hours of work; NaN for children."""
    works = draws.uniform() < np.interp(
        age, [15, 18, 25, 55, 66, 75, 85], [0.1, 0.4, 0.8, 0.78, 0.35, 0.12, 0]
    )
    part_time = draws.uniform() < np.where(male, 0.15, 0.3)
    full = np.where(male, 42.0, 39.0) + 7.0 * draws.normal()
    usual = np.where(part_time, 20.0 + 6.0 * draws.normal(), full)
    hours = np.where(works, np.clip(np.round(usual), 1, 99), 0.0)
    return np.where(age > CHILD, hours, np.nan)


def _incomes(draws: _Draws, age: NDArray[np.int64], male: NDArray[np.bool_], hours: Floats) -> Floats:
    """Return yearly incomes; NaN for children. A few persons lose money, a few earn very much."""
    wage = draws.skewed(np.interp(age, [16, 25, 50, 70], [11.0, 19.0, 29.0, 24.0]), 0.5)
    wage *= np.where(male, 1.08, 0.95) * np.where(draws.uniform() < 0.02, draws.skewed(5.0, 0.6), 1.0)
    pension = np.where((age >= 63) & (draws.uniform() < 0.85), draws.skewed(19_000.0, 0.6), 0.0)
    others = np.where(draws.uniform() < 0.25, draws.skewed(2_500.0, 1.2), 0.0)
    income = wage * np.nan_to_num(hours) * 50.0 + pension + others
    lost = draws.uniform() < 0.006
    income = np.where(lost, -draws.skewed(2_500.0, 0.8), income)
    return np.where(age > CHILD, _dollars(income, -10_000, 1_000_000), np.nan)


def _family_incomes(draws: _Draws, age: NDArray[np.int64], income: Floats) -> Floats:
    """Return family incomes: a person's own and the partner's, or for children the parents'."""
    own = np.nan_to_num(income)
    alike = 45_000.0 * np.sqrt(np.clip(own, 5_000.0, 300_000.0) / 45_000.0)
    partner = np.where(draws.uniform() < 0.62, draws.skewed(alike, 0.7), 0.0)
    parents = draws.skewed(85_000.0, 0.75)
    return _dollars(np.where(age > CHILD, own + partner, parents), -20_000, 2_000_000)


def _citizenship(draws: _Draws, age: NDArray[np.int64], race: NDArray[np.int64]) -> NDArray[np.int64]:
    abroad = draws.uniform() < np.array([0.07, 0.1, 0.62, 0.36])[race] * np.interp(age, [0, 30], [0.2, 1.0])
    naturalised = draws.uniform() < np.clip(0.15 + 0.008 * age, 0.0, 0.75)
    return np.where(abroad, np.where(naturalised, 1, 2), 0)


def _dollars(amounts: Floats, low: int, high: int) -> Floats:
    """Clip amounts to the declared bounds and round them to tens, as people report them."""
    return np.clip(np.round(amounts, -1), low, high)


def _texts(column: NDArray[Any]) -> list[str]:
    """Format a column for a CSV file: whole numbers, and an empty text for NaN."""
    if column.dtype.kind == "f":
        return ["" if np.isnan(one) else str(int(one)) for one in column]
    return [str(one) for one in column]
