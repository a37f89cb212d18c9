"""Entries of the log in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reticent.errors import ReticentError
from reticent.ledger.audits import Verdict
from reticent.ledger.entries import decode
from reticent.service.showing import capped, percent

_ENTRIES = {
    "ledger": "The log begins",
    "open": "{account} opened, cap {cap}",
    "request": "{account} charged {charged} for {question}",
    "fulfil": "Recorded{of}: {question}",
    "recover": "{account} recovered, {spent} spent",
    "answer": "{account}: an answer noted",
    "void": "Closed{of}: {question}",
    "audit": "Audit, {verdict}: {claim}",
}


@dataclass(frozen=True)
class Account:
    """An account as entries of the log name it."""

    title: str
    unit: str
    cap: int


@dataclass(frozen=True)
class Measured:
    """The purpose of a measurement: the number of its account, and the question in words."""

    account: str
    question: str


def entry(
    leaf: str,
    accounts: Mapping[str, Account] | None = None,
    measurements: Mapping[str, Measured] | None = None,
) -> str:
    """Return an entry of the log in words; the text of the entry itself is what is hashed.

    Args:
        leaf: Text of the entry.
        accounts: Accounts by their numbers.
        measurements: Measurements by their numbers.
    """
    try:
        fields = decode(leaf)
    except ReticentError:
        return "Not an entry that this version knows"
    number = fields.get("measurement", "")
    measured = (measurements or {}).get(number)
    account = (accounts or {}).get(fields.get("account", measured.account if measured else ""))
    said: dict[str, str] = {
        name: _share(fields, name, account) for name in ("cap", "charged", "spent") if name in fields
    }
    said["account"] = account.title if account else f"Account {fields.get('account', '')}".strip()
    said["of"] = f" for {account.title}" if account else ""
    said["question"] = f"{measured.question} (measurement {number})" if measured else f"measurement {number}"
    if "verdict" in fields:
        said["verdict"] = Verdict(fields["verdict"]).words
    return _ENTRIES[fields["type"]].format(**(fields | said))


def _share(fields: Mapping[str, str], name: str, account: Account | None) -> str:
    """Return an amount in the unit of its account, preceded by its share of the cap where that is known."""
    units = int(fields[name])
    unit = fields.get("unit") or (account.unit if account else "")
    if not unit:
        return f"{units} units"  # nobody knows of what
    text = capped(units, unit)
    if name == "cap" or account is None or unit == "money":
        return text
    return f"{percent(units / account.cap)} ({text})"
