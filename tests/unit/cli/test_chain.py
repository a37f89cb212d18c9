"""`reticent chain`, `reticent oracle` and `reticent ask --ledger ethereum`, on a chain of this machine."""

import json
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
from contextlib import closing, contextmanager
from hashlib import sha256

import pytest

from reticent.apps.chain import watching as chain_views
from reticent.apps.chain.oracle import opened as opened_oracle
from reticent.chain.log import ChainLog
from reticent.chain.node import Node
from reticent.chain.sender import Sender
from reticent.errors import NodeUnavailable
from reticent.ledger.ethereum.chain_file import ChainFile
from reticent.ledger.ethereum.contract import Contract, artifact, dataset_id
from reticent.ledger.ethereum.state import State
from reticent.query.declarations import dataset_file

from .chain_story import (
    MEAN,
    ON_CHAIN,
    deployed,
    done,
    held,
    nothing_charged,
    place,
    refused,
    registered,
    template,
    too_cheap,
)

__all__ = ["deployed", "done", "nothing_charged", "place", "refused", "registered", "template"]  # fixtures


SAME = "select avg(income) from census where age >= 0"


ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}\b")


@contextmanager
def measuring(place):
    """The oracle, in a thread, and what it says."""
    lines, stop = [], threading.Event()
    file = ChainFile.read(place.folder / "chain.json")
    from reticent.chain.keys import read_key

    with opened_oracle(
        place.declaration, file, read_key(place.folder / "oracle.key"), say=lines.append
    ) as oracle:
        thread = threading.Thread(target=oracle.run, args=(stop, 0.02))
        thread.start()
        try:
            yield lines
        finally:
            stop.set()
            thread.join()


def facts(out):
    lines = [line.strip("│\n").split("│") for line in out.splitlines() if line.startswith("│")]
    return {name.strip(): text.strip() for name, text in (line for line in lines if len(line) == 2)}


# The whole story


