"""Between which inputs a guarantee holds."""

from __future__ import annotations

from enum import Enum


class Neighbours(Enum):
    """The relation between two inputs that must look alike."""

    REPLACE_ONE = "replace one"
    ADD_REMOVE_ONE = "add or remove one"
    ANY_TWO_VALUES = "any two values"
    METRIC = "any two points, by their distance"
    NONE = "none, it is no data"  # of accounts of money: no guarantee allows it
