"""A witness on another machine: the ledger's client, the server, and opening a ledger with its witness."""

__all__: list[str] = []
