"""Reticent: learn from personal data while every release is paid for out of one privacy ledger."""

__version__ = "0.1.0"

__all__ = ["__version__"]
