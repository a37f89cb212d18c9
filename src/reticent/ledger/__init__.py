"""The privacy ledger: charged before anything leaves, never overspent, never quietly rewritten."""

from reticent.ledger.base import Amount, Balance, Grant, Ledger, Measurement, Reading, Terms, Unit
from reticent.ledger.device import DeviceLedger
from reticent.ledger.export import verify_export
from reticent.ledger.memory import MemoryLedger
from reticent.ledger.sql import SqlLedger
from reticent.ledger.verify import verify as verify_ledger  # `verify` itself is the module
from reticent.ledger.witness import WitnessClient, WitnessedLedger

__all__ = [
    "Amount",
    "Balance",
    "DeviceLedger",
    "Grant",
    "Ledger",
    "Measurement",
    "MemoryLedger",
    "Reading",
    "SqlLedger",
    "Terms",
    "Unit",
    "WitnessClient",
    "WitnessedLedger",
    "verify_export",
    "verify_ledger",
]
