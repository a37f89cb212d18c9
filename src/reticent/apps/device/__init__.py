"""What a device told whom, for the person behind it."""

__all__: list[str] = []
