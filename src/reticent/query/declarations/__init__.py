"""Declarations of data sets: what an owner states, whom the rows describe, and which ledger pays."""

__all__: list[str] = []
