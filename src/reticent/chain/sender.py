"""Transactions of one key: own nonces, fees with a margin, identical bytes again, waiting for confirmations.

A transaction is waited for until enough blocks lie on top of its own. If a reorganisation or a node drops it,
the same signed bytes are broadcast again. Only a nonce that another transaction took, or a fee that became
too low, makes it be signed anew, with the same destination and data; an earlier version may still be the one
that gets into a block, so all are looked for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import rlp  # type: ignore[import-untyped]
from eth_utils.address import is_address, to_checksum_address

from reticent.arguments import real, whole
from reticent.chain.keys import Key
from reticent.chain.node import Node, Receipt, as_number, as_receipt
from reticent.chain.outbox import Outbox, Sent
from reticent.errors import ChainError, NodeUnavailable, NotConfirmed, ParameterError, TransactionRefused

_GAS_MARGIN = 1.25  # on what a node estimates
_FEE_MARGIN = 2  # on the base fee: six full blocks may come first
_BUMP = 1.25  # of a fee that became too low; nodes ask for an eighth at least
_FEES_KEPT_S = 2.0
_TOGETHER = 100  # transactions in one message to the node
_TRIES = 20  # to get a nonce that a rival with the same key has not taken, or a fee that suffices
_REMEMBERED = 256  # own transactions, to fill a gap that a reorganisation left before a later one
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.002, 1.0
_AGAIN_AFTER_S = 5.0  # a transaction in no block is broadcast again

# What nodes say (geth, anvil, Erigon, Besu, Nethermind), without blanks.
_KNOWN = ("alreadyknown", "alreadyimported", "knowntransaction")
_TAKEN = (
    "noncetoolow",
    "nonceistoolow",
    "oldnonce",
    "replacementtransactionunderpriced",
    "replacementnotallowed",
)
_CHEAP = ("lessthanblockbasefee", "underpriced", "feetoolow", "gaspricetoolow", "gaspricebelow")


@dataclass(frozen=True)
class _Fees:
    """What a unit of gas may cost, in wei; `tip` is None on chains without EIP-1559."""

    most: int
    tip: int | None

    def fields(self) -> dict[str, int]:
        if self.tip is None:
            return {"gasPrice": self.most}
        return {"type": 2, "maxFeePerGas": self.most, "maxPriorityFeePerGas": self.tip}


class Sender:
    """What one key sends through one node. Threads may share it; processes that share a key take turns.

    Args:
        node: where transactions go.
        key: signs them.
        confirmations: how many blocks must lie on top of a transaction's own before it counts.
        outbox: keeps labelled transactions before they are broadcast.
        timeout_s: how long to wait for confirmations.
        turn: is entered to give out nonces, if other processes send with the same key. Without, a nonce that
            another took is found out when the node refuses it.
    """

    def __init__(
        self,
        node: Node,
        key: Key,
        *,
        confirmations: int = 0,
        outbox: Outbox | None = None,
        timeout_s: float = 600.0,
        turn: Callable[[], AbstractContextManager[None]] | None = None,
    ) -> None:
        self.node, self.address = node, key.address
        self.confirmations = whole("confirmations", confirmations, low=0, high=10_000)
        self._key, self._outbox = key, outbox
        self._timeout_s = real("timeout_s", timeout_s, low=0)
        self._guard, self._turn = threading.Lock(), turn  # of what follows
        self._nonce: int | None = None  # the next; None asks the node
        self._fees: tuple[float, _Fees] | None = None
        self._versions: dict[str, list[Sent]] = {}  # of what was signed anew, by the hash of each version
        self._recent: dict[int, Sent] = {}  # by nonce

    # Sending

    def send(self, to: str | None, data: bytes, *, gas: int | None = None, label: str = "") -> Sent:
        """Sign and broadcast; with a label, what was signed before under it is broadcast again instead.

        Args:
            to: the contract; None makes a new one.
            data: of the call.
            gas: the limit; without, the node estimates it, and a call that would revert is refused here.
            label: names the transaction in the outbox.

        Raises:
            TransactionRefused: the contract or the node refused it: nothing was sent.
        """
        return self.send_many([(to, data)], gas=gas, labels=[label])[0]

    def send_many(
        self,
        calls: Sequence[tuple[str | None, bytes]],
        *,
        gas: int | None = None,
        labels: Sequence[str] | None = None,
    ) -> list[Sent]:
        """Sign and broadcast several transactions, in this order, in few messages.

        Raises:
            TransactionRefused: one was refused. If the node did it, others may have been sent.
        """
        names = list(labels) if labels is not None else [""] * len(calls)
        with self._alone():
            try:
                signed = [
                    self._earlier(to, data, label) or self._signed(to, data, gas, label)
                    for (to, data), label in zip(calls, names, strict=True)
                ]
                return self._broadcast(signed)
            except BaseException:
                self._nonce = None  # some that were given out may not have been used
                raise

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Be the only one who gives out nonces of the key."""
        with self._guard:
            if self._turn is None:
                yield
                return
            with self._turn():
                self._nonce = None  # the node knows what others sent
                yield

    def _earlier(self, to: str | None, data: bytes, label: str) -> Sent | None:
        found = self._outbox.find(label) if self._outbox is not None and label else None
        if found is not None and (found.destination, found.data) != (_address(to), data):
            raise ChainError(f"something else was signed before under the label {label}")
        if found is not None and to is not None and self._is_spent(found):
            self.node.call(to, data, sender=self.address)  # if it is still refused, nothing is sent
            return None
        return found

    def _is_spent(self, sent: Sent) -> bool:
        """Whether it came too early: its contract reverted, and its nonce is used up."""
        receipt = self.node.receipt(sent.hash)
        return receipt is not None and not receipt.succeeded

    def _signed(
        self,
        to: str | None,
        data: bytes,
        gas: int | None,
        label: str,
        *,
        nonce: int | None = None,
        fees: _Fees | None = None,
    ) -> Sent:
        """Sign, with a nonce of our own, and keep the bytes."""
        destination = _address(to)
        fees = fees or self._current_fees()
        limit = gas if gas is not None else self._estimated(to, data)
        if nonce is None:
            nonce = self._next_nonce()
        transaction: dict[str, Any] = {
            "chainId": self.node.chain_id,
            "nonce": nonce,
            "value": 0,
            "gas": limit,
            "data": data,
            **fees.fields(),
        }
        if destination:
            transaction["to"] = destination
        raw, identity = self._key.sign(transaction)
        sent = Sent(label, destination, data, identity, raw, nonce, fees.most)
        if self._outbox is not None and label:
            self._outbox.put(sent)
        return sent

    def _next_nonce(self) -> int:
        if self._nonce is None:
            self._nonce = as_number(self.node.rpc("eth_getTransactionCount", self.address, "pending"))
        self._nonce += 1
        return self._nonce - 1

    def _estimated(self, to: str | None, data: bytes) -> int:
        call = {"from": self.address, "data": "0x" + data.hex()} | ({} if to is None else {"to": to})
        return int(as_number(self.node.rpc("eth_estimateGas", call)) * _GAS_MARGIN)

    def _current_fees(self) -> _Fees:
        now = time.monotonic()
        if self._fees is None or now - self._fees[0] > _FEES_KEPT_S:
            base = self.node.block().base_fee
            if base is None:
                self._fees = now, _Fees(int(self._price() * _GAS_MARGIN), None)
            else:
                tip = self._tip(base)
                self._fees = now, _Fees(_FEE_MARGIN * base + tip, tip)
        return self._fees[1]

    def _price(self) -> int:
        return as_number(self.node.rpc("eth_gasPrice"))

    def _tip(self, base: int) -> int:
        try:
            return as_number(self.node.rpc("eth_maxPriorityFeePerGas"))
        except NodeUnavailable:
            raise
        except ChainError:  # a node without the method
            return max(0, self._price() - base)

    def _broadcast(self, signed: list[Sent]) -> list[Sent]:
        sent = []
        for start in range(0, len(signed), _TOGETHER):
            part = signed[start : start + _TOGETHER]
            sent += [
                self._accepted(one, answer) for one, answer in zip(part, self._announce(part), strict=True)
            ]
        return sent

    def _announce(self, signed: Sequence[Sent]) -> list[Any]:
        return self.node.rpc_many([("eth_sendRawTransaction", ["0x" + one.raw.hex()]) for one in signed])

    def _accepted(self, one: Sent, answer: Any) -> Sent:
        """What the node took: this, or the same signed anew if its nonce was taken or its fee too low."""
        for _ in range(_TRIES):
            if not isinstance(answer, ChainError) or _says(answer, _KNOWN):
                break
            if _says(answer, _TAKEN):
                self._nonce = None  # the node's count decides
                if self._is_held(one):
                    break
                one = self._replaced(one, self._signed_anew(one))
            elif _says(answer, _CHEAP):
                one = self._replaced(one, self._raised(one))
            else:
                raise TransactionRefused(str(answer)) from answer
            answer = self._announce([one])[0]
        else:
            raise TransactionRefused(f"no nonce or fee is accepted in {_TRIES} tries: {answer}")
        self._recent[one.nonce] = one
        for nonce in list(self._recent)[:-_REMEMBERED]:
            del self._recent[nonce]
        return one

    def _is_held(self, sent: Sent) -> bool:
        """Whether the node has a version in a block or waiting for one."""
        asked = [("eth_getTransactionByHash", [one.hash]) for one in self._all_of(sent)]
        return any(isinstance(found, dict) for found in self.node.rpc_many(asked))

    def _signed_anew(self, sent: Sent) -> Sent:
        """With another nonce."""
        gas, _ = _gas_and_tip(sent.raw)  # an estimate would not see what is still on its way before it
        return self._signed(sent.destination or None, sent.data, gas, sent.label)

    def _raised(self, sent: Sent) -> Sent:
        """With a higher fee and the same nonce, so that one of the two counts at most."""
        self._fees = None
        now = self._current_fees()
        gas, tip = _gas_and_tip(sent.raw)
        most = max(now.most, int(sent.fee * _BUMP) + 1)
        fees = _Fees(most, None)
        if now.tip is not None:
            most = max(most, _FEE_MARGIN * self._price())  # it may know the next base fee
            fees = _Fees(most, min(most, max(now.tip, int(tip * _BUMP) + 1)))
        return self._signed(sent.destination or None, sent.data, gas, sent.label, nonce=sent.nonce, fees=fees)

    def _replaced(self, old: Sent, new: Sent) -> Sent:
        versions = self._all_of(old)
        versions.append(new)
        for one in versions:
            self._versions[one.hash] = versions
        return new

    def _all_of(self, sent: Sent) -> list[Sent]:
        return self._versions.get(sent.hash, [sent])

    # Waiting

    def wait(self, sent: Sent) -> Receipt:
        """The receipt of a transaction that is deep enough in the chain.

        Raises:
            TransactionRefused: it is in the chain, and its contract reverted.
            NotConfirmed: it is not deep enough in time.
        """
        found = self.wait_many([sent])[0]
        if isinstance(found, TransactionRefused):
            raise found
        return found

    def wait_many(self, sent: Sequence[Sent]) -> list[Receipt | TransactionRefused]:
        """The receipt of each of several transactions, or why its contract reverted. See `wait`."""
        found: dict[int, Receipt | TransactionRefused] = {}
        start = again = time.monotonic()
        pause = _SHORTEST_PAUSE_S
        while True:
            found |= self._confirmed({place: one for place, one in enumerate(sent) if place not in found})
            missing = [place for place in range(len(sent)) if place not in found]
            if not missing:
                return [found[place] for place in range(len(sent))]
            now = time.monotonic()
            if now - start > self._timeout_s:
                lacks = (
                    f"has no {self.confirmations} confirmations" if self.confirmations else "is in no block"
                )
                raise NotConfirmed(f"transaction {sent[missing[0]].hash} {lacks} after {self._timeout_s:g} s")
            if now - again > _AGAIN_AFTER_S:
                for place in missing:
                    if (refusal := self._send_again(sent[place])) is not None:
                        found[place] = refusal
                again = time.monotonic()
            time.sleep(pause)
            pause = min(_LONGEST_PAUSE_S, pause * 1.5)

    def transact(self, to: str | None, data: bytes, *, gas: int | None = None, label: str = "") -> Receipt:
        """Send, and wait."""
        return self.wait(self.send(to, data, gas=gas, label=label))

    def _confirmed(self, missing: dict[int, Sent]) -> dict[int, Receipt | TransactionRefused]:
        """What became of those that are deep enough, by place."""
        wanted = [(place, one) for place, sent in missing.items() for one in self._all_of(sent)]
        asked: list[tuple[str, list[Any]]] = [("eth_getTransactionReceipt", [one.hash]) for _, one in wanted]
        if self.confirmations:
            asked.append(("eth_blockNumber", []))
        answers = self._all_answers(asked)
        deepest = as_number(answers.pop()) - self.confirmations if self.confirmations else None
        deep = []
        for (place, one), answer in zip(wanted, answers, strict=True):
            receipt = as_receipt(answer)
            if receipt is not None and (deepest is None or receipt.block <= deepest):
                deep.append((place, one, receipt))
        if self.confirmations and deep:  # a reorganisation may have come between receipt and number
            blocks = [("eth_getBlockByNumber", [hex(receipt.block), False]) for _, _, receipt in deep]
            heads = self._all_answers(blocks)
            deep = [
                found
                for found, head in zip(deep, heads, strict=True)
                if isinstance(head, dict) and head.get("hash") == found[2].block_hash
            ]
        deep.sort(key=lambda found: found[2].succeeded)  # of several versions one that succeeded counts
        return {place: self._outcome(receipt, one) for place, one, receipt in deep}

    def _all_answers(self, asked: list[tuple[str, list[Any]]]) -> list[Any]:
        answers = self.node.rpc_many(asked)
        for answer in answers:
            if isinstance(answer, ChainError):
                raise answer
        return answers

    def _send_again(self, sent: Sent) -> TransactionRefused | None:
        """Broadcast what is in no block once more: the same bytes wherever they can still count.

        Returns:
            Why it can no longer be sent, if it cannot; None otherwise.
        """
        with self._alone():
            one = self._all_of(sent)[-1]
            # The count first: read after the receipts, a block in between would look like a taken nonce.
            used = as_number(self.node.rpc("eth_getTransactionCount", self.address, "latest"))
            if any(self.node.receipt(version.hash) is not None for version in self._all_of(sent)):
                return None
            taken = used > one.nonce
            try:
                if taken:
                    self._nonce = None
                    one = self._replaced(one, self._signed_anew(one))
                elif self._is_cheap(one):
                    one = self._replaced(one, self._raised(one))
                before = [self._recent[nonce] for nonce in range(used, one.nonce) if nonce in self._recent]
                self._accepted(one, self._announce([*before, one])[-1])
            except TransactionRefused as refusal:
                self._nonce = None
                return refusal if taken else None  # what was sent before may still get there
            except BaseException:
                self._nonce = None
                raise
            return None

    def _is_cheap(self, sent: Sent) -> bool:
        base = self.node.block().base_fee
        return sent.fee < (self._price() if base is None else base)

    def _outcome(self, receipt: Receipt, sent: Sent) -> Receipt | TransactionRefused:
        if receipt.succeeded:
            return receipt
        if receipt.gas == _gas_and_tip(sent.raw)[0]:
            return TransactionRefused("it ran out of gas in its block")
        for block in (receipt.block - 1, receipt.block):  # the reason is not in a receipt
            try:
                self.node.call(sent.destination, sent.data, sender=self.address, block=block)
            except TransactionRefused as refusal:
                return refusal
            except ChainError:  # a node that keeps no old states
                break
        return TransactionRefused("it reverted in its block")


def _says(answer: ChainError, words: Sequence[str]) -> bool:
    message = str(answer).lower().replace(" ", "").replace("unknown", "")
    return any(word in message for word in words)


def _address(to: str | None) -> str:
    """As the outbox keeps it: empty for a new contract."""
    if to is None:
        return ""
    if not is_address(to):
        raise ParameterError(f"an address must be 0x and 40 hexadecimal digits, got {str(to)[:60]}")
    return to_checksum_address(to)


def _gas_and_tip(raw: bytes) -> tuple[int, int]:
    """The gas limit of a signed transaction, and its tip; 0 without EIP-1559."""
    fields = rlp.decode(raw[1:] if raw[0] == 2 else raw)
    gas, tip = (fields[4], fields[2]) if raw[0] == 2 else (fields[2], b"")
    return int.from_bytes(gas, "big"), int.from_bytes(tip, "big")
