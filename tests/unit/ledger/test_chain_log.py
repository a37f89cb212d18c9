"""The log of a contract: followed through reorganisations, replayed by its rules, compared with storage."""

import random
import types
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest

pytest.importorskip("reticent.chain.keys", reason="eth-account is not installed")

from eth_abi.abi import encode

from reticent.chain.anvil import Anvil, find_anvil
from reticent.chain.log import ChainLog
from reticent.chain.node import Node
from reticent.chain.outbox import Outbox
from reticent.chain.sender import Sender
from reticent.errors import BudgetExceeded, ChainError, LedgerDamaged, LedgerError, UnknownAccount, WrongChain
from reticent.ledger import Amount, Terms, Unit
from reticent.ledger.ethereum.contract import artifact
from reticent.ledger.ethereum.ledger import EthereumLedger
from reticent.ledger.ethereum.state import State, replay
from reticent.ledger.ethereum.verify import verify
from reticent.privacy import Neighbours

TERMS = Terms("a", Unit.MU2, Neighbours.REPLACE_ONE, "one", 10_000, 2)


def units(number):
    return Amount(number, Unit.MU2, Neighbours.REPLACE_ONE)


@contextmanager
def happened(ethereum, anvil):
    """A ledger on which a bit of everything happened, and its log."""
    events = pytest.importorskip("dp_accounting.dp_event", reason="dp-accounting is not installed")
    with ethereum() as owner:
        owner.open(TERMS)
        owner.open(replace(TERMS, name="b", minimum=1))
        place = owner._contract.address
        with closing(EthereumLedger(Node(anvil.url), place, anvil.keys[1], owner=owner.owner)) as analyst:
            owner.allow("a", analyst.address, 500)
            owner.declare("a", "k", question="q", grid=4, dimension=2)
            analyst.declare("a", "k", question="q", grid=4, dimension=2)
            owner.request("a", "k", units(10))
            analyst.request("a", "k", units(30), idempotency="i")
            analyst.request("a", "k", units(5), idempotency="j")
            analyst.request("a", "l", units(5))
            owner.fulfil(1, [7, -8])
            owner.fulfil(2, [9])
            owner.pay("a", events.GaussianDpEvent(4e5), key="p")
            owner.pause("a")
            owner.resume("a")
            owner.appoint("a", analyst.address)
            owner.offer("a", analyst.address)
            analyst.take("a")
        log = ChainLog(owner._node, artifact(), place, State)
        log.sync()
        yield owner, log


@pytest.fixture(scope="module")
def history(ethereum, anvil):
    with happened(ethereum, anvil) as found:
        yield found


def plain(log):
    """Everything that a log knows."""
    state = log.state
    found = (state.datasets, state.keys, state.measurements, state.waiting, [e.log for e in log.events()])
    return repr(found)


def test_a_replay_adds_everything_up(history):
    owner, log = history
    state = replay(log.events())
    a, b = (state.datasets[owner._dataset(name)] for name in "ab")
    paid = state.measurements[3].information
    assert (a.spent, a.measurements, b.spent) == (35 + paid, 4, 0)
    assert (a.terms, a.block) == (TERMS, owner._contract.held(a.id).registered)
    (used,) = a.analysts.values()
    assert (used.quota, used.used) == (500, 25)
    assert a.owner == a.oracle != a.registrant == owner.address
    named = {under.name: under for under in state.keys.values()}
    k = named["k"]
    assert (k.requested, k.recorded, k.sums, k.question, k.grid) == (30, 20, [140, -160], "q", 4)
    assert (named["l"].sums, named["l"].size, named["payment:p"].size) == ([45], 1, 0)
    assert (named["payment:p"].requested, named["payment:p"].recorded) == (paid, paid)
    assert [one.fulfilled for one in state.measurements] == [False, True, True, True]
    assert [one.start for one in state.measurements] == [0, 10, 0, 0]
    assert [one.paid for one in state.measurements] == [False, False, False, True]
    charged = [one for one in log.events() if one.name in ("MeasurementRequested", "Paid")]
    assert [(one.number, one.dataset, one.key, one.block, one.transaction) for one in state.measurements] == [
        (number, a.id, one.fields["key"], one.log.block, one.log.transaction)
        for number, one in enumerate(charged)
    ]
    assert [one.analyst == owner.address for one in state.measurements] == [True, False, False, True]
    assert list(state.waiting) == [0]
    assert {event.name for event in log.events()} == {
        part["name"] for part in artifact().abi if part["type"] == "event"
    }
    assert plain(log) == plain(types.SimpleNamespace(state=state, events=log.events))


