"""Rows of a file, as features and targets: what plays the clients of a simulation, or a public hold-out.

Reading is total as encoding is: whatever a cell holds becomes a value. Who holds a row may be a column too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from reticent.collect import batch
from reticent.errors import ParameterError
from reticent.federated.encoding import Encoding
from reticent.mechanisms.base import Floats
from reticent.tables.row_files import located


@dataclass(frozen=True)
class Rows:
    """A table, encoded.

    Attributes:
        features: one row for each record.
        targets: one number for each record.
        owners: Number of each record's holder; None if each record is a client.
    """

    features: Floats
    targets: Floats
    owners: NDArray[np.int64] | None = None

    @property
    def clients(self) -> int:
        """The number of clients who hold the records."""
        return len(self.targets) if self.owners is None else np.unique(self.owners).size


def read(path: Path, encoding: Encoding, owner: str | None = None) -> Rows:
    """The rows of a CSV or Parquet file. Those without an owner belong to one client, nobody's.

    Raises:
        ParameterError: there is no such file, or it has no rows.
        SourceError: it cannot be read, or a column is missing.
    """
    held = located("table", path.name, path.parent)  # a task file may come from somebody else
    table, owners = batch.columns(held, (*encoding.features, encoding.target), key=owner)
    if not len(table[encoding.target.name]):
        raise ParameterError(f"{path.name} must have rows")
    return Rows(encoding.encoded(table), encoding.targets(table), owners)
