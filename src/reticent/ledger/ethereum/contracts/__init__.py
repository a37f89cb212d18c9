"""Contracts in Vyper, and the output of the pinned compiler (`chain.compile`): one JSON file each."""

__all__: list[str] = []