WRONG = [
    ("Registered", {"name": "c"}, "its identifier is another one's"),
    ("Registered", {"minimum": 20_000}, "its minimum passes its cap"),
    ("Declared", {"grid": 5}, "its identifier is another one's"),
    ("Declared", {"declarer": "0x" + "11" * 20}, "its declarer is not allowed"),
    ("MeasurementRequested", {"start": 1}, "its start is not what was requested before"),
    ("MeasurementRequested", {"information": 9}, "what is spent is not what was spent before and this"),
    ("MeasurementRequested", {"information": 11}, "what is spent is not what was spent before and this"),
    ("MeasurementRequested", {"information": 1, "spent": 1}, "it is charged less than the minimum"),
    ("MeasurementRequested", {"information": 3, "spent": 3}, "it is charged less than the minimum"),
    ("MeasurementRequested", {"information": 10_001, "spent": 10_001}, "the cap is passed"),
    ("MeasurementRequested", {"number": 1}, "its number is not the next one"),
    ("MeasurementRequested", {"analyst": "0x" + "11" * 20}, "its analyst is not allowed"),
    ("MeasurementRequested", {"key": bytes(32)}, "the key was never declared"),
    ("MeasurementRequested", {"dataset": bytes(32)}, "the data set was never registered"),
    ("Reused", {"requested": 31}, "that much was not requested before"),
    ("Reused", {"information": 31}, "it asks for more than was bought"),
    ("Reused", {"analyst": "0x" + "11" * 20}, "its analyst is not allowed"),
    ("Paid", {"payer": "0x" + "11" * 20}, "its payer is not allowed"),
    ("Paid", {"name": b"another"}, "its identifier is another one's"),
    ("Fulfilled", {"number": 2}, "it is another measurement"),
    ("Fulfilled", {"number": 3}, "the measurement does not wait for values"),
    ("Fulfilled", {"start": 0}, "it is another measurement"),
    ("Fulfilled", {"information": 21}, "it is another measurement"),
    ("Fulfilled", {"grid_values": (1,)}, "the number of values is another one"),
    ("Paused", {"paused": False}, "it changes nothing"),
    ("OwnershipTaken", {"owner": "0x" + "11" * 20}, "it was not offered"),
]


@pytest.mark.parametrize(("name", "fields", "reason"), WRONG)
def test_a_replay_refuses_an_event_that_breaks_a_rule(history, name, fields, reason):
    events = list(history[1].events())
    place = next(i for i, event in enumerate(events) if event.name == name)
    events[place] = replace(events[place], fields=events[place].fields | fields)
    with pytest.raises(LedgerDamaged, match=f"{name} in block .* contradicts the events before: {reason}"):
        replay(events)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Registered", "it was registered before"),
        ("Declared", "it was declared before"),
        ("MeasurementRequested", "its start is not what was requested before"),
        ("Fulfilled", "the measurement does not wait for values"),
        ("Reused", "its idempotency key was used before"),
        ("Paid", "something was paid under the name before"),
    ],
)
def test_a_replay_refuses_an_event_twice(history, name, reason):
    events = list(history[1].events())
    place = next(i for i, event in enumerate(events) if event.name == name)
    with pytest.raises(LedgerDamaged, match=reason):
        replay([*events[: place + 1], *events[place:]])


