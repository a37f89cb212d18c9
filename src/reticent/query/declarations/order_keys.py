"""The secret key that orders the rows of each person: made once, and never replaced without a word.

The key lies in `home.json`. Under another key other rows of a person count, so measurements that were made
with two keys have two meanings and are never combined. The ledger keeps the texts of the questions that were
paid for. They tell which versions were measured with a key, whatever became of `home.json`.

If the key is gone beside such measurements, the rows are refused until `home.json` is brought back, or until
the owner raises the version. A new version has questions of its own, so a new key mixes nothing. The home
then notes which versions belong to the lost key (`lost_orders`), and these are never measured again.
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
    if not rows.order_key:
        measured = _measured_versions(home, rows, data.account, ledger)
        own_key = next((one.order_key for one in homes.homes_of_rows(path) if one.order_key), "")
        if not own_key:
            _check_new_version(rows, data, measured)
        if not own_key or {name for name, _ in measured} <= {data.name}:
            lost = "" if own_key else "".join(f"{name} {version}\n" for name, version in sorted(measured))
            homes.write(replace(rows, order_key=own_key or secrets.token_hex(32), lost_orders=lost))
    homes.order_key(path, data)


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
