"""Where a data set is on a chain: the note beside its declaration, and whom a name may be guessed to be."""

import json
import os
from contextlib import closing
from hashlib import sha256

import pytest

pytest.importorskip("reticent.chain.keys", reason="eth-account is not installed")

from reticent.chain.fees import Ceiling
from reticent.chain.keys import Key
from reticent.chain.outbox import Outbox
from reticent.chain.sender import Sender
from reticent.errors import NodeUnavailable, ParameterError, UnknownAccount, WrongChain
from reticent.ledger.ethereum.chain_file import ChainFile
from reticent.ledger.ethereum.contract import artifact
from reticent.query import census
from reticent.query.chain.commitment import Commitment, place
from reticent.query.chain.finding import connected, opened_ledger, passing_key, registrant
from reticent.query.declarations import dataset_file

OWNER, CONTRACT = (Key(os.urandom(32)).address for _ in range(2))
KEPT = Commitment(31337, CONTRACT, OWNER, "0f" * 32)


@pytest.fixture
def declaration(tmp_path):
    return census.write(tmp_path / "here", rows=30)


@pytest.fixture
def data(declaration):
    return dataset_file.read(declaration)


# The note


def test_a_note_is_read_as_it_was_written(declaration):
    assert Commitment.read(declaration) is None
    path = KEPT.write(declaration)
    assert path == place(declaration) == declaration.parent / "census.reticent" / "commitment.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o77 == 0
    assert path.read_text().endswith("}\n")
    assert json.loads(path.read_text()) == {
        "chain_id": 31337, "contract": CONTRACT, "owner": OWNER, "nonce": "0f" * 32
    }  # fmt: skip
    assert Commitment.read(declaration) == KEPT


def test_a_commitment_is_to_the_nonce_and_every_byte(declaration):
    assert KEPT.of(declaration) == sha256(b"\x0f" * 32 + declaration.read_bytes()).digest()
    before = KEPT.of(declaration)
    declaration.write_bytes(declaration.read_bytes() + b"\n")
    assert KEPT.of(declaration) != before


def test_a_note_is_of_one_contract_on_one_chain():
    file = ChainFile("http://127.0.0.1:1", 31337, CONTRACT, CONTRACT, 0, 0)
    assert KEPT.is_at(file)
    assert KEPT.is_at(ChainFile(file.rpc, 31337, CONTRACT.lower(), CONTRACT, 0, 0))
    assert not KEPT.is_at(ChainFile(file.rpc, 1, CONTRACT, CONTRACT, 0, 0))
    assert not KEPT.is_at(ChainFile(file.rpc, 31337, OWNER, CONTRACT, 0, 0))


@pytest.mark.parametrize(
    "wrong",
    [
        {"chain_id": "31337"},
        {"chain_id": None},
        {"contract": "0x12"},
        {"contract": None},
        {"owner": OWNER[:-1]},
        {"owner": 7},
        {"nonce": "0f" * 31},
        {"nonce": "0F" * 32},
        {"nonce": "0f" * 33},
        {"nonce": 5},
        {"more": 1},
    ],
)
def test_a_note_that_says_something_else_is_refused(declaration, wrong):
    path = KEPT.write(declaration)
    path.write_text(json.dumps({**json.loads(path.read_text()), **wrong}))
    with pytest.raises(
        ParameterError, match=r"commitment\.json does not say where the data set is registered"
    ):
        Commitment.read(declaration)


@pytest.mark.parametrize("text", ["", "[]", "7", "{}", "[" * 100_000])
def test_a_note_that_is_none_is_refused(declaration, text):
    KEPT.write(declaration).write_text(text)
    with pytest.raises(ParameterError, match="does not say where the data set is registered"):
        Commitment.read(declaration)


# Whose it is


