"""The account of a declaration, opened in its ledger: of its own people, and of nobody else."""

from __future__ import annotations

import re
from dataclasses import replace

from reticent.errors import AccountConflict, BudgetExceeded, KeyUsed, UnknownAccount
from reticent.ledger import Ledger, Terms
from reticent.ledger.base import Amount
from reticent.query.declarations.datasets import DataSet
from reticent.query.declarations.home import Home

_BOUND = "bound to a declaration"  # the key under which an old account gets its one identity


def opened(home: Home, data: DataSet, ledger: Ledger) -> DataSet:
    """The data set, with its account open in its ledger.

    An account of an earlier release has no identity: it is given the first that comes, by a payment of the
    least amount under a key that only one can have. In the declaration's own file nobody else comes.

    Raises:
        AccountConflict: the account is of other people, or was opened with other terms.
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
    """A declaration with the identity in its account's terms, if there is one."""
    found = re.fullmatch(r".* \[([0-9a-f]{32})\]", terms.subject)
    return replace(data, identity=found[1] if found else "")


def as_open(data: DataSet, ledger: Ledger) -> DataSet:
    """A declaration as its account is open where an oracle measures: whoever asks there has no home."""
    try:
        return as_registered(data, ledger.balance(data.account).terms)
    except UnknownAccount:
        return data


def _bind(ledger: Ledger, terms: Terms, identity: str) -> None:
    """Give an account of an earlier release its identity, once."""
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
