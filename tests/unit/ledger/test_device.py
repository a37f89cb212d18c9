"""The device ledger: like the reference, durable before it answers, and never opened wrong.

Crashes are tried in two ways. `kill -9` shows that a process that ends anywhere loses and doubles nothing; it
cannot show a missing fsync, since the system keeps what it was given. For that, `Disk` records every
call that changes the file system and makes each content that a power loss may leave at each moment.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import json
import os
import random
import resource
import select
import signal
import stat
import tempfile
import threading
import time
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from reticent.errors import (
    AccountConflict,
    AlreadyFulfilled,
    BudgetExceeded,
    IdempotencyConflict,
    LedgerDamaged,
    LedgerError,
    MixedGuarantees,
    ParameterError,
    ReticentError,
    UnknownAccount,
    UnknownMeasurement,
)
from reticent.ledger import device
from reticent.ledger.base import Amount, Terms, Unit
from reticent.ledger.device import MAGIC, DeviceLedger
from reticent.ledger.memory import MemoryLedger
from reticent.privacy import Neighbours

LOCAL = Neighbours.ANY_TWO_VALUES
PHONE = Terms("phone", Unit.EPSILON, LOCAL, "the owner of the phone", 1000, 2)


def units(amount):
    return Amount(amount, Unit.EPSILON, LOCAL)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger"


@pytest.fixture(autouse=True)
def no_waiting(request, monkeypatch):
    """The disk is not waited for: only a loss of power could tell, and `Disk` stands for that."""
    if "real_disk" not in request.fixturenames:
        monkeypatch.setattr(os, "fsync", nothing)


@pytest.fixture
def real_disk():
    """Do wait for the disk."""


def nothing(argument):
    pass


def view(ledger):
    """All that a ledger tells, as one comparable value."""
    return [
        (
            balance.terms,
            balance.spent,
            [ledger.reading(balance.terms.name, key) for key in KEYS],
            [ledger.recorded(balance.terms.name, key) for key in KEYS],
            ledger.pending(balance.terms.name),
        )
        for balance in ledger.accounts()
    ]


KEYS = ["a", "b", "c/é"]


def opened(path, **options):
    """The view of the ledger at a path, or None if it refuses as damaged."""
    try:
        with DeviceLedger(path, **options) as ledger:
            return view(ledger)
    except LedgerDamaged:
        return None


STEPS = [
    lambda ledger: ledger.open(PHONE),
    lambda ledger: ledger.request("phone", "a", units(100)),
    lambda ledger: ledger.fulfil(0, [3]),
    lambda ledger: ledger.request("phone", "b", units(10), idempotency="once"),
    lambda ledger: ledger.request("phone", "a", units(150)),
    lambda ledger: ledger.fulfil(2, [-7]),
    lambda ledger: ledger.open(Terms("map", Unit.EPSILON_PER_KM, Neighbours.METRIC, "the ß car", 50)),
    lambda ledger: ledger.fulfil(1, [1 << 61, 0]),
    lambda ledger: ledger.request("phone", "c/é", units(40)),
]


def history(path, **options):
    """Run STEPS; return the view and the bytes after each, beginning with the empty ledger."""
    views, contents = [], []
    with DeviceLedger(path, **options) as ledger:
        for step in [lambda ledger: None, *STEPS]:
            step(ledger)
            views.append(view(ledger))
            contents.append(path.read_bytes())
    return views, contents


def put(place, content):
    """Write a file, not by way of an empty one: some systems then wait for the disk."""
    with place.open("r+b" if place.exists() else "wb") as file:
        file.write(content)
        file.truncate()


# The interface, against the reference


def told(call):
    """What a call answers: its result, or the kind and text of its refusal."""
    try:
        return call()
    except ReticentError as refusal:
        return type(refusal), str(refusal)


class Conformance(RuleBasedStateMachine):
    """Every call answers as the reference does; a refusal changes no byte; reopening changes nothing."""

    names = st.sampled_from(["phone", "car"])
    keys = st.sampled_from(KEYS)

    @initialize(compact_bytes=st.sampled_from([0, 400, 1 << 20]))
    def start(self, compact_bytes):
        self.stack = contextlib.ExitStack()
        self.path = Path(self.stack.enter_context(tempfile.TemporaryDirectory())) / "ledger"
        self.options = {"compact_bytes": compact_bytes}
        self.ledger, self.model = DeviceLedger(self.path, **self.options), MemoryLedger()
        self.last = {}

    def both(self, call):
        before = self.path.read_bytes()
        expected = told(lambda: call(self.model))
        assert told(lambda: call(self.ledger)) == expected
        if isinstance(expected, tuple):
            assert self.path.read_bytes() == before
        return expected

    @rule(name=names, cap=st.sampled_from([20, 60]), minimum=st.sampled_from([1, 5]))
    def open(self, name, cap, minimum):
        self.both(lambda ledger: ledger.open(Terms(name, Unit.EPSILON, LOCAL, "someone", cap, minimum)))

    @rule(
        name=names,
        key=keys,
        information=st.integers(1, 25),
        idempotency=st.sampled_from([None, None, "x", "y"]),
    )
    def request(self, name, key, information, idempotency):
        self.both(lambda ledger: ledger.request(name, key, units(information), idempotency=idempotency))

    @rule(number=st.integers(0, 9), values=st.lists(st.sampled_from([0, -1, 5, 1 << 61]), max_size=2))
    def fulfil(self, number, values):
        answer = self.both(lambda ledger: ledger.fulfil(number, values))
        if not isinstance(answer, tuple):
            self.last[answer.account, answer.key] = tuple(values)

    @rule()
    def reopen(self):
        before = self.path.read_bytes()
        self.ledger.close()
        self.ledger = DeviceLedger(self.path, **self.options)
        assert self.path.read_bytes() == before
        assert self.ledger.cut_bytes == 0

    @precondition(lambda self: self.model.accounts())
    @rule(bad=st.sampled_from([0, -1, True, 1.5, float("nan"), 1 << 62, "3", None]))
    def bad_amount(self, bad):
        self.both(lambda ledger: ledger.request("phone", "a", units(bad)))

    @invariant()
    def agrees(self):
        assert self.ledger.accounts() == self.model.accounts()
        for balance in self.ledger.accounts():
            name = balance.terms.name
            assert balance.spent + balance.remaining == balance.terms.cap
            assert self.ledger.pending(name) == self.model.pending(name)
            for key in KEYS:
                assert self.ledger.reading(name, key) == self.model.reading(name, key)
                assert self.ledger.recorded(name, key) == self.last.get((name, key))

    def teardown(self):
        if hasattr(self, "ledger"):
            self.ledger.close()
            self.stack.close()


TestConformance = Conformance.TestCase
TestConformance.settings = settings(max_examples=60, stateful_step_count=30, deadline=None, database=None)


def test_a_bought_key_costs_nothing_and_its_values_come_back(path):
    with DeviceLedger(path) as ledger:
        ledger.open(PHONE)
        assert ledger.recorded("phone", "survey/speed/2026-11") is None
        grant = ledger.request("phone", "survey/speed/2026-11", units(100))
        assert (grant.charged, grant.remaining) == (100, 900)
        assert ledger.recorded("phone", "survey/speed/2026-11") is None
        ledger.fulfil(grant.pending[0].number, [42])
    with DeviceLedger(path) as ledger:
        grant = ledger.request("phone", "survey/speed/2026-11", units(100))
        assert (grant.charged, grant.remaining, grant.pending) == (0, 900, ())
        assert ledger.recorded("phone", "survey/speed/2026-11") == (42,)
        with pytest.raises(UnknownAccount, match="account car was never opened"):
            ledger.recorded("car", "survey/speed/2026-11")


def test_a_payment_from_outside_is_recorded_without_values(path):
    with DeviceLedger(path) as ledger:
        ledger.open(PHONE)
        number = ledger.request("phone", "outside", units(5)).pending[0].number
        ledger.fulfil(number, ())
        assert ledger.recorded("phone", "outside") == ()
        assert ledger.pending("phone") == []


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: x.open("phone"), TypeError, "terms must be Terms"),
        (lambda x: x.open(Terms("phone", Unit.MU2, LOCAL, "x", 5)), AccountConflict, "with other terms"),
        (lambda x: x.request("phone", "a", 5), TypeError, "must be an Amount"),
        (lambda x: x.request("phone", "a", units(0)), ParameterError, "must be >= 1"),
        (lambda x: x.request("phone", "a", units(-4)), ParameterError, "must be >= 1"),
        (lambda x: x.request("phone", "a", units(float("nan"))), TypeError, "must be a whole number"),
        (lambda x: x.request("phone", "a", units(1 << 62)), ParameterError, "must be <= "),
        (lambda x: x.request("phone", "a", units(1001)), BudgetExceeded, "asked 851 units, only 840 left"),
        (lambda x: x.request("car", "a", units(5)), UnknownAccount, "account car was never opened"),
        (lambda x: x.request("phone", "", units(5)), ParameterError, "key must be a printable text"),
        (lambda x: x.request("phone", "a\n", units(5)), ParameterError, "key must be a printable text"),
        (lambda x: x.request("phone", "a", Amount(5, Unit.MU2, LOCAL)), MixedGuarantees, "is in epsilon"),
        (
            lambda x: x.request("phone", "b", units(11), idempotency="once"),
            IdempotencyConflict,
            "idempotency key once was used",
        ),
        (lambda x: x.fulfil(0, [1]), AlreadyFulfilled, "measurement 0 has its values"),
        (lambda x: x.fulfil(9, [1]), UnknownMeasurement, "measurement 9 was never asked for"),
        (lambda x: x.fulfil(2, [1, 2]), ParameterError, "values must be 1 under this key, got 2"),
        (lambda x: x.fulfil(2, [0.5]), TypeError, "must be a whole number"),
        (lambda x: x.fulfil(-1, [1]), ParameterError, "number must be >= 0"),
    ],
)
def test_bad_input_is_refused_in_one_line_and_writes_nothing(path, call, error, message):
    with DeviceLedger(path) as ledger:
        for step in STEPS[:5]:
            step(ledger)
        before = path.read_bytes()
        with pytest.raises(error, match=message) as refusal:
            call(ledger)
        assert "\n" not in str(refusal.value)
        assert path.read_bytes() == before
        ledger.fulfil(2, [5])


def test_racing_threads_pay_once_and_never_overspend(path):
    with DeviceLedger(path, compact_bytes=0) as ledger:
        ledger.open(PHONE)
        charged = []

        def ask(seed):
            for i in random.Random(seed).sample(range(150), 150):
                with contextlib.suppress(BudgetExceeded):
                    charged.append(ledger.request("phone", f"key {i}", units(10)).charged)

        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(charged) == ledger.balance("phone").spent == 1000
    with DeviceLedger(path) as ledger:
        assert ledger.balance("phone").remaining == 0
        assert len(ledger.pending("phone")) == 100


# The format

GOLDEN = [
    ["open", "phone", "epsilon", "ANY_TWO_VALUES", "the owner of the phone", "1000", "2"],
    ["request", "0", "a", "100"],
    ["fulfil", "0", "3"],
    ["request", "0", "b", "10", "10", "once"],
    ["request", "0", "a", "50"],
    ["fulfil", "2", "-7"],
    ["open", "map", "epsilon_per_km", "METRIC", "the ß car", "50", "1"],
    ["fulfil", "1", "2305843009213693952,0"],
    ["request", "0", "c/é", "40"],
]


def sealed(*records):
    """A file of these records, written from the documentation and not with the library's code."""
    content = b"reticent device ledger 1\n"
    tip = hashlib.sha256(content).digest()
    for record in records:
        body = record if isinstance(record, bytes) else json.dumps(record, separators=(",", ":")).encode()
        head = len(body).to_bytes(4, "big")
        head += hashlib.sha256(tip + head).digest()[:4]
        tip = hashlib.sha256(tip + head + body).digest()
        content += head + body + tip
    return content


