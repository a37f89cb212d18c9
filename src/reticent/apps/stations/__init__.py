"""The nearest free charging station, without saying where one is: commands, programs, API, pages."""

__all__: list[str] = []
