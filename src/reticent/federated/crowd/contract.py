"""FederatedTask.vy and Lottery.vy as Python sees them: identifiers, proofs, and calls that change nothing.

Identifiers are hashes that anybody computes alike: a task is its manufacturer and text, a commitment all that
it binds, a proposal all that is proposed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from eth_abi.abi import encode
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from reticent.chain.contracts import Artifact
from reticent.chain.node import Node
from reticent.chain.view import ContractView, checked_address
from reticent.errors import ChainError, ParameterError, TransactionRefused
from reticent.federated.crowd.commitments import NEWEST, VERSIONS
from reticent.federated.crowd.lottery.suites import secp256k1
from reticent.federated.crowd.lottery.weierstrass import SECP256K1
from reticent.federated.crowd.terms import Prices, Terms

MOST_CID = 64  # bytes
NOBODY = "0x" + "00" * 20
VOID = (1).to_bytes(32)  # the result of a round with too few updates

_ADDRESS = (1 << 160) - 1
_NONE = (1 << 256) - 1
_NUMBER = (1 << 64) - 1
_PROPOSAL = "(uint256,bytes32,uint256,uint256,uint256,uint256)"


@cache
def artifact(name: str = "FederatedTask", version: int = NEWEST) -> Artifact:
    """Return a compiled contract. All versions of FederatedTask have the calls and events of the newest."""
    file = name if version == NEWEST else f"{name}-v{version}"
    return Artifact.read(Path(__file__).parent / "contracts" / f"{file}.json")


class Status(IntEnum):
    """The stages of a task in the contract."""

    COLLECTING = 1
    WAITING = 2
    JUDGING = 3
    DECIDED = 4
    DISPUTED = 5
    APPEALING = 6
    DONE = 7
    CANCELLED = 8


class Progress(NamedTuple):
    """The stage of a task. `since` is its first block, or the block whose hash will be the seed."""

    status: Status
    round: int
    people: int
    tries: int
    since: int
    draw: int


@dataclass(frozen=True)
class Proposal:
    """A leader's proposal for the result of a round. Sets of customers are bits by index.

    Attributes:
        draw: Draw of the leader.
        model: keccak of the new model's CID.
        counted: updates that could be fetched.
        accepted: Counted updates that Multi-Krum accepts.
        low: Counted updates that are rejected and far out, or not in order.
        paid: Accepted updates above the norm floor.
    """

    draw: int
    model: bytes
    counted: int
    accepted: int
    low: int
    paid: int

    def words(self) -> tuple[Any, ...]:
        """Return the fields of the proposal in the order of the contract's struct."""
        return (self.draw, self.model, self.counted, self.accepted, self.low, self.paid)


class Seat(NamedTuple):
    """Seats of a miner in a draw: for whose proposal they voted, by rank, and whether that was settled."""

    seats: int
    voted: tuple[bool, bool]
    is_done: bool


class Miner(NamedTuple):
    """A stake: units, since which block, until which (0: on), and until which it is locked."""

    units: int
    since: int
    left: int
    locked: int


class DrawState(NamedTuple):
    """A draw: its seed, the stake of all, the seed's block, seats taken, votes and leaders by rank."""

    seed: bytes
    stake: int
    block: int
    seats: int
    votes: tuple[int, int]
    leaders: tuple[str, str]
    proposals: tuple[bytes, bytes]


def task_id(manufacturer: str, text: bytes) -> bytes:
    """The identifier of the task that a manufacturer posts with the text of this CID."""
    return keccak(encode(["address", "bytes32"], [manufacturer, keccak(text)]))


def commitment(task: bytes, number: int, customer: str, cid: bytes, key: bytes) -> bytes:
    """Return the commitment of a customer to an update of round `number`; `key` opens the update's file."""
    kinds = ["bytes32", "uint256", "address", "bytes32", "bytes32"]
    return keccak(encode(kinds, [task, number, customer, keccak(cid), key]))