def test_the_bytes_are_as_documented(path):
    views, contents = history(path)
    assert contents == [sealed(*GOLDEN[:n]) for n in range(len(GOLDEN) + 1)]
    assert hashlib.sha256(contents[-1]).hexdigest() == GOLDEN_HASH
    assert opened(path) == views[-1]


GOLDEN_HASH = "a7e495014df123705dd618a9d935c6add18c741d2a7b8444e8d8bb1e767a6329"


def test_a_compacted_file_is_as_documented(path):
    history(path)
    with DeviceLedger(path, compact_bytes=0) as ledger:
        ledger.fulfil(3, [8])
        last = view(ledger)
    accounts = [
        [
            GOLDEN[0][1:],
            [
                ["a", "150", "-50", "-7", []],
                ["b", "10", "23058430092136939520,0", "2305843009213693952,0", []],
                ["c/é", "40", "320", "8", []],
            ],
            [["once", "b", "10", "10", "10"]],
        ],
        [GOLDEN[6][1:], [], []],
    ]
    tip = sealed(*GOLDEN, ["fulfil", "3", "8"])[-32:].hex()
    assert path.read_bytes() == sealed(["state", tip, "4", accounts])
    assert opened(path) == last


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"{",
        b"\xff",
        b"5",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'["request","0","a",1e999]',
        ["burn"],
        [["open"]],
        ["open", "phone", "epsilon", "ANY_TWO_VALUES", "again", "5", "1"],
        ["open", "car", "dollars", "ANY_TWO_VALUES", "x", "5", "1"],
        ["open", "car", "epsilon", "ANYBODY", "x", "5", "1"],
        ["open", "car", "epsilon", "ANY_TWO_VALUES", "", "5", "1"],
        ["open", "car", "epsilon", "ANY_TWO_VALUES", "x", "5", "6"],
        ["open", "car"],
        ["request", "1", "a", "5"],
        ["request", "0", "a", "1001"],
        ["request", "0", "a", "-5"],
        ["request", "0", "a", "five"],
        ["request", "0", [], "5"],
        ["request", "0", "a", "5", "x", "once"],
        ["fulfil", "0", "1"],
        ["state", "00" * 32, "0", []],
        ["state", "00", "0", []],
    ],
)
def test_sealed_nonsense_is_damage(path, record):
    content = sealed(GOLDEN[0], record)
    path.write_bytes(content)
    with pytest.raises(LedgerDamaged, match="makes no sense"):
        DeviceLedger(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "accounts",
    [
        5,
        [[]],
        [[GOLDEN[0][1:], [["a", "1001", "1", "1", []]], []]],
        [[GOLDEN[0][1:], [["a", "900", "1", "1", [["0", "101"]]]], []]],
        [[GOLDEN[0][1:], [["a", "-1", "1", "1", []]], []]],
        [[GOLDEN[0][1:], [], [["once", "a", "1", "1"]]]],
        [[GOLDEN[0][1:], [], []], [GOLDEN[0][1:], [], []]],
    ],
)
def test_a_nonsense_state_is_damage(path, accounts):
    path.write_bytes(sealed(["state", "00" * 32, "3", accounts]))
    with pytest.raises(LedgerDamaged, match="record at byte 25 makes no sense"):
        DeviceLedger(path)


