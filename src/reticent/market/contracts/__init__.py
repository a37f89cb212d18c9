"""The market's contract in Vyper, and what the pinned compiler makes of it: one JSON file."""

__all__: list[str] = []
