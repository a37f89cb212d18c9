"""Anchored heads: a ledger that was put back, cut or rewritten is found out by the chain alone."""

import base64
import hashlib
import shutil
from contextlib import closing
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent.chain.node import Node
from reticent.chain.sender import Sender
from reticent.errors import LedgerDamaged, LedgerError, RolledBack, WrongChain
from reticent.ledger import SqlLedger
from reticent.ledger.checkpoint import PublicKey
from reticent.ledger.ethereum.anchor import anchors, check_anchors, contract, write_anchor
from reticent.ledger.sql.ledger import ORIGIN

from .witness_process import KEY, TERMS, put_back, units

SIGNER = PublicKey(ORIGIN, KEY.public_key())


@pytest.fixture
def sender(anvil):
    with closing(Node(anvil.url)) as node:
        yield Sender(node, anvil.keys[0])


@pytest.fixture
def address(sender):
    """A fresh contract."""
    return sender.transact(None, contract().creation).contract


@pytest.fixture
def ledger(database):
    with closing(SqlLedger(database, key=KEY)) as made:
        made.open(TERMS)
        made.request(TERMS.name, "early", units(100))
        yield made


def anchored(sender, address):
    return list(anchors(sender.node, address, SIGNER))


def test_an_anchor_holds_what_the_ledger_signed(ledger, sender, address):
    head, receipt = write_anchor(ledger, sender, address)
    (found,) = anchored(sender, address)
    assert (found.head, found.checkpoint) == (head, ledger.checkpoint())
    assert (found.block, found.transaction) == (receipt.block, receipt.transaction)
    assert found.writer.lower() == sender.address.lower()
    assert receipt.gas <= 35_000


def test_a_ledger_that_goes_on_holds_against_all_its_anchors(ledger, sender, address):
    for information in (200, 300, 400):
        write_anchor(ledger, sender, address)
        ledger.request(TERMS.name, "more", units(information))
    found = anchored(sender, address)
    assert len(found) == 3
    assert check_anchors(ledger, found) == found[-1].head.size < ledger.head().size


def test_a_ledger_that_was_put_back_is_found_out(ledger, database, sender, address, tmp_path):
    ledger.close()
    shutil.copyfile(database, tmp_path / "backup.db")
    with closing(SqlLedger(database, key=KEY)) as on:
        on.request(TERMS.name, "late", units(300))
        write_anchor(on, sender, address)
        assert check_anchors(on, anchored(sender, address)) == on.head().size  # the honest one holds
    put_back(database, tmp_path / "backup.db")
    with (
        closing(SqlLedger(database, key=KEY)) as old,
        pytest.raises(RolledBack, match="are anchored in block"),
    ):
        check_anchors(old, anchored(sender, address))


def test_a_fork_of_the_same_length_is_found_out(ledger, database, sender, address, tmp_path):
    ledger.close()
    shutil.copyfile(database, tmp_path / "backup.db")
    with closing(SqlLedger(database, key=KEY)) as on:
        on.request(TERMS.name, "late", units(300))
        write_anchor(on, sender, address)
    put_back(database, tmp_path / "backup.db")
    with closing(SqlLedger(database, key=KEY)) as other:
        other.request(TERMS.name, "another", units(300))
        with pytest.raises(RolledBack, match="are not those anchored in block"):
            check_anchors(other, anchored(sender, address))


def test_heads_that_the_log_did_not_sign_do_not_count(ledger, database, sender, address, tmp_path):
    """A stranger writes longer heads under the log's name, with a signature of their own and a copied one."""
    write_anchor(ledger, sender, address)
    honest = anchored(sender, address)
    other = Ed25519PrivateKey.generate()
    with closing(SqlLedger(tmp_path / "theirs.db", key=other)) as theirs:
        theirs.open(TERMS)
        for i in range(5):
            theirs.request(TERMS.name, f"q{i}", units(100))
        write_anchor(theirs, sender, address)
    signed = base64.b64decode(honest[0].checkpoint.split()[-1])[4:]
    copied = [signed[:32], signed[32:]]
    sender.transact(address, contract().encode("anchor", _origin(), 99, bytes(32), bytes(32), copied))
    assert anchored(sender, address) == honest
    assert check_anchors(ledger, honest) == ledger.head().size


def _origin():
    return hashlib.sha256(ORIGIN.encode()).digest()


