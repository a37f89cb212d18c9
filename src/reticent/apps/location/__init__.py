"""Where people are: commands, API, pages, demonstration."""

__all__: list[str] = []
