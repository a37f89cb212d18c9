"""Questions on a chain: finding a data set there, and the oracle that measures beside the rows."""
