"""One suite for every back end: whatever is called, in whatever order, it answers as the reference does.

The reference, `MemoryLedger`, is itself held against a model that keeps nothing but the list of what
happened and works everything out anew from it.
"""

import re
import tempfile
from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from reticent import ledger as ledger_package
from reticent.errors import (
    AccountConflict,
    AlreadyFulfilled,
    BudgetExceeded,
    IdempotencyConflict,
    KeyUsed,
    LedgerError,
    ParameterError,
    ReticentError,
    UnknownAccount,
    UnknownMeasurement,
)
from reticent.ledger import (
    Amount,
    Balance,
    Grant,
    Ledger,
    Measurement,
    MemoryLedger,
    Reading,
    SqlLedger,
    Terms,
    Unit,
)
from reticent.ledger.base import Order, increment, payment_key
from reticent.privacy import MAX_UNITS, Neighbours

events = pytest.importorskip("dp_accounting.dp_event", reason="dp-accounting is not installed")

REPLACE = Neighbours.REPLACE_ONE


def relation(unit, neighbours=REPLACE):
    """Money is about nobody's data."""
    return Neighbours.NONE if unit is Unit.MONEY else neighbours


ACCOUNTS = ["a", "b", "c"]
KEYS = ["k", "l", "visits per hour"]
EVENTS = [
    events.GaussianDpEvent(1e5),  # more than the cap
    events.GaussianDpEvent(2e5),
    events.GaussianDpEvent(4e5),
    events.LaplaceDpEvent(1e11),
    events.RandomizedResponseDpEvent(0.5, 2),
    events.ComposedDpEvent([events.GaussianDpEvent(1e5), events.GaussianDpEvent(1e5)]),
    events.ComposedDpEvent([events.GaussianDpEvent(1e5), events.LaplaceDpEvent(1e5)]),  # mixed
    events.NonPrivateDpEvent(),
    events.NoOpDpEvent(),
    events.PoissonSampledDpEvent(0.1, events.GaussianDpEvent(1.0)),
    "no event",
]
PRICED = [  # an account, an event, and as much information as it costs there
    ("a", events.GaussianDpEvent(4e5), Amount(26, Unit.MU2, REPLACE)),
    ("b", events.LaplaceDpEvent(1e11), Amount(21, Unit.EPSILON, REPLACE)),
]


