"""Planted bugs in records of which some attributes are reported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from reticent.mechanisms.record import Record, RecordReports
from reticent.randomness import Stream, secure_or


class LargestAttribute(Record):
    """Reports the number where it is positive, and the category where it is not."""

    def perturb(self, table: Mapping[str, Any], rng: Stream | None = None) -> RecordReports:
        """Return reports whose attributes are chosen by the number."""
        columns = self._columns(table)
        chosen = np.where(columns[0] > 0.0, 0, 1)
        reports = {
            attribute.name: self._reported(
                self.mechanisms[attribute.name], column[chosen == number], secure_or(rng)
            )
            for number, (attribute, column) in enumerate(zip(self.attributes, columns, strict=True))
        }
        return RecordReports(chosen[:, None], reports)