def test_a_replay_knows_what_values_cost(history):
    """Two values at 2 each are 4; at 5,000 each they are the cap, and at one more they pass it."""
    events = list(history[1].events())
    names = [event.name for event in events]
    registered, declared, request = (
        names.index(name) for name in ("Registered", "Declared", "MeasurementRequested")
    )
    least = replace(events[request], fields=events[request].fields | {"information": 4, "spent": 4})
    assert replay([*events[:request], least]).measurements[0].information == 4
    for minimum in (5_000, 5_001):
        first = replace(events[registered], fields=events[registered].fields | {"minimum": minimum})
        story = [*events[:registered], first, *events[registered + 1 : declared + 1]]
        if minimum == 5_000:
            assert len(replay(story).keys) == 1
        else:
            with pytest.raises(LedgerDamaged, match=r"Declared in .* the least it is charged passes the cap"):
                replay(story)


def test_a_replay_knows_pauses_and_quotas(history):
    events = list(history[1].events())
    names = [event.name for event in events]
    pause, request = events[names.index("Paused")], names.index("MeasurementRequested")
    with pytest.raises(LedgerDamaged, match="spending is paused"):
        replay([*events[:request], pause, *events[request:]])
    allowed = names.index("Allowed")
    small = replace(events[allowed], fields=events[allowed].fields | {"quota": 24})
    with pytest.raises(LedgerDamaged, match="the quota is passed"):
        replay([*events[:allowed], small, *events[allowed + 1 :]])
    with pytest.raises(LedgerDamaged, match=r"Other in block .*: it is unknown"):
        replay([replace(events[0], name="Other")])


def test_storage_and_events_are_compared(history):
    owner, log = history
    node, place = owner._node, owner._contract.address
    block, state = verify(node, artifact(), place)
    assert (block, len(state.measurements)) == (log.block, 4)
    early, before = verify(node, artifact(), place, next(log.events()).log.block)
    assert (early, before.measurements) == (next(log.events()).log.block, [])
    with pytest.raises(ChainError, match="the chain has no block 1000000 yet"):
        verify(node, artifact(), place, 1_000_000)
    with pytest.raises(WrongChain, match="there is no contract"):
        verify(node, artifact(), owner.address)


@pytest.mark.parametrize("part", range(4))
def test_a_stored_number_that_was_changed_is_found(history, part):
    """Planted: somebody who could write to the storage, in the slots that hold charges and sums."""
    owner, log = history
    node, place = owner._node, owner._contract.address
    slots = written_slots(node, place, log)
    assert len(slots) > 8
    for slot in slots[part::4]:
        held = int(node.rpc("eth_getStorageAt", place, slot, "latest"), 16)
        for stored in (held ^ 1, held):
            node.rpc("anvil_setStorageAt", place, slot, f"0x{stored:064x}")
            node.rpc("anvil_mine", "0x1")
            if stored != held:
                with pytest.raises(LedgerDamaged, match="is stored otherwise than its events say"):
                    verify(node, artifact(), place, first_block=log._first)
    verify(node, artifact(), place)


def written_slots(node, place, log):
    """The slots of the contract that its last request and record changed."""
    slots = set()
    for event in log.events():
        if event.name in ("MeasurementRequested", "Fulfilled"):
            found = node.rpc(
                "debug_traceTransaction",
                event.log.transaction,
                {"tracer": "prestateTracer", "tracerConfig": {"diffMode": True}},
            )
            slots |= set(found["post"].get(place.lower(), {}).get("storage", {}))
    answers = [slot for slot in slots if not seen(node, place, slot)]
    return sorted(slots - set(answers))


def seen(node, place, slot):
    """Whether a slot is one of those that views show: an idempotency key's answer has 128 bits of a hash."""
    return int(node.rpc("eth_getStorageAt", place, slot, "latest"), 16) >> 192 in (0, (1 << 64) - 1)