def admission(chain_id: int, contract: str, task: bytes, customer: str) -> bytes:
    """Return the hash that the gate of a task signs to admit a customer."""
    return keccak(encode(["uint256", "address", "bytes32", "address"], [chain_id, contract, task, customer]))


def alpha(chain_id: int, contract: str, task: bytes, number: int, draw: int, seed: bytes) -> bytes:
    """Return the VRF input of the lot in round `number`: the chain fixes it and nobody chooses it."""
    kinds = ["uint256", "address", "bytes32", "uint256", "uint256", "bytes32"]
    return keccak(encode(kinds, [chain_id, contract, task, number, draw, seed]))


def proposal_id(task: bytes, number: int, proposal: Proposal) -> bytes:
    """The hash of a proposal, which votes name."""
    return keccak(encode(["bytes32", "uint256", _PROPOSAL], [task, number, proposal.words()]))


def chain_proof(
    public: bytes, alpha: bytes, proof: bytes
) -> tuple[tuple[int, int], tuple[Any, ...], tuple[int, ...]]:
    """Return a proof on secp256k1 as the contracts take it: the key's point, the proof with helpers, roots.

    There is a root for each try to put alpha onto the curve: the even y of x, or, where x has none, the even
    root of -(x^3 + 7), which shows that.

    Raises:
        ParameterError: the proof is wrong for this key and alpha.
    """
    vrf = secp256k1()
    steps = vrf.steps(public, alpha, proof)
    if steps is None:
        raise ParameterError("proof must be right for the key and alpha")
    point = vrf.group.coordinates
    ours = (point(steps.gamma), steps.c, steps.s)
    told = (point(steps.u), point(steps.s_h), point(steps.c_gamma), point(steps.v))
    return point(public), (*ours, *told), _roots(public, alpha)


def proven_output(point: Any, alpha: bytes, proof: Any, roots: Any) -> bytes | None:
    """The output of a proof as `chain_proof` gives it; None if any part of it is not as it must be."""
    gamma, c, s, *told = proof
    try:
        public, pi = compressed(point), compressed(gamma) + c.to_bytes(16) + s.to_bytes(32)
        right = chain_proof(public, alpha, pi)
    except (OverflowError, ValueError):  # no numbers of this size, no point, a wrong proof
        return None
    same = (tuple(point), (tuple(gamma), c, s, *(tuple(one) for one in told)), tuple(roots))
    return secp256k1().output(pi) if same == right else None


def compressed(point: tuple[int, int]) -> bytes:
    """Return the compressed encoding of a point, in 33 bytes."""
    return bytes([2 + point[1] % 2]) + point[0].to_bytes(32)


