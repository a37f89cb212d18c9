"""Questions to data sets: commands, API, pages, and the demonstration of the first minute."""

__all__: list[str] = []
