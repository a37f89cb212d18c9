"""A ledger in a contract: commands, oracle, what the pages show of it, demonstration."""

__all__: list[str] = []