def test_values_of_another_length_are_damage(path):
    bought = [["request", "0", "a", "5"], ["fulfil", "0", ""], ["request", "0", "a", "5"]]
    path.write_bytes(sealed(GOLDEN[0], *bought))
    assert opened(path) is not None
    path.write_bytes(sealed(GOLDEN[0], *bought, ["fulfil", "1", "5"]))
    assert opened(path) is None


def test_a_spent_cap_is_not_regained_by_replay(path):
    path.write_bytes(sealed(GOLDEN[0], ["request", "0", "a", "1000"]))
    with DeviceLedger(path) as ledger:
        assert ledger.balance("phone").remaining == 0
        with pytest.raises(BudgetExceeded):
            ledger.request("phone", "b", units(2))


def test_a_year_of_reports_is_small(path):
    """Twelve a day for a year: at most 180 bytes a report, 140 when compacted from time to time."""
    tall = path.with_name("tall")
    for place, compact_bytes, most in [(tall, 1 << 40, 180), (path, 1 << 18, 140)]:
        with DeviceLedger(place, compact_bytes=compact_bytes) as ledger:
            ledger.open(Terms("phone", Unit.EPSILON, LOCAL, "the owner", 1 << 61))
            for n in range(365 * 12):
                key = f"mobility-survey/speed/2026-11-15T{n:05}"
                grant = ledger.request("phone", key, units(10**11))
                ledger.fulfil(grant.pending[0].number, [n % 256])
        print(f"{place.stat().st_size / 4380:.1f} bytes a report")
        assert place.stat().st_size <= most * 4380
    start = time.perf_counter()
    assert opened(path)[0][1] == 4380 * 10**11
    print(f"opened in {time.perf_counter() - start:.3f} s")


def test_compaction_bounds_the_file_when_keys_are_few(path):
    with DeviceLedger(path, compact_bytes=2000) as ledger:
        ledger.open(Terms("phone", Unit.EPSILON, LOCAL, "the owner", 1 << 61))
        for step in range(1, 500):
            ledger.fulfil(ledger.request("phone", "a", units(step)).pending[0].number, [step])
            assert path.stat().st_size <= 2200
        expected = view(ledger)
    assert opened(path) == expected
    assert [entry.name for entry in path.parent.iterdir()] == ["ledger"]


