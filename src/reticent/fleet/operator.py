"""Whoever runs a fleet: the secret that knows its devices, those that were taken back, and the ledger.

Surveys, campaigns and trainings are given all three at once, so that none of them can count a device that was
taken back, or show what is in no ledger.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from reticent.fleet.record import Record

if TYPE_CHECKING:
    from reticent.fleet.revocation import Revocations
    from reticent.ledger.base import Ledger

LEDGER, LEDGER_KEY = "ledger.sqlite", "ledger.key"


@dataclass(frozen=True)
class Operator:
    """What an operator holds.

    Args:
        master: 32 secret bytes, from which the keys of devices come.
        revocations: enrolments that were taken back.
        record: where it is entered what was learnt.
    """

    master: bytes = field(repr=False)
    revocations: Revocations
    record: Record

    @classmethod
    def at(cls, master: Path, *, ledger: Ledger | None = None) -> Operator:
        """The operator of a master key in a file, which is made if there is none.

        Args:
            master: the file. The list of what was taken back lies beside it.
            ledger: where it is entered what was learnt; by default ledger.sqlite beside the key.
        """
        from reticent.fleet.revocation import Revocations
        from reticent.fleet.secret_file import kept_secret

        if ledger is None:
            from reticent.ledger.witness.opening import opened

            ledger = opened(master.parent / LEDGER, signer=master.parent / LEDGER_KEY)
        return cls(kept_secret(master), Revocations.beside(master), Record(ledger))

    def close(self) -> None:
        """Close ledger and list."""
        self.revocations.close()
        self.record.ledger.close()

    def __enter__(self) -> Operator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
