"""Commands of the content-addressed store: identify, put, get and serve files by their hash."""

__all__: list[str] = []