class Told(Ledger):
    """A model that remembers only what happened, as tuples, and adds it all up whenever it is asked."""

    def __init__(self):
        self.opened, self.charges, self.records, self.replies = [], [], [], []

    def _of(self, account):
        found = [terms for terms in self.opened if terms.name == account]
        if not found:
            raise UnknownAccount(f"account {account} was never opened")
        return found[0]

    def _open(self, terms):
        if all(held.name != terms.name for held in self.opened):
            self.opened.append(terms)
        if self._of(terms.name) != terms:
            raise AccountConflict(f"account {terms.name} is open with other terms")
        return self.balance(terms.name)

    def balance(self, account):
        return Balance(self._of(account), sum(paid for where, _, paid in self.charges if where == account))

    def accounts(self):
        return [self.balance(name) for name in sorted(terms.name for terms in self.opened)]

    def _reply(self, account, key, bought, charged):
        pending = tuple(m for m in self.pending(account) if m.key == key)
        return Grant(account, key, bought, charged, self.balance(account).remaining, pending)

    def _asked_before(self, verb, terms, key, information, idempotency):
        for account, text, body, answer in self.replies:
            if idempotency is not None and (account, text) == (terms.name, idempotency):
                if body != (verb, key, information):
                    raise IdempotencyConflict(f"idempotency key {idempotency} was used for another request")
                return self._reply(terms.name, key, *answer)
        return None

    def _request(self, terms, key, information, idempotency, verb="request"):
        before = self._asked_before(verb, terms, key, information, idempotency)
        if before:
            return before
        bought = sum(paid for where, what, paid in self.charges if (where, what) == (terms.name, key))
        price = 0 if bought >= information else max(information - bought, terms.minimum)
        left = self.balance(terms.name).remaining
        if price > left:
            raise BudgetExceeded(terms.name, price, left)
        if price:
            self.charges.append((terms.name, key, price))
        if idempotency is not None:
            self.replies.append((terms.name, idempotency, (verb, key, information), (bought + price, price)))
        return self._reply(terms.name, key, bought + price, price)

    def _pay(self, terms, key, units, idempotency):
        before = self._asked_before("pay", terms, key, units, idempotency)
        if before:
            return before
        if any((where, what) == (terms.name, key) for where, what, _ in self.charges):
            raise KeyUsed(f"account {terms.name}: a payment needs a fresh key")
        grant = self._request(terms, key, units, idempotency, "pay")
        self.records.append((len(self.charges) - 1, ()))
        return self._reply(terms.name, key, grant.information, grant.charged)

    def _recorded(self, account, key):
        """(information, values) of each measurement under a key."""
        found = [(self.charges[number], values) for number, values in self.records]
        return [(paid, values) for (where, what, paid), values in found if (where, what) == (account, key)]

    def _fulfil(self, number, values):
        if number >= len(self.charges):
            raise UnknownMeasurement(f"measurement {number} was never asked for")
        if number in dict(self.records):
            raise AlreadyFulfilled(f"measurement {number} has its values")
        account, key, _ = self.charges[number]
        sizes = {len(held) for _, held in self._recorded(account, key)}
        if sizes - {len(values)}:
            raise ParameterError(f"values must be {min(sizes)} under this key, got {len(values)}")
        self.records.append((number, values))
        return self.reading(account, key)

    def reading(self, account, key):
        self._of(account)
        held = self._recorded(account, key)
        sums = tuple(map(sum, zip(*[[paid * v for v in values] for paid, values in held], strict=True)))
        bought = sum(paid for where, what, paid in self.charges if (where, what) == (account, key))
        recorded = sum(paid for paid, _ in held)
        return Reading(account, key, recorded, sums, bought - recorded)

    def pending(self, account):
        self._of(account)
        done = dict(self.records)
        return [
            Measurement(number, account, key, paid, fulfilled=False)
            for number, (where, key, paid) in enumerate(self.charges)
            if where == account and number not in done
        ]

    def close(self):
        pass


def outcome(call):
    """What a call gives: its answer, or what it raises."""
    try:
        answer = call()
    except ReticentError as refusal:
        return type(refusal), str(refusal)
    return (
        [(type(one), str(one)) if isinstance(one, LedgerError) else one for one in answer]
        if isinstance(answer, list)
        else answer
    )


units = st.one_of(st.integers(1, 60), st.just(MAX_UNITS))
values = st.lists(st.integers(-(1 << 62) + 1, (1 << 62) - 1), max_size=2)
texts = st.one_of(st.none(), st.sampled_from(["once", "twice", "thrice"]))


