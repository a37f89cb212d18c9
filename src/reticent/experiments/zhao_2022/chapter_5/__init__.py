"""Chapter 5: crowdsourced learning, and those who poison it."""

__all__: list[str] = []
