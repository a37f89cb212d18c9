"""MarketEscrow.vy as Python sees it: deposits, batches, claims and refunds on an Ethereum chain.

An escrow on a chain is for parties who do not trust the operator with money. The operator is the settler: it
decides who is paid, from the same log of sales, and the buyer trusts it with that, up to the deposit and the
deadline. Nobody can take what was settled, and a retry pays nobody twice: claims are marked in the contract,
batches are known by their root.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from eth_abi.abi import encode
from eth_utils.address import to_checksum_address

from reticent.arguments import whole
from reticent.chain.contracts import Artifact
from reticent.chain.node import Node, Receipt
from reticent.chain.sender import Sender
from reticent.chain.view import ContractView, checked_address
from reticent.errors import ChainError, ParameterError
from reticent.market.batches import DEPTH, MOST_AMOUNT, Batch

COIN = "0x" + "00" * 20
"""In place of a token's address: the coin of the chain."""


@cache
def artifact() -> Artifact:
    """Return the compiled contract."""
    return Artifact.read(Path(__file__).parent / "contracts" / "MarketEscrow.json")


def deployed(sender: Sender, token: str = COIN) -> str:
    """Deploy a contract for one token, or for the coin of the chain; its address."""
    made = sender.transact(None, artifact().creation + encode(["address"], [checked_address("token", token)]))
    if made.contract is None:
        raise ChainError("the node says of no contract that it was made")
    return to_checksum_address(made.contract)


@dataclass(frozen=True)
class Escrow:
    """A deposit in the escrow contract.

    Attributes:
        buyer: Address that gets back the money that was not settled.
        settler: Address that settles.
        deadline: Time from which on nothing is settled, in seconds since 1970.
        free: Amount that was neither settled nor taken back.
    """

    buyer: str
    settler: str
    deadline: int
    free: int


class EscrowContract(ContractView):
    """MarketEscrow at an address. It must be this version, made for this token.

    Args:
        node: Node through which the contract is read.
        address: Address of the contract.
        token: Token that the contract pays in; `COIN` for the coin of the chain.
    """

    def __init__(self, node: Node, address: str, token: str = COIN) -> None:
        self.token = checked_address("token", token)
        made_for = artifact().runtime + encode(["address"], [self.token])  # immutables follow the code
        super().__init__(node, address, replace(artifact(), runtime=made_for))

    def open(self, sender: Sender, *, settler: str, deadline: int, amount: int) -> int:
        """Deposit; the number of the escrow. A token must have been approved for the contract's address.

        Not idempotent: a sender with an outbox sends it once under a label of its own (`Sender.send`).
        """
        whole("amount", amount, low=1, high=MOST_AMOUNT)
        terms = checked_address("settler", settler), whole("deadline", deadline, low=0), amount
        value = amount if self.token == COIN else 0
        receipt = sender.transact(self.address, self.artifact.encode("open", *terms), value_wei=value)
        for log in receipt.logs:
            event = self.artifact.event(log) if log.address.lower() == self.address.lower() else None
            if event is not None:
                return int(event.fields["escrow"])
        raise ChainError(f"transaction {receipt.transaction} opened no escrow")

    def escrow(self, number: int) -> Escrow:
        """Return the present state of an escrow."""
        answer = self.call("escrows", whole("number", number, low=0))
        if answer is None or answer[0][0] == COIN:
            raise ParameterError(f"number must be that of an escrow, got {number}")
        buyer, settler, deadline, free = answer[0]
        return Escrow(to_checksum_address(buyer), to_checksum_address(settler), deadline, free)

    def settle(self, sender: Sender, number: int, batch: Batch) -> Receipt | None:
        """Write the root of a batch; None if it is there already."""
        if self.left(number, batch.root) is not None:
            return None
        data = self.artifact.encode("settle", number, batch.root, batch.total)
        return sender.transact(self.address, data)

    def left(self, number: int, root: bytes) -> int | None:
        """Return the amount of a batch that is not claimed yet; None if there is no such batch."""
        answer = self.call("left", number, root)
        return None if answer is None or answer[0] == 0 else int(answer[0]) - 1

    def claim(self, sender: Sender, number: int, batch: Batch, place: int) -> Receipt | None:
        """Pay one payment of a batch to its payee; None if it was paid already."""
        if self.claimed(number, batch.root, place):
            return None
        proof, payment = batch.proof(place), batch.payments[place]
        if len(proof) > DEPTH:
            raise ParameterError(f"payments must be at most 2 to the {DEPTH}")
        told = number, payment.salt, place, payment.payee, payment.amount, proof
        return sender.transact(self.address, self.artifact.encode("claim", *told))

    def claimed(self, number: int, root: bytes, place: int) -> bool:
        """Whether a payment was claimed."""
        answer = self.call("claimed", number, root, place)
        return answer is not None and bool(answer[0])

    def refund(self, sender: Sender, number: int) -> Receipt | None:
        """Return to the buyer what was not settled until the deadline; None if nothing is left."""
        if self.escrow(number).free == 0:
            return None
        return sender.transact(self.address, self.artifact.encode("refund", number))
