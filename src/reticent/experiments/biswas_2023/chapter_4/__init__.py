"""Chapter 4: charging stations along a journey."""

__all__: list[str] = []
