"""How pages say things: numbers as exact as their error allows, questions and entries of the log in words."""

from __future__ import annotations

import json
import math
from typing import Any

from reticent.errors import ReticentError
from reticent.ledger.entries import decode
from reticent.privacy.budget import UNITS_PER_ONE

_MOST_DIGITS = 12


def rounded(value: float, error: float) -> str:
    """A number without the digits that its error makes meaningless: two digits of the error are kept."""
    return _shown(value, error, round)


def interval(low: float, high: float) -> tuple[str, str]:
    """Both ends, rounded outwards."""
    error = (high - low) / 2
    return _shown(low, error, math.floor), _shown(high, error, math.ceil)


def error_shown(error: float) -> str:
    """An error of two digits, rounded up."""
    return _shown(error, error, math.ceil)


def _shown(value: float, error: float, whole: Any) -> str:
    if not math.isfinite(value):
        return "unknown"
    if not 0 < error < math.inf:
        return f"{value:,.10g}"
    digits = min(_MOST_DIGITS, 1 - math.floor(math.log10(error)))
    scale = 10.0**digits
    scaled = value * scale
    near = round(scaled)
    steps = near if math.isclose(scaled, near, rel_tol=1e-9) else whole(scaled)  # 0.3 * 10 is 3
    return f"{steps / scale + 0.0:,.{max(0, digits)}f}"


def percent(share: float) -> str:
    """A share with three digits."""
    return f"{100 * share:.3g} %" if share < 1 else f"{100 * share:,.0f} %"


def epsilon(value: float) -> str:
    """An epsilon with three digits."""
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def mu2(units: int) -> str:
    """Units of the ledger as mu^2."""
    return f"{units / UNITS_PER_ONE:.4g}"


# Entries of the log

_ENTRIES = {
    "ledger": "The log begins",
    "open": "Account {account} opened, cap mu² {cap}",
    "request": "Account {account} charged mu² {charged} for measurement {measurement}",
    "fulfil": "Measurement {measurement} recorded",
    "recover": "Account {account} recovered, mu² {spent} spent",
    "answer": "An answer of account {account} noted",
    "void": "Measurement {measurement} closed",
}


def entry(leaf: str) -> str:
    """What an entry of the log says, in words; its text is what is hashed."""
    try:
        fields = decode(leaf)
    except ReticentError:
        return "Not an entry that this version knows"
    amounts = {name: mu2(int(fields[name])) for name in ("cap", "charged", "spent") if name in fields}
    return _ENTRIES[fields["type"]].format(**(fields | amounts))


_EVENTS = {
    "Registered": "{dataset} registered, cap mu² {cap}",
    "Declared": "{dataset}: a question declared",
    "Allowed": "{dataset}: an analyst may be charged mu² {quota} in all",
    "MeasurementRequested": "{dataset}: mu² {information} charged for measurement {number}",
    "Reused": "{dataset}: mu² {information} asked for, bought before",
    "Paid": "{dataset}: mu² {information} charged, measured elsewhere",
    "Fulfilled": "{dataset}: measurement {number} recorded",
    "Paused": "{dataset}: spending {paused}",
    "OracleAppointed": "{dataset}: another oracle",
    "OwnershipOffered": "{dataset} offered to another owner",
    "OwnershipTaken": "{dataset} taken by another owner",
}


def event(kind: str, fields: dict[str, Any], dataset: str) -> str:
    """What an event of the contract says, in words."""
    amounts = {name: mu2(fields[name]) for name in ("cap", "quota", "information") if name in fields}
    words = {"dataset": dataset, "paused": "stopped" if fields.get("paused") else "goes on"}
    return _EVENTS[kind].format(**(fields | amounts | words))


def plain(value: Any) -> Any:
    """JSON that browsers can read: what is not finite is null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value


def data(value: Any) -> str:
    """A value for a data attribute."""
    return json.dumps(plain(value), allow_nan=False)