@pytest.fixture
def chain(anvil):
    """A contract, and how to register a name there."""

    class Chain:
        def __init__(self):
            self.key = anvil.keys[0]
            with closing(ChainFile(anvil.url, 31337, CONTRACT, CONTRACT, 0, 0).connect()) as node:
                made = Sender(node, self.key).transact(None, artifact().creation, gas=4_000_000)
            self.file = ChainFile(anvil.url, 31337, made.contract, CONTRACT, made.block, 0)

        def register(self, data, number=0):
            key = anvil.keys[number]
            with opened_ledger(self.file, self.file.connect(), key, key.address) as ledger:
                ledger.open(data.terms)
            return key.address

        def found(self, declaration, data, **options):
            with closing(self.file.connect()) as node:
                return registrant(declaration, data, self.file, node, options.pop("owner", None), **options)

    return Chain()


def test_who_is_named_or_noted_is_never_looked_for(chain, declaration, data):
    assert chain.found(declaration, data, owner=OWNER.lower()) == OWNER
    with pytest.raises(ParameterError, match="owner must be an address"):
        chain.found(declaration, data, owner="olga")
    with pytest.raises(ParameterError, match=r"say with --owner ADDRESS who registered census: anybody can"):
        chain.found(declaration, data, guess=False)
    Commitment(31337, chain.file.contract, OWNER, "0f" * 32).write(declaration)
    assert chain.found(declaration, data, guess=False) == OWNER
    assert chain.found(declaration, data) == OWNER
    Commitment(1, chain.file.contract, OWNER, "0f" * 32).write(declaration)  # of another chain
    with pytest.raises(ParameterError, match="it is not guessed here"):
        chain.found(declaration, data, guess=False)


def test_a_name_is_guessed_if_one_has_it(chain, declaration, data):
    with pytest.raises(UnknownAccount, match=rf"no data set census is registered at {chain.file.contract}"):
        chain.found(declaration, data)
    chain.register(dataset_file.parse(declaration.read_text().replace("name: census", "name: other")), 1)
    owner = chain.register(data)
    assert chain.found(declaration, data) == owner
    chain.register(data, 2)
    with pytest.raises(
        ParameterError, match=r"2 data sets are called census: say whose with --owner ADDRESS"
    ):
        chain.found(declaration, data)


def test_a_ledger_is_opened_as_the_file_says(chain, declaration, data, tmp_path):
    owner, node = chain.register(data), chain.file.connect()
    with closing(Outbox(tmp_path / "outbox.sqlite")) as outbox:
        given = {"key": chain.key, "outbox": outbox, "ceiling": Ceiling.of(7, 2)}
        with connected(declaration, data, chain.file, node, **given) as ledger:
            assert (ledger.owner, ledger.address, ledger.contract) == (owner, owner, chain.file.contract)
            assert ledger.balance("census").terms == data.terms
            assert (ledger._sender._ceiling, ledger._sender._outbox) == (Ceiling.of(7, 2), outbox)
            assert ledger._records._outbox is outbox
            assert ledger.log.block == chain.file.block - 1  # nothing older is read
            assert ledger._sender.confirmations == 0
    with opened_ledger(
        ChainFile(chain.file.rpc, 31337, chain.file.contract, CONTRACT, 0, 3),
        chain.file.connect(), chain.key, owner, lock=tmp_path / "lock",
    ) as ledger:  # fmt: skip
        assert (ledger._sender.confirmations, ledger._lock is None) == (3, False)


def test_whoever_only_looks_has_a_key_of_nobody(chain, declaration, data):
    owner = chain.register(data)
    with connected(declaration, data, chain.file, chain.file.connect()) as ledger:
        assert ledger.owner == owner != ledger.address
    assert passing_key().address != passing_key().address


@pytest.mark.parametrize("wrong", ["contract", "name"])
def test_a_node_is_closed_where_nothing_is_found(chain, declaration, data, wrong):
    file = chain.file
    if wrong == "contract":
        file = ChainFile(file.rpc, 31337, OWNER, CONTRACT, file.block, 0)
    node, closed = file.connect(), []
    meant = node.close
    node.close = lambda: (closed.append(True), meant())
    with pytest.raises({"contract": WrongChain, "name": UnknownAccount}[wrong]):
        connected(declaration, data, file, node)
    assert closed == [True]


def test_a_node_that_is_away_is_told(chain):
    with pytest.raises(NodeUnavailable):
        ChainFile("http://127.0.0.1:1", 31337, chain.file.contract, CONTRACT, 0, 0).connect()
