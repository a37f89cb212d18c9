"""A reporter of places that pays per kilometre, by one account for rounds and for stations.

Levels add up: two points that are d apart by every distance that was reported in keep the sum of the levels
times d, where rounds count straight lines between cells and stations the streets.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from reticent.fleet.published import Published
from reticent.fleet.reporter import Reporter
from reticent.ledger.base import Unit
from reticent.mechanisms.numeric.base import as_floats
from reticent.privacy import Neighbours

ACCOUNT = "places"

Asked = TypeVar("Asked", bound=Published)


class PlaceReporter(Reporter[Asked]):
    """One enrolled device whose reports are of places, see `Reporter`."""

    account = ACCOUNT
    per = "_per_km"
    _unit, _neighbours = Unit.EPSILON_PER_KM, Neighbours.METRIC

    @property
    def spent_per_km(self) -> float:
        """The level that this device's reports have spent in all."""
        return self.spent


def one_number(value: Any) -> Any:
    """One number in an array, whatever the value is."""
    try:
        return as_floats([value]).reshape(-1)[[0]]
    except Exception:  # a total function of where the device is
        return np.array([np.nan])
