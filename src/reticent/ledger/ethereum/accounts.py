"""Accounts in the contract PrivacyLedger: reading their state, and the actions of their owners."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from reticent.arguments import whole
from reticent.chain.log import ChainLog
from reticent.chain.node import Node, Receipt
from reticent.chain.sender import Sender
from reticent.chain.view import checked_address
from reticent.errors import (
    AccountConflict,
    CommitUnknown,
    LedgerError,
    NodeUnavailable,
    NotConfirmed,
    ParameterError,
    TransactionRefused,
    UnknownAccount,
)
from reticent.ledger.base import PAYMENT, Balance, Ledger, Measurement, Reading, Recorded, Terms, Worded
from reticent.ledger.ethereum.contract import (
    NOBODY,
    Contract,
    Words,
    cause,
    dataset_id,
    key_id,
    payment_id,
)
from reticent.ledger.ethereum.orders import Waiting
from reticent.ledger.ethereum.state import DataSet, State
from reticent.privacy import MAX_UNITS

_PAUSE_S = 0.05


@dataclass(frozen=True)
class AnalystStatus:
    """The quota of an analyst on a data set, and the part that is used."""

    address: str
    quota: int
    used: int


@dataclass(frozen=True)
class Status:
    """A data set on the chain, as of one block."""

    balance: Balance
    registrant: str
    owner: str
    candidate: str | None
    oracle: str
    paused: bool
    analysts: tuple[AnalystStatus, ...]
    measurements: int
    pending: int
    commitment: bytes
    registered: int
    block: int


class ChainAccounts(Ledger, is_part=True):
    """The part of `EthereumLedger` that reads accounts and acts for their owner; see there."""

    def __init__(
        self,
        node: Node,
        address: str,
        sender: Sender,
        *,
        owner: str | None,
        oracle: str | None,
        first_block: int,
        timeout_s: float,
    ) -> None:
        self._sender, self.address = sender, sender.address
        self.owner = self.address if owner is None else checked_address("owner", owner)
        self._oracle = self.address if oracle is None else checked_address("oracle", oracle)
        self._contract, self._node = Contract(node, address), node
        self.contract, self.chain_id = self._contract.address, node.chain_id
        self._confirmations, self._timeout_s = sender.confirmations, timeout_s
        first = whole("first_block", first_block, low=0)
        self.log = ChainLog(
            node, self._contract.artifact, self._contract.address, State, first_block=first,
            confirmations=self._confirmations,
        )  # fmt: skip
        self._opened: dict[str, Terms] = {}
        self._words: dict[tuple[str, str], Words] = {}

    # Reading

    def _depth(self) -> int | str:
        """Return the newest block that has enough confirmations to count."""
        return "latest" if not self._confirmations else max(0, self._node.number() - self._confirmations)

    def _dataset(self, account: str) -> bytes:
        return dataset_id(self.owner, account)

    def _terms(self, account: str) -> Terms:
        return self._opened.get(account) or self.balance(account).terms

    def balance(self, account: str) -> Balance:
        """Return the terms of the account and the amount that is spent."""
        found = self._find(account)
        if found is None:
            raise UnknownAccount(f"account {account} was never opened")
        return found

    def _find(self, account: str) -> Balance | None:
        held = self._contract.held(self._dataset(account), block=self._depth())
        if held is None:
            self._opened.pop(account, None)
            return None
        terms = self._opened.get(account)
        if terms is None or (terms.cap, terms.minimum) != (held.cap, held.minimum):
            terms = self._opened[account] = self._contract.terms(self._dataset(account), held.registered)
        return Balance(terms, held.spent)

    def accounts(self) -> list[Balance]:
        """Return the balance of every account that the owner registered, sorted by name."""
        with self.log.reading() as state:
            found = [
                Balance(held.terms, held.spent)
                for held in state.datasets.values()
                if held.registrant == self.owner and held.terms is not None
            ]
        return sorted(found, key=lambda balance: balance.terms.name)

    def reading(self, account: str, key: str) -> Reading:
        """Return the reading that is recorded under a key of the account."""
        self._terms(account)
        return self.readings(account, [key])[0]

    def readings(self, account: str, keys: Sequence[str]) -> list[Reading]:
        """Return the readings that are recorded under several keys, in few messages to the node."""
        self._terms(account)
        dataset = self._dataset(account)
        calls = [("recorded", (dataset, self._key_id(account, key)[0])) for key in keys]
        answers = self._contract.call_many(calls, block=self._depth())
        return [as_reading(account, key, answer) for key, answer in zip(keys, answers, strict=True)]

    def worded(self, account: str, after: int = 0) -> Worded:
        """Return the texts of questions that were paid for; all of them, since a chain may be reorganised.

        Anybody who may ask declares any text under any name, and each pair is a key of its own. Only the text
        that a name is named after is its text, so no other declaration, earlier or later, takes its place.
        """
        with self.log.reading() as state:
            dataset = self._listed(state, account).id
            keys = [key for place, key in state.keys.items() if place[0] == dataset]
            return Worded({key.name: key.question for key in keys if key.has_own_text and key.requested}, 0)

    def purchases(self, account: str, keys: Sequence[str]) -> list[Recorded]:
        """Return the readings and measurement numbers recorded under several keys, as of one block."""
        with self.log.reading() as state:
            dataset = self._listed(state, account).id
            places = {key: self._key_id(account, key)[0] for key in keys}
            numbers: dict[bytes, list[int]] = {place: [] for place in places.values()}
            for one in state.measurements:
                if one.dataset == dataset and one.fulfilled and one.key in numbers:
                    numbers[one.key].append(one.number)
            found = []
            for key in keys:
                under = state.keys.get((dataset, places[key]))
                told = None if under is None else (under.requested, under.recorded, under.sums)
                found.append(Recorded(as_reading(account, key, told), tuple(numbers[places[key]])))
            return found

    def pending(self, account: str) -> list[Measurement]:
        """Return the measurements of an account that are paid for and not recorded."""
        return [
            Measurement(one.number, account, one.name, one.information, fulfilled=False)
            for one in self.waiting(account)
        ]

    def status(self, account: str) -> Status:
        """Return the status of an account: its owner, oracle and analysts, and the amount that is spent."""
        with self.log.reading() as state:
            held = self._listed(state, account)
            if held.terms is None:
                raise LedgerError(f"account {account} is registered with terms that this version cannot read")
            return Status(
                Balance(held.terms, held.spent),
                held.registrant,
                held.owner,
                None if held.candidate == NOBODY else held.candidate,
                held.oracle,
                held.paused,
                tuple(AnalystStatus(who, one.quota, one.used) for who, one in sorted(held.analysts.items())),
                held.measurements,
                sum(1 for one in state.waiting.values() if one.dataset == held.id),
                held.commitment,
                held.block,
                self.log.block,
            )

    def _listed(self, state: State, account: str) -> DataSet:
        held = state.datasets.get(self._dataset(account))
        if held is None:
            raise UnknownAccount(f"account {account} was never opened")
        return held

    def _key_id(self, account: str, key: str) -> tuple[bytes, Words]:
        if key.startswith(PAYMENT):
            return payment_id(key.encode()), Words()
        words = self._words.get((account, key), Words())
        return key_id(key.encode(), words.question.encode(), words.grid, words.dimension), words

    def waiting(self, account: str) -> list[Waiting]:
        """Return measurements that are paid for (with confirmations) and not recorded, oldest first."""
        with self.log.reading() as state:
            dataset = self._listed(state, account).id
            return [
                waiting_of(state, number) for number, one in state.waiting.items() if one.dataset == dataset
            ]

    # Owning

    def _open(self, terms: Terms) -> Balance:
        end = time.monotonic() + self._timeout_s
        while True:
            found = self._find(terms.name)
            if found is not None:
                if found.terms != terms:
                    raise AccountConflict(f"account {terms.name} is open with other terms")
                return found
            if self.owner != self.address:
                raise UnknownAccount(f"account {terms.name} was never opened by {self.owner}, who alone can")
            try:
                return self.register(terms, oracle=self._oracle, commitment=_commitment(terms))
            except AccountConflict as error:  # registered just now: wait for its confirmations
                if time.monotonic() > end:
                    few = f"no {self._confirmations} confirmations after {self._timeout_s:g} s"
                    raise NotConfirmed(f"account {terms.name} has {few}") from error
            time.sleep(_PAUSE_S)

    def register(self, terms: Terms, *, oracle: str, commitment: bytes) -> Balance:
        """Open an account that `oracle` measures for.

        Args:
            terms: Terms of the account.
            oracle: Address that alone records values.
            commitment: Commitment to the declaration of the data, keyed with a fresh nonce.

        Raises:
            AccountConflict: This address registered an account of that name before.
        """
        if not isinstance(commitment, bytes) or len(commitment) != 32:
            raise ParameterError("commitment must be 32 bytes")
        if self.owner != self.address:
            raise LedgerError(f"account {terms.name} can only be registered by {self.owner}")
        self._transact(
            "register",
            terms.name,
            terms.name,
            terms.unit.value,
            terms.neighbours.name,
            terms.subject.encode(),
            terms.cap,
            terms.minimum,
            checked_address("oracle", oracle),
            commitment,
        )
        self._opened[terms.name] = terms
        return Balance(terms, 0)

    def allow(self, account: str, analyst: str, quota: int) -> None:
        """Set the total number of units that an analyst may be charged; 0 revokes the permission."""
        self._change(
            account,
            "allow",
            checked_address("analyst", analyst),
            whole("quota", quota, low=0, high=MAX_UNITS),
        )

    def pause(self, account: str) -> None:
        """Stop all spending of an account.

        Recorded measurements stay readable.
        """
        self._change(account, "pause", True)

    def resume(self, account: str) -> None:
        """Resume the spending of a paused account."""
        self._change(account, "pause", False)

    def appoint(self, account: str, oracle: str) -> None:
        """Appoint another oracle for an account."""
        self._change(account, "appoint", checked_address("oracle", oracle))

    def offer(self, account: str, candidate: str | None) -> None:
        """Offer an account to another owner, who must take it; None withdraws the offer."""
        self._change(
            account, "offer", NOBODY if candidate is None else checked_address("candidate", candidate)
        )

    def take(self, account: str) -> None:
        """Become the owner of an account that was offered.

        The account keeps the name that its first owner gave it.
        """
        self._change(account, "take")

    def _change(self, account: str, function: str, *arguments: Any) -> None:
        self._terms(account)
        self._transact(function, account, self._dataset(account), *arguments)

    def _transact(self, function: str, account: str, *arguments: Any) -> Receipt | None:
        data = self._contract.artifact.encode(function, *arguments)
        try:
            return self._sender.transact(self._contract.address, data)
        except NodeUnavailable as error:
            raise CommitUnknown(f"{error}: whether {function} was written is not known") from error
        except TransactionRefused as refused:
            if cause(refused) == "nothing to change":
                return None
            if cause(refused) == "registered already":
                raise AccountConflict(f"account {account} is registered already") from refused
            if cause(refused) == "not the owner":
                raise LedgerError(f"account {account}: {self.address} is not its owner") from refused
            if cause(refused) == "not offered":
                raise LedgerError(f"account {account} was not offered to {self.address}") from refused
            raise

    def close(self) -> None:
        """Close the node's connections."""
        self._node.close()


def as_reading(account: str, key: str, answer: tuple[Any, ...] | None) -> Reading:
    """Convert an answer of the contract's view `recorded` to a reading."""
    requested, recorded, sums = answer or (0, 0, ())
    return Reading(account, key, recorded, tuple(sums) if recorded else (), requested - recorded)


def waiting_of(state: State, number: int) -> Waiting:
    """Return a waiting measurement with all the fields that a record must name."""
    one = state.measurements[number]
    under = state.keys[one.dataset, one.key]
    return Waiting(
        number, under.name, under.question, under.grid, under.dimension, one.dataset, one.key, one.start,
        one.information, one.block, state.datasets[one.dataset].name,
    )  # fmt: skip


def _commitment(terms: Terms) -> bytes:
    """Commit to the terms of an account, with a fresh nonce.

    The terms are public: an account that `open` registers declares nothing else.
    """
    fields = {
        "cap": str(terms.cap), "minimum": str(terms.minimum), "name": terms.name,
        "neighbours": terms.neighbours.name, "subject": terms.subject, "unit": terms.unit.value,
    }  # fmt: skip
    return sha256(
        os.urandom(32) + json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    ).digest()
