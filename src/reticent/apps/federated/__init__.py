"""Models that clients train: commands, a page of the curves, demonstration."""

__all__: list[str] = []
