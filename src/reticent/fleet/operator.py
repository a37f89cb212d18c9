"""The operator of a fleet: the master key of its devices, the list of revocations, and the ledger.

Surveys, campaigns and trainings receive all three together, so that none of them can count a revoked device,
or show anything that is not in the ledger.
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
    """The master key, the revocations and the record of an operator.

    Args:
        master: Master key of 32 secret bytes, from which the keys of devices are derived.
        revocations: List of revoked enrolments.
        record: Record in the ledger of everything that was learnt.
    """

    master: bytes = field(repr=False)
    revocations: Revocations
    record: Record

    @classmethod
    def at(cls, master: Path, *, ledger: Ledger | None = None) -> Operator:
        """Open the operator of a master key file, and create the file if it is missing.

        Args:
            master: File of the master key. The list of revocations lies beside it.
            ledger: Ledger that records what was learnt; by default ledger.sqlite beside the key.
        """
        from reticent.fleet.revocation import Revocations
        from reticent.fleet.secret_file import kept_secret

        if ledger is None:
            from reticent.ledger.witness.opening import opened

            ledger = opened(master.parent / LEDGER, signer=master.parent / LEDGER_KEY)
        return cls(kept_secret(master), Revocations.beside(master), Record(ledger))

    def close(self) -> None:
        """Close the ledger and the list of revocations."""
        self.revocations.close()
        self.record.ledger.close()

    def __enter__(self) -> Operator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
