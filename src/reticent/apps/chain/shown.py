"""What the pages and the API show of a ledger on a chain: its events, with block, transaction and gas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from reticent.service import showing

if TYPE_CHECKING:  # slow to load, and not needed with other ledgers
    from reticent.chain.contracts import Event
    from reticent.ledger.ethereum.ledger import EthereumLedger

_OF_AN_ANSWER = ("Declared", "MeasurementRequested", "Fulfilled")


def overview(ledger: EthereumLedger, most: int) -> dict[str, Any]:
    """The contract, and its newest events, the last first."""
    accounts = ledger.accounts()
    newest = list(ledger.log.events())[-most:][::-1]
    return {
        "contract": ledger.contract,
        "chain_id": ledger.chain_id,
        "block": ledger.log.block,
        "events": _told(ledger, newest),
        "accounts": accounts,
    }


def behind(ledger: EthereumLedger, account: str, key: str, most: int) -> list[dict[str, Any]]:
    """The transactions that an answer rests on: declared, paid for, recorded; the last first."""
    found = [one for one in ledger.history(account, key) if one.name in _OF_AN_ANSWER]
    return _told(ledger, found[-most:][::-1])


def _told(ledger: EthereumLedger, events: Iterable[Event]) -> list[dict[str, Any]]:
    held, names = list(events), ledger.log.state.datasets
    return [
        {
            "event": one.name,
            "words": _words(one.name, one.fields, _name(names.get(one.fields["dataset"]))),
            "block": one.log.block,
            "transaction": one.log.transaction,
            "gas": gas,
        }
        for one, gas in zip(held, ledger.gas([one.log for one in held]), strict=True)
    ]


def _name(dataset: Any) -> str:
    return "?" if dataset is None else str(dataset.name)


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


def _words(kind: str, fields: dict[str, Any], dataset: str) -> str:
    """What an event of the contract says, in words."""
    amounts = {name: showing.mu2(fields[name]) for name in ("cap", "quota", "information") if name in fields}
    words = {"dataset": dataset, "paused": "stopped" if fields.get("paused") else "goes on"}
    return _EVENTS[kind].format(**(fields | amounts | words))
