"""T19 on a chain: whatever is called, by whomever, in whatever order, deposits equal payments and refunds."""

import json
import random
from hashlib import sha256

import pytest
from eth_abi import encode
from pyrevm import EVM, AccountInfo

from reticent.chain import compile as compiling
from reticent.market.batches import Batch, Payment

from . import escrow
from .escrow import (
    ATTACKER,
    FOLDER,
    KEEPS_A_PART,
    SAYS_NO,
    SAYS_NOTHING,
    START,
    TOKEN,
    On,
    World,
    reason_of,
    walk,
)
from .revm import ANNA, BRUNO, NOBODY, ORACLE, OWNER, PEOPLE, STRANGER, Refused

PLANTED = {
    "claimed twice": ("    self.words[escrow][root][place >> 8] = word | bit\n", ""),
    "anybody settles": ("msg.sender == self.escrows[escrow].settler,", "True,"),
    "a batch pays more than its sum": ("assert left > amount,", "assert left > 0,"),
    "settled after the deadline": ("block.timestamp < self.escrows[escrow].deadline,", "True,"),
    "taken back before the deadline": ("block.timestamp >= self.escrows[escrow].deadline,", "True,"),
    "taken back twice": ("    self.escrows[escrow].free = 0\n", ""),
    "settled and taken back": ("    self.escrows[escrow].free = free - amount\n", ""),
    "more than the deposit": (
        'amount <= free, "escrow: more than the deposit"\n    self.escrows[escrow].free = free - amount',
        'True, "x"\n    self.escrows[escrow].free = unsafe_sub(free, amount)',
    ),
    "settled twice": ("self.left[escrow][root] == 0,", "True,"),
    "a deposit that did not come": ("msg.value == amount,", "True,"),
    "paid to whoever claims": ("self._pay(payee, amount)", "self._pay(msg.sender, amount)"),
    "any amount": ("abi_encode(salt, place, payee, amount)", "abi_encode(salt, place, payee)"),
    "batches of all escrows are one": (
        "left: uint256 = self.left[escrow][root]",
        "left: uint256 = self.left[0][root]",
    ),
}  # fmt: skip
QUICK = list(PLANTED)[:4]


@pytest.mark.parametrize("token", [None, TOKEN, SAYS_NOTHING], ids=["coin", "token", "token without answers"])
def test_the_contract_does_what_the_model_does(token):
    assert walk(None, calls=1_200, seed=3, token=token) == 1_200


@pytest.mark.slow
@pytest.mark.parametrize("token", [None, TOKEN], ids=["coin", "token"])
def test_a_walk_of_50_000_calls(token):
    assert walk(None, calls=50_000, seed=4, token=token) == 50_000


@pytest.mark.parametrize(
    "bug", [bug if bug in QUICK else pytest.param(bug, marks=pytest.mark.slow) for bug in PLANTED]
)
def test_planted_bugs_are_found(bug):
    with pytest.raises(AssertionError):
        walk(escrow.planted(PLANTED[bug]), calls=6_000, seed=3)


def test_a_token_that_keeps_a_part_is_refused():
    walk(None, calls=200, seed=5, token=KEEPS_A_PART)


def test_planted_a_deposit_that_is_not_looked_at_is_found():
    careless = escrow.planted(("== before + amount,", ">= before,"))
    with pytest.raises(AssertionError):
        walk(careless, calls=200, seed=5, token=KEEPS_A_PART)


def test_a_token_that_says_no_pays_nobody_and_marks_nothing():
    world = World(token=TOKEN, chance=random.Random(1))
    batch = Batch((Payment(ANNA, 5, bytes(32)),))
    world.contract.call(OWNER, "open", ORACLE, START + 9, 5)
    world.contract.call(ORACLE, "settle", 0, batch.root, 5)
    world.evm.insert_account_info(world.token.address, _code(world, SAYS_NO))
    with pytest.raises(Refused, match="the token refused"):
        world.contract.call(BRUNO, "claim", 0, bytes(32), 0, ANNA, 5, [])
    assert not world.contract.read("claimed", 0, batch.root, 0)


def _code(world, source):
    return AccountInfo(nonce=1, code=escrow.of_source(source).runtime)


def robbed(what):
    """What a payee gets who claims again while she is paid: 5 of 20."""
    evm = EVM()
    for person in PEOPLE:
        evm.set_balance(person, 100)
    contract = On(evm, what, encode(["address"], [NOBODY]))
    attacker = On(evm, escrow.of_source(ATTACKER))
    batch = Batch((Payment(attacker.address, 5, bytes(32)), Payment(ANNA, 15, bytes(32))))
    contract.call(OWNER, "open", ORACLE, START + 9, 20, worth=20)
    contract.call(ORACLE, "settle", 0, batch.root, 20)
    told = (0, bytes(32), 0, attacker.address, 5, batch.proof(0))
    attacker.call(STRANGER, "arm", contract.address, contract.data("claim", *told), 3)
    contract.call(STRANGER, "claim", *told)
    return evm.get_balance(attacker.address)


def test_who_is_called_back_finds_it_done():
    assert robbed(escrow.artifact()) == 5


def test_planted_paying_before_it_is_noted_is_found():
    noted = "    self.words[escrow][root][place >> 8] = word | bit\n"
    careless = escrow.planted(
        (noted, "    self._pay(payee, amount)\n" + noted),
        ("place=place, amount=amount)\n    self._pay(payee, amount)\n", "place=place, amount=amount)\n"),
    )  # fmt: skip
    assert robbed(careless) > 5


def test_what_is_committed_is_what_the_compiler_makes(capsys):
    assert compiling.main([str(FOLDER), "--check"]) == 0
    assert capsys.readouterr().out == ""
    found = json.loads((FOLDER / "MarketEscrow.json").read_text())
    assert found["source_sha256"] == sha256(escrow.SOURCE.encode()).hexdigest()
    assert len(escrow.artifact().runtime) <= 24_576


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda c: c.call(OWNER, "open", ORACLE, START + 9, 5, worth=4), "amount did not come"),
        (lambda c: c.call(OWNER, "settle", 7, bytes(32), 5), "not the settler"),
        (lambda c: c.call(OWNER, "refund", 7), "unknown"),
        (lambda c: c.call(OWNER, "claim", 7, bytes(32), 0, ANNA, 5, []), "not in a batch"),
        (lambda c: c.call(OWNER, "claim", 7, bytes(32), 1, ANNA, 5, []), "no such place"),
    ],
)
def test_refusals_say_why(call, why):
    world = World(chance=random.Random(2))
    with pytest.raises(Refused) as refusal:
        call(world.contract)
    assert reason_of(refusal.value) == why
    world.check()
