"""An operator whose ledger and list are in memory."""

from reticent.fleet.operator import Operator
from reticent.fleet.record import Record
from reticent.fleet.revocation import Revocations
from reticent.ledger import MemoryLedger


def operator(master, ledger=None):
    return Operator(master, Revocations(":memory:"), Record(MemoryLedger() if ledger is None else ledger))
