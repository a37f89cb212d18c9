"""Commands, API and pages for questions to data sets, and the demonstration of the first minute."""

__all__: list[str] = []
