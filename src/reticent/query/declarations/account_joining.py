"""Merging the account of one data set into the account of its people.

From then on the account of the people pays for the data set, and the earlier spending counts there, too.
Joining is a line in the home of the people, written before anything is asked of their account. The next
opening of any of their data sets completes it (`account_moving.left_behind`), so that no crash lets both
accounts be spent. All of it is done within `home.settled`.

The key of a question names its data set. So two data sets of one account have different names, or an answer
about one could be taken for one about the other: the first that has a name keeps it. Names under which rows
were measured before they joined are theirs, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from reticent.errors import AccountConflict, LedgerError, UnknownAccount
from reticent.ledger import Ledger, SqlLedger, Terms
from reticent.ledger.base import is_named_after
from reticent.ledger.sql.moving import check_same
from reticent.ledger.witness import opening
from reticent.ledger.witness.client import WitnessedLedger
from reticent.query.declarations import home as homes
from reticent.query.declarations.datasets import DataSet
from reticent.query.declarations.home import Home
from reticent.query.declarations.ledger_places import is_there, kept, placed


def joined(home: Home, path: Path, data: DataSet, ledger: SqlLedger) -> Home:
    """Add a data set to the members of its people's home and return that home; return other homes unchanged.

    Args:
        home: Home that pays, as `settled` yields it.
        path: Path of the declaration.
        data: Declared data set.
        ledger: Ledger of the home.

    Raises:
        AccountConflict: Another data set of these people has its name, or it spent from an account with
            another budget. Nothing was written.
        LedgerError: The ledger of the data set had a witness, and the ledger of the people has none.
    """
    rows = homes.of_rows(path) if home.unit == homes.PEOPLE else None
    if rows is None:
        return home
    _check_names({data.name}, home, rows, path)
    if data.name not in members(home):
        before, names = ("", set()) if rows.people else _before(rows, home.of(data).terms, ledger, path)
        _check_names(names, home, rows, path)
        new = sorted({data.name, *names} - members(home).keys())
        home = replace(
            home,
            members=home.members + "".join(f"{name} {rows.identity}\n" for name in new),
            joining=home.joining + before,
        )
        homes.write(home)
    if not rows.people:
        homes.write(replace(rows, people=kept(home.folder, rows.folder), whose=home.identity))
    return home


def _check_names(names: set[str], home: Home, rows: Home, path: Path) -> None:
    """Refuse names that other rows of the same people have."""
    for name in sorted(names):
        if members(home).get(name, rows.identity) != rows.identity:
            raise AccountConflict(
                f"{path.name}: name must be that of no other data set of {home.account}, got {name}"
            )


def questions(ledger: Ledger, account: str) -> Iterator[dict[str, Any]]:
    """Yield the fields of each question about a data set that was paid for and whose text is kept."""
    for key, text in ledger.worded(account).texts.items():
        try:
            said = json.loads(text) if is_named_after(key, text) else None
        except ValueError:  # no question about a data set
            continue
        if isinstance(said, dict) and isinstance(said.get("data"), str):
            yield said


def members(home: Home) -> dict[str, str]:
    """Return the data sets that share the account of people: the identity of the rows by data set name."""
    return {name: identity for name, _, identity in (one.partition(" ") for one in home.members.splitlines())}


def pending(home: Home) -> Iterator[tuple[str, str]]:
    """Yield address and name of each account that a data set had before joining and that does not count."""
    for line in home.joining.splitlines():
        account, _, address = line.partition(" ")
        if f"{account} {placed(address)}\n" not in home.taken:
            yield address, account


def _before(rows: Home, terms: Terms, ledger: SqlLedger, path: Path) -> tuple[str, set[str]]:
    """Return the accounts that rows had by themselves, a line each, and the names that they were measured by.

    Raises:
        AccountConflict, LedgerError: These accounts cannot be taken over.
    """
    found, names = "", set()
    for address in dict.fromkeys((rows.address, rows.paying_address)):
        if not is_there(address):
            continue
        if placed(address) == placed(ledger.where):
            names |= _check_terms(rows, terms, ledger, path)
        else:
            if not isinstance(ledger, WitnessedLedger) and opening.noted(address) is not None:
                raise LedgerError(
                    f"{path.name} pays from a ledger with a witness, and {terms.name} would not: give theirs "
                    "a witness first (reticent ledger witness use)"
                )
            with homes.open_ledger(address, path) as left:
                names |= _check_terms(rows, terms, left, path)
        found += f"{rows.account} {address}\n"
    return found, names


def _check_terms(rows: Home, terms: Terms, left: SqlLedger, path: Path) -> set[str]:
    """Return the names by which rows were measured in a ledger that they leave, if its terms are the same."""
    try:
        held = left.balance(rows.account).terms
    except UnknownAccount:
        return set()
    try:
        check_same(held, terms)
    except AccountConflict as error:
        raise AccountConflict(
            f"{path.name}: budget and relation must be those that its account was opened with, to join "
            f"{terms.name}: a budget is never raised by joining"
        ) from error
    return {said["data"] for said in questions(left, rows.account)}
