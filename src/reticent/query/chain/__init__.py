"""Questions on a chain: finding a data set there, and the oracle that measures beside the rows."""

__all__: list[str] = []
