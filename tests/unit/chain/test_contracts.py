"""Compiled contracts: every function and event there and back against anvil, and what is not theirs."""

from dataclasses import replace
from hashlib import sha256

import pytest
from eth_abi.abi import default_codec, encode

from reticent.chain.contracts import Artifact, Event
from reticent.chain.node import Log
from reticent.errors import ChainError, ParameterError, TransactionRefused, WrongChain

ZERO = bytes(32)
COMMITMENT = sha256(b"c").digest()
IDEMPOTENCY = sha256(b"i").digest()


@pytest.fixture
def deployed(sender, ledger):
    return sender.transact(None, ledger.creation).contract


class Talk:
    """Calls functions by name; gives back the events."""

    def __init__(self, artifact, address, sender):
        self.artifact, self.address, self.sender = artifact, address, sender

    def say(self, function, *arguments):
        receipt = self.sender.transact(self.address, self.artifact.encode(function, *arguments))
        return [self.artifact.event(one) for one in receipt.logs]

    def ask(self, function, *arguments):
        data = self.artifact.encode(function, *arguments)
        answer = self.sender.node.call(self.address, data, sender=self.sender.address)
        return self.artifact.decode(function, answer)


def test_every_function_and_event_of_the_ledger(sender, ledger, deployed):
    talk, me, other = Talk(ledger, deployed, sender), sender.address, "0x" + "12" * 20
    used, seen = set(), {}

    def say(function, *arguments):
        used.add(function)
        for event in talk.say(function, *arguments):
            assert isinstance(event, Event)
            seen[event.name] = event.fields
        return event.fields

    def ask(function, *arguments):
        used.add(function)
        return talk.ask(function, *arguments)

    terms = ("zensus ÿ", "mu2", "replace one", "übung".encode(), 10**12, 3, me, COMMITMENT)
    found = say("register", *terms)
    dataset = found["dataset"]
    assert (found["name"], found["unit"], found["neighbours"], found["subject"]) == terms[:4]
    assert (found["cap"], found["minimum"], found["commitment"]) == (10**12, 3, COMMITMENT)
    assert found["owner"].lower() == found["oracle"].lower() == me.lower()

    found = say("declare", dataset, b"key \xff", b"q" * 1000, -7, 2)
    key = found["key"]
    assert (found["name"], found["question"], found["grid"], found["dimension"]) == (
        b"key \xff",
        b"q" * 1000,
        -7,
        2,
    )

    found = say("request", dataset, key, 100, IDEMPOTENCY)
    number = found["number"]
    assert (found["start"], found["information"], found["spent"], found["idempotency"]) == (
        0,
        100,
        100,
        IDEMPOTENCY,
    )
    assert ask("waiting", number) != (ZERO,)
    found = say("request", dataset, key, 50, ZERO)
    assert (found["information"], found["requested"]) == (50, 100)

    values = (-(2**63), 2**63 - 1)
    found = say("fulfil", number, dataset, key, 0, 100, values)
    assert tuple(found["grid_values"]) == values
    assert ask("recorded", dataset, key) == (100, 100, tuple(100 * value for value in values))
    assert ask("sums", dataset, key, 1) == (100 * values[1],)

    found = say("pay", dataset, b"elsewhere", 7, ZERO)
    assert (found["name"], found["information"], found["spent"]) == (b"elsewhere", 7, 107)
    assert say("allow", dataset, other, 9)["quota"] == 9
    assert ask("analysts", dataset, other) == ((9, 0),)
    assert say("pause", dataset, True)["paused"] is True
    (look,) = ask("look", dataset, key, me, IDEMPOTENCY)
    assert look[:4] == (True, True, True, 2)
    assert look[4:7] == (10**12, 3, 107)
    assert look[9:11] == (100, 100)
    assert look[11] & (2**64 - 1) == 100
    assert say("appoint", dataset, other)["oracle"].lower() == other
    say("offer", dataset, me)
    say("take", dataset)
    assert ask("datasets", dataset)[0][0].lower() == me.lower()
    assert ask("keys", dataset, key) == ((6, True, 2, 100, 100),)  # 3 for each of two values
    assert ask("measurements") == (2,) == ask("version")

    abi = {kind: {one["name"] for one in ledger.abi if one["type"] == kind} for kind in ("function", "event")}
    assert used == abi["function"]
    assert set(seen) == abi["event"]


