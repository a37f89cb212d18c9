"""Batches and the escrow contract on a chain: proofs, retries that pay nobody twice, gas by receipts."""

import os
from contextlib import closing

import pytest
from eth_abi import encode

from reticent.chain.keys import Key
from reticent.chain.node import Node
from reticent.chain.sender import Sender
from reticent.errors import ParameterError, ParameterTypeError, TransactionRefused, WrongChain
from reticent.market.batches import Batch, Payment, root_of
from reticent.market.chain_escrow import COIN, EscrowContract, artifact, deployed

from ...contracts import escrow as machine

ANNA, BRUNO = "0x" + "a1" * 20, "0x" + "b2" * 20
FAR = 1 << 40


def payments(count):
    return Batch(tuple(Payment.drawn(f"0x{place + 1:040x}", place + 1) for place in range(count)))


# Batches


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 33])
def test_every_payment_has_a_proof(count):
    batch = payments(count)
    for place, payment in enumerate(batch.payments):
        assert root_of(payment, place, batch.proof(place)) == batch.root
    assert batch.total == count * (count + 1) // 2


def moves_the_root(change):
    """Whether a change of one payment moves the root."""
    before = payments(5)
    paid = list(before.payments)
    paid[3] = change(paid[3])
    return Batch(tuple(paid)).root != before.root


@pytest.mark.parametrize(
    "change",
    [
        lambda one: Payment(one.payee, one.amount + 1, one.salt),
        lambda one: Payment(ANNA, one.amount, one.salt),
        lambda one: Payment.drawn(one.payee, one.amount),
    ],
)
def test_the_root_holds_every_part(change):
    assert moves_the_root(change)


def test_planted_a_leaf_without_the_amount_is_caught(monkeypatch):
    from reticent.market import batches

    monkeypatch.setattr(
        Payment,
        "leaf",
        lambda self, place: batches.keccak(self.salt + place.to_bytes(32) + self.payee.encode()),
    )
    assert not moves_the_root(lambda one: Payment(one.payee, one.amount + 1, one.salt))


def test_the_same_payments_make_another_root_every_time():
    """Salts are drawn, so that nobody finds neighbours by trying a menu's levels."""
    assert payments(4).root != payments(4).root


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: Batch(()), "at least one"),
        (lambda: Payment.drawn("0x12", 1), "payee must be an address"),
        (lambda: Payment.drawn(ANNA, 0), "amount must be >= 1"),
        (lambda: Payment.drawn(ANNA, 1 << 256), "amount must be <="),
        (lambda: Payment.drawn(ANNA, 1.5), "amount must be a whole number"),
        (lambda: Payment(ANNA, 1, b"short"), "salt must be 32 bytes"),
        (lambda: payments(3).proof(3), "place must be <= 2"),
    ],
)
def test_bad_batches_name_their_rule(make, rule):
    with pytest.raises((ParameterError, ParameterTypeError), match=rule):
        make()


# On a chain


@pytest.fixture
def node(anvil):
    with closing(Node(anvil.url)) as found:
        yield found


@pytest.fixture
def rich(node):
    """Make senders with money, each with a key of its own."""

    def make():
        key = Key(os.urandom(32))
        node.rpc("anvil_setBalance", key.address, hex(10**24))
        return Sender(node, key, timeout_s=120)

    return make


def balance(node, address):
    return int(node.rpc("eth_getBalance", address, "latest"), 16)


def test_a_deposit_is_paid_out_and_the_rest_returns(node, rich):
    buyer, operator, anybody = rich(), rich(), rich()
    contract = EscrowContract(node, deployed(operator))
    end = node.block().timestamp + 1000
    number = contract.open(buyer, settler=operator.address, deadline=end, amount=100)
    batch = Batch((Payment.drawn(ANNA, 30), Payment.drawn(BRUNO, 20), Payment.drawn(ANNA, 1)))
    assert contract.settle(operator, number, batch) is not None
    assert contract.settle(operator, number, batch) is None  # a retry
    before = balance(node, ANNA), balance(node, BRUNO)
    for place in range(3):
        assert contract.claim(anybody, number, batch, place) is not None
        assert contract.claim(anybody, number, batch, place) is None  # a retry
    assert (balance(node, ANNA) - before[0], balance(node, BRUNO) - before[1]) == (31, 20)
    assert (contract.left(number, batch.root), contract.escrow(number).free) == (0, 49)
    with pytest.raises(TransactionRefused, match="before the deadline"):
        contract.refund(anybody, number)
    node.rpc("evm_setNextBlockTimestamp", end)
    node.rpc("evm_mine")
    before = balance(node, buyer.address)
    assert contract.refund(anybody, number) is not None
    assert balance(node, buyer.address) - before == 49
    assert contract.refund(anybody, number) is None
    assert balance(node, contract.address) == 0
    with pytest.raises(TransactionRefused, match="deadline is past"):
        contract.settle(operator, number, payments(2))


