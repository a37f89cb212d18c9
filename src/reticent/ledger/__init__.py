"""The privacy ledger: charged before anything leaves, never overspent, never quietly rewritten.

Names are loaded when they are first used: a device that only needs its own file loads no database.
"""

import typing as _typing
from importlib import import_module as _import_module

if _typing.TYPE_CHECKING:
    from reticent.ledger.base import Amount, Balance, Grant, Ledger, Measurement, Reading, Terms, Unit
    from reticent.ledger.device.ledger import DeviceLedger
    from reticent.ledger.device.marks import Marks
    from reticent.ledger.export import verify_export
    from reticent.ledger.memory import MemoryLedger
    from reticent.ledger.sql.ledger import SqlLedger
    from reticent.ledger.verify import verify as verify_ledger  # `verify` itself is the module
    from reticent.ledger.witness.client import WitnessClient, WitnessedLedger

__all__ = [
    "Amount",
    "Balance",
    "DeviceLedger",
    "Grant",
    "Ledger",
    "Marks",
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

_ELSEWHERE = {
    "DeviceLedger": ("device.ledger", "DeviceLedger"),
    "Marks": ("device.marks", "Marks"),
    "MemoryLedger": ("memory", "MemoryLedger"),
    "SqlLedger": ("sql.ledger", "SqlLedger"),
    "WitnessClient": ("witness.client", "WitnessClient"),
    "WitnessedLedger": ("witness.client", "WitnessedLedger"),
    "verify_export": ("export", "verify_export"),
    "verify_ledger": ("verify", "verify"),
}


def __getattr__(name: str) -> _typing.Any:
    if name not in __all__:
        raise AttributeError(f"module 'reticent.ledger' has no attribute {name!r}")
    module, found = _ELSEWHERE.get(name, ("base", name))
    return getattr(_import_module(f"reticent.ledger.{module}"), found)
