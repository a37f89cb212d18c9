"""Commands that show a person which reports their device has sent, and to whom."""

__all__: list[str] = []
