"""The ledger in SQLite or PostgreSQL: an append-only Merkle log, its transactions, moves and recovery."""

__all__: list[str] = []
