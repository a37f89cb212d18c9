"""Moves of an account between ledgers, with everything that it bought and everything spent elsewhere.

All of it is done within `home.settled`. After a crash anywhere, doing it again ends it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from reticent.errors import LedgerError, UnknownAccount
from reticent.fleet.people import under
from reticent.ledger import SqlLedger, Terms
from reticent.ledger.sql.moving import Taken, check_new, check_same, hand_over, take_over
from reticent.query.declarations import account_joining, account_opening, order_keys
from reticent.query.declarations import home as homes
from reticent.query.declarations.datasets import DataSet
from reticent.query.declarations.home import OWN, SERVICE, Home
from reticent.query.declarations.ledger_places import is_there, kept, placed


def moved_to(home: Home, data: DataSet, ledger: SqlLedger) -> tuple[Home, Taken]:
    """Move an account to another ledger, with all that it bought; call it within `settled`.

    What it leaves can spend nothing any more. After a crash anywhere, doing it again ends it.

    Args:
        home: Home before the move.
        data: Declared data set.
        ledger: Ledger to move the account to.

    Raises:
        LedgerError: The account is in that ledger already, under another address, or was there before; or
            studies are under the account. Nothing was written.
    """
    place, taken = placed(ledger.where), Taken(0, 0)
    there = kept(ledger.where, home.folder)
    arrived = replace(home, ledger=there, moving="")
    arrived = arrived.with_taken(home.place, home.account)
    with _leaving(home, home.of(data).terms) as left:
        check_new(left, ledger, home.account)
        _check_alone(left, home.account)
        homes.write(replace(home, moving=there))
        if left is not None:
            terms = account_opening.opened(arrived, data, ledger).terms
            taken = take_over(ledger, terms, hand_over(left, home.account, place, terms))
        homes.write(arrived)
    return arrived, taken


def _check_alone(left: SqlLedger | None, account: str) -> None:
    """Refuse to move an account that studies in the same ledger are under: they could show nothing more."""
    studies = (
        [] if left is None else [one for one, whose in under(left.accounts()).items() if whose == account]
    )
    if studies:
        raise LedgerError(
            f"account {account} must stay where {', '.join(studies)} are entered: they are under it"
        )


@contextlib.contextmanager
def _leaving(home: Home, terms: Terms) -> Iterator[SqlLedger | None]:
    """Yield the ledger that an account leaves; None if the account was never opened there.

    Raises:
        AccountConflict: The account was opened there with other terms. Nothing was written.
    """
    if not is_there(home.place):
        yield None
        return
    with homes.open_ledger(home.address, home.folder) as left:
        try:
            check_same(left.balance(home.account).terms, terms)
        except UnknownAccount:
            yield None
            return
        yield left


def left_behind(
    home: Home, path: Path, data: DataSet, ledger: SqlLedger, *, into: Terms | None = None
) -> Taken:
    """Add to an account what was spent of the same budget in other ledgers; call it within `settled`.

    Earlier releases kept one ledger for Python and the command, and another for a service. And a declaration
    that turns out to share another's account may have spent by itself before; so may every data set that
    joined the same people.

    Args:
        home: Home before the addition.
        path: Path of the declaration.
        data: Declared data set.
        ledger: Ledger of the home; on a chain, the ledger of its oracle.
        into: Terms of the account, if it is open already.
    """
    charged = over = 0
    home = account_joining.joined(home, path, data, ledger)
    own = homes.read(homes.folder(path))
    target = into if into is not None else account_opening.opened(home, data, ledger).terms
    for left, place, account in _left(home, path, data, ledger):
        if own is not None and own.same and (place, account) == (own.place, own.account):
            order_keys.keep_apart(home, path, target.name, ledger, left)
            home = homes.read(home.folder) or home
        taken = take_over(ledger, target, hand_over(left, account, home.place, target))
        charged, over = charged + taken.charged, over + taken.over
        home = home.with_taken(place, account)
        homes.write(home)
    own = homes.read(homes.folder(path))
    if own is not None and own.same and own.moving:
        homes.write(replace(own, moving=""))
    return Taken(charged, over)


def _left(
    home: Home, path: Path, data: DataSet, ledger: SqlLedger | None = None
) -> Iterator[tuple[SqlLedger, str, str]]:
    """Yield ledger, place and name of each account of the same people elsewhere that does not count yet.

    Raises:
        LedgerError: The ledger that the account was in before is gone.
    """
    own, mine = homes.read(homes.folder(path)), home.of(data)
    if data.people and own is not None:  # the account before it joined that of the people
        mine = own.of(replace(data, people=""))
    places = [homes.folder(path) / OWN, home.folder / OWN, Path(path).resolve().parent / SERVICE / OWN]
    found = [(str(place.resolve()), account) for place in places for account in {home.account, data.name}]
    before = home.address_of(home.left) if home.left else ""
    if before:
        found.append((before, home.account))
    if own is not None and own.same and own.moving:  # its account is being merged
        found.append((own.address, own.account))
    joining = list(account_joining.pending(home))
    found, joins = found + joining, {(placed(one), account) for one, account in joining}
    for (place, account), address in {(placed(one), account): one for one, account in found}.items():
        if (place, account) == (home.place, home.account) or f"{account} {place}\n" in home.taken:
            continue
        if not is_there(address):
            is_before = before and place == placed(before) and account == home.account
            if is_before or (place, account) in joins:
                raise LedgerError(
                    f"{path.name if is_before else account} left {place}, which is gone: bring it back, it "
                    "says what was spent before"
                )
            continue
        is_own = own is not None and place == own.place
        held = ledger if ledger is not None and place == home.place else None
        with contextlib.nullcontext(held) if held is not None else homes.open_ledger(address, path) as left:
            joins_here = (place, account) in joins and _is_open(left, account)
            if joins_here or _is_of(left, account, mine, any_identity=is_own):
                yield left, place, account


def moved_on_chain(home: Home, path: Path, data: DataSet, charge: Callable[[int], None], place: str) -> Home:
    """Move an account into a contract that holds it already; call it within `settled`.

    What was bought stays where it was, and what was spent is charged there, in ledgers of earlier releases
    too: the oracle's own ledger takes the rest over (`left_behind`). After a crash anywhere, doing it again
    ends it.

    Args:
        home: Home before the move.
        path: Path of the declaration.
        data: Data set as it is registered.
        charge: Function that charges units in the contract, once however often it is called.
        place: Text that names the contract.
    """
    spent, terms, arrived = 0, data.terms, home
    if home.ledger != place:
        with _leaving(home, terms) as left:
            homes.write(replace(home, moving=place))
            arrived = replace(home, ledger=place, moving="", left="" if left is None else home.ledger)
            if left is not None:
                spent = hand_over(left, home.account, place, terms).spent
    for other, _, account in _left(home, path, data):
        spent += hand_over(other, account, place, terms).spent
    if spent:
        charge(spent)
    if arrived != home:
        homes.write(arrived)
    return arrived


def _is_open(left: SqlLedger, account: str) -> bool:
    return any(one.terms.name == account for one in left.accounts())


def _is_of(left: SqlLedger, account: str, data: DataSet, *, any_identity: bool) -> bool:
    """Return whether an account in another ledger belongs to the people of a declaration."""
    try:
        terms = left.balance(account).terms
    except UnknownAccount:
        return False
    called = replace(data, identity="", shares="" if account == data.name else account)
    same = [called.terms, replace(called, identity=data.identity).terms]
    return terms in same or (any_identity and account_opening.as_registered(called, terms).terms == terms)
