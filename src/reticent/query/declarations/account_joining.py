"""A data set joins its people: from then on their account pays for it, and what it spent before counts there.

Joining is a line in the home of the people, written before anything is asked of their account. Whoever opens
any of their data sets next ends it (`account_moving.left_behind`), so that no crash lets both accounts be
spent. All of it is done within `home.settled`.

The key of a question names its data set. So two data sets of one account have different names, or an answer
about one could be taken for one about the other: the first that has a name keeps it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from reticent.errors import AccountConflict, LedgerError, UnknownAccount
from reticent.ledger import SqlLedger, Terms
from reticent.ledger.sql.moving import check_same
from reticent.ledger.witness import opening
from reticent.ledger.witness.client import WitnessedLedger
from reticent.query.declarations import home as homes
from reticent.query.declarations.datasets import DataSet
from reticent.query.declarations.home import Home
from reticent.query.declarations.ledger_places import is_there, kept, placed


def joined(home: Home, path: Path, data: DataSet, ledger: SqlLedger) -> Home:
    """The home of the people of a declaration, with its data set among theirs; any other home as it is.

    Args:
        home: that pays, as `settled` gives it.
        path: of the declaration.
        data: what it says.
        ledger: that of the home.

    Raises:
        AccountConflict: another data set of these people has its name, or it spent from an account with
            another budget. Nothing was written.
        LedgerError: its ledger had a witness, and theirs has none.
    """
    rows = homes.of_rows(path) if home.unit == homes.PEOPLE else None
    if rows is None:
        return home
    holder = members(home).get(data.name, rows.identity)
    if holder != rows.identity:
        raise AccountConflict(
            f"{path.name}: name must be that of no other data set of {home.account}, got {data.name}"
        )
    if data.name not in members(home):
        before = "" if rows.people else _before(rows, home.of(data).terms, ledger, path)
        home = replace(
            home, members=f"{home.members}{data.name} {rows.identity}\n", joining=home.joining + before
        )
        homes.write(home)
    if not rows.people:
        homes.write(replace(rows, people=kept(home.folder, rows.folder), whose=home.identity))
    return home


def members(home: Home) -> dict[str, str]:
    """The data sets that share the account of people: the identity of the rows by the name of each."""
    return {name: identity for name, _, identity in (one.partition(" ") for one in home.members.splitlines())}


def pending(home: Home) -> Iterator[tuple[str, str]]:
    """Accounts that data sets had before they joined, and that do not count yet: address and name of each."""
    for line in home.joining.splitlines():
        account, _, address = line.partition(" ")
        if f"{account} {placed(address)}\n" not in home.taken:
            yield address, account


def _before(rows: Home, terms: Terms, ledger: SqlLedger, path: Path) -> str:
    """The lines of the accounts that rows had by themselves, if these can be taken over."""
    found = ""
    for address in dict.fromkeys((rows.address, rows.paying_address)):
        if not is_there(address):
            continue
        if placed(address) == placed(ledger.where):
            _check_terms(rows, terms, ledger, path)
        else:
            if not isinstance(ledger, WitnessedLedger) and opening.noted(address) is not None:
                raise LedgerError(
                    f"{path.name} pays from a ledger with a witness, and {terms.name} would not: give theirs "
                    "a witness first (reticent ledger witness use)"
                )
            with homes.open_ledger(address, path) as left:
                _check_terms(rows, terms, left, path)
        found += f"{rows.account} {address}\n"
    return found


def _check_terms(rows: Home, terms: Terms, left: SqlLedger, path: Path) -> None:
    try:
        held = left.balance(rows.account).terms
    except UnknownAccount:
        return
    try:
        check_same(held, terms)
    except AccountConflict as error:
        raise AccountConflict(
            f"{path.name}: budget and relation must be those that its account was opened with, to join "
            f"{terms.name}: a budget is never raised by joining"
        ) from error
