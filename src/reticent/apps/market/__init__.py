"""The market: offers, sales and payments, as commands and over HTTP."""

__all__: list[str] = []