def test_the_anchor(sender, anchor):
    address = sender.transact(None, anchor.creation).contract
    given = (COMMITMENT, 2**64 - 1, b"r" * 32, b"t" * 32, (b"s" * 32, b"S" * 32))
    (event,) = Talk(anchor, address, sender).say("anchor", *given)
    assert event.name == "Anchored"
    assert tuple(event.fields[one] for one in ("origin", "size", "root", "totals", "signature")) == given


def test_a_text_that_is_not_utf8_stops_nobody(sender, ledger, deployed):
    """Anybody may register any bytes: those who read the log must get past them."""
    terms = ("AAAA", "mu2", "replace one", b"", 10, 1, sender.address, ZERO)
    data = ledger.encode("register", *terms).replace(b"AAAA", b"\xff\xfe\x00A")
    (log,) = sender.transact(deployed, data).logs
    assert ledger.event(log).fields["name"] == "\\xff\\xfe\x00A"


def test_the_codec_of_eth_abi_would_be_caught(sender, ledger, deployed, monkeypatch):
    """Planted: texts are decoded strictly."""
    monkeypatch.setattr("reticent.chain.contracts._ABI", default_codec)
    with pytest.raises(ChainError, match="no Registered of PrivacyLedger"):
        test_a_text_that_is_not_utf8_stops_nobody(sender, ledger, deployed)


# What is not theirs


def test_other_contracts(node, sender, ledger, anchor, deployed):
    ledger.check(node, deployed)
    other = sender.transact(None, anchor.creation).contract
    with pytest.raises(WrongChain, match=rf"the contract at {other} is not this version of PrivacyLedger"):
        ledger.check(node, other)
    nobody = "0x" + "34" * 20
    with pytest.raises(WrongChain, match=rf"there is no contract at {nobody} on chain 31337"):
        ledger.check(node, nobody)
    old = ledger.runtime[:-1] + b"\0"
    node.rpc("anvil_setCode", nobody, "0x" + old.hex())
    with pytest.raises(WrongChain, match=r"is not this version of PrivacyLedger$"):
        ledger.check(node, nobody)
    known = replace(ledger, earlier={sha256(old).hexdigest(): "an older one"})
    with pytest.raises(WrongChain, match=r"is not this version of PrivacyLedger, but an older one$"):
        known.check(node, nobody)


def test_a_check_of_the_length_only_would_be_caught(node, ledger):
    """Planted: code of the same length passes."""

    class Planted(Artifact):
        def check(self, node, address):
            if len(node.code(address)) != len(self.runtime):
                raise WrongChain("other")

    nobody = "0x" + "35" * 20
    node.rpc("anvil_setCode", nobody, "0x" + bytes(b ^ 1 for b in ledger.runtime).hex())
    Planted(ledger.name, ledger.abi, ledger.creation, ledger.runtime).check(node, nobody)
    with pytest.raises(WrongChain):
        ledger.check(node, nobody)


@pytest.fixture
def log(ledger):
    """A log of an Allowed."""
    topics = (bytes.fromhex(ledger.topic("Allowed")[2:]), b"d" * 32, bytes(12) + b"a" * 20)
    return Log("0x" + "11" * 20, topics, encode(["uint64"], [5]), 1, "0x", "0x", 0)


def test_a_log(ledger, log):
    fields = ledger.event(log).fields
    assert fields == {"dataset": b"d" * 32, "analyst": "0x" + "61" * 20, "quota": 5}


