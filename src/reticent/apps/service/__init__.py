"""Running the service, and its keys and sources."""

__all__: list[str] = []
