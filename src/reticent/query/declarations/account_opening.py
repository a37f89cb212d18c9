"""Opening of a declaration's account in its ledger, for the people of that declaration alone."""

from __future__ import annotations

import re
from dataclasses import replace

from reticent.errors import AccountConflict, BudgetExceeded, KeyUsed, UnknownAccount
from reticent.ledger import Ledger, Terms
from reticent.ledger.base import Amount
from reticent.query.declarations.datasets import DataSet
from reticent.query.declarations.home import Home

_BOUND = "bound to a declaration"  # ledger key under which an old account gets its one identity


def opened(home: Home, data: DataSet, ledger: Ledger) -> DataSet:
    """Open the account of a data set in its ledger and return the data set with the identity of the account.

    An account of an earlier release has no identity. It gets that of the first declaration that opens it, by
    a payment of the least amount under a key that only one declaration can use. In the declaration's own
    ledger file there is no other declaration.

    Raises:
        AccountConflict: The account belongs to other people, or was opened with other terms.
    """
    found = home.of(data)
    try:
        ledger.open(found.terms)
        return found
    except AccountConflict as conflict:
        held, plain = ledger.balance(found.account).terms, replace(found, identity="")
        if held != plain.terms:
            raise _other_people(found, held) from conflict
        if not home.is_beside:
            _bind(ledger, plain.terms, home.identity)
        return plain


def as_registered(data: DataSet, terms: Terms) -> DataSet:
    """Return a data set with the identity in its account's terms, or with none if the terms hold none."""
    found = re.fullmatch(r".* \[([0-9a-f]{32})\]", terms.subject)
    return replace(data, identity=found[1] if found else "")


def as_open(data: DataSet, ledger: Ledger) -> DataSet:
    """Return a data set with the identity of its open account where an oracle measures and no home exists."""
    try:
        return as_registered(data, ledger.balance(data.account).terms)
    except UnknownAccount:
        return data


def _bind(ledger: Ledger, terms: Terms, identity: str) -> None:
    """Bind an account of an earlier release to one identity, once."""
    least = Amount(terms.minimum, terms.unit, terms.neighbours)
    try:
        ledger.charge(terms.name, _BOUND, least, idempotency=f"bound:{identity}")
    except KeyUsed as used:
        raise AccountConflict(
            f"account {terms.name} of this ledger belongs to another declaration: use another ledger or name"
        ) from used
    except BudgetExceeded as refusal:
        raise AccountConflict(
            f"account {terms.name} was opened by an earlier release and is spent: nothing is left to bind it"
        ) from refusal


def _other_people(data: DataSet, held: Terms) -> AccountConflict:
    theirs = as_registered(data, held)
    if theirs.identity not in ("", data.identity) and theirs.terms == held:
        return AccountConflict(
            f"account {data.account} of this ledger belongs to other people: it was opened as "
            f"{theirs.identity}, this declaration is {data.identity}. If they are the same, bring home.json "
            "from where it was opened"
        )
    return AccountConflict(
        f"account {data.account} is open with other terms than are declared; all declarations of one file of "
        "rows, or of the same people, have one account"
    )
