"""The sender of one key's transactions: nonces, fees below a ceiling, rebroadcasts, and confirmations.

A transaction is waited for until enough blocks lie on top of its own. If a reorganisation or a node drops it,
the same signed bytes are broadcast again. Only a nonce that cannot be reached or that another transaction
took, a fee that became too low, or a node that keeps it and does not move makes it be signed anew, with the
same destination and data; an earlier version may still be the one that gets into a block, so all are kept,
and looked for.

A node can lie. A unit of gas has a ceiling (`fees`). Versions with one nonce cost one fee together. Those
with other nonces may all get into blocks, so after a few of them the wait for the next one doubles: a lie
costs little however long it lasts, and the transactions that it stopped continue once it is over.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from eth_utils.address import is_address, to_checksum_address

from reticent.arguments import real, whole
from reticent.chain.fees import Ceiling, Fees, current_fees, gas_and_tip, price_of, raised_fees, value_of
from reticent.chain.keys import Key, signer_of
from reticent.chain.node import Node, Receipt, as_number, as_receipt
from reticent.chain.outbox import Outbox, Sent
from reticent.errors import (
    ChainError,
    FeeTooHigh,
    NodeUnavailable,
    NotConfirmed,
    ParameterError,
    TransactionRefused,
)

_GAS_MARGIN = 1.25  # on what a node estimates
_FEES_KEPT_S = 2.0
_TOGETHER = 100  # transactions in one message to the node
_TRIES = 20  # to get a nonce that a rival with the same key has not taken, or a fee that suffices
_NONCES = 8  # that one transaction is signed with at once; after that, each takes twice as long as the last
_NONCE_PAUSE_S = 60.0
_RIVAL_PAUSE_S = 0.002  # doubled with each nonce that a rival took
_MOST_WEI = (1 << 128) - 1  # far more than any chain has
_LARGEST_NUMBER = 1 << 53  # of a nonce or an amount of gas that may be true
_REMEMBERED = 256  # own transactions, to fill a gap that a reorganisation left before a later one
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.002, 1.0
_SHOWN_AFTER_S = 1.0  # a node may count a transaction before it shows its receipt
_AGAIN_AFTER_S = 5.0  # a transaction in no block is broadcast again
_STUCK_AFTER_S = 60.0  # and replaced, if it is the next

# What nodes say (geth, anvil, Erigon, Besu, Nethermind), without blanks.
_KNOWN = ("alreadyknown", "alreadyimported", "knowntransaction")
_TAKEN = (
    "noncetoolow",
    "nonceistoolow",
    "oldnonce",
    "replacementtransactionunderpriced",
    "replacementnotallowed",
)
_AHEAD = ("noncetoohigh", "nonceistoohigh", "nonceistoodistant", "distantinfuture", "noncegap", "futurenonce")
_CHEAP = ("lessthanblockbasefee", "underpriced", "feetoolow", "gaspricetoolow", "gaspricebelow")


class Sender:
    """A sender of one key's transactions through one node.

    Threads may share it; processes that share a key take turns.

    Args:
        node: Node to which transactions go.
        key: Key that signs transactions.
        confirmations: Number of blocks that must lie on top of a transaction's own before it counts.
        ceiling: Highest price of a unit of gas, whatever the node says.
        outbox: Store that keeps labelled transactions before they are broadcast.
        timeout_s: Seconds to wait for confirmations.
        turn: Context that is entered to give out nonces, if other processes send with the same key. Without
            it, a nonce that another process took is noticed when the node refuses it.
    """

    def __init__(
        self,
        node: Node,
        key: Key,
        *,
        confirmations: int = 0,
        ceiling: Ceiling | None = None,
        outbox: Outbox | None = None,
        timeout_s: float = 600.0,
        turn: Callable[[], AbstractContextManager[None]] | None = None,
    ) -> None:
        self.node, self.address = node, key.address
        self.confirmations = whole("confirmations", confirmations, low=0, high=10_000)
        self._key, self._outbox = key, outbox
        self._ceiling = ceiling if ceiling is not None else Ceiling()
        self._timeout_s = real("timeout_s", timeout_s, low=0)
        self._guard, self._turn = threading.Lock(), turn  # of what follows
        self._nonce: int | None = None  # the next; None asks the node
        self._given: set[int] = set()  # nonces of what is about to be broadcast again
        self._fees: tuple[float, Fees] | None = None
        self._versions: dict[str, list[Sent]] = {}  # all of what was signed anew, by the hash of each
        self._recent: dict[int, Sent] = {}  # by nonce

    # Sending

    def send(
        self,
        to: str | None,
        data: bytes,
        *,
        gas: int | None = None,
        label: str = "",
        value_wei: int = 0,
        least_gas: int = 0,
    ) -> Sent:
        """Sign and broadcast a transaction, or broadcast again the one signed before under the label.

        Args:
            to: Address of the contract; None makes a new one.
            data: Data of the call.
            gas: Gas limit; without it, the node estimates it, and a call that would revert is refused here.
            label: Name of the transaction in the outbox.
            value_wei: Coin that goes with the transaction. A transaction signed with another nonce may come
                twice: use this only for contracts that refuse the second.
            least_gas: Lowest gas limit, whatever the node estimates: others may go first in the block and
                make the call dearer.

        Raises:
            TransactionRefused: The contract or the node refused the transaction: nothing was sent.
            FeeTooHigh: The chain asks for more than the ceiling: nothing was signed.
        """
        calls = [(to, data)]
        return self.send_many(calls, gas=gas, labels=[label], value_wei=value_wei, least_gas=least_gas)[0]

    def send_many(
        self,
        calls: Sequence[tuple[str | None, bytes]],
        *,
        gas: int | None = None,
        labels: Sequence[str] | None = None,
        value_wei: int = 0,
        least_gas: int = 0,
    ) -> list[Sent]:
        """Sign and broadcast several transactions, in this order, in few messages; the value goes with each.

        Raises:
            TransactionRefused: One transaction was refused. If the node did it, others may have been sent.
            ParameterError: The value is below 0, or more than a chain can hold.
        """
        whole("value_wei", value_wei, low=0, high=_MOST_WEI)
        names = list(labels) if labels is not None else [""] * len(calls)
        with self._alone():
            try:
                kept = [
                    self._kept(to, data, label, value_wei)
                    for (to, data), label in zip(calls, names, strict=True)
                ]
                earlier = [self._earlier(versions) if versions else None for versions in kept]
                signed = [
                    one or self._signed(to, data, gas, label, value_wei, least_gas=least_gas)
                    for (to, data), label, one in zip(calls, names, earlier, strict=True)
                ]
                self._given.clear()
                return self._broadcast(signed)
            except BaseException:
                self._nonce = None  # some that were given out may not have been used
                self._given.clear()
                raise

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Give the caller the exclusive right to give out nonces of the key."""
        with self._guard:
            if self._turn is None:
                yield
                return
            with self._turn():
                self._nonce = None  # the node knows what others sent
                yield

    def _kept(self, to: str | None, data: bytes, label: str, value_wei: int) -> list[Sent]:
        """Return the transactions signed before under a label."""
        versions = self._outbox.versions(label) if self._outbox is not None and label else []
        if versions:
            newest = versions[-1]
            before = newest.destination, newest.data, value_of(newest.raw)
            if before != (_address(to), data, value_wei):
                raise ChainError(f"something else was signed before under the label {label}")
            self._link(versions)
            if signer_of(newest.raw) == self.address:
                self._recent.setdefault(newest.nonce, newest)
        return versions

    def _earlier(self, versions: list[Sent]) -> Sent:
        """Return the transaction to broadcast among those signed before."""
        newest = versions[-1]
        # The counts first: read after the receipts, a block in between would look like a taken nonce.
        used, coming = self._counts()
        receipts = [self.node.receipt(one.hash) for one in versions]
        if any(one is not None and one.succeeded for one in receipts):
            return newest
        live = [one for one, receipt in zip(versions, receipts, strict=True) if receipt is None]
        if newest.destination and len(live) < len(versions):  # it came too early: its contract reverted
            self._tried(newest)  # if it still does, no more
        one = self._chosen(newest, live, used, coming)
        self._given.add(one.nonce)
        return one

    def _signed(
        self,
        to: str | None,
        data: bytes,
        gas: int | None,
        label: str,
        value_wei: int = 0,
        *,
        nonce: int | None = None,
        fees: Fees | None = None,
        least_gas: int = 0,
    ) -> Sent:
        """Sign a transaction, with a nonce of our own unless one is given, and keep the bytes."""
        destination = _address(to)
        fees = fees or self._current_fees()
        limit = gas if gas is not None else max(least_gas, self._estimated(to, data, value_wei))
        if nonce is None:
            nonce = self._next_nonce()
        transaction: dict[str, Any] = {
            "chainId": self.node.chain_id,
            "nonce": nonce,
            "value": value_wei,
            "gas": limit,
            "data": data,
            **fees.fields(),
        }
        if destination:
            transaction["to"] = destination
        raw, identity = self._key.sign(transaction)
        sent = Sent(label, destination, data, identity, raw, nonce, fees.most, int(time.time()))
        if self._outbox is not None and label:
            self._outbox.put(sent)
        return sent

    def _next_nonce(self) -> int:
        if self._nonce is None:
            self._nonce = self._counts()[1]
        while self._nonce in self._given:
            self._nonce += 1
        self._nonce += 1
        return self._nonce - 1

    def _counts(self) -> tuple[int, int]:
        """Return the nonce after those in blocks, and the nonce after those that the node holds, too."""
        tags = ("latest", "pending")
        answers = self._all_answers([("eth_getTransactionCount", [self.address, tag]) for tag in tags])
        used, coming = (_plausible("nonce", as_number(one)) for one in answers)
        return used, max(used, coming)

    def _tried(self, sent: Sent, block: int | str = "latest") -> None:
        """Run a transaction without sending it.

        Raises TransactionRefused if it reverts.
        """
        value = value_of(sent.raw)
        self.node.call(sent.destination, sent.data, sender=self.address, block=block, value_wei=value)

    def _estimated(self, to: str | None, data: bytes, value_wei: int) -> int:
        call = {"from": self.address, "data": "0x" + data.hex()} | ({} if to is None else {"to": to})
        if value_wei:
            call["value"] = hex(value_wei)
        found = _plausible("amount of gas", as_number(self.node.rpc("eth_estimateGas", call)))
        return int(found * _GAS_MARGIN)

    def _current_fees(self) -> Fees:
        now = time.monotonic()
        if self._fees is None or now - self._fees[0] > _FEES_KEPT_S:
            self._fees = now, current_fees(self.node, self._ceiling)
        return self._fees[1]

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
        """Return the accepted transaction, signed anew if its nonce was taken or its fee too low."""
        for _ in range(_TRIES):
            if not isinstance(answer, ChainError) or _says(answer, _KNOWN):
                break
            if _says(answer, _TAKEN) or _says(answer, _AHEAD):
                self._nonce = None  # the node's count decides
                if self._is_held(one) or (one == self._recent.get(one.nonce) and self._appears([one])):
                    break
                if not self._may_sign_anew(one):
                    raise TransactionRefused(f"{answer}, and it was signed with {_NONCES} nonces or more")
                self._step_back(one)
                one = self._signed_anew(one)
            elif _says(answer, _CHEAP):
                try:
                    one = self._raised(one)
                except FeeTooHigh as error:
                    raise TransactionRefused(f"{answer}, and {error}") from error
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
        """Return whether the node has a version of a transaction in a block or waiting for one."""
        asked = [("eth_getTransactionByHash", [one.hash]) for one in self._all_of(sent)]
        return any(isinstance(found, dict) for found in self.node.rpc_many(asked))

    def _appears(self, versions: Sequence[Sent]) -> bool:
        """Return whether a version whose nonce is counted appears in a block.

        If none does, another transaction took the nonce.
        """
        end, pause = time.monotonic() + _SHOWN_AFTER_S, _SHORTEST_PAUSE_S
        while all(self.node.receipt(one.hash) is None for one in versions):
            if time.monotonic() > end:
                return False
            time.sleep(pause)
            pause = min(_SHOWN_AFTER_S / 8, 2 * pause)
        return True

    def send_again(self, sent: Sent) -> None:
        """Broadcast a transaction that is in no block once more, with ours that must come before it.

        This is for callers that look at the chain instead of waiting: a reorganisation drops transactions
        that nobody asks for any more, and later ones wait for their nonces.

        Raises:
            TransactionRefused: The transaction can no longer be sent.
        """
        if (refusal := self._send_again(sent)) is not None:
            raise refusal

    # Signing anew

    def _chosen(self, sent: Sent, live: Sequence[Sent], used: int, coming: int) -> Sent:
        """Choose the version to broadcast now: the same bytes wherever they can still count.

        Args:
            sent: Version of the transaction.
            live: Versions that are in no block.
            used: Nonce after those in blocks.
            coming: Nonce after those that the node holds.
        """
        live = [one for one in live if signer_of(one.raw) == self.address]  # another key's may not count
        near = [
            one
            for one in live
            if one.nonce >= used and all(nonce in self._recent for nonce in range(coming, one.nonce))
        ]
        if near:
            one = min(near, key=lambda one: (one.nonce, -one.fee))
            return self._raised_or_same(one) if self._is_cheap(one) else one
        taken = [one for one in live if one.nonce < used]
        if (taken and self._appears(taken)) or not self._may_sign_anew(sent):
            return self._all_of(sent)[-1]
        self._nonce = None  # the node's count decides
        return self._signed_anew(sent)

    def _may_sign_anew(self, sent: Sent) -> bool:
        """Return whether a transaction may get one more nonce.

        A lying node must not make us pay for ever more of them.
        """
        began: dict[int, int] = {}  # when each nonce was first signed
        for one in self._all_of(sent):
            began.setdefault(one.nonce, one.signed)
        if len(began) < _NONCES:
            return True
        passed = abs(time.time() - max(began.values()))  # a clock that was set back must not stop it
        return passed >= _NONCE_PAUSE_S * 2.0 ** (len(began) - _NONCES)

    def _step_back(self, sent: Sent) -> None:
        """Wait a random time, so that a rival with the same key goes first sooner or later."""
        nonces = len({one.nonce for one in self._all_of(sent)})
        time.sleep(secrets.randbelow(1000) / 1000 * _RIVAL_PAUSE_S * 2**nonces)

    def _signed_anew(self, sent: Sent) -> Sent:
        """Sign a transaction again with another nonce."""
        gas, _ = gas_and_tip(sent.raw)  # an estimate would not see what is still on its way before it
        value, to = value_of(sent.raw), sent.destination or None
        return self._replaced(sent, self._signed(to, sent.data, gas, sent.label, value))

    def _raised(self, sent: Sent) -> Sent:
        """Sign a transaction again with a higher fee and the same nonce, so that at most one counts."""
        self._fees = None
        fees = raised_fees(self.node, self._ceiling, sent.raw, sent.fee)
        gas, _ = gas_and_tip(sent.raw)
        value, to = value_of(sent.raw), sent.destination or None
        new = self._signed(to, sent.data, gas, sent.label, value, nonce=sent.nonce, fees=fees)
        return self._replaced(sent, new)

    def _raised_or_same(self, sent: Sent) -> Sent:
        try:
            return self._raised(sent)
        except FeeTooHigh:  # it may still get in when the chain becomes cheaper
            return sent

    def _replaced(self, old: Sent, new: Sent) -> Sent:
        self._link([*self._all_of(old), new])
        return new

    def _link(self, versions: list[Sent]) -> None:
        for one in versions:
            self._versions[one.hash] = versions

    def _all_of(self, sent: Sent) -> list[Sent]:
        return self._versions.get(sent.hash, [sent])

    def _is_cheap(self, sent: Sent) -> bool:
        base = self.node.block().base_fee
        return sent.fee < (price_of(self.node) if base is None else base)

    # Waiting

    def wait(self, sent: Sent) -> Receipt:
        """Wait for the confirmations of a transaction, and return its receipt.

        Raises:
            TransactionRefused: The transaction is in the chain, and its contract reverted.
            NotConfirmed: The transaction does not have enough confirmations in time.
        """
        found = self.wait_many([sent])[0]
        if isinstance(found, TransactionRefused):
            raise found
        return found

    def wait_many(self, sent: Sequence[Sent]) -> list[Receipt | TransactionRefused]:
        """Return each transaction's receipt, or the reason why its contract reverted.

        See `wait`.
        """
        found: dict[int, Receipt | TransactionRefused] = {}
        start = again = stuck = time.monotonic()
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
                is_stuck = now - stuck > _STUCK_AFTER_S
                for place in missing:
                    if (refusal := self._send_again(sent[place], is_stuck=is_stuck)) is not None:
                        found[place] = refusal
                again = time.monotonic()
                stuck = again if is_stuck else stuck
            time.sleep(pause)
            pause = min(_LONGEST_PAUSE_S, pause * 1.5)

    def transact(
        self, to: str | None, data: bytes, *, gas: int | None = None, label: str = "", value_wei: int = 0
    ) -> Receipt:
        """Send a transaction, and wait for its confirmations."""
        return self.wait(self.send(to, data, gas=gas, label=label, value_wei=value_wei))

    def _confirmed(self, missing: dict[int, Sent]) -> dict[int, Receipt | TransactionRefused]:
        """Return the outcomes of the transactions that have enough confirmations, by place."""
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
        last = {place: (receipt, one) for place, one, receipt in deep}
        return {
            place: self._outcome(receipt, one)
            for place, (receipt, one) in last.items()
            if receipt.succeeded or not self._may_follow(one)
        }

    def _may_follow(self, reverted: Sent) -> bool:
        """Return whether a version signed after a reverted one may still get into a block, or has."""
        versions = self._all_of(reverted)
        later = versions[versions.index(reverted) + 1 :]
        if not later:
            return False
        used, _ = self._counts()  # first, see `_earlier`
        return any(one.nonce >= used or self.node.receipt(one.hash) is not None for one in later)

    def _all_answers(self, asked: list[tuple[str, list[Any]]]) -> list[Any]:
        answers = self.node.rpc_many(asked)
        for answer in answers:
            if isinstance(answer, ChainError):
                raise answer
        return answers

    def _send_again(self, sent: Sent, *, is_stuck: bool = False) -> TransactionRefused | None:
        """Broadcast a transaction that is in no block once more: the same bytes if they can still count.

        Args:
            sent: Version of the transaction.
            is_stuck: True if the transaction has been the next for so long that it must be replaced.

        Returns:
            The reason why the transaction can no longer be sent, if it cannot; None otherwise.
        """
        with self._alone():
            versions = self._all_of(sent)
            used, coming = self._counts()  # first, see there
            if any(self.node.receipt(one.hash) is not None for one in versions):
                return None
            try:
                one = self._chosen(versions[-1], versions, used, coming)
                before = [self._recent[nonce] for nonce in range(used, one.nonce) if nonce in self._recent]
                answer = self._announce([*before, one])[-1]
                # A node that knows the next one and does not count it will never put it into a block.
                is_kept = isinstance(answer, ChainError) and _says(answer, _KNOWN) and coming == used
                if one.nonce == used and (is_stuck or is_kept) and one in versions:
                    one = self._raised_or_same(one)
                    answer = self._announce([one])[0]
                self._accepted(one, answer)
            except TransactionRefused as refusal:
                self._nonce = None
                # What was sent before may still get there, unless others took all its nonces.
                return refusal if all(one.nonce < used for one in versions) else None
            except FeeTooHigh:
                self._nonce = None
                return None
            except BaseException:
                self._nonce = None
                raise
            return None

    def _outcome(self, receipt: Receipt, sent: Sent) -> Receipt | TransactionRefused:
        if receipt.succeeded:
            return receipt
        if receipt.gas == gas_and_tip(sent.raw)[0]:
            return TransactionRefused("it ran out of gas in its block")
        for block in (receipt.block - 1, receipt.block):  # the reason is not in a receipt
            try:
                self._tried(sent, block)
            except TransactionRefused as refusal:
                return refusal
            except ChainError:  # a node that keeps no old states
                break
        return TransactionRefused("it reverted in its block")


def _says(answer: ChainError, words: Sequence[str]) -> bool:
    message = str(answer).lower().replace(" ", "").replace("unknown", "")
    return any(word in message for word in words)


def _address(to: str | None) -> str:
    """Return an address in the form of the outbox: empty for a new contract."""
    if to is None:
        return ""
    if not is_address(to):
        raise ParameterError(f"an address must be 0x and 40 hexadecimal digits, got {str(to)[:60]}")
    return to_checksum_address(to)


def _plausible(what: str, found: int) -> int:
    if found >= _LARGEST_NUMBER:
        raise NodeUnavailable(f"the node gave no {what} that can be true")
    return found