def test_texts_of_strangers_stop_nobody(ethereum, anvil):
    with ethereum() as owner:
        owner.open(TERMS)
        compiled, sender = artifact(), Sender(owner._node, anvil.keys[5])
        kinds = ["bytes", "bytes", "bytes", "bytes", "uint64", "uint64", "address", "bytes32"]
        good = [b"x", b"mu2", b"REPLACE_ONE", b"one", 5, 1, sender.address, bytes(32)]
        selector = compiled.encode("register", "x", "y", "z", b"", 1, 1, owner.address, bytes(32))[:4]
        for place, text in [(0, b"\xff\xfe"), (1, b"\xff"), (2, b"furlongs"), (3, b"\xff")]:
            row = [b"%d" % place, *good[1:]]
            row[place] = text
            sender.transact(owner._contract.address, selector + encode(kinds, row))
        state = owner.log.sync()
        names = [held.name for held in state.datasets.values()]
        assert names == ["a", r"\xff\xfe", "1", "2", "3"]
        assert [held.terms for held in state.datasets.values()] == [TERMS, None, None, None, None]
        verify(owner._node, compiled, owner._contract.address)
        stranger = EthereumLedger(owner._node, owner._contract.address, anvil.keys[5])
        assert stranger.accounts() == []
        for call in (stranger.balance, stranger.status):
            with pytest.raises(LedgerError, match="terms that this version cannot read"):
                call("1")
        dataset = next(held for held in state.datasets.values() if held.name == "1").id
        odd = (b"\xff", b"\xfe", 0, 1)
        sender.transact(owner._contract.address, compiled.encode("declare", dataset, *odd))
        (under,) = owner.log.sync().keys.values()
        assert (under.name, under.question) == ("0xff", "0xfe")


# Reorganisations


@pytest.fixture(scope="module")
def own_chain():
    """A chain that may be reorganised without disturbing others. Blocks come only when they are asked for."""
    if find_anvil() is None:
        pytest.skip("no anvil on this machine (npm installs it)")
    with Anvil("--no-mining") as running:
        yield running


class World:
    """What happens on the chain while somebody waits for it: a new block, or a reorganisation.

    Every pause of the sender is a second of its clock and one such step, so that a run is the same each time.
    """

    def __init__(self, node, seed, *, chance):
        self.node, self.draw, self.chance = node, random.Random(seed), chance
        self.clock, self.reorganised, self.watchers = 0.0, 0, []

    def monotonic(self):
        return self.clock

    time = monotonic

    def sleep(self, seconds):
        self.clock += 1
        self.watch()
        if self.draw.random() < self.chance:
            self.reorganise(self.draw.randint(1, 2), forget=self.draw.random() < 0.5)
        else:
            self.node.rpc("evm_mine")
        self.watch()

    def reorganise(self, depth, *, forget=True):
        """Put empty blocks in place of the newest ones; their transactions come back later, or never."""
        self.node.rpc("anvil_setCoinbase", f"0x{self.draw.getrandbits(160):040x}")  # another hash for sure
        self.node.rpc("anvil_reorg", depth, [])
        if forget:
            self.node.rpc("anvil_dropAllTransactions")
        self.reorganised += 1

    def watch(self):
        for watch in self.watchers:
            watch()


@pytest.fixture
def reorganising(own_chain, monkeypatch, tmp_path):
    """A function that makes a ledger on a chain that is reorganised whenever somebody waits."""
    nodes = []

    def make(seed, *, confirmations=2, chance=0.35):
        node = Node(own_chain.url)
        nodes.append(node)
        world = World(node, seed, chance=0)
        for module in ("chain.sender", "ledger.ethereum.orders", "ledger.ethereum.accounts"):
            monkeypatch.setattr(f"reticent.{module}.time", world)
        made = Sender(node, own_chain.keys[9]).transact(None, artifact().creation, gas=4_000_000)
        node.rpc("anvil_mine", "0x5")
        outbox = Outbox(tmp_path / f"{len(nodes)}.db")
        ledger = EthereumLedger(
            node, made.contract, own_chain.keys[0], confirmations=confirmations, first_block=made.block,
            outbox=outbox,
        )  # fmt: skip
        ledger.open(TERMS)
        world.chance = chance
        return ledger, world

    yield make
    for node in nodes:
        node.close()


