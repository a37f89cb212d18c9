"""Made-up rows that fit a declaration, to try questions on before paying.

They stand for the public number of rows where there is one, and for a fixed one otherwise; their values are
uniform over the declared ranges. Nothing comes from the data (mathematics 4.8).
"""

from __future__ import annotations

from reticent.ledger import MemoryLedger
from reticent.query.declarations.datasets import DataSet
from reticent.query.rows import sealed
from reticent.query.rows.bins import DUCKDB
from reticent.query.session import Session
from reticent.randomness import SimulationStream

_MADE = 20_000  # at most; sums are scaled to what they stand for
_ROWS = 10_000  # where the number is private


class MadeUpRows:
    """Uniform codes in an in-memory DuckDB table, which stands for `size` rows."""

    relation, engine = "rows", DUCKDB

    def __init__(self, data: DataSet, size: int, rng: SimulationStream) -> None:
        import pyarrow as pa

        self.names = {column.name: name for name, column in data.coded.items()}
        made = {}
        self._stands_for, self._made = size, min(size, _MADE)
        for name, column in data.coded.items():
            codes = column.first + (rng.units(self._made) - 1.0) * (column.last - column.first + 1)
            made[name] = codes.astype("int64")
        self._connection = sealed.memory()
        self._connection.register("rows", pa.table(made))

    def tally(self, sql: str) -> list[tuple[int, ...]]:
        """The cell, and its sums scaled to the rows that these stand for."""
        found = self._connection.execute(sql).fetchall()
        return [
            (int(cell), *(int(one or 0) * self._stands_for // self._made for one in sums))
            for cell, *sums in found
        ]

    def close(self) -> None:
        """Forget them."""
        self._connection.close()


def rehearsal(data: DataSet, seed: int = 0) -> Session:
    """A session on made-up rows, with a full budget in memory and simulated noise."""
    rng = SimulationStream(seed)
    size = _ROWS if data.rows is None else data.rows
    return Session(data, MadeUpRows(data, size, rng), MemoryLedger(), rng=rng)
