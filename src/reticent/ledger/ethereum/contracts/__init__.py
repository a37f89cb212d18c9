"""The contracts, in Vyper, and what the pinned compiler makes of them (`compile.py`), one JSON file each."""

__all__: list[str] = []
