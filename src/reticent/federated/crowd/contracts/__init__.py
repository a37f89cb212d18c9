"""The contracts, and what the compiler makes of them."""

__all__: list[str] = []
