"""Declarations: what an owner says of a data set, whose rows they are, and which ledger pays."""

__all__: list[str] = []