def test_a_verifier_that_trusts_every_writer_would_be_fooled(ledger, sender, address, monkeypatch):
    """Planted: signatures are not checked. Then a stranger's longer head accuses an honest ledger."""
    write_anchor(ledger, sender, address)
    sender.transact(
        address, contract().encode("anchor", _origin(), 99, bytes(32), bytes(32), [bytes(32)] * 2)
    )
    monkeypatch.setattr("reticent.ledger.ethereum.anchor.verified", lambda checkpoint, signer: None)
    with pytest.raises(RolledBack):
        check_anchors(ledger, anchored(sender, address))


@pytest.fixture
def chain_file(anvil, sender, address, tmp_path):
    """chain.json with the anchor's contract, and the files of both keys."""
    pytest.importorskip("typer")
    from reticent.ledger.ethereum.chain_file import ChainFile

    (tmp_path / "ledger.key").write_text(KEY.private_bytes_raw().hex())
    (tmp_path / "payer.key").write_text("0x" + bytes(anvil.keys[0]._account.key).hex())
    found = ChainFile(anvil.url, sender.node.chain_id, address, address, 0, 0)
    found.write(tmp_path / "chain.json")
    return tmp_path / "chain.json"


def test_the_commands_write_and_check_anchors(command, ledger, database, chain_file, tmp_path):
    write = ["ledger", "anchor", str(database), "--key", str(tmp_path / "ledger.key")]
    write += ["--chain-key", str(tmp_path / "payer.key"), "--chain", str(chain_file)]
    check = ["ledger", "verify", str(database), "--chain", str(chain_file), "--public-key", str(SIGNER)]
    code, _, err = command(*check)
    assert (code, "no signed head" in err) == (1, True)
    code, out, _ = command(*write)
    assert (code, "entries of reticent/ledger are anchored in block" in out) == (0, True)
    assert str(SIGNER) in out
    code, out, _ = command(*check)
    assert (code, "heads anchored on chain 31337: 1" in out) == (0, True)
    ledger.close()
    shutil.copyfile(database, tmp_path / "backup.db")
    with closing(SqlLedger(database, key=KEY)) as on:
        on.request(TERMS.name, "late", units(300))
    assert command(*write)[0] == 0
    put_back(database, tmp_path / "backup.db")
    code, _, err = command(*check)
    assert (code, "are anchored in block" in err) == (1, True)


def test_a_check_against_a_chain_needs_the_public_key(command, ledger, database, chain_file):
    code, _, err = command("ledger", "verify", str(database), "--chain", str(chain_file))
    assert (code, "--public-key" in err) == (2, True)


def test_no_anchor_is_no_proof(ledger, sender, address):
    with pytest.raises(LedgerDamaged, match="no signed head"):
        check_anchors(ledger, anchored(sender, address))


def test_logs_that_are_no_anchors_are_passed_over(ledger, sender, address):
    """A node that answers with more than was asked for: of another event, and of none."""
    write_anchor(ledger, sender, address)
    (honest,) = anchored(sender, address)

    class Adding(Node):
        def logs(self, *asked):
            for found in super().logs(*asked):
                odd = [replace(one, topics=(bytes(32), *one.topics[1:])) for one in found]
                bare = [replace(one, topics=()) for one in found]
                yield [*odd, *bare, *found]

    with closing(Adding(sender.node.url)) as lying:
        assert list(anchors(lying, address, SIGNER)) == [honest]


def test_anchors_are_looked_for_from_the_first_block_on(ledger, sender, address):
    first, second = (write_anchor(ledger, sender, address)[1].block for _ in range(2))
    assert first < second
    for start, blocks in ((0, [first, second]), (first, [first, second]), (second, [second])):
        found = anchors(sender.node, address, SIGNER, first_block=start)
        assert [one.block for one in found] == blocks
    assert list(anchors(sender.node, address, SIGNER, first_block=second + 1)) == []


def test_an_anchor_needs_the_key_and_the_contract(ledger, database, sender, address):
    with pytest.raises(WrongChain, match="there is no contract"):
        write_anchor(ledger, sender, "0x" + "11" * 20)
    with closing(SqlLedger(database)) as unsigned, pytest.raises(LedgerError, match="without a signing key"):
        write_anchor(unsigned, sender, address)
    assert anchored(sender, address) == []
