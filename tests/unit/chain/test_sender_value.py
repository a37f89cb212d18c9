"""Coin that goes along with a transaction, whatever it is replaced by, and once under a label."""

import pytest

from reticent.chain import sender as sending
from reticent.chain.fees import value_of
from reticent.chain.node import as_number
from reticent.chain.outbox import Outbox
from reticent.chain.sender import Sender
from reticent.errors import ChainError, ParameterError, ParameterTypeError, TransactionRefused

from .sent import TO, chain, manual

__all__ = ["chain", "manual"]  # fixtures


def balance(node, who=TO):
    return as_number(node.rpc("eth_getBalance", who, "latest"))


def test_coin_arrives_once_under_a_label(chain, tmp_path):
    outbox = Outbox(tmp_path / "outbox.db")
    sender = Sender(chain, chain.keys[0], outbox=outbox, timeout_s=120)
    for _ in range(3):
        assert sender.transact(TO, b"pay", label="first", value_wei=10**15 + 7).succeeded
    assert balance(chain) == 10**15 + 7
    again = Sender(chain, chain.keys[0], outbox=outbox, timeout_s=120)
    assert again.transact(TO, b"pay", label="first", value_wei=10**15 + 7).succeeded
    with pytest.raises(ChainError, match="something else was signed before under the label first"):
        again.send(TO, b"pay", label="first", value_wei=10**15 + 8)
    assert balance(chain) == 10**15 + 7
    assert value_of(again.send(TO, b"", value_wei=0).raw) == 0
    sent = again.send_many([(TO, b"a"), (TO, b"b")], value_wei=5)
    assert [value_of(one.raw) for one in sent] == [5, 5]
    outbox.close()


def replaced(node):
    """Coin that arrives after a transaction was replaced by a dearer one, and after it got another nonce."""
    sender = Sender(node, node.keys[0], timeout_s=120)
    stuck = sender.send(TO, b"stuck", gas=50_000, value_wei=11)
    with sender._alone():
        dearer = sender._raised(stuck)
        sender._announce([dearer])
    node.rpc("evm_mine")
    assert dearer.nonce == stuck.nonce
    other = sender._signed_anew(dearer)
    return balance(node), value_of(other.raw)


def test_what_replaces_carries_the_same_coin(manual):
    assert replaced(manual) == (11, 11)


def test_planted_a_replacement_without_the_coin_is_found(manual, monkeypatch):
    monkeypatch.setattr(sending, "value_of", lambda raw: 0)
    assert replaced(manual) != (11, 11)


@pytest.mark.parametrize(
    ("wrong", "error"), [(-1, ParameterError), (1 << 128, ParameterError), (1.5, ParameterTypeError)]
)
def test_bad_amounts_are_refused_before_anything_is_signed(chain, wrong, error):
    sender = Sender(chain, chain.keys[0])
    with pytest.raises(error, match="value_wei must be"):
        sender.send(TO, b"", value_wei=wrong)
    assert balance(chain) == 0


def test_an_empty_purse_is_one_line(chain, rich):
    poor = rich(chain)
    chain.rpc("anvil_setBalance", poor.address, hex(10**15))
    with pytest.raises((TransactionRefused, ChainError)) as refusal:
        Sender(chain, poor).send(TO, b"", value_wei=10**18)
    assert "\n" not in str(refusal.value)
    assert balance(chain) == 0
