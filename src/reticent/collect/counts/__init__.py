"""Storage of a collector's counts: one file (`sqlite`), or a database that many share (`postgres`)."""

__all__: list[str] = []