def test_unknown_events(ledger, anchor, log):
    assert anchor.event(log) is None
    assert ledger.event(replace(log, topics=())) is None
    assert ledger.event(replace(log, topics=(bytes(32), *log.topics[1:]))) is None


@pytest.mark.parametrize(
    "change",
    [
        {"data": b""},
        {"data": b"\xff" * 32},
        {"data": bytes(31)},
        {"topics": 1},
        {"topics": 2},
        {"topics": 4},
        {"topics": "short"},
        {"topics": "dirty"},
    ],
)
def test_malformed_logs(ledger, log, change):
    held = (*log.topics, bytes(32))
    if change.get("topics") == "short":
        change = {"topics": (held[0], b"d", held[2])}
    elif change.get("topics") == "dirty":
        change = {"topics": (held[0], held[1], b"\xff" * 32)}
    elif "topics" in change:
        change = {"topics": held[: change["topics"]]}
    with pytest.raises(ChainError, match="what the chain holds is no Allowed of PrivacyLedger"):
        ledger.event(replace(log, **change))


@pytest.mark.parametrize("word", [0, 31, 32, 33, 2**64, 2**255, 2**256 - 1])
def test_malformed_pointers(ledger, word):
    """Lengths and places in dynamic data, out of all bounds."""
    topic = bytes.fromhex(ledger.topic("Fulfilled")[2:])
    for data in (
        encode(["uint64"] * 2 + ["uint256"], [1, 2, word]),
        encode(["uint256"] * 4, [1, 2, 96, word]),
    ):
        log = Log("0x", (topic, *[bytes(32)] * 3), data, 1, "0x", "0x", 0)
        try:
            found = ledger.event(log).fields["grid_values"]
        except ChainError:
            found = ()
        assert found == ()


def test_answers_that_are_not_the_function_s(ledger):
    for data in (b"", b"\xff" * 7, b"\xff" * 32 * 12):
        with pytest.raises(ChainError, match="what the chain holds is no look of PrivacyLedger"):
            ledger.decode("look", data)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (ZERO, 1, 2, 3),
        (ZERO, "0x12", 1),
        (ZERO, "0x" + "1" * 40, -1),
        (ZERO, "0x" + "1" * 40, 2**64),
        ("x", None, 1.5),
    ],
)
def test_arguments_that_are_not_the_function_s(ledger, arguments):
    with pytest.raises(
        ParameterError, match=r"allow takes \(bytes32, address, uint64\), got something else"
    ) as caught:
        ledger.encode("allow", *arguments)
    assert caught.value.__cause__ is None


def test_a_reason_comes_through(sender, ledger, deployed):
    with pytest.raises(TransactionRefused) as caught:
        Talk(ledger, deployed, sender).say("take", ZERO)
    assert caught.value.reason == "ledger: not offered"


def test_indexed_fields_of_more_than_a_word_are_hashes():
    """A tuple, a text and an array, in fields and in topics."""
    pair = {"type": "tuple", "components": [{"type": "uint8", "name": "a"}, {"type": "string", "name": "b"}]}
    kinds = [{"type": "string"}, pair, {"type": "uint8[2]"}, {"type": "bytes"}, {"type": "bytes4"}]
    inputs = [one | {"name": f"i{i}", "indexed": True} for i, one in enumerate(kinds)]
    inputs += [pair | {"name": "d", "indexed": False}]
    artifact = Artifact("Odd", [{"type": "event", "name": "E", "inputs": inputs}], b"", b"")
    topics = [bytes([i]) * 32 for i in range(4)] + [b"abcd" + bytes(28)]
    log = Log(
        "0x",
        (bytes.fromhex(artifact.topic("E")[2:]), *topics),
        encode(["(uint8,string)"], [(3, "x")]),
        1,
        "",
        "",
        0,
    )
    fields = artifact.event(log).fields
    assert [fields[f"i{i}"] for i in range(4)] == topics[:4]
    assert fields["i4"] == b"abcd"
    assert fields["d"] == (3, "x")
