"""Commands that compare mechanisms, and convert a privacy guarantee to other units."""

__all__: list[str] = []
