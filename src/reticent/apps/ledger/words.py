"""What an entry of the log says, in words."""

from __future__ import annotations

from collections.abc import Mapping

from reticent.errors import ReticentError
from reticent.ledger.audits import Verdict
from reticent.ledger.entries import decode
from reticent.service.showing import amount

_ENTRIES = {
    "ledger": "The log begins",
    "open": "Account {account} opened, cap {cap}",
    "request": "Account {account} charged {charged} for measurement {measurement}",
    "fulfil": "Measurement {measurement} recorded",
    "recover": "Account {account} recovered, {spent} spent",
    "answer": "An answer of account {account} noted",
    "void": "Measurement {measurement} closed",
    "audit": "Audit, {verdict}: {claim}",
}


_UNITS = {"mu2": "mu²", "epsilon": "epsilon", "epsilon_per_km": "epsilon per km", "metric_delta": "delta"}


def entry(leaf: str, units: Mapping[str, str] | None = None) -> str:
    """What an entry of the log says, in words; its text is what is hashed.

    Args:
        leaf: the entry.
        units: of accounts, by their numbers; mu2 where it is not told.
    """
    try:
        fields = decode(leaf)
    except ReticentError:
        return "Not an entry that this version knows"
    unit = fields.get("unit") or (units or {}).get(fields.get("account", ""), "mu2")
    amounts = {
        name: f"{_UNITS.get(unit, unit)} {amount(int(fields[name]), unit)}"
        for name in ("cap", "charged", "spent")
        if name in fields
    }
    verdict = {"verdict": Verdict(fields["verdict"]).words} if "verdict" in fields else {}
    return _ENTRIES[fields["type"]].format(**(fields | amounts | verdict))