def _roots(public: bytes, alpha: bytes) -> tuple[int, ...]:
    p, found = SECP256K1.p, []
    for x in secp256k1().tries(public, alpha):
        square = (x**3 + 7) % p
        root = pow(square, (p + 1) // 4, p)  # of the square or, if it has none, of its negative
        found.append(root if root % 2 == 0 else p - root)
        if root * root % p == square:
            break
    return tuple(found)


class TaskContract(ContractView):
    """FederatedTask at an address, with the Lottery that it asks. `version` says which one is there.

    Raises:
        WrongChain: there is another contract, or none.
    """

    def __init__(self, node: Node, address: str) -> None:
        code = node.code(checked_address("contract", address))
        known = [one for one in reversed(VERSIONS) if artifact(version=one).runtime == code]
        self.version = known[0] if known else NEWEST
        super().__init__(node, address, artifact(version=self.version))
        self.lottery = to_checksum_address(self._one("lottery"))
        artifact("Lottery").check(node, self.lottery)

    def _one(self, function: str, *arguments: Any, block: int | str = "latest") -> Any:
        answer = self.call(function, *arguments, block=block)
        if answer is None:
            raise ChainError(f"there is no contract at {self.address} in block {block}")
        return answer[0]

    def stake_unit(self, *, block: int | str = "latest") -> int:
        """Return the wei of one unit of a miner's stake."""
        return int(self._one("stake_unit", block=block))

    def progress(self, task: bytes, *, block: int | str = "latest") -> Progress | None:
        """Return the stage of a task; None if there is no such task."""
        try:
            status, *others = self._one("progress", task, block=block)
        except TransactionRefused as refusal:
            if cause(refusal) != "no such task":
                raise
            return None
        return Progress(Status(status), *others)

    def pool(self, task: bytes, *, block: int | str = "latest") -> int:
        """Return the amount that is left in a task's pool."""
        return int(self._one("tasks", task, block=block)[6])

    def draw(self, number: int, *, block: int | str = "latest") -> DrawState:
        """A draw by its number."""
        seed, body, first, second, proposals = self._one("draws", number, block=block)
        return DrawState(
            seed,
            body & _NUMBER,
            body >> 160,
            body >> 64 & 0xFFFFFFFF,
            (body >> 96 & 0xFFFFFFFF, body >> 128 & 0xFFFFFFFF),
            (_address_of(first), _address_of(second)),
            (proposals[0], proposals[1]),
        )

    def seat(self, draw: int, miner: str, *, block: int | str = "latest") -> Seat:
        """The seats of a miner in a draw."""
        word = int(self._one("seats", draw, miner, block=block))
        return Seat(word & 0xFFFFFFFF, (bool(word >> 32 & 1), bool(word >> 33 & 1)), bool(word >> 34))

    def miner(self, who: str, *, block: int | str = "latest") -> Miner | None:
        """The stake of a miner; None if there is none."""
        word = int(self._one("miners", who, block=block))
        found = Miner(*(word >> place & _NUMBER for place in (0, 64, 128, 192)))
        return found if found.units else None

    def reputation(self, manufacturer: str, customer: str, *, block: int | str = "latest") -> int | None:
        """Return the reputation of a customer; None if the customer never applied to the manufacturer."""
        word = int(self._one("reputations", manufacturer, customer, block=block))
        return word & 0xFF if word else None

    def owed(self, who: str, token: str = NOBODY, *, block: int | str = "latest") -> int:
        """Return the amount that an address may withdraw, in coin or a token."""
        return int(self._one("owed", token, who, block=block))

    def change_before(self, fixed: int) -> int:
        """Return the number of the last change of stakes before a block (for `seed`), by bisection."""
        low, high = 0, int(self._one("changes"))
        while low < high:
            middle = (low + high + 1) // 2
            if int(self._one("totals", middle)) >> 64 < fixed:
                low = middle
            else:
                high = middle - 1
        return low


def post_call(
    text: bytes, model: bytes, terms: Terms, prices: Prices, *, token: str = NOBODY, gate: str = NOBODY
) -> bytes:
    """The data of a call of `post`."""
    for field, given in (("text", text), ("model", model)):
        if not isinstance(given, bytes) or not 0 < len(given) <= MOST_CID:
            raise ParameterError(f"{field} must be a CID of 1 to {MOST_CID} bytes")
    return artifact().encode("post", text, model, terms.words(), prices.words(), token, gate)


def creation(lottery: str, stake_unit_wei: int, version: int = NEWEST) -> bytes:
    """Return the data that makes the contract, for the Lottery at an address."""
    return artifact(version=version).creation + encode(["address", "uint256"], [lottery, stake_unit_wei])


def cause(refusal: TransactionRefused) -> str:
    """Return the contract's reason for a refusal, without the prefix of its name."""
    return refusal.reason.removeprefix("crowd: ").removeprefix("lottery: ")


def _address_of(word: int) -> str:
    """Return the address in a leader's packed word; NOBODY where no leader has been seated."""
    return NOBODY if word == _NONE else str(to_checksum_address((word & _ADDRESS).to_bytes(20)))
