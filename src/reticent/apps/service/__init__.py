"""Commands that run the service and manage its keys and sources."""

__all__: list[str] = []
