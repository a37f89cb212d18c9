"""What is learnt in Figs. 3.8 to 3.15: the data sets encoded for regression, one record for each client.

As the documents do, numbers go to [-1, 1] and a category of k values becomes k - 1 signs, see
`federated.encoding`. Dependent variables:

    Census   income: scaled from 0..200,000 dollars (more counts as 200,000), or whether it is above 60,000
    Adult    whether income is above 50,000; for linear regression the hours of a week
    WISDM    whether the person jogs; for linear regression the mean resultant acceleration
    Vehicle  the kind of vehicle (support vector machine only)

Bounds are declared; the values of a category are the codes that occur, which stand for a questionnaire's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from reticent.experiments.data import SOURCES, table
from reticent.federated.encoding import Encoding
from reticent.federated.models import MODELS, Model
from reticent.mechanisms.base import Floats
from reticent.mechanisms.record import Attribute, Category, Number
from reticent.randomness import SimulationStream

L2 = 1e-4  # as printed
KINDS = ("logistic", "linear", "svm")
QUICK_ROWS = 1_500
_BY_NAME = {source.name: source for source in SOURCES}
_INCOME, _THRESHOLD = (0.0, 200_000.0), 60_000.0
_NUMBERS = {
    "WISDM": {
        **{f"{axis}{place}": (0.0, 1.0) for axis in "XYZ" for place in range(10)},
        "YAVG": (-20.0, 20.0),
        "ZAVG": (-20.0, 20.0),
        **{f"{axis}PEAK": (0.0, 5_000.0) for axis in "XYZ"},
        **{f"{axis}{name}": (0.0, 20.0) for axis in "XYZ" for name in ("ABSOLDEV", "STANDDEV")},
        "RESULTANT": (0.0, 20.0),
    },
    "Vehicle": {f"x{place:03d}": (-3.0, 3.0) for place in range(100)},
}
_TARGETS: dict[tuple[str, str], Attribute] = {
    ("Census", "class"): Category("above", ["no", "yes"]),
    ("Census", "number"): Number("income", _INCOME),
    ("Adult", "class"): Category("income", ["<=50K", ">50K"]),
    ("Adult", "number"): Number("hours_per_week", (0.0, 100.0)),
    ("WISDM", "class"): Category("jogs", ["no", "yes"]),
    ("WISDM", "number"): Number("RESULTANT", (0.0, 20.0)),
    ("Vehicle", "class"): Category("y", ["-1", "1"]),
}
_NOT_FEATURES = {
    "Census": ("income",),
    "Adult": ("income",),
    "WISDM": ("user", "activity"),
    "Vehicle": ("y",),
}


@dataclass(frozen=True)
class Problem:
    """A model to be learnt from records.

    Attributes:
        data: the name of the data set.
        model: with its penalty.
        features: shape (n, inputs).
        targets: shape (n,).
    """

    data: str
    model: Model
    features: Floats
    targets: Floats

    @property
    def trivial(self) -> float:
        """The error of the best constant answer."""
        if self.model.kind == "linear":
            return float(self.targets.var())
        share = float(np.mean(self.targets > 0.0))
        return min(share, 1.0 - share)


def names(kind: str) -> tuple[str, ...]:
    """The data sets of a kind of model."""
    return ("Census", "Adult", "WISDM", "Vehicle") if kind == "svm" else ("Census", "Adult", "WISDM")


@lru_cache(maxsize=2)
def problem(
    data: str, kind: str, given: Path | None = None, *, quick: bool = False, seed: int = 0
) -> Problem:
    """Read and encode a data set; at most 1,500 rows of it in a quick run."""
    columns = dict(table(_BY_NAME[data], given))
    if data == "Census":
        columns["above"] = tuple("yes" if float(one) > _THRESHOLD else "no" for one in columns["income"])
    if data == "WISDM":
        columns["jogs"] = tuple("yes" if one == "Jogging" else "no" for one in columns["activity"])
    encoding = _encoding(data, kind, columns)
    n = len(columns["y" if data == "Vehicle" else encoding.target.name])
    if quick and n > QUICK_ROWS:
        kept = np.argsort(SimulationStream(seed, path=(91,)).units(n))[:QUICK_ROWS].tolist()
        columns = {name: tuple(column[row] for row in kept) for name, column in columns.items()}
    return Problem(
        data,
        MODELS[kind](encoding.inputs, l2=L2),
        encoding.encoded(columns),
        encoding.targets(columns),
    )


def _encoding(data: str, kind: str, columns: dict[str, tuple[str, ...]]) -> Encoding:
    source = _BY_NAME[data]
    target = _TARGETS[data, "number" if kind == "linear" else "class"]
    left_out = (target.name, *_NOT_FEATURES[data])
    numbers = _NUMBERS.get(data, source.numbers)
    features: list[Attribute] = [
        Number(name, bounds) for name, bounds in numbers.items() if name not in left_out
    ]
    features += [
        Category(name, sorted(set(columns[name]))) for name in source.categories if name not in left_out
    ]
    return Encoding(features, target)
