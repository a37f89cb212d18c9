"""What goes wrong with `reticent chain`: one line, exit code 2, nothing charged."""

import json
from contextlib import closing

import pytest

from reticent.chain.node import Node
from reticent.chain.sender import Sender
from reticent.errors import NotMeasured
from reticent.ledger import SqlLedger
from reticent.ledger.checkpoint import load_key
from reticent.ledger.ethereum.chain_file import ChainFile

from .chain_story import (
    DEAD,
    MEAN,
    ON_CHAIN,
    PEOPLE,
    deployed,
    done,
    nothing_charged,
    place,
    refused,
    registered,
    template,
    too_cheap,
)

__all__ = ["deployed", "done", "nothing_charged", "place", "refused", "registered", "template"]  # fixtures


ASK = ["ask", "census.yaml", MEAN, "--error", "30000", *ON_CHAIN, "--key", "anna.key"]


def changed(place, **changes):
    path = place.folder / "chain.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_another_chain(nothing_charged, refused):
    changed(nothing_charged, chain_id=1)
    assert "serves chain 31337, asked for 1" in refused(*ASK)


@pytest.mark.parametrize(
    "args",
    [
        ASK,
        ["price", "census.yaml", MEAN, "--error", "1", *ON_CHAIN],
        ["chain", "status"],
        ["chain", "watch", "--once"],
        ["chain", "verify"],
        ["chain", "pause", "census.yaml", "--key", "owner.key"],
        ["oracle", "census.yaml", "--key", "oracle.key"],
    ],
    ids=lambda args: " ".join(args[:2]),
)
def test_a_dead_node(nothing_charged, refused, args):
    assert "the node at 127.0.0.1:9 does not answer" in refused(*args, "--rpc", DEAD)


def test_a_secret_in_the_address_of_a_node_is_not_shown(nothing_charged, refused):
    err = refused("chain", "status", "--rpc", "http://anna:secret@127.0.0.1:9/token")
    assert "secret" not in err
    assert "token" not in err


def test_gas_that_is_too_cheap(nothing_charged, refused, monkeypatch):
    monkeypatch.setattr(Sender, "_announce", too_cheap)
    err = refused(*ASK)
    assert "the transaction was refused" in err
    assert "transaction underpriced" in err


LOW = ["--max-fee", "0.000000001"]  # a wei; no base fee is below seven


SENDING = {
    "deploy": ["chain", "deploy", "--key", "owner.key", "--out", "other.json"],
    "register": ["chain", "register", "other.yaml", "--key", "owner.key"],
    "allow": ["chain", "allow", "census.yaml", "--share", "0.5", "--key", "owner.key"],
    "pause": ["chain", "pause", "census.yaml", "--key", "owner.key"],
    "resume": ["chain", "resume", "census.yaml", "--key", "owner.key"],
    "ask": ASK,
    "anchor": ["ledger", "anchor", "ledger.sqlite", "--key", "ledger.key", "--chain-key", "anna.key"],
}


@pytest.mark.parametrize("name", SENDING)
def test_a_fee_above_the_ceiling(nothing_charged, refused, anvil, name):
    """What costs more than the ceiling is not signed, and the line says what it must be."""
    place = nothing_charged
    text = place.declaration.read_text()
    (place.folder / "other.yaml").write_text(text.replace("name: census", "name: another"))
    SqlLedger(place.folder / "ledger.sqlite", key=load_key(place.folder / "ledger.key")).close()
    more = {"deploy": ["--rpc", anvil.url], "register": ["--oracle", place.oracle], "allow": [place.bruno]}
    with closing(Node(anvil.url)) as node:
        people = [getattr(place, who) for who in PEOPLE]
        sent = [node.rpc("eth_getTransactionCount", who, "pending") for who in people]
        err = refused(*SENDING[name], *more.get(name, []), *LOW)
        assert "max_fee must be at least" in err
        assert "got 1e-09: nothing was signed" in err
        assert sent == [node.rpc("eth_getTransactionCount", who, "pending") for who in people]


