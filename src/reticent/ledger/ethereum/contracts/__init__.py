"""Contracts in Vyper, and what the pinned compiler makes of them (`chain.compile`): one JSON file each."""

__all__: list[str] = []
