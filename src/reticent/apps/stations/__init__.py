"""Search for a free charging station without revealing one's location: commands, programs, API, pages."""

__all__: list[str] = []