class Conformance(RuleBasedStateMachine):
    """Every call goes to the back end and to the reference."""

    make = None  # of the back end
    make_reference = MemoryLedger

    def __init__(self):
        super().__init__()
        self.ledger, self.reference = type(self).make(), type(self).make_reference()

    def teardown(self):
        self.ledger.close()

    def both(self, call):
        ours, theirs = outcome(lambda: call(self.ledger)), outcome(lambda: call(self.reference))
        assert ours == theirs

    @initialize(cap=st.integers(60, 200), minimum=st.integers(1, 30))
    def begin(self, cap, minimum):
        for name, unit in zip(ACCOUNTS, [Unit.MU2, Unit.EPSILON], strict=False):
            terms = Terms(name, unit, REPLACE, "one", cap, minimum)
            self.both(lambda ledger, terms=terms: ledger.open(terms))

    @rule(
        name=st.sampled_from(ACCOUNTS), unit=st.sampled_from(Unit), cap=st.sampled_from([50, 120, MAX_UNITS])
    )
    def open(self, name, unit, cap):
        self.both(lambda ledger: ledger.open(Terms(name, unit, relation(unit), "one", cap)))

    @rule(
        account=st.sampled_from(ACCOUNTS), key=st.sampled_from([*KEYS, "payment:k"]), units=units,
        unit=st.sampled_from(Unit),
        neighbours=st.sampled_from([REPLACE] * 5 + [Neighbours.ADD_REMOVE_ONE]), idempotency=texts,
    )  # fmt: skip
    def request(self, account, key, units, unit, neighbours, idempotency):
        asked = Amount(units, unit, relation(unit, neighbours))
        self.both(lambda ledger: ledger.request(account, key, asked, idempotency=idempotency))

    @rule(
        account=st.sampled_from(["a", "b"]),
        key=st.sampled_from(KEYS),
        units=st.integers(1, 60),
        idempotency=texts,
    )
    def request_rightly(self, account, key, units, idempotency):
        unit = self.reference.balance(account).terms.unit
        self.both(
            lambda ledger: ledger.request(account, key, Amount(units, unit, REPLACE), idempotency=idempotency)
        )

    @rule(
        asked=st.lists(
            st.tuples(st.sampled_from(["a", "nobody"]), st.sampled_from(KEYS), units, texts), max_size=6
        )
    )
    def request_many(self, asked):
        orders = [Order(name, key, Amount(n, Unit.MU2, REPLACE), text) for name, key, n, text in asked]
        self.both(lambda ledger: ledger.request_many(orders))

    @rule(number=st.one_of(st.integers(0, 2), st.integers(0, 12)), values=values)
    def fulfil(self, number, values):
        self.both(lambda ledger: ledger.fulfil(number, values))

    @rule(
        account=st.sampled_from(ACCOUNTS), event=st.sampled_from(EVENTS),
        key=st.sampled_from([*KEYS, "paid", "paid too", "payment:k"]), idempotency=texts,
    )  # fmt: skip
    def pay(self, account, event, key, idempotency):
        self.both(lambda ledger: ledger.pay(account, event, key=key, idempotency=idempotency))

    @rule(
        priced=st.sampled_from(PRICED), key=st.sampled_from([*KEYS, "paid"]), idempotency=texts,
        verbs=st.lists(st.sampled_from(["request", "pay"]), min_size=2, max_size=3),
    )  # fmt: skip
    def one_idempotency_key_for_two_verbs(self, priced, key, idempotency, verbs):
        account, event, asked = priced
        calls = {
            "request": lambda ledger: ledger.request(account, key, asked, idempotency=idempotency),
            "pay": lambda ledger: ledger.pay(account, event, key=key, idempotency=idempotency),
        }
        for verb in verbs:
            self.both(calls[verb])

    @rule(bad=st.sampled_from([0, -1, 1.5, float("nan"), True, "5", None, 1 << 62]))
    def bad(self, bad):
        self.both(lambda ledger: ledger.request("a", "k", Amount(bad, Unit.MU2, REPLACE)))
        self.both(lambda ledger: ledger.request("a", "k", bad))
        self.both(lambda ledger: ledger.request("a", bad, Amount(1, Unit.MU2, REPLACE)))
        self.both(lambda ledger: ledger.fulfil(0, [bad]) if bad not in (0, -1) else None)
        self.both(lambda ledger: ledger.fulfil(0, bad))

    @invariant()
    def every_account_adds_up(self):
        for balance in self.ledger.accounts():
            assert balance.spent + balance.remaining == balance.terms.cap
            assert 0 <= balance.spent <= balance.terms.cap

    @invariant()
    def same_state(self):
        self.both(lambda ledger: ledger.accounts())
        for balance in self.reference.accounts():
            name = balance.terms.name
            self.both(lambda ledger, name=name: ledger.pending(name))
            for key in [*KEYS, "paid", *map(payment_key, [*KEYS, "paid"])]:
                self.both(lambda ledger, name=name, key=key: ledger.reading(name, key))
        self.both(lambda ledger: ledger.balance("nobody"))


def run(make, *, reference=MemoryLedger, examples, phases=tuple(Phase)):
    machine = type("Machine", (Conformance,), {"make": staticmethod(make), "make_reference": reference})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=25, deadline=None, derandomize=True, database=None,
            suppress_health_check=list(HealthCheck), phases=phases,
        ),
    )  # fmt: skip


def _device(path):
    return pytest.importorskip("reticent.ledger.device.ledger").DeviceLedger(path)


# A new one joins by one line: how it is made, and its examples in the quick and in the full run.
BACK_ENDS = {
    "memory": (lambda fresh: MemoryLedger(), 80, 2000),
    "sqlite": (lambda fresh: SqlLedger(fresh()), 25, 400),
    "postgres": (lambda fresh: SqlLedger(fresh()), 8, 150),
    "device": (lambda fresh: _device(fresh()), 25, 400),
    "ethereum": (lambda fresh: fresh(), 8, 100),
}


