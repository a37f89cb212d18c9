"""Commands and pages that show a ledger, verify it, and keep a witness of it."""

__all__: list[str] = []
