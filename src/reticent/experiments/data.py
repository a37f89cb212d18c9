"""The real data sets, as people with numbers in [-1, 1] and categories.

The files are no part of the repository. They are looked for in the directory given, else in the one that
the environment variable RETICENT_DATA names, else in `../shared/data` beside the repository.

Bounds are the declared domain of each attribute (a sensor's range, a questionnaire's codes), as the
documents normalise; the vehicle features, which are standard scores, are clipped at 3. Missing values
become the middle of the bounds: that is what a device would do.
"""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from reticent.errors import ReticentError
from reticent.mechanisms.base import Floats
from reticent.randomness import SimulationStream

VARIABLE = "RETICENT_DATA"


class DataMissing(ReticentError):
    """A data set is not where experiments look for it."""


@dataclass(frozen=True)
class Source:
    """Where a data set is, and which attributes are used.

    Attributes:
        numbers: numeric columns with their bounds.
        categories: categorical columns.
        stands_for: the data set of the documents that it stands for.
    """

    name: str
    file: str
    numbers: dict[str, tuple[float, float]]
    categories: tuple[str, ...]
    stands_for: str


@dataclass(frozen=True)
class People:
    """A population: numbers in [-1, 1], shape (n, d), and categories as indices, one array each."""

    name: str
    numbers: Floats
    categories: tuple[NDArray[np.int64], ...] = ()

    @property
    def dimensions(self) -> int:
        """The number of numeric attributes."""
        return int(self.numbers.shape[1])

    @property
    def numeric_share(self) -> float:
        """The part of the budget that the documents give to the numbers: d_n / d."""
        return self.dimensions / (self.dimensions + len(self.categories))

    def some(self, count: int, seed: int) -> People:
        """At most `count` of the people, drawn without replacement: for quick runs."""
        n = len(self.numbers)
        if count >= n:
            return self
        chosen = np.argsort(SimulationStream(seed, path=(90,)).units(n))[:count]
        return People(self.name, self.numbers[chosen], tuple(column[chosen] for column in self.categories))


SOURCES = (
    Source(
        "WISDM",
        "wisdm_v1.1_windows.csv.gz",
        {"YAVG": (-20.0, 20.0), "ZAVG": (-20.0, 20.0), "RESULTANT": (0.0, 20.0)},
        ("user", "activity"),
        "WISDM (raw samples; here 10-second windows)",
    ),
    Source(
        "Census",
        "acs_ct_persons.csv.gz",
        {
            "age": (0.0, 100.0),
            "income": (0.0, 2_000_000.0),
            "social_security_income": (0.0, 50_000.0),
            "public_assistance_income": (0.0, 30_000.0),
            "hours_worked": (0.0, 100.0),
            "family_size": (0.0, 20.0),
        },
        (
            "sex", "citizenship", "race", "education", "marital_status", "hispanic", "employment",
            "class_of_worker", "health_cov", "puma",
        ),
        "BR and MX census (here Connecticut persons)",
    ),
    Source(
        "Vehicle",
        "vehicle_sensors.csv.gz",
        {f"x{place:03d}": (-3.0, 3.0) for place in range(94, 100)},
        ("y",),
        "Vehicle, last 6 attributes (98,528 people; here 1,860)",
    ),
    Source(
        "Adult",
        "adult.csv.gz",
        {
            "age": (0.0, 100.0),
            "fnlwgt": (0.0, 1_500_000.0),
            "education_num": (0.0, 16.0),
            "capital_gain": (0.0, 100_000.0),
            "capital_loss": (0.0, 5_000.0),
            "hours_per_week": (0.0, 100.0),
        },
        (
            "workclass", "education", "marital_status", "occupation", "relationship", "race", "sex",
            "native_country", "income",
        ),
        "nothing: not in the documents",
    ),
)  # fmt: skip


def directory(given: Path | None = None) -> Path:
    """The directory where the data sets should be."""
    if given is not None:
        return given
    named = os.environ.get(VARIABLE)
    return Path(named) if named else Path(__file__).parents[3].parent / "shared" / "data"


def load(source: Source, given: Path | None = None) -> People:
    """Read one data set.

    Raises:
        DataMissing: the file is not there.
    """
    columns = table(source, given)
    numbers = [_unit(columns[name], bounds) for name, bounds in source.numbers.items()]
    categories = tuple(_indices(columns[name]) for name in source.categories)
    return People(source.name, np.stack(numbers, axis=1), categories)


def table(source: Source, given: Path | None = None) -> dict[str, tuple[str, ...]]:
    """All columns of a data set, as text.

    Raises:
        DataMissing: the file is not there.
    """
    path = directory(given) / source.file
    if not path.is_file():
        where = "--data" if given is not None else f"the directory of --data or {VARIABLE}"
        raise DataMissing(f"the data set {source.name} needs {source.file} in {where}; it is not there")
    with gzip.open(path, "rt", encoding="utf-8", newline="") as handle:
        names, *rows = csv.reader(handle)
    return dict(zip(names, zip(*rows, strict=True), strict=True))


def load_all(given: Path | None = None) -> list[People]:
    """Read every data set of the figures."""
    return [load(source, given) for source in SOURCES]


def _unit(texts: Sequence[str], bounds: tuple[float, float]) -> Floats:
    values = np.array([float(text) if text not in ("", "?") else np.nan for text in texts])
    unit = (values - bounds[0]) / (bounds[1] - bounds[0]) * 2.0 - 1.0
    return np.clip(np.nan_to_num(unit, nan=0.0), -1.0, 1.0)


def _indices(texts: Sequence[str]) -> NDArray[np.int64]:
    return np.unique(np.array(texts), return_inverse=True)[1].astype(np.int64)
