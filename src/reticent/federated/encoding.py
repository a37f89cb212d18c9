"""The encoding of a table's columns as features in [-1, 1], and of one column as the target.

Reference: Zhao 2022, Section 3.5.2. A number is mapped from its declared bounds to [-1, 1]. A category of k
    values becomes k - 1 columns: 1 in that of the value and -1 in the others; the last value is -1 in all.

Bounds and values are declared, from public knowledge; nothing is learnt from the data. Encoding is a total
function: what is outside the bounds is clamped, a missing number becomes their middle, and an unknown or
missing category the fallback.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from reticent.errors import ParameterError
from reticent.mechanisms.base import Floats, as_column
from reticent.mechanisms.categorical.base import Categories
from reticent.mechanisms.numeric.base import as_floats
from reticent.mechanisms.record import Attribute, Category, Number

Columns = Mapping[str, ArrayLike]


class Encoding:
    """The features and the target of a table.

    Args:
        features: the columns that predict, in order, with distinct names.
        target: the column that is predicted: a number, or a category of two values, which become -1 and 1.
    """

    def __init__(self, features: Sequence[Attribute], target: Attribute) -> None:
        self.features, self.target = tuple(features), target
        names = [attribute.name for attribute in (*self.features, target)]
        if not self.features:
            raise ParameterError("features must name at least one column, got none")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ParameterError(f"features and target must have distinct names, got {twice!r:.60} twice")
        self._categories = {
            attribute.name: Categories(attribute.values, attribute.fallback)
            for attribute in (*self.features, target)
            if isinstance(attribute, Category)
        }
        if self.is_classifier and self._categories[target.name].size != 2:
            raise ParameterError(
                f"target must have two values or bounds, got {self._categories[target.name].size} values"
            )

    @property
    def is_classifier(self) -> bool:
        """Whether the target is a category: -1 or 1."""
        return isinstance(self.target, Category)

    @property
    def columns(self) -> list[str]:
        """The names of the encoded features."""
        found = []
        for attribute in self.features:
            if isinstance(attribute, Number):
                found.append(attribute.name)
            else:
                labels = self._categories[attribute.name].alphabet.tolist()
                found += [f"{attribute.name}={label}" for label in labels[:-1]]
        return found

    @property
    def inputs(self) -> int:
        """The number of encoded features."""
        return len(self.columns)

    def described(self) -> dict[str, Any]:
        """Return the inputs as a stored model states them: bounds and values, in order."""
        return {
            "features": [self._described(attribute) for attribute in self.features],
            "target": self._described(self.target),
        }

    def _described(self, attribute: Attribute) -> dict[str, Any]:
        if isinstance(attribute, Number):
            return {"name": attribute.name, "bounds": list(attribute.bounds)}
        categories = self._categories[attribute.name]
        labels = categories.alphabet.tolist()
        return {"name": attribute.name, "values": labels, "fallback": labels[categories.fallback]}

    def encoded(self, table: Columns) -> Floats:
        """The features of each row, shape (rows, inputs)."""
        return np.column_stack([self._block(attribute, table) for attribute in self.features])

    def targets(self, table: Columns) -> Floats:
        """The target of each row: in [-1, 1], or -1 and 1."""
        column = self._column(self.target, table)
        if isinstance(self.target, Number):
            return _unit(self.target, column)
        return np.asarray(2.0 * self._indices(self.target, column) - 1.0)

    def _block(self, attribute: Attribute, table: Columns) -> Floats:
        """The encoded columns of one attribute, shape (rows, columns)."""
        column = self._column(attribute, table)
        if isinstance(attribute, Number):
            return _unit(attribute, column)[:, None]
        values = np.arange(self._categories[attribute.name].size - 1)
        return np.where(self._indices(attribute, column)[:, None] == values, 1.0, -1.0)

    def _indices(self, attribute: Category, column: ArrayLike) -> Any:
        categories = self._categories[attribute.name]
        return categories.indices(categories.array(column))

    def _column(self, attribute: Attribute, table: Columns) -> ArrayLike:
        if attribute.name not in table:
            raise ParameterError(f"the table has no column {attribute.name!r:.60}")
        return cast(ArrayLike, as_column(table[attribute.name]))


def _unit(number: Number, values: ArrayLike) -> Floats:
    with np.errstate(all="ignore"):
        unit = (as_floats(values) - number.middle) / number.half
    return np.clip(np.nan_to_num(unit, nan=0.0, posinf=1.0, neginf=-1.0), -1.0, 1.0)