def token_for(sender, contract_of):
    """A token, a contract that is paid in it, and an approved deposit of a million."""
    made = machine.of_source(machine.TOKEN)
    token = sender.transact(None, made.creation).contract
    data = made.calls
    address = contract_of(token)

    def call(function, *arguments):
        sender.transact(token, data[function].selector + encode(data[function].inputs, arguments))

    call("mint", sender.address, 10**6)
    call("approve", address, 10**6)
    return token, address


def test_a_token_in_place_of_the_coin(node, rich):
    buyer = rich()
    token, address = token_for(buyer, lambda token: deployed(buyer, token))
    contract = EscrowContract(node, address, token)
    number = contract.open(buyer, settler=buyer.address, deadline=FAR, amount=70)
    batch = Batch((Payment.drawn(ANNA, 70),))
    contract.settle(buyer, number, batch)
    contract.claim(buyer, number, batch, 0)
    made = machine.of_source(machine.TOKEN).calls["balanceOf"]
    told = node.call(token, made.selector + encode(["address"], [ANNA]))
    assert int.from_bytes(told) == 70
    assert balance(node, contract.address) == 0


def test_another_contract_or_another_token_is_refused(node, rich):
    operator = rich()
    address = deployed(operator)
    with pytest.raises(WrongChain, match="not this version"):
        EscrowContract(node, address, ANNA)
    with pytest.raises(WrongChain, match="no contract"):
        EscrowContract(node, BRUNO)
    with pytest.raises(ParameterError, match="number must be that of an escrow"):
        EscrowContract(node, address).escrow(3)


def test_a_deposit_is_signed_with_its_coin_when_it_is_signed_anew(node, rich):
    """Planted before: what was signed anew went without its coin, and the contract refused it."""
    from reticent.chain.fees import value_of

    buyer = rich()
    contract = EscrowContract(node, deployed(buyer))
    sent = buyer._signed(contract.address, b"", 100_000, "", 7)
    assert (
        value_of(sent.raw) == value_of(buyer._raised(sent).raw) == value_of(buyer._signed_anew(sent).raw) == 7
    )


# Gas


def deep(payee, amount, depth=20):
    """A payment among a million: its proof, and the root that it leads to."""
    payment, place = Payment(payee, amount, os.urandom(32)), (1 << depth) - 7 - int.from_bytes(os.urandom(2))
    proof = [os.urandom(32) for _ in range(depth)]
    return payment, place, proof, root_of(payment, place, proof)


def gas_of(node, sender, what=None, *, token=False, new_payee=False):
    """Gas of opening, settling and two claims among a million: in a fresh word of marks, and beside it."""
    found = what or machine.artifact()

    def put(token_address):
        return sender.transact(None, found.creation + encode(["address"], [token_address])).contract

    if token:
        _, address = token_for(sender, put)
    else:
        address = put(COIN)
    contract = artifact()

    def run(function, *arguments, value_wei=0):
        return sender.transact(address, contract.encode(function, *arguments), value_wei=value_wei).gas

    gas = {"open": run("open", sender.address, FAR, 1000, value_wei=0 if token else 1000)}
    payee = "0x" + os.urandom(20).hex() if new_payee else sender.address
    payment, place, proof, root = deep(payee, 5)
    gas["settle"] = run("settle", 0, root, 10)
    told = (payment.salt, place, payment.payee, payment.amount, proof)
    gas["claim"] = run("claim", 0, *told)
    # The same word of marks once more: the place beside it, whose proof starts with the other's leaf.
    second = Payment(payment.payee, 5, os.urandom(32))
    pair = (payment.leaf(place), second.leaf(place ^ 1))
    beside_root = root_of(second, place ^ 1, [pair[0], *proof[1:]])
    run("settle", 0, beside_root, 10)
    both = root_of(payment, place, [pair[1], *proof[1:]])
    assert both == beside_root
    run("claim", 0, payment.salt, place, payment.payee, 5, [pair[1], *proof[1:]])
    gas["claim beside another"] = run(
        "claim", 0, second.salt, place ^ 1, second.payee, 5, [pair[0], *proof[1:]]
    )
    return gas


@pytest.mark.parametrize("token", [False, True], ids=["coin", "token"])
def test_gas(node, rich, token):
    gas = gas_of(node, rich(), token=token)
    assert gas["settle"] <= 80_000
    assert gas["claim"] <= 95_000
    assert gas["claim beside another"] <= 95_000


def test_planted_a_wasteful_contract_passes_the_bound(node, rich):
    """A settle that also keeps who settled when."""
    wasteful = machine.planted(
        ("count: public(uint256)\n", "count: public(uint256)\nkept: HashMap[bytes32, uint256[2]]\n"),
        ("    log Settled(", "    self.kept[root] = [block.timestamp, amount]\n    log Settled("),
    )
    assert gas_of(node, rich(), wasteful)["settle"] > 80_000