def untried(source, tried):
    """The folders and modules of `ledger` with a back end that the suite does not try."""
    made = re.compile(r"^class \w+\((?:\w+, )*Ledger[,)]", re.M)
    found = {one.relative_to(source).parts[0] for one in source.rglob("*.py") if made.search(one.read_text())}
    return {name.removesuffix(".py") for name in found} - tried


_LEFT_OUT = untried(
    Path(ledger_package.__file__).parent,
    {{"sqlite": "sql", "postgres": "sql"}.get(name, name) for name in BACK_ENDS},
)
if _LEFT_OUT:
    raise TypeError(f"{', '.join(sorted(_LEFT_OUT))} must have a line in BACK_ENDS")


@pytest.fixture(params=BACK_ENDS)
def back_end(request):
    make, quick, full = BACK_ENDS[request.param]
    reference = Told if request.param == "memory" else MemoryLedger
    if request.param in ("postgres", "ethereum"):
        fresh = request.getfixturevalue(request.param)
        yield lambda: make(fresh), reference, quick, full
    else:
        with tempfile.TemporaryDirectory() as folder:
            numbers = iter(range(1 << 30))
            yield lambda: make(lambda: Path(folder) / str(next(numbers))), reference, quick, full


def test_a_back_end_answers_as_the_reference_does(back_end):
    make, reference, quick, _ = back_end
    run(make, reference=reference, examples=quick)


@pytest.mark.slow
def test_a_back_end_answers_as_the_reference_does_in_full(back_end):
    make, reference, _, full = back_end
    run(make, reference=reference, examples=full)


class ChargesAgain(MemoryLedger):
    """Planted: what was bought under the key is charged again."""

    def _request(self, terms, key, information, idempotency):
        if idempotency is None and key in self._accounts[terms.name].keys:
            information += self._accounts[terms.name].keys[key].requested
        return super()._request(terms, key, information, idempotency)


class ForgetsTheMinimum(MemoryLedger):
    """Planted: a tiny purchase is charged what it is worth."""

    def _request(self, terms, key, information, idempotency):
        return super()._request(replace(terms, minimum=1), key, information, idempotency)


class ForgetsRetries(MemoryLedger):
    """Planted: a retry is a new request."""

    def _request(self, terms, key, information, idempotency):
        return super()._request(terms, key, information, None)


class PassesTheCap(MemoryLedger):
    """Planted: the last request may pass the cap."""

    def _request(self, terms, key, information, idempotency):
        held = self._accounts[terms.name]
        try:
            return super()._request(terms, key, information, idempotency)
        except BudgetExceeded as refusal:
            if refusal.left == 0:
                raise
            held.spent = terms.cap
            return self._grant(held, key, information, refusal.asked)


class RecordsTwice(MemoryLedger):
    """Planted: a measurement may be recorded again."""

    def _fulfil(self, number, values):
        if number < len(self._measurements):
            object.__setattr__(self._measurements[number], "fulfilled", False)
        return super()._fulfil(number, values)


class ForgetsTheVerb(MemoryLedger):
    """Planted: a request and a payment may share an idempotency key, and what it paid for."""

    def _earlier(self, held, verb, key, information, idempotency):
        kept = held.answered.get(idempotency, (verb,))[0]
        return super()._earlier(held, kept, key, information, idempotency)


@pytest.mark.parametrize(
    "planted",
    [ChargesAgain, ForgetsTheMinimum, ForgetsRetries, PassesTheCap, RecordsTwice, ForgetsTheVerb],
)
def test_the_suite_finds_planted_bugs(planted):
    with pytest.raises(AssertionError):
        run(planted, examples=80, phases=[Phase.generate])


def covered(make):
    """What of a request and a payment with one idempotency key, key and price the other made free."""
    free = []
    for account, event, asked in PRICED:
        with make() as ledger:
            request = partial(ledger.request, account, information=asked)
            pay = partial(ledger.pay, account, event)
            ledger.open(Terms(account, asked.unit, REPLACE, "one", 1000))
            number = request(key="k", idempotency="i").pending[0].number
            free.append(outcome(partial(pay, key="k", idempotency="i")))
            ledger.fulfil(number, [])
            free.append(outcome(partial(pay, key="k", idempotency="i")))
            paid = pay(key="l", idempotency="j")
            assert (paid.charged, paid.pending) == (asked.units, ())
            free.append(outcome(partial(request, key="l", idempotency="j")))
            assert pay(key="l", idempotency="j") == paid
            assert request(key="k", idempotency="i").charged == asked.units
            assert ledger.balance(account).spent == 2 * asked.units
    return [answer for answer in free if isinstance(answer, Grant) or answer[0] is not IdempotencyConflict]


