"""Transactions as nodes tell them: what was signed is made again, whatever kind it is of."""

import pytest
from eth_account import Account

from reticent.chain.transactions import as_transaction
from reticent.errors import ChainError, NodeUnavailable

ACCOUNT = Account.from_key(b"\x07" * 32)
CALL = {"nonce": 3, "gas": 90_000, "to": "0x" + "11" * 20, "value": 5, "data": b"\x01\x02", "chainId": 31337}
ACCESS = [{"address": "0x" + "22" * 20, "storageKeys": ["0x" + "33" * 32]}]
KINDS = {
    "legacy": {"gasPrice": 7},
    "access list": {"gasPrice": 7, "type": 1, "accessList": ACCESS},
    "fees": {"maxFeePerGas": 9, "maxPriorityFeePerGas": 2, "type": 2, "accessList": ACCESS},
    "set code": {"maxFeePerGas": 9, "maxPriorityFeePerGas": 2, "type": 4, "authorizationList": []},
}


def told(kind, **changes):
    """A transaction as a node tells it."""
    fields = CALL | KINDS[kind]
    if kind == "set code":
        granted = ACCOUNT.sign_authorization({"chainId": 31337, "address": "0x" + "44" * 20, "nonce": 4})
        fields = fields | {"authorizationList": [granted]}
    signed = ACCOUNT.sign_transaction(fields)
    words = {name: hex(one) for name, one in fields.items() if isinstance(one, int)}
    words |= {"input": "0x0102", "to": fields["to"], "accessList": fields.get("accessList", [])}
    words |= {"v": hex(signed.v), "r": hex(signed.r), "s": hex(signed.s)}
    words |= {"hash": "0x" + bytes(signed.hash).hex(), "from": ACCOUNT.address}
    words |= {"blockNumber": "0x1", "blockHash": "0x" + "ab" * 32, "transactionIndex": "0x0"}
    if kind == "set code":
        words["authorizationList"] = [
            {"chainId": hex(granted.chain_id), "address": "0x" + granted.address.hex(),
             "nonce": hex(granted.nonce), "yParity": hex(granted.y_parity), "r": hex(granted.r),
             "s": hex(granted.s)}
        ]  # fmt: skip
    return words | changes


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_signed_is_found_again(kind):
    one = as_transaction(told(kind))
    assert one.is_signed(31337)
    assert one.sender == ACCOUNT.address.lower()
    assert not one.is_signed(1), "another chain"


@pytest.mark.parametrize("kind", KINDS)
def test_any_other_word_is_not_what_was_signed(kind):
    for change in (
        {"input": "0x0103"}, {"value": "0x6"}, {"nonce": "0x4"}, {"gas": "0x1"}, {"to": "0x" + "12" * 20},
        {"from": "0x" + "12" * 20}, {"hash": "0x" + "12" * 32}, {"r": "0x1"},
    ):  # fmt: skip
        assert not as_transaction(told(kind, **change)).is_signed(31337), change


def test_before_eip_155_a_transaction_was_of_every_chain():
    import rlp
    from eth_keys import keys
    from eth_utils import keccak

    fields = [3, 7, 90_000, bytes.fromhex("11" * 20), 5, b"\x01\x02"]
    signed = keys.PrivateKey(b"\x07" * 32).sign_msg_hash(keccak(rlp.encode(fields)))
    raw = rlp.encode([*fields, signed.v + 27, signed.r, signed.s])
    numbers = {
        "v": hex(signed.v + 27),
        "r": hex(signed.r),
        "s": hex(signed.s),
        "hash": "0x" + keccak(raw).hex(),
    }
    assert as_transaction(told("legacy") | numbers).is_signed(1)


def test_other_kinds_are_refused_and_those_of_rollups_are_not_known():
    with pytest.raises(ChainError, match="kind 9"):
        as_transaction(told("fees", type="0x9"))
    assert as_transaction(told("fees", type="0x7e")).is_signed(31337) is None


def test_what_is_no_transaction_is_refused():
    for wrong in (None, [], {}, told("fees") | {"r": None}, told("fees") | {"to": 5}):
        with pytest.raises(NodeUnavailable):
            as_transaction(wrong)
