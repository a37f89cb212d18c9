"""One folder for each capability: its commands, its demonstration, its routes, its pages."""

__all__: list[str] = []
