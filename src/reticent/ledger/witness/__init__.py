"""A witness elsewhere: the ledger's side of it, its server, and opening a ledger with the one that it has."""

__all__: list[str] = []