def depth_of(ledger, number):
    """How many blocks lie on top of the request of a measurement, in the chain as it is; -1 if it is not."""
    log = ChainLog(ledger._node, artifact(), ledger._contract.address, State, first_block=ledger.log._first)
    measurements = log.sync().measurements
    return log.block - measurements[number].block if number < len(measurements) else -1


def survive(make, reorganisations, seed=1):
    """Ask and record through reorganisations; return what was wrong."""
    ledger, world = make(seed)
    address, first = ledger._contract.address, ledger.log._first
    newest = ChainLog(ledger._node, artifact(), address, State, first_block=first)
    wrong, draw, bought = [], random.Random(seed), {}

    def watch():
        fresh = ChainLog(ledger._node, artifact(), address, State, first_block=first)
        fresh.sync()
        newest.sync()
        if newest.block_hash != fresh.block_hash or plain(newest) != plain(fresh):
            wrong.append("the log differs from a fresh one")

    world.watchers.append(watch)
    step = 0
    while world.reorganised < reorganisations:
        step += 1
        key, asked = f"k{draw.randint(0, 3)}", draw.randint(1, 40) + 10 * step
        text = draw.choice([None, f"i{step}"])
        due = max(asked - bought.get(key, 0), TERMS.minimum) if asked > bought.get(key, 0) else 0
        try:
            grant = ledger.request("a", key, units(asked), idempotency=text)
        except BudgetExceeded:
            break
        if grant.charged != due:
            wrong.append(f"charged {grant.charged}, not {due}")
        bought[key] = bought.get(key, 0) + due
        if grant.charged and depth_of(ledger, grant.pending[-1].number) < 2:
            wrong.append("released with too few confirmations")
        if text and ledger.request("a", key, units(asked), idempotency=text).charged != due:
            wrong.append("a retry has another answer")
        if step % 2:
            for waiting in ledger.waiting("a"):
                ledger.settle(ledger.record(waiting, [waiting.information]))
    world.chance = 0
    for waiting in ledger.waiting("a"):
        ledger.settle(ledger.record(waiting, [waiting.information]))
    _, state = verify(ledger._node, artifact(), address, first_block=first)
    if state.datasets[ledger._dataset("a")].spent != sum(bought.values()):
        wrong.append("spent is not what was granted")
    for under in state.keys.values():
        done = [m.information for m in state.measurements if m.key == under.id]
        if under.sums != [sum(one * one for one in done)] or sum(done) != bought[under.name]:
            wrong.append("a measurement was lost or recorded twice")
    return wrong, world.reorganised


def test_reorganisations_charge_once_and_release_nothing_early(reorganising):
    wrong, seen = survive(reorganising, 5)
    assert (wrong, seen >= 5) == ([], True)


@pytest.mark.slow
def test_a_hundred_reorganisations_charge_once_and_release_nothing_early(reorganising):
    count = 0
    for seed in range(100):
        wrong, seen = survive(reorganising, 10, seed)
        assert wrong == []
        count += seen
        if count >= 100:
            return
    pytest.fail("there were too few reorganisations")


def test_a_ledger_that_answers_at_once_is_caught(reorganising):
    """Planted: it says two confirmations and waits for none."""

    def hasty(seed):
        ledger, world = reorganising(seed)
        ledger._sender.confirmations = 0
        return ledger, world

    wrong, _ = survive(hasty, 5)
    assert "released with too few confirmations" in wrong
    ledger, world = hasty(1)
    world.chance = 0
    number = ledger.request("a", "k", units(5)).pending[0].number
    assert depth_of(ledger, number) < 2
    world.reorganise(1)
    assert depth_of(ledger, number) == -1  # granted, and never charged


