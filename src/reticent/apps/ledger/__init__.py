"""Looking at a ledger, verifying it, keeping a witness of it."""

__all__: list[str] = []
