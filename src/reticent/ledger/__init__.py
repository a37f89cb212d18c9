"""The privacy ledger: charged before anything leaves, never overspent, never quietly rewritten."""

from reticent.ledger.base import Amount, Balance, Grant, Ledger, Measurement, Reading, Terms, Unit
from reticent.ledger.memory import MemoryLedger
from reticent.ledger.sql import SqlLedger

__all__ = [
    "Amount",
    "Balance",
    "Grant",
    "Ledger",
    "Measurement",
    "MemoryLedger",
    "Reading",
    "SqlLedger",
    "Terms",
    "Unit",
]