# Torn, edited, moved


def test_a_file_cut_anywhere_opens_at_a_record(path, tmp_path):
    views, contents = history(path)
    sizes = [len(content) for content in contents]
    copy = tmp_path / "copy"
    for size in range(sizes[-1] + 1):
        put(copy, contents[-1][:size])
        whole = max([n for n, end in enumerate(sizes) if end <= size], default=0)
        with DeviceLedger(copy) as ledger:
            assert view(ledger) == views[whole]
            assert ledger.cut_bytes == size - (sizes[whole] if size >= sizes[0] else 0)
        assert copy.read_bytes() == contents[whole]


def test_an_end_left_as_zeros_is_cut(path, tmp_path):
    """The file got its new length and not its bytes; at least the last eight are then zeros."""
    views, contents = history(path)
    copy = tmp_path / "copy"
    for n, (before, after) in enumerate(itertools.pairwise(contents)):
        for written in range(len(after) - len(before) - 8 + 1):
            put(copy, after[: len(before) + written] + bytes(len(after) - len(before) - written))
            assert opened(copy) == views[n]
            assert copy.read_bytes() == before
    for written in range(len(MAGIC)):
        put(copy, MAGIC[:written] + bytes(len(MAGIC) - written))
        assert opened(copy) == views[0]
    put(copy, bytes(len(MAGIC) + 1))
    assert opened(copy) is None


def test_zeros_at_the_end_do_not_excuse_damage_before(path):
    _, contents = history(path)
    edited = bytearray(contents[-1] + bytes(100))
    edited[len(contents[-2]) - 40] ^= 1
    path.write_bytes(edited)
    with pytest.raises(LedgerDamaged, match=f"damaged at byte {len(contents[-3])}"):
        DeviceLedger(path)
    assert path.read_bytes() == edited


def flips_missed(path, tmp_path, compact_bytes):
    """Flip each byte, by one bit, all bits and to zero; count the copies that open at all."""
    history(path, compact_bytes=compact_bytes)
    content = path.read_bytes()
    copy, missed = tmp_path / "copy", 0
    for place, byte in enumerate(content):
        for flipped in {byte ^ 1, byte ^ 0x80, byte ^ 0xFF, 0} - {byte}:
            damaged = content[:place] + bytes([flipped]) + content[place + 1 :]
            put(copy, damaged)
            missed += opened(copy) is not None
            assert copy.read_bytes() == damaged or missed
    return missed


@pytest.mark.parametrize("compact_bytes", [0, 1 << 20])
def test_every_flipped_byte_is_seen(path, tmp_path, compact_bytes):
    assert flips_missed(path, tmp_path, compact_bytes) == 0


def parts(content):
    """The format line and each record."""
    cuts = [len(MAGIC)]
    while cuts[-1] < len(content):
        cuts.append(cuts[-1] + 40 + int.from_bytes(content[cuts[-1] : cuts[-1] + 4], "big"))
    return [content[a:b] for a, b in zip([0, *cuts], cuts, strict=False)]


def rearrangements_missed(path, tmp_path):
    """Delete, swap, repeat and insert whole records; count the copies that open with another history."""
    _, contents = history(path)
    line, *records = parts(contents[-1])
    foreign = parts(sealed(["open", "car", "epsilon", "ANY_TWO_VALUES", "x", "5", "1"]))[1]
    n = len(records)
    tried = [[*records[:i], *records[i + 1 :]] for i in range(n - 1)]
    tried += [[*records[:i], records[j], *records[i + 1 : j], records[i], *records[j + 1 :]]
              for i in range(n) for j in range(i + 1, n)]  # fmt: skip
    tried += [[*records[:i], records[j], *records[i:]] for i in range(n + 1) for j in range(n)]
    tried += [[*records[:i], foreign, *records[i:]] for i in range(n + 1)]
    tried = [records for records in tried if line + b"".join(records) not in contents]
    copy = tmp_path / "copy"
    missed = 0
    for changed in tried:
        put(copy, line + b"".join(changed))
        missed += opened(copy) is not None
    return missed, len(tried)


def test_moved_missing_and_foreign_records_are_seen(path, tmp_path):
    missed, tried = rearrangements_missed(path, tmp_path)
    assert tried > 100
    assert missed == 0


def test_the_search_sees_a_reader_without_the_chain(path, tmp_path, monkeypatch):
    chained_head, chained_seal = device._head, device._seal
    monkeypatch.setattr(device, "_head", lambda tip, length: chained_head(b"", length))
    monkeypatch.setattr(device, "_seal", lambda tip, head, body: chained_seal(b"", head, body))
    missed, _ = rearrangements_missed(path, tmp_path)
    assert missed > 0


def test_the_search_sees_a_reader_that_trusts_lengths(path, tmp_path, monkeypatch):
    """Without the check of the length, a wrong one would pass for a torn end and drop paid records."""
    monkeypatch.setattr(device, "_head", lambda tip, length: length.to_bytes(4, "big") + bytes(4))
    assert flips_missed(path, tmp_path, 1 << 20) > 0


@pytest.mark.parametrize("content", [b"SQLite format 3\0", b"reticent device ledger 2\n", b"x", b"\n" * 100])
def test_another_file_is_refused_and_left_alone(path, content):
    path.write_bytes(content)
    path.chmod(0o644)
    with pytest.raises(LedgerDamaged, match="is no device ledger of this version"):
        DeviceLedger(path)
    assert path.read_bytes() == content
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(path.parent.iterdir()) == [path]


# Power loss