def test_a_log_that_does_not_rewind_is_caught(reorganising, monkeypatch):
    monkeypatch.setattr(ChainLog, "_rewind", lambda self: None)
    try:
        wrong, _ = survive(reorganising, 5)
    except (LedgerError, ChainError):
        return  # it contradicts itself
    assert wrong


def test_a_deep_reorganisation_is_read_from_the_start(reorganising, monkeypatch):
    monkeypatch.setattr("reticent.chain.log._POSITIONS", 3)
    ledger, world = reorganising(1, chance=0, confirmations=0)
    log = ChainLog(ledger._node, artifact(), ledger._contract.address, State, first_block=ledger.log._first)
    for i in range(6):
        ledger.request("a", f"k{i}", units(5))
        log.sync()
    assert len(log._positions) == 3
    world.reorganise(4)
    fresh = ChainLog(ledger._node, artifact(), ledger._contract.address, State, first_block=ledger.log._first)
    fresh.sync()
    log.sync()
    assert plain(log) == plain(fresh)
    assert len(log.state.measurements) == 2
    another = EthereumLedger(ledger._node, ledger._contract.address, ledger._sender._key)
    assert [another.request("a", f"k{i}", units(5)).charged for i in range(3)] == [0, 0, 5]


def test_a_chain_that_became_shorter_is_read_again(reorganising):
    """What was read last is in no block of that number any more."""
    ledger, _ = reorganising(1, chance=0, confirmations=0)
    log = ChainLog(ledger._node, artifact(), ledger._contract.address, State, first_block=ledger.log._first)
    for i in range(3):
        ledger.request("a", f"k{i}", units(5))
        log.sync()
    ledger._node.rpc("anvil_rollback", 2)
    ledger._node.rpc("anvil_dropAllTransactions")
    fresh = ChainLog(ledger._node, artifact(), ledger._contract.address, State, first_block=ledger.log._first)
    fresh.sync()
    log.sync()
    assert plain(log) == plain(fresh)
    assert log.block == ledger._node.number()


def test_an_account_that_left_the_chain_is_unknown(reorganising):
    ledger, world = reorganising(1, chance=0, confirmations=0)
    place, key = ledger._contract.address, ledger._sender._key
    world.reorganise(1)
    with pytest.raises(UnknownAccount, match=r"account a was never opened$"):
        ledger.request("a", "k", units(5))
    EthereumLedger(ledger._node, place, key).open(replace(TERMS, cap=77))
    assert ledger.balance("a").terms.cap == 77
    world.reorganise(1)
    EthereumLedger(ledger._node, place, key).open(replace(TERMS, cap=88))
    with pytest.raises(UnknownAccount, match="account a is not what it was: the chain was reorganised"):
        ledger.request("a", "k", units(5))
    assert ledger.request("a", "k", units(5)).remaining == 83


def test_a_chain_that_changes_while_it_is_read_is_read_again(reorganising, monkeypatch):
    ledger, world = reorganising(1, chance=0, confirmations=0)
    ledger.request("a", "k", units(5))
    log = ChainLog(ledger._node, artifact(), ledger._contract.address, State, first_block=ledger.log._first)
    meant, times = Node.logs, [1]

    def logs(self, *given):
        found = list(meant(self, *given))
        if times[0]:
            times[0] -= 1
            world.reorganise(1)
        return iter(found)

    monkeypatch.setattr(Node, "logs", logs)
    assert log.sync().measurements == []  # the request left the chain between two messages
    ledger.request("a", "k", units(5))
    log = ChainLog(ledger._node, artifact(), ledger._contract.address, State, first_block=ledger.log._first)
    times[0] = 100
    with pytest.raises(ChainError, match="the chain changes faster than its log can be read"):
        log.sync()