def test_owner_oracle_and_two_analysts(anvil, place, command, done, refused):
    """As a new user would do it, the oracle in a process of its own."""
    (place.folder / "chain.json").unlink()
    out = done("chain", "deploy", "--rpc", place.url, "--key", "owner.key")
    file = ChainFile.read(place.folder / "chain.json")
    assert (file.rpc, file.chain_id, file.confirmations) == (place.url, 31337, 0)
    assert [file.contract, file.anchor] == ADDRESS.findall(out)
    assert re.search(r"PrivacyLedger .* \(gas 2,\d{3},\d{3}, 0\.\d+ ether\)", out)
    assert "HeadAnchor" in out
    assert "No data set is registered yet" in done("chain", "status")

    out = done("chain", "register", "census.yaml", "--oracle", place.oracle, "--key", "owner.key")
    assert "epsilon 8 at delta 0.0001" in out
    assert "commitment.json" in out
    assert re.search(r"block \d+, gas 1\d\d,\d{3}, 0\.\d+ ether: 0x[0-9a-f]{64}", out)
    for who in (place.anna, place.bruno):
        out = done("chain", "allow", "census.yaml", who, "--share", "0.4", "--key", "owner.key")
        assert f"{who} may be charged 40 % of the budget in all." in out

    program = "from reticent.apps import main; main()"
    worker = subprocess.Popen(
        [sys.executable, "-c", program, "oracle", "census.yaml", "--key", "oracle.key"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    said = ""
    try:
        assert "Ctrl-C stops it" in worker.stdout.readline()
        priced = json.loads(
            done("price", "census.yaml", MEAN, "--error", "30000", *ON_CHAIN, "--format", "json")
        )
        first = done("ask", "census.yaml", MEAN, "--error", "30000", *ON_CHAIN, "--key", "anna.key")
        told = facts(first)
        assert told["case"].startswith("1: ")
        assert re.search(r"measurement 0 paid for in block \d+: 0x[0-9a-f]{64}\n", first)
        assert re.search(r"measurement 0 recorded in block \d+: 0x[0-9a-f]{64}\n", first)
        spent = held(place).spent
        assert spent == int(priced["cost"])

        again = done("ask", "census.yaml", SAME, "--error", "30000", *ON_CHAIN, "--key", "bruno.key")
        assert facts(again)["cost"] == "nothing"
        assert facts(again)["answer"] == told["answer"]
        free = done("ask", "census.yaml", SAME, *ON_CHAIN)  # no accuracy: what is recorded, without a key
        assert facts(free)["answer"] == told["answer"]
        assert held(place).spent == spent

        finer = done("ask", "census.yaml", MEAN, "--error", "15000", *ON_CHAIN, "--key", "bruno.key")
        assert facts(finer)["case"].startswith("2B: ")
        assert held(place).spent == pytest.approx(4 * spent, rel=1e-6)

        paid = held(place).spent
        err = refused("ask", "census.yaml", MEAN, "--error", "100", *ON_CHAIN, "--key", "anna.key")
        assert " % of the budget, epsilon " in err
        assert "free now: " in err
        assert held(place).spent == paid
        while said.count(": recorded") < 2:  # it says so after the analyst has seen it on the chain
            line = worker.stdout.readline()
            assert line, said
            said += line
    finally:
        worker.send_signal(signal.SIGINT)
        said += worker.stdout.read()
        _, err = worker.communicate(timeout=300)
    assert (worker.returncode, err) == (130, "error: interrupted\n")
    assert len(re.findall(r"^\S+ \S+Z measurement \d, \S+: recorded", said, re.M)) == 2

    out = done("chain", "status", "census.yaml")
    assert re.search(r"spent +│ +0\.\d+ │ +\d\.\d+ │", out)
    assert f"│ {place.anna} │" in out
    assert "measurements 2 recorded, 0 pending" in out
    out = done("chain", "verify", "census.yaml")
    assert "verified" in out
    assert facts(out) == {
        "block": facts(out)["block"],
        "data sets": "1",
        "questions": "1",
        "measurements": "2",
        "recorded": "2",
        "declaration": "the registered one",
    }
    lines = done("chain", "watch", "--once").splitlines()
    assert [re.sub(r"0x\w+|\d[\d.]*", "_", line.split("census: ")[1]) for line in lines] == [
        "registered by _, cap mu_ _, oracle _",
        "_ may be charged mu_ _ in all",
        "_ may be charged mu_ _ in all",
        "_ declares a question: sum of income",
        "measurement _, _ is charged mu_ _; _ % of the cap is spent",
        "measurement _ is recorded, _ value",
        "measurement _, _ is charged mu_ _; _ % of the cap is spent",
        "measurement _ is recorded, _ value",
    ]


# Keys and contracts


def test_a_key_is_made_once_and_its_address_shown(place, done):
    made = done("chain", "key", "new.key")
    assert ADDRESS.fullmatch(made.strip())
    assert stat.S_IMODE((place.folder / "new.key").stat().st_mode) == 0o600
    assert done("chain", "key", "new.key") == made
    assert done("chain", "key", "anna.key").strip() == place.anna


def test_an_old_key_is_not_encrypted(place, refused):
    assert "--encrypt locks a new key only" in refused("chain", "key", "anna.key", "--encrypt")


def test_a_chain_file_is_not_overwritten_and_nothing_is_deployed(place, refused):
    with closing(Node(place.url)) as node:
        before = node.number()
        assert "exists already" in refused("chain", "deploy", "--rpc", place.url, "--key", "owner.key")
        assert node.number() == before


def test_a_node_with_a_token_is_not_written(place, done, monkeypatch):
    monkeypatch.setenv("RETICENT_RPC", place.url)
    out = done("chain", "deploy", "--key", "owner.key", "--out", "b.json", "--forget-rpc")
    assert ChainFile.read(place.folder / "b.json").rpc is None
    assert "--rpc or RETICENT_RPC" in out
    done("chain", "status", "--chain", "b.json")


def test_who_has_no_money_deploys_nothing(place, done, refused):
    done("chain", "key", "poor.key")
    err = refused("chain", "deploy", "--rpc", place.url, "--key", "poor.key", "--out", "b.json")
    assert "nsufficient funds" in err
    assert not (place.folder / "b.json").exists()


# Owners


def test_the_commitment_is_to_the_declaration(nothing_charged):
    kept = nothing_charged.folder / "census.reticent" / "commitment.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    nonce = bytes.fromhex(json.loads(kept.read_text())["nonce"])
    file = ChainFile.read(nothing_charged.folder / "chain.json")
    with closing(file.connect()) as node:
        state = ChainLog(node, artifact(), file.contract, State, first_block=file.block).sync()
    on_chain = state.datasets[dataset_id(nothing_charged.owner, "census")].commitment
    assert on_chain == sha256(nonce + nothing_charged.declaration.read_bytes()).digest()


def test_a_data_set_is_registered_once(nothing_charged, refused):
    again = ["chain", "register", "census.yaml", "--oracle", nothing_charged.oracle, "--key"]
    assert "registered already" in refused(*again, "owner.key")
    assert "a second budget for the same people" in refused(*again, "bruno.key")


def test_a_failed_registration_is_tried_again_with_its_nonce(place, done, refused, monkeypatch):
    register = ["chain", "register", "census.yaml", "--oracle", place.oracle, "--key", "owner.key"]
    with monkeypatch.context() as planted:
        planted.setattr(Sender, "_announce", too_cheap)
        refused(*register)
    kept = (place.folder / "census.reticent" / "commitment.json").read_text()
    done(*register)
    assert (place.folder / "census.reticent" / "commitment.json").read_text() == kept
    assert "the registered one" in done("chain", "verify", "census.yaml")


def test_what_degrades_answers_is_not_for_a_chain(place, refused):
    text = place.declaration.read_text().replace("policy: share", "policy: degrade")
    place.declaration.write_text(text)
    err = refused("chain", "register", "census.yaml", "--oracle", place.oracle, "--key", "owner.key")
    assert "policy must be share" in err


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ([], "give --share or --epsilon"),
        (["--share", "0.1", "--epsilon", "1"], "give --share or --epsilon"),
        (["--share", "1.1"], "share must be >= 0 and <= 1"),
        (["--epsilon", "9"], "epsilon must be >= 0 and <= 8"),
    ],
)
def test_a_quota_is_a_part_of_the_budget(nothing_charged, refused, options, reason):
    assert reason in refused(
        "chain", "allow", "census.yaml", nothing_charged.bruno, *options, "--key", "owner.key"
    )