def test_an_idempotency_key_serves_one_verb(back_end):
    assert covered(back_end[0]) == []


def test_the_check_of_verbs_finds_a_planted_bug():
    assert len(covered(ForgetsTheVerb)) == 4  # of a request after a payment the key tells, too


def blocked(make):
    """What is wrong with payments under names that whoever may ask took first, and the other way round."""
    account, event, asked = PRICED[0]
    wrong = []
    with make() as ledger:
        ledger.open(Terms(account, asked.unit, REPLACE, "one", 1000))
        waiting = ledger.request(account, "foreseen", asked)  # before the owner pays
        recorded = ledger.request(account, "recorded", asked)
        ledger.fulfil(recorded.pending[0].number, [7])
        for name in ("foreseen", "recorded", "fresh"):
            told = outcome(partial(ledger.pay, account, event, key=name))
            if not isinstance(told, Grant):
                wrong.append(f"{name}: blocked")
                continue
            if (told.charged, told.pending) != (asked.units, ()):
                wrong.append(f"{name}: covered by what was asked")
            if ledger.reading(account, told.key) != Reading(account, told.key, asked.units, (), 0):
                wrong.append(f"{name}: not recorded")
            if outcome(partial(ledger.pay, account, event, key=name))[0] is not KeyUsed:
                wrong.append(f"{name}: paid twice")
        if ledger.request(account, "fresh", asked).charged != asked.units:
            wrong.append("what was paid covers a question")
        if ledger.fulfil(waiting.pending[0].number, [7]).sums != (7 * asked.units,):
            wrong.append("what was asked is not what is recorded")
        for verb in (ledger.request, partial(ledger.declare, question="q", grid=0, dimension=1)):
            given = () if isinstance(verb, partial) else (asked,)
            if (
                outcome(lambda verb=verb, given=given: verb(account, "payment:next", *given))[0]
                is not ParameterError
            ):
                wrong.append("a payment's key can be asked for")
    return wrong


def test_nobody_blocks_a_payment_by_asking_first(back_end):
    """It failed: whoever requested under the name first made every payment KeyUsed."""
    assert blocked(back_end[0]) == []


class PaysUnderPlainNames(MemoryLedger):
    """Planted: payments and questions share their names."""

    def charge(self, account, key, information, *, idempotency=None):
        terms = self._checked_request(account, key, information, idempotency)
        return self._pay(terms, key, information.units, idempotency)


def test_the_check_of_payments_finds_a_planted_bug():
    assert "foreseen: blocked" in blocked(PaysUnderPlainNames)


@pytest.mark.parametrize("back_end", [one for one in BACK_ENDS if one != "ethereum"], indirect=True)
def test_a_payment_of_an_earlier_release_is_answered_as_it_was(back_end):
    """It lies under the plain name; the same call again charges nothing, another one is refused.

    Contracts of earlier releases are refused.
    """
    account, event, asked = PRICED[0]
    with back_end[0]() as ledger:
        terms = Terms(account, asked.unit, REPLACE, "one", 1000)
        ledger.open(terms)
        old = ledger._pay(terms, "elsewhere", asked.units, "once")
        assert ledger.pay(account, event, key="elsewhere", idempotency="once") == old
        assert outcome(partial(ledger.pay, account, event, key="other", idempotency="once"))[0] is (
            IdempotencyConflict
        )
        assert ledger.balance(account).spent == asked.units


def test_the_one_pricing_rule():
    account = Terms("a", Unit.MU2, REPLACE, "one", 1000, 7)
    prices = defaultdict(list)
    for requested in (0, 5, 100):
        for asked in (1, 5, 6, 100, 200):
            prices[requested].append(increment(account, requested, asked))
    assert prices == {0: [7, 7, 7, 100, 200], 5: [0, 0, 7, 95, 195], 100: [0, 0, 0, 0, 100]}
