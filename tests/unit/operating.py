"""An operator whose ledger and list are in memory."""

from reticent.fleet.intake import Intake
from reticent.fleet.operator import Operator
from reticent.fleet.record import Record
from reticent.fleet.revocation import Revocations
from reticent.ledger import MemoryLedger


def operator(master, ledger=None):
    return Operator(master, Revocations(":memory:"), Record(MemoryLedger() if ledger is None else ledger))


def intake(master):
    """Of an operator who took nobody back."""
    return Intake(master, Revocations(":memory:"))