def test_a_quota_by_epsilon_and_back(registered, done):
    allow = ["chain", "allow", "census.yaml", registered.bruno, "--key", "owner.key"]
    cap = dataset_file.read(registered.declaration).terms.cap
    done(*allow, "--epsilon", "8")
    assert quota_of(registered, registered.bruno) == cap
    done(*allow, "--epsilon", "1")
    assert 0 < quota_of(registered, registered.bruno) < cap / 8
    assert "may buy nothing more" in done(*allow, "--share", "0")
    assert quota_of(registered, registered.bruno) == 0
    assert quota_of(registered, registered.anna) == cap // 2


def quota_of(place, who):
    file = ChainFile.read(place.folder / "chain.json")
    with closing(file.connect()) as node:
        contract = Contract(node, file.contract)
        return contract.call("analysts", dataset_id(place.owner, "census"), who)[0][0]


def test_a_mistyped_address_is_refused(nothing_charged, refused):
    wrong = nothing_charged.bruno[:-1] + ("0" if nothing_charged.bruno[-1] != "0" else "1")
    assert "analyst" in refused("chain", "allow", "census.yaml", wrong, "--share", "1", "--key", "owner.key")


def test_a_pause_stops_spending(registered, done, refused):
    assert "nothing can be spent" in done("chain", "pause", "census.yaml", "--key", "owner.key")
    assert "as it was before" in done("chain", "pause", "census.yaml", "--key", "owner.key")
    assert "paused" in done("chain", "status", "census.yaml")
    err = refused("ask", "census.yaml", MEAN, "--error", "30000", *ON_CHAIN, "--key", "anna.key")
    assert "paused" in err
    assert held(registered).spent == 0
    assert "analysts may buy" in done("chain", "resume", "census.yaml", "--key", "owner.key")
    assert not held(registered).paused


# Whose data set


def test_a_name_that_several_registered_needs_an_owner(registered, done, refused):
    """An analyst elsewhere has the declaration alone."""
    elsewhere = registered.folder / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(registered.declaration, elsewhere)
    done("chain", "register", "elsewhere/census.yaml", "--oracle", registered.oracle, "--key", "bruno.key")
    (elsewhere / "census.reticent" / "commitment.json").unlink()
    err = refused("chain", "status", "elsewhere/census.yaml")
    assert "data sets are called census: say whose with --owner" in err
    for owner in (registered.owner, registered.bruno):
        out = done("chain", "status", "elsewhere/census.yaml", "--owner", owner)
        assert f"owner        {owner}" in out
    err = refused("oracle", "elsewhere/census.yaml", "--key", "oracle.key", "--once")
    assert "it is not guessed here" in err
    done("oracle", "elsewhere/census.yaml", "--key", "oracle.key", "--once", "--owner", registered.bruno)


def test_only_the_appointed_key_may_be_the_oracle(nothing_charged, refused):
    err = refused("oracle", "census.yaml", "--key", "bruno.key", "--once")
    assert f"the oracle of census is {nothing_charged.oracle}" in err


def test_an_oracle_says_so_if_the_declaration_was_changed(nothing_charged, done):
    with nothing_charged.declaration.open("a") as file:
        file.write("# changed\n")
    assert "note: census.yaml was changed since it was registered" in done(
        "oracle", "census.yaml", "--key", "oracle.key", "--once"
    )


