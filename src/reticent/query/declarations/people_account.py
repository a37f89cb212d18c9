"""The account of people, for operators of surveys and trainings, who hold none of their data sets."""

from __future__ import annotations

from pathlib import Path

from reticent.errors import LedgerError, ParameterError
from reticent.fleet.people import People
from reticent.ledger import SqlLedger
from reticent.query.declarations import home as homes
from reticent.query.declarations import populations
from reticent.query.declarations.datasets import account_terms, subject_of_people
from reticent.query.declarations.ledger_places import placed


def opened(path: Path, ledger: SqlLedger) -> People:
    """Return the people of a file `NAME.people`, with their account open in the ledger that they have.

    Put a study under it with `fleet.record.Record.put_under`, in the same ledger.

    Raises:
        LedgerError: Their account is in another ledger.
        ParameterError: The file says not how many devices one of them has.
    """
    found = populations.read(Path(path).resolve())
    if found.devices is None:
        raise ParameterError(
            f"{found.path.name}: devices must be filled in, the most that one person has enrolled"
        )
    with homes.of_people(found, ledger.where) as home:
        if home.moving or home.place != placed(ledger.where):
            raise LedgerError(
                f"{found.path.name} pays from {home.paying}, and from no other ledger; got "
                f"{placed(ledger.where)}"
            )
        ledger.open(
            account_terms(
                found.account, found.relation, subject_of_people(found.account), found.budget, home.identity
            )
        )
        return People(found.account, home.identity, found.devices)
