"""Titles of accounts and measurements on the page of the ledger: data sets, studies and questions, in words.

The log itself holds commitments only. The names come from the database beside it, from declarations and from
questions. They are for people inside the organisation: a buyer, who comes from outside, sees accounts alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from reticent.apps.ledger.studies import Studied
from reticent.apps.ledger.words import Account, Measured
from reticent.apps.query.desk import Desk
from reticent.ledger import SqlLedger
from reticent.ledger.base import PAYMENT
from reticent.query.language import tree, words

_PART = re.compile(r"(?:(\S+) )?(period|round) ([0-9]{1,9})")
_QUESTION = "a question"


@dataclass(frozen=True)
class Title:
    """The title of an account, and the address of its page; the address is empty if there is none."""

    words: str
    address: str = ""


def titles(desk: Desk, studied: Iterable[Studied]) -> dict[str, Title]:
    """Return the titles of the accounts of data sets and of studies, by account name."""
    found: dict[str, list[str]] = {}
    for data in desk.datasets():
        found.setdefault(data.account, []).append(data.name)
    named = {
        account: Title(", ".join(names), f"/datasets/{names[0]}" if len(names) == 1 else "")
        for account, names in found.items()
    }
    return named | {one.account: Title(f"{one.kind} {one.name}", one.address) for one in studied}


def accounts(log: SqlLedger, named: Mapping[str, Title]) -> dict[str, Account]:
    """Return every account by its number, as entries name it."""
    return {
        str(number): Account(named[name].words if name in named else name, unit, cap)
        for number, name, unit, cap in log.rows("SELECT id, name, unit, cap FROM account")
    }


def measurements(desk: Desk, log: SqlLedger, numbers: Iterable[int], *, is_told: bool) -> dict[str, Measured]:
    """Return the account and the question of measurements, by measurement number.

    Args:
        desk: Desk that knows the questions.
        log: Ledger of the measurements.
        numbers: Numbers of the measurements.
        is_told: True if the text of questions may be shown.
    """
    wanted = sorted(set(numbers))
    if not wanted:
        return {}
    places = ", ".join("?" * len(wanted))
    rows = log.rows(
        "SELECT m.number, a.id, a.name, b.name FROM measurement m JOIN bought b ON b.id = m.bought "  # noqa: S608
        f"JOIN account a ON a.id = b.account WHERE m.number IN ({places})",
        wanted,
    )
    asked = _questions(desk, {(account, key) for _, _, account, key in rows}) if is_told else {}
    return {
        str(number): Measured(str(holder), _said(key, asked.get((account, key))) if is_told else _QUESTION)
        for number, holder, account, key in rows
    }


def _questions(desk: Desk, wanted: set[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return questions in words by account and key, for the data sets that are open."""
    found = {}
    for data in desk.datasets():
        keys = {key for account, key in wanted if account == data.account}
        if keys and desk.is_open(data.name):
            for key, query in desk.session(data.name).questions(keys).items():
                found[data.account, key] = words.line(tree.to_json(query))
    return found


def _said(key: str, asked: str | None) -> str:
    """Return in words what is bought under a key."""
    if asked is not None:
        return asked
    part = _PART.fullmatch(key)
    if part is not None:
        whose = f"{part[1]}, " if part[1] else ""
        return f"{whose}{part[2]} {int(part[3]) + 1}"
    return "a payment" if key.startswith(PAYMENT) else _QUESTION