# Looking


def test_an_answer_is_bought_through_the_oracle(registered, done):
    with measuring(registered) as lines:
        out = done(
            "ask", "census.yaml", MEAN, "--error", "30000", *ON_CHAIN, "--key", "anna.key", "--format", "json"
        )
    assert int(json.loads(out)["cost"]) == held(registered).spent
    assert len(lines) == 1
    assert lines[0].endswith("recorded")


def test_verify_finds_nothing_wrong(nothing_charged, done):
    assert "verified" in done("chain", "verify")


@pytest.fixture
def bought(registered, done):
    with measuring(registered):
        done("ask", "census.yaml", MEAN, "--error", "30000", *ON_CHAIN, "--key", "anna.key")
    return registered


def does_not_verify(command, *args):
    code, out, err = command("chain", "verify", *args)
    assert (code, out) == (1, "")
    assert err.startswith("error: does not verify: ")
    assert err.count("\n") == 1
    return err


def test_verify_catches_a_node_that_shows_less_spent(bought, command, monkeypatch):
    """Planted: a node whose storage says that a data set has spent one unit less."""
    honest = Contract.call_many

    def lying(self, calls, **options):
        found = honest(self, calls, **options)
        return [
            ((*answer[0][:6], answer[0][6] - 1, answer[0][7]),)
            if function == "datasets" and answer[0][6]
            else answer
            for (function, _), answer in zip(calls, found, strict=True)
        ]

    monkeypatch.setattr(Contract, "call_many", lying)
    assert "data set census" in does_not_verify(command)


@pytest.mark.parametrize("event", ["Fulfilled", "MeasurementRequested", "Allowed"])
def test_verify_catches_a_node_that_hides_an_event(bought, command, monkeypatch, event):
    """Planted: a node that does not show the last event of a kind."""
    honest, topic = Node.logs, bytes.fromhex(artifact().topic(event)[2:])

    def hiding(self, *given):
        for logs in honest(self, *given):
            places = [place for place, log in enumerate(logs) if log.topics[0] == topic]
            yield [log for place, log in enumerate(logs) if place not in places[-1:]]

    monkeypatch.setattr(Node, "logs", hiding)
    does_not_verify(command)


def test_verify_catches_another_declaration(bought, command, done):
    text = bought.declaration.read_text()
    bought.declaration.write_text(text + "# a comment is enough\n")
    assert "is not the declaration that was registered" in does_not_verify(command, "census.yaml")
    bought.declaration.write_text(text.replace("epsilon: 8", "epsilon: 7"))
    assert "other terms" in does_not_verify(command, "census.yaml")
    bought.declaration.write_text(text)
    (bought.folder / "census.reticent" / "commitment.json").unlink()
    assert "its nonce is not here" in done("chain", "verify", "census.yaml", "--owner", bought.owner)


def test_strangers_words_are_not_obeyed(place, done):
    """A data set whose name would clear the screen, and whose subject is no text."""
    file = ChainFile.read(place.folder / "chain.json")
    from reticent.chain.keys import read_key

    with closing(file.connect()) as node:
        data = artifact().encode(
            "register", "\x1b[2J\nx", "mu2", "ROW", b"\xff\x00", 10, 1, place.oracle, b"\0" * 32
        )
        Sender(node, read_key(place.folder / "owner.key")).transact(file.contract, data)
    for args in (["chain", "status"], ["chain", "watch", "--once"]):
        out = done(*args)
        assert "\x1b" not in out
        assert "?[2J?x" in out
    done("chain", "verify")


def test_a_watch_goes_on_when_the_node_is_back(nothing_charged, command, monkeypatch):
    """The node goes away in the middle of the events; each is shown once."""
    honest, calls = Node.block, []

    def failing(self, *given):
        calls.append(given)
        if len(calls) in (2, 3):
            raise NodeUnavailable("the node does not answer")
        return honest(self, *given)

    monkeypatch.setattr(Node, "block", failing)

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 5:
            raise KeyboardInterrupt

    pauses = []
    monkeypatch.setattr(chain_views.time, "sleep", pause)
    code, out, err = command("chain", "watch")
    assert code == 130
    assert err.splitlines()[:2] == ["the node does not answer; waiting for it", "the node is back"]
    assert err.splitlines()[-1] == "error: interrupted"
    lines = out.splitlines()
    assert len(lines) == len(set(lines)) >= 2
    monkeypatch.setattr(Node, "block", honest)
    assert command("chain", "watch", "--once") == (0, out, "")
