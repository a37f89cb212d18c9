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
            "words": showing.event(one.name, one.fields, _name(names.get(one.fields["dataset"]))),
            "block": one.log.block,
            "transaction": one.log.transaction,
            "gas": gas,
        }
        for one, gas in zip(held, ledger.gas([one.log for one in held]), strict=True)
    ]


def _name(dataset: Any) -> str:
    return "?" if dataset is None else str(dataset.name)
