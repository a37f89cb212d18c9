"""The device ledger answers as the reference does, to one process at a time."""

from __future__ import annotations

import contextlib
import random
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from reticent.errors import (
    AccountConflict,
    AlreadyFulfilled,
    BudgetExceeded,
    IdempotencyConflict,
    KeyUsed,
    MixedGuarantees,
    ParameterError,
    UnknownAccount,
    UnknownMeasurement,
)
from reticent.ledger.base import Amount, Grant, Terms, Unit
from reticent.ledger.device.ledger import DeviceLedger
from reticent.ledger.memory import MemoryLedger

from .device_history import (
    KEYS,
    LOCAL,
    PHONE,
    STEPS,
    PaysInTwoSteps,
    parts,
    pay,
    told,
    units,
)

pytestmark = pytest.mark.usefixtures("no_waiting")


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

    @rule(name=names, key=keys, amount=st.integers(1, 25), idempotency=st.sampled_from([None, "x", "y"]))
    def pay(self, name, key, amount, idempotency):
        answer = self.both(lambda ledger: pay(ledger, name, key, amount, idempotency))
        if not isinstance(answer, tuple):
            self.last[name, key] = ()

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


@pytest.mark.parametrize("compacted", [False, True])
def test_a_payment_from_outside_is_one_record_without_values(path, compacted):
    with DeviceLedger(path, compact_bytes=0) as ledger:
        ledger.open(PHONE)
        before = len(parts(path.read_bytes()))
        grant = pay(ledger, "phone", "outside", 5, "p")
        assert (grant.charged, grant.pending) == (5, ())
        assert len(parts(path.read_bytes())) == before + 1
        while compacted and b'["state",' not in path.read_bytes():
            asked = units(ledger.reading("phone", "a").information + 2)
            ledger.fulfil(ledger.request("phone", "a", asked).pending[0].number, [1])
    with DeviceLedger(path) as ledger:
        assert ledger.recorded("phone", "outside") == ()
        assert ledger.pending("phone") == []
        left = ledger.balance("phone").remaining
        assert pay(ledger, "phone", "outside", 5, "p") == replace(grant, remaining=left)
        with pytest.raises(AlreadyFulfilled):
            ledger.fulfil(0, [5])
        with pytest.raises(IdempotencyConflict):
            ledger.request("phone", "outside", units(5), idempotency="p")
        assert ledger.balance("phone").remaining == left


class Interleaving:
    """A lock that calls `between` after it was released for the `turn`-th time."""

    def __init__(self, turn, between):
        self.turn, self.between, self.releases = turn, between, 0
        self.lock = threading.Lock()

    def __enter__(self):
        return self.lock.__enter__()

    def __exit__(self, *exception):
        self.lock.__exit__(*exception)
        self.releases += 1
        if self.releases == self.turn:
            self.between()


def uncharged_payments(path, ledger_class):
    """Let a second payment under the same key come whenever the first holds no lock; what went wrong."""
    wrong = []
    for turn in range(1, 8):
        path.unlink(missing_ok=True)
        with ledger_class(path) as ledger:
            ledger.open(PHONE)
            answers = []

            def paying(name, ledger=ledger, answers=answers):
                answers.append(told(lambda: pay(ledger, "phone", "out", 100, name)))

            ledger._guard = Interleaving(turn, lambda paying=paying: paying("second"))
            paying("first")
            paid = [one.charged for one in answers if isinstance(one, Grant)]
            refused = [one[0] for one in answers if not isinstance(one, Grant)]
            if paid != [100] or refused not in ([], [KeyUsed]) or ledger.pending("phone"):
                wrong.append(answers)
    return wrong


def test_no_other_payment_comes_between(path):
    assert uncharged_payments(path, DeviceLedger) == []


def test_the_search_for_races_finds_a_payment_in_two_steps(path):
    assert uncharged_payments(path, PaysInTwoSteps) != []


def test_an_older_payment_of_two_records_still_opens(path):
    """Its idempotency key is now that of a request: a payment with it is refused, and not made free."""
    with PaysInTwoSteps(path) as ledger:
        ledger.open(PHONE)
        pay(ledger, "phone", "out", 100, "p")
    assert b'["pay",' not in path.read_bytes()
    with DeviceLedger(path) as ledger:
        assert ledger.recorded("phone", "out") == ()
        assert ledger.balance("phone").spent == 100
        with pytest.raises(IdempotencyConflict, match="idempotency key p was used for another request"):
            pay(ledger, "phone", "out", 100, "p")


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