class Node:
    """A file: what is surely on the disk, and the changes since."""

    def __init__(self):
        self.durable, self.since = b"", []

    def contents(self):
        """Every content that a power loss may leave."""
        yield self.durable
        content = self.durable
        for kind, at, text in self.since:
            before = content
            content = content[:at] + text if kind == "write" else content[:at]
            yield content
            if kind == "write":
                for cut in {1, 7, 8, 9, len(text) // 2, len(text) - 33, len(text) - 8} & set(
                    range(len(text))
                ):
                    yield before[:at] + text[:cut]
                    yield before[:at] + text[:cut] + bytes(len(text) - cut)


class Disk:
    """Stands for `os` in the ledger's module: does as asked, and notes what a power loss may leave.

    `crashes` is a set of (calls answered, content of the ledger's file or None if there is none).
    """

    def __init__(self, path):
        self.place, self.answered = str(path), 0
        self.names, self.lasting, self.renames = {}, {}, []  # names now, surely, and the changes between
        self.nodes, self.crashes = {}, set()

    def __getattr__(self, name):
        return getattr(os, name)

    def moment(self):
        names = dict(self.lasting)
        for change in [None, *self.renames]:
            if change:
                change(names)
            node = names.get(self.place)
            contents = node.contents() if node else [None]
            self.crashes |= {(self.answered, content) for content in contents}

    def rename(self, change):
        change(self.names)
        self.renames.append(change)
        self.moment()

    def open(self, path, flags, mode=0o777):
        descriptor = os.open(path, flags, mode)
        if Path(path).is_dir():
            self.nodes[descriptor] = None
            return descriptor
        if path not in self.names:
            node = Node()
            self.rename(lambda names: names.update({path: node}))
        self.nodes[descriptor] = self.names[path]
        return descriptor

    def pwrite(self, descriptor, text, at):
        done = os.pwrite(descriptor, text, at)
        self.nodes[descriptor].since.append(("write", at, text[:done]))
        self.moment()
        return done

    def ftruncate(self, descriptor, size):
        os.ftruncate(descriptor, size)
        self.nodes[descriptor].since.append(("cut", size, b""))
        self.moment()

    def fsync(self, descriptor):
        os.fstat(descriptor)
        node = self.nodes[descriptor]
        if node is None:
            self.lasting, self.renames = dict(self.names), []
        else:
            for kind, at, text in node.since:
                node.durable = node.durable[:at] + (text if kind == "write" else b"")
            node.since = []
        self.moment()

    def replace(self, old, new):
        os.replace(old, new)  # noqa: PTH105
        self.rename(lambda names: names.update({new: names.pop(old)}))

    def unlink(self, path):
        os.unlink(path)  # noqa: PTH108
        self.rename(lambda names: names.pop(path))


def power_losses(path, tmp_path, ledger_class=DeviceLedger):
    """Run a history on a recorded disk; return how many crash states there are and how many open wrong.

    Right is: all that was answered, and at most the one call that was under way.
    """
    disk = Disk(path)
    script = [*STEPS, *[_report(n) for n in range(12)]]
    with mock.patch.object(device, "os", disk):
        disk.moment()
        with ledger_class(path, compact_bytes=600) as ledger:
            views = [view(ledger)]
            for step in script:
                step(ledger)
                disk.answered += 1
                disk.moment()
                views.append(view(ledger))
    copy, wrong, seen = tmp_path / "copy", 0, {}
    for answered, content in disk.crashes:
        if content not in seen:
            copy.unlink(missing_ok=True)
            if content is not None:
                put(copy, content)
            seen[content] = opened(copy)
        wrong += seen[content] not in views[answered : answered + 2]
    return len(disk.crashes), wrong


def _report(n):
    def report(ledger):
        if n % 2 == 0:
            ledger.request("phone", "c/é", units(50 + n))
        else:
            ledger.fulfil(ledger.pending("phone")[0].number, [n])

    return report


def test_no_power_loss_loses_what_was_answered(path, tmp_path):
    states, wrong = power_losses(path, tmp_path)
    print(f"{states} states")
    assert states > 300
    assert wrong == 0


def test_what_a_killed_process_left_is_made_durable_before_it_counts(path, tmp_path):
    """Its record may be in the system's memory only, and the next process answers on the strength of it."""
    disk = Disk(path)
    with mock.patch.object(device, "os", disk):
        with DeviceLedger(path) as ledger:
            ledger.open(PHONE)
            with (
                mock.patch.object(device, "_sync", side_effect=KeyboardInterrupt),
                pytest.raises(KeyboardInterrupt),
            ):
                ledger.request("phone", "a", units(5))
        with DeviceLedger(path) as ledger:
            assert ledger.request("phone", "a", units(5)).charged == 0
            disk.crashes = set()
            disk.moment()
    assert {content for _, content in disk.crashes} == {path.read_bytes()}
    assert opened(path)[0][1] == 5


def no_sync(monkeypatch):
    monkeypatch.setattr(device, "_sync", nothing)


def no_directory_sync(monkeypatch):
    monkeypatch.setattr(device, "_sync_directory", nothing)


def rename_before_sync(monkeypatch):
    sync = device._sync
    beside = []
    prepared = DeviceLedger._prepared

    def late(self, text):
        beside.append(True)
        try:
            return prepared(self, text)
        finally:
            beside.pop()

    monkeypatch.setattr(DeviceLedger, "_prepared", late)
    monkeypatch.setattr(device, "_sync", lambda descriptor: None if beside else sync(descriptor))


def write_in_place(monkeypatch):
    """Compact by writing over the file."""

    def overwrite(self, text):
        device.os.ftruncate(self._file.fileno(), 0)
        device._write(self._file, text, 0)
        return device.FileIO(device.os.open(self._path, os.O_RDWR), "r+")

    monkeypatch.setattr(DeviceLedger, "_prepared", overwrite)