@pytest.mark.parametrize("name", SENDING)
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--max-fee", "0"], "max_fee must be > 0"),
        (["--max-tip", "-1"], "max_tip must be >= 0"),
        (["--max-fee", "2", "--max-tip", "3"], "max_tip must be at most max_fee (2 gwei), got 3 gwei"),
    ],
)
def test_a_ceiling_that_is_none(nothing_charged, refused, anvil, name, options, reason):
    more = {"deploy": ["--rpc", anvil.url], "register": ["--oracle", nothing_charged.oracle]}
    more["allow"] = [nothing_charged.bruno]
    given = [one.replace("other.yaml", "census.yaml") for one in SENDING[name]]
    assert reason in refused(*given, *more.get(name, []), *options)


def test_a_locked_key(nothing_charged, done, refused, monkeypatch):
    monkeypatch.setenv("RETICENT_KEY_PASSWORD", "right")
    done("chain", "key", "locked.key", "--encrypt")
    ask = [*ASK[:-1], "locked.key"]
    monkeypatch.delenv("RETICENT_KEY_PASSWORD")
    monkeypatch.setattr("reticent.apps.chain.keys._somebody_is_there", lambda: False)
    assert "is locked: give its password in RETICENT_KEY_PASSWORD" in refused(*ask)


def test_an_oracle_whose_chain_is_too_dear(registered, done, refused, monkeypatch):
    """It says so, records nothing, and does so when it may."""

    def left(*_):
        raise NotMeasured("the oracle is away")

    with monkeypatch.context() as away:
        away.setattr("reticent.query.session.awaited", left)
        refused(*ASK)
    oracle = ["oracle", "census.yaml", "--key", "oracle.key", "--once"]
    assert "to be tried again (max_fee must be at least" in done(*oracle, *LOW)
    assert ": recorded" in done(*oracle)


def test_another_contract_or_none(nothing_charged, refused):
    changed(nothing_charged, contract=ChainFile.read(nothing_charged.folder / "chain.json").anchor)
    assert "is not this version of PrivacyLedger" in refused(*ASK)
    changed(nothing_charged, contract=nothing_charged.anna)
    assert "there is no contract at" in refused(*ASK)


def test_an_unknown_data_set(nothing_charged, refused, tmp_path):
    other = nothing_charged.declaration.read_text().replace("name: census", "name: nobodys")
    (tmp_path / "other.yaml").write_text(other)
    asked = ["ask", "other.yaml", "SELECT AVG(income) FROM nobodys", *ASK[3:]]
    assert "say with --owner ADDRESS who registered nobodys" in refused(*asked)


def test_other_terms_than_registered(nothing_charged, refused):
    text = nothing_charged.declaration.read_text()
    nothing_charged.declaration.write_text(text.replace("epsilon: 8", "epsilon: 9"))
    assert "other terms" in refused(*ASK)


@pytest.mark.parametrize(
    "question", ["SELECT AVG(wealth) FROM census", "SELECT income FROM census", '{"kind": "mode"}']
)
def test_an_unknown_query(nothing_charged, refused, question):
    refused("ask", "census.yaml", question, *ASK[3:])


def test_a_histogram_that_is_too_fine_for_a_chain(nothing_charged, refused):
    question = json.dumps({"kind": "histogram", "by": [{"column": "income", "bins": 600}]})
    err = refused("ask", "census.yaml", question, "--error", "50", *ON_CHAIN, "--key", "anna.key")
    assert "512" in err


def test_who_is_not_allowed(nothing_charged, refused):
    assert f"analyst {nothing_charged.bruno} is not allowed" in refused(*ASK[:-1], "bruno.key")


def test_who_buys_needs_a_key(nothing_charged, refused):
    assert "--key FILE must name the key" in refused(*ASK[:-2])


def test_past_the_quota(nothing_charged, refused):
    err = refused("ask", "census.yaml", MEAN, "--information", "2", *ON_CHAIN, "--key", "anna.key")
    assert "quota" in err


@pytest.mark.parametrize("option", ["--chain", "--key", "--rpc", "--owner", "--max-fee", "--max-tip"])
def test_options_of_a_chain_without_a_chain(nothing_charged, refused, option):
    err = refused("ask", "census.yaml", MEAN, "--error", "30000", option, "1")
    assert "are for --ledger ethereum" in err


def test_no_chain_file(nothing_charged, refused):
    (nothing_charged.folder / "chain.json").unlink()
    assert "there is no chain.json: `reticent chain deploy` writes it" in refused(*ASK)
