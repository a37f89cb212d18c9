"""FederatedTask and Lottery on pyrevm, people with keys, a token, and what they would sign."""

from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256

from eth_abi import encode
from eth_keys import keys
from pyrevm import EVM, BlockEnv

from reticent.federated.crowd.contract import admission, alpha, chain_proof, commitment, task_id
from reticent.federated.crowd.lottery import secp256k1
from reticent.federated.crowd.terms import Prices, Terms, pool

from .erc20 import token_artifact
from .revm import NOBODY, OWNER, Contract, artifact

UNIT = 10**15  # wei of a unit of stake
CHAIN = 1
MODEL = b"\x01\x55\x12\x20" + b"\x11" * 32
TERMS = Terms(
    rounds=2, people=6, f=0, expected=4, least=1, draws=3, commit_blocks=5, reveal_blocks=4,
    seat_blocks=4, turn_blocks=4, dispute_blocks=4, claim_blocks=6,
)  # fmt: skip
PRICES = Prices(unit=1000, bonus=300, leader_fee=5000, committee_fee=7001, deposit=10**14)


@dataclass(frozen=True)
class Person:
    """Somebody with a key."""

    name: str

    @property
    def secret(self):
        return sha256(self.name.encode()).digest()

    @property
    def address(self):
        return _address(self.name)


@cache
def _address(name):
    return keys.PrivateKey(sha256(name.encode()).digest()).public_key.to_checksum_address().lower()


MAKER, RIVAL, GATE = Person("manufacturer"), Person("rival"), Person("gate")
CUSTOMERS = [Person(f"customer {number}") for number in range(6)]
MINERS = [Person(f"miner {number}") for number in range(5)]
EVERYBODY = [MAKER, RIVAL, GATE, *CUSTOMERS, *MINERS]
WEALTH = 10**30


class Crowd(Contract):
    """Both contracts and a token on one machine. The block is where the caller puts it."""

    def __init__(self, what=None, lottery=None):
        self.artifact = what or artifact("FederatedTask")
        self.block = 10
        self._evm = EVM()
        for person in EVERYBODY:
            self._evm.set_balance(person.address, WEALTH)
        self._evm.set_balance(OWNER, WEALTH)
        self._evm.set_block_env(BlockEnv(number=self.block))
        self.lottery = self._evm.deploy(OWNER, (lottery or artifact("Lottery")).creation)
        made = self.artifact.creation + encode(["address", "uint256"], [self.lottery, UNIT])
        self.address = self._evm.deploy(OWNER, made)
        self.token = self._evm.deploy(OWNER, token_artifact().creation)

    def call(self, sender, function, *arguments, worth=0):
        data, outputs = self.data(function, *arguments), self.artifact.calls[function].outputs
        return self.raw(sender.address if isinstance(sender, Person) else sender, data, outputs, worth)

    def raw(self, sender, data, outputs=(), worth=0):
        """As usual, but logs of the token are not this contract's."""
        return super().raw(sender, data, outputs, worth)

    def token_call(self, sender, function, *arguments):
        call = token_artifact().calls[function]
        data = call.selector + encode(call.inputs, arguments)
        back = self._evm.message_call(sender.address, self.token, data)
        return int.from_bytes(back) if back else None

    def blockhash(self, number):
        return bytes(self._evm.block_hash(number))

    def balance(self):
        return self._evm.get_balance(self.address)

    def snapshot(self):
        return self._evm.snapshot(), self.block

    def restore(self, kept):
        self._evm.revert(kept[0])
        self.block = kept[1]


def text_of(name):
    return b"\x01\x55\x12\x20" + sha256(name.encode()).digest()


def post(
    crowd, *, maker=MAKER, name="task", terms=TERMS, prices=PRICES, token=NOBODY, gate=NOBODY, **changes
):
    """Post a task; return its identifier."""
    terms = replace(terms, **changes)
    worth = pool(terms, prices)
    if token != NOBODY:
        crowd.token_call(maker, "mint", maker.address, worth)
        crowd.token_call(maker, "approve", crowd.address, worth)
    words = (text_of(name), MODEL, terms.words(), prices.words(), token, gate)
    return crowd.call(maker, "post", *words, worth=0 if token != NOBODY else worth).value


def task_of(maker, name):
    return task_id(maker.address, text_of(name))


def admitted(crowd, task, customer, gate=GATE):
    """What the gate signs for a customer."""
    signed = keys.PrivateKey(gate.secret).sign_msg_hash(
        admission(CHAIN, crowd.address, task, customer.address)
    )
    return signed.v + 27, signed.r, signed.s


def update_of(person, number):
    """CID and key of somebody's update of a round."""
    return text_of(f"{person.name} in {number}"), sha256(f"key of {person.name}, {number}".encode()).digest()


def bound(task, number, person):
    cid, key = update_of(person, number)
    return commitment(task, number, person.address, cid, key)


@cache
def proof_of(person, given):
    """Point, proof and roots for a contract, and output."""
    vrf = secp256k1()
    public, proof = vrf.public_key(person.secret), vrf.prove(person.secret, given)
    return *chain_proof(public, given, proof), vrf.output(proof)


def lot(crowd, task, number, draw, seed, person):
    return proof_of(person, alpha(CHAIN, crowd.address, task, number, draw, seed))