@pytest.mark.parametrize("plant", [no_sync, no_directory_sync, rename_before_sync, write_in_place])
def test_the_power_loss_search_sees_a_planted_bug(path, tmp_path, monkeypatch, plant):
    plant(monkeypatch)
    _, wrong = power_losses(path, tmp_path)
    assert wrong > 0


# kill -9


def reports(ledger_class, path, pipe):
    """Report for ever from where the ledger is, telling the pipe of every answer."""
    with ledger_class(path, compact_bytes=3000) as ledger:
        os.write(pipe, b"o")
        ledger.open(Terms("phone", Unit.EPSILON, LOCAL, "the owner", 1 << 61))
        for measurement in ledger.pending("phone"):
            ledger.fulfil(measurement.number, [int(measurement.key)])
            os.write(pipe, b"f")
        n = ledger.balance("phone").spent // 7
        while True:
            ledger.request("phone", str(n), units(7))
            os.write(pipe, b"r")
            ledger.fulfil(n, [n])
            os.write(pipe, b"f")
            n += 1


def killed(ledger_class, path, delay_s, *, while_opening):
    """Fork a child that reports, kill it after a while; return how many answers of each kind it had."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            reports(ledger_class, path, write)
        finally:
            os._exit(1)
    os.close(write)
    if not while_opening:
        select.select([read], [], [], 10)
    time.sleep(delay_s)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    with os.fdopen(read, "rb") as answers:
        told = answers.read()
    assert os.WIFSIGNALED(status), "the child failed by itself"
    return told.count(b"r"), told.count(b"f")


def kills(path, times, ledger_class=DeviceLedger):
    """Kill a reporting child again and again; return what was wrong."""
    rng = random.Random(4)
    wrong, requested, recorded = [], 0, 0
    for time_ in range(times):
        asked, fulfilled = killed(ledger_class, path, rng.uniform(0, 0.02), while_opening=rng.random() < 0.2)
        requested, recorded = requested + asked, recorded + fulfilled
        with DeviceLedger(path) as ledger:
            if not ledger.accounts() and not requested:
                continue
            spent, waiting = ledger.balance("phone").spent, len(ledger.pending("phone"))
            if spent not in (7 * requested, 7 * requested + 7):
                wrong.append(f"kill {time_}: {requested} requests answered, {spent} spent")
            requested = spent // 7
            if requested - waiting not in (recorded, recorded + 1):
                wrong.append(f"kill {time_}: {recorded} records answered, {requested - waiting} found")
            recorded = requested - waiting
            checked = rng.sample(range(recorded), min(recorded, 20))
            wrong += [f"{n}: wrong value" for n in checked if ledger.recorded("phone", str(n)) != (n,)]
        if wrong:
            break
    print(f"{times} kills, {requested} requests")
    return wrong


def test_a_killed_process_loses_and_doubles_nothing(path):
    assert kills(path, 40) == []


def test_a_killed_process_loses_and_doubles_nothing_on_a_real_disk(path, real_disk):
    assert kills(path, 20) == []


@pytest.mark.slow
def test_a_thousand_kills(path, real_disk):
    assert kills(path, 1000) == []


class Forgetful(DeviceLedger):
    """Answers from memory and writes only every other time."""

    def _append(self, record):
        if record[0] != "fulfil" or int(record[1]) % 2:
            super()._append(record)
        else:
            self._state.apply(record)


class Doubling(DeviceLedger):
    """Tries every request again."""

    def _append(self, record):
        super()._append(record)
        if record[0] == "request":
            super()._append(record)


@pytest.mark.parametrize("ledger_class", [Forgetful, Doubling])
def test_the_kill_test_sees_a_planted_bug(path, ledger_class):
    assert kills(path, 40, ledger_class) != []


# Trouble while writing


class Failing:
    """Stands for `os`: the call of this name and turn does `what` instead."""

    def __init__(self, name, turn, what):
        self.name, self.turn, self.what, self.calls = name, turn, what, 0

    def __getattr__(self, name):
        real = getattr(os, name)
        if name != self.name and self.name != "any":
            return real
        if name not in {"open", "pwrite", "fsync", "replace", "unlink", "ftruncate", "close"}:
            return real

        def call(*arguments):
            self.calls += 1
            if self.calls == self.turn:
                return self.what(real, *arguments)
            return real(*arguments)

        return call


def full(real, *arguments):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def half(real, descriptor, text, at):
    return real(descriptor, text[: len(text) // 2], at)


def half_then_full(real, descriptor, text, at):
    half(real, descriptor, text, at)
    return full(real)


def interrupted(real, *arguments):
    with contextlib.suppress(FileNotFoundError):
        real(*arguments)
    raise KeyboardInterrupt


def planted(name, what, turn=1):
    return mock.patch.object(device, "os", Failing(name, turn, what))


@pytest.mark.parametrize(("name", "what"), [("pwrite", full), ("pwrite", half_then_full), ("fsync", full)])
@pytest.mark.parametrize("step", range(1, len(STEPS)))
def test_a_full_disk_refuses_and_leaves_no_trace(path, name, what, step):
    with DeviceLedger(path) as ledger:
        for earlier in STEPS[:step]:
            earlier(ledger)
        before, seen = path.read_bytes(), view(ledger)
        with planted(name, what), pytest.raises(LedgerError, match="could not be written: No space left"):
            STEPS[step](ledger)
        assert path.read_bytes() == before
        assert view(ledger) == seen
        STEPS[step](ledger)  # there is room again
        after = view(ledger)
    assert after != seen
    assert opened(path) == after


def test_a_short_write_is_continued(path):
    with DeviceLedger(path) as ledger:
        ledger.open(PHONE)
        with planted("pwrite", half):
            assert ledger.request("phone", "a", units(5)).charged == 5
    assert opened(path)[0][1] == 5


def test_a_real_limit_on_the_file(path):
    """The kernel refuses to let the file grow, in a child."""
    history(path)
    before = path.read_bytes()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with DeviceLedger(path) as ledger:
                soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
                resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, hard))
                try:
                    ledger.fulfil(3, [4])
                except LedgerError:
                    code = 2
                same = path.read_bytes() == before
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
                ledger.fulfil(3, [5])
                code = 0 if code == 2 and same else 3
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with DeviceLedger(path) as ledger:
        assert ledger.recorded("phone", "c/é") == (5,)


def test_when_the_trace_cannot_be_removed_the_ledger_must_be_opened_again(path):
    with DeviceLedger(path) as ledger:
        ledger.open(PHONE)
        failing = Failing("any", 1, None)

        def first_of_two(real, *arguments):
            failing.turn, failing.what = 2, full
            half_then_full(real, *arguments)

        failing.what = first_of_two
        with (
            mock.patch.object(device, "os", failing),
            pytest.raises(LedgerError, match="could not be written"),
        ):
            ledger.request("phone", "a", units(5))
        for call in [lambda: ledger.request("phone", "a", units(5)), lambda: ledger.balance("phone")]:
            with pytest.raises(LedgerError, match="open it again"):
                call()
    with DeviceLedger(path) as ledger:
        assert ledger.cut_bytes > 0
        assert ledger.balance("phone").spent == 0
        assert ledger.request("phone", "a", units(5)).charged == 5


@pytest.mark.parametrize("name", ["pwrite", "fsync"])
def test_an_interrupt_while_writing_asks_for_a_new_opening(path, name):
    with DeviceLedger(path) as ledger:
        ledger.open(PHONE)
        with planted(name, interrupted), pytest.raises(KeyboardInterrupt):
            ledger.request("phone", "a", units(5))
        with pytest.raises(LedgerError, match="was interrupted while writing: open it again"):
            ledger.request("phone", "a", units(5))
    with DeviceLedger(path) as ledger:
        grant = ledger.request("phone", "a", units(5))
        assert (grant.charged, grant.remaining, len(grant.pending)) == (0, 995, 1)


# Compaction


def before_compaction(path):
    """A ledger whose next record makes it compact, and what it tells after that record."""
    path.unlink(missing_ok=True)
    views, contents = history(path)
    with DeviceLedger(path) as ledger:
        ledger.fulfil(3, [6])
        after = view(ledger)
    path.write_bytes(contents[-1])
    return contents[-1], views[-1], after


def compaction_calls(path):
    """How many calls on the file system the last step makes."""
    before_compaction(path)
    with DeviceLedger(path, compact_bytes=0) as ledger, planted("any", full, turn=-1):
        ledger.fulfil(3, [6])
        calls = device.os.calls
    assert len(parts(path.read_bytes())) == 2
    return calls


def test_a_compaction_that_fails_anywhere_changes_nothing(path):
    """Whatever call fails, the answer stands; the ledger goes on, or asks to be opened again."""
    calls = compaction_calls(path)
    assert calls >= 8
    outcomes = []
    for turn in range(3, calls + 1):  # the first two write the record itself
        _, _, after = before_compaction(path)
        with DeviceLedger(path, compact_bytes=0) as ledger:
            with planted("any", full, turn=turn):
                ledger.fulfil(3, [6])
            outcome = told(lambda ledger=ledger: view(ledger))
            outcomes.append("goes on" if outcome == after else outcome)
            if outcome == after:
                ledger.request("phone", "a", units(200))
        with DeviceLedger(path) as ledger:
            if outcomes[-1] != "goes on":
                assert view(ledger) == after
            assert ledger.request("phone", "a", units(200)).information == 200
    refusals = [outcome for outcome in outcomes if outcome != "goes on"]
    assert len(outcomes) - len(refusals) >= 4
    assert set(refusals) == {(LedgerError, "the ledger was interrupted while writing: open it again")}


@pytest.mark.parametrize("done", [False, True])
def test_a_compaction_killed_anywhere_is_whole(path, done):
    """The process ends before, or right after, each call."""

    def ends(real, *arguments):
        if done:
            with contextlib.suppress(FileNotFoundError):
                real(*arguments)
        os._exit(7)

    calls = compaction_calls(path)
    for turn in range(1, calls + 1):
        _, before, after = before_compaction(path)
        child = os.fork()
        if child == 0:
            try:
                with DeviceLedger(path, compact_bytes=0) as ledger, planted("any", ends, turn=turn):
                    ledger.fulfil(3, [6])
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert opened(path) in ([before, after] if turn == 1 else [after])
        with DeviceLedger(path, compact_bytes=0) as ledger:  # a file left beside is no obstacle
            ledger.request("phone", "a", units(200))
            ledger.request("phone", "a", units(201))
        assert not path.with_name("ledger.new").exists()


def test_an_interrupt_while_compacting_asks_for_a_new_opening(path):
    calls = compaction_calls(path)
    for turn in range(3, calls + 1):
        _, _, after = before_compaction(path)
        with DeviceLedger(path, compact_bytes=0) as ledger:
            with planted("any", interrupted, turn=turn), pytest.raises(KeyboardInterrupt):
                ledger.fulfil(3, [6])
            with pytest.raises(LedgerError, match="open it again"):
                ledger.accounts()
        assert opened(path) == after


def test_a_compacted_ledger_is_locked_and_keeps_its_order(path):
    with DeviceLedger(path, compact_bytes=0) as ledger:
        for step in [*STEPS[:2], *STEPS[3:5]]:  # under a: 0 and 2, under b: 1
            step(ledger)
        while b'["state",' not in path.read_bytes():
            ledger.request("phone", "a", units(ledger.reading("phone", "a").pending + 2))
        with pytest.raises(LedgerError, match="in use"):
            DeviceLedger(path)
        numbers = [measurement.number for measurement in ledger.pending("phone")]
    assert numbers == list(range(len(numbers)))
    with DeviceLedger(path, compact_bytes=0) as ledger:
        assert [measurement.number for measurement in ledger.pending("phone")] == numbers
        before = path.read_bytes()
        ledger.fulfil(0, [1])
        assert path.read_bytes().startswith(before)  # not compacted again before it has doubled


# One writer, one process, one owner


def test_a_second_opener_is_refused_at_once(path):
    with DeviceLedger(path) as ledger:
        ledger.open(PHONE)
        start = time.monotonic()
        with pytest.raises(LedgerError, match="ledger is in use"):
            DeviceLedger(path)
        assert time.monotonic() - start < 0.5
        start = time.monotonic()
        with pytest.raises(LedgerError, match="ledger is in use"):
            DeviceLedger(path, timeout_s=0.1)
        assert 0.1 <= time.monotonic() - start < 1
        ledger.request("phone", "a", units(5))
    assert opened(path)[0][1] == 5


def test_a_second_opener_that_waits_gets_the_file_that_compaction_made(path):
    ledger = DeviceLedger(path, compact_bytes=0)
    got = []
    for step in STEPS[:3]:
        step(ledger)
    waiting = threading.Thread(target=lambda: got.append(opened(path, timeout_s=10)))
    waiting.start()
    time.sleep(0.1)
    for step in STEPS[3:]:
        step(ledger)
    ledger.fulfil(3, [1])
    expected = view(ledger)
    ledger.close()
    waiting.join()
    assert got == [expected]


def test_one_who_opened_before_a_rename_does_not_get_the_old_file(path, monkeypatch):
    """The lock is taken on a file that compaction replaces between opening and locking."""
    history(path)
    lock, expected = device._lock, []

    def late(file):
        monkeypatch.setattr(device, "_lock", lock)
        with DeviceLedger(path, compact_bytes=0) as other:
            other.fulfil(3, [6])
            expected.append(view(other))
        return lock(file)

    monkeypatch.setattr(device, "_lock", late)
    assert opened(path, timeout_s=1) == expected[0]


def test_a_file_removed_while_waiting_is_made_anew(path, monkeypatch):
    lock = device._lock

    def late(file):
        monkeypatch.setattr(device, "_lock", lock)
        path.unlink()
        return lock(file)

    monkeypatch.setattr(device, "_lock", late)
    assert opened(path, timeout_s=1) == []
    assert path.read_bytes() == MAGIC


def in_child(work):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = work() or 0
        finally:
            os._exit(code)
    return child


def test_a_forked_child_may_not_use_it(path):
    with DeviceLedger(path) as ledger:
        ledger.open(PHONE)

        def work():
            for call in [
                lambda: ledger.request("phone", "a", units(5)),
                lambda: ledger.balance("phone"),
                lambda: ledger.recorded("phone", "a"),
                lambda: ledger.open(PHONE),
                lambda: ledger.fulfil(0, []),
            ]:
                with pytest.raises(LedgerError, match="not carried over a fork"):
                    call()
            with pytest.raises(LedgerError, match="in use"):
                DeviceLedger(path)
            ledger.close()

        assert os.waitstatus_to_exitcode(os.waitpid(in_child(work), 0)[1]) == 0
        with pytest.raises(LedgerError, match="in use"):  # the child's close did not unlock it
            DeviceLedger(path)
        assert ledger.request("phone", "a", units(5)).charged == 5


def test_a_child_does_not_keep_the_lock(path):
    ledger = DeviceLedger(path)
    child = in_child(lambda: time.sleep(30))
    try:
        ledger.close()
        assert opened(path, timeout_s=2) == []
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_closed_ledger_says_so(path):
    ledger = DeviceLedger(path)
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerError, match="the ledger is closed"):
        ledger.open(PHONE)


def test_only_the_owner_may_read_it(path):
    old = os.umask(0)
    try:
        with DeviceLedger(path, compact_bytes=0) as ledger:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            for step in STEPS:
                step(ledger)
        assert b'["state",' in path.read_bytes()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        path.chmod(0o644)
        DeviceLedger(path).close()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        os.umask(old)


def test_a_link_keeps_leading_to_the_ledger(path, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(path)
    views, _ = history(link, compact_bytes=0)
    assert link.is_symlink()
    assert opened(path) == views[-1]


def test_places_where_no_ledger_can_be(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for place, message in [
        (tmp_path, "cannot be opened: Is a directory"),
        (tmp_path / "missing" / "ledger", "cannot be opened: No such file"),
        (fifo, "is not a plain file"),
    ]:
        with pytest.raises(LedgerError, match=message):
            DeviceLedger(place)
    for bad in [None, 5, "\ud800"]:
        with pytest.raises(TypeError, match="path must be the path of a file"):
            DeviceLedger(bad)
    for bad in ["", "a\0b"]:
        with pytest.raises(ValueError, match="path must be the path of a file"):
            DeviceLedger(bad)
    with pytest.raises(ValueError, match="timeout_s must be >= 0"):
        DeviceLedger(tmp_path / "ledger", timeout_s=-1)
    with pytest.raises(ValueError, match="compact_bytes must be >= 0"):
        DeviceLedger(tmp_path / "ledger", compact_bytes=-1)
    assert list(tmp_path.iterdir()) == [fifo]


def test_systems_without_locks_and_with_deeper_flushing(path, monkeypatch):
    flushed = []
    monkeypatch.setattr(device.fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(device.fcntl, "fcntl", lambda descriptor, command: flushed.append(command))
    with DeviceLedger(path) as ledger:
        ledger.open(PHONE)
    assert flushed == [51, 51]
    monkeypatch.setattr(device, "fcntl", None)
    with pytest.raises(LedgerError, match="needs POSIX file locks"):
        DeviceLedger(path)
