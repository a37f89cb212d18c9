"""The secret key that orders the rows of each person: made once, and never replaced silently.

The key lies in `home.json`. Under another key other rows of a person count, so measurements that were made
with two keys have two meanings and are never combined. The ledger keeps the texts of the questions that were
paid for. They tell which versions were measured with a key, whatever became of `home.json`.

If the key is gone beside such measurements, the rows are refused until `home.json` is brought back, or until
the owner raises the version. A new version has questions of its own, so a new key mixes nothing. The home
then notes which versions belong to the lost key (`lost_orders`), and these are never measured again.

A declaration that comes to share another's account keeps the key that it measured with. The home of the rows
notes its versions in the same way: they are never measured with the key of the rows.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path

from reticent.errors import LedgerError
from reticent.ledger import Ledger
from reticent.query.declarations import account_joining
from reticent.query.declarations import home as homes
from reticent.query.declarations.datasets import DataSet
from reticent.query.declarations.home import Home
from reticent.query.rows.row_order import FIRST_FORMAT, needs_order_key


def ensure_order_key(home: Home, path: Path, data: DataSet, ledger: Ledger) -> None:
    """Make the key of a declaration's rows if none was ever needed; within `home.settled`, as its last step.

    The file with the key is on the disk before anything is measured, so a crash in between loses nothing: the
    next opening finds the key, or makes the first one.

    Args:
        home: Home that pays.
        path: Path of the declaration.
        data: The declaration, with its account open.
        ledger: Ledger with all that was bought for these rows; for a chain, that of its oracle.

    Raises:
        LedgerError: Something was measured with a key that is gone.
    """
    rows = homes.of_rows(path)
    if rows is None or not needs_order_key(data):
        return
    own_key = next((one.order_key for one in homes.homes_of_rows(path) if one.order_key), "")
    if not own_key:
        measured = _measured_versions(home, rows, data.account, ledger)
        _check_new_version(rows, data, measured)
        homes.write(replace(_with_lost(rows, measured), order_key=secrets.token_hex(32)))
    elif own_key != rows.order_key:
        _reserve_version(home, rows, data, ledger)
    homes.order_key(path, data)


def keep_apart(home: Home, path: Path, account: str, ledger: Ledger, left: Ledger) -> None:
    """Keep what a declaration measured apart from what it joins; before its account is taken over.

    If nothing was measured with a key where it goes, its key becomes that of the rows. Else its versions are
    never measured with theirs, and those that both measured with two keys are never measured again.

    Args:
        home: Home that pays from now on.
        path: Path of the declaration.
        account: Name of the account that pays.
        ledger: Ledger of that account.
        left: Ledger that the declaration leaves.
    """
    own, rows = homes.read(homes.folder(path)), homes.of_rows(path)
    if own is None or rows is None or not own.order_key or own.order_key == rows.order_key:
        return
    here = _measured_versions(home, rows, account, ledger)
    there = _measured_versions(own, own, own.account, left)
    if not rows.order_key and not here:
        homes.write(replace(rows, order_key=own.order_key))
    elif _with_lost(rows, there) != rows:  # else it was done, and the accounts may be one by now
        homes.write(_with_lost(own, here & there))
        homes.write(_with_lost(rows, there))


def _reserve_version(home: Home, rows: Home, data: DataSet, ledger: Ledger) -> None:
    """Note a version that is measured with a declaration's own key: it never is with the key of the rows."""
    version = (data.name, data.version)
    noted = _with_lost(rows, {version})
    if noted != rows:
        if version in _measured_versions(home, rows, data.account, ledger):
            raise LedgerError(
                f"{data.name}: version {data.version} was measured by a declaration of the same rows and "
                "name, with an order key of its own: raise the version"
            )
        homes.write(noted)


def _with_lost(home: Home, versions: set[tuple[str, str]]) -> Home:
    """Return a home that notes versions which are never measured with its key."""
    before = home.lost_orders.splitlines()
    new = [line for name, version in sorted(versions) if (line := f"{name} {version}") not in before]
    return replace(home, lost_orders="".join(f"{line}\n" for line in (*before, *new)))


def _check_new_version(rows: Home, data: DataSet, measured: set[tuple[str, str]]) -> None:
    """Refuse rows without a key that were measured with one, unless the owner declares a new version."""
    versions = {version for name, version in measured if name == data.name}
    if measured and (not versions or data.version in versions):
        names = ", ".join(sorted({name for name, _ in measured}))
        raise LedgerError(
            f"{rows.folder / homes.FILE} has lost the key that orders each person's rows, and {names} was "
            f"measured with it: bring that file back from a backup, or raise the version in the declaration "
            f"of {names}"
        )


def _measured_versions(home: Home, rows: Home, account: str, ledger: Ledger) -> set[tuple[str, str]]:
    """Return name and version of each declaration of some rows that was paid for and needs a key.

    The account of people is for other rows, too; its members say whose rows a name belongs to. They are read
    again: these rows may have joined just now.
    """
    payer = homes.read(home.folder) if home.unit == homes.PEOPLE else None
    names = None if payer is None else account_joining.members(payer)
    found = set()
    for said in account_joining.questions(ledger, account):
        if isinstance(said.get("unit"), dict) and said.get("format", 1) >= FIRST_FORMAT:
            name = said["data"]
            if names is None or names.get(name) == rows.identity:
                found.add((name, said["version"]))
    return found
