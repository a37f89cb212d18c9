"""The checks that every back end shares, to the letter: field, rule and value; the edges are let in."""

from fractions import Fraction

import numpy as np
import pytest

from reticent.errors import MixedGuarantees, ParameterError, ParameterTypeError, UnknownAccount
from reticent.ledger import Amount, MemoryLedger, Reading, Terms, Unit
from reticent.ledger.base import MOST_VALUE, MOST_VALUES, Balance, Grant, Measurement, Order, increment
from reticent.privacy import MAX_UNITS, Neighbours

REPLACE = Neighbours.REPLACE_ONE
GOOD = {"name": "a", "unit": Unit.MU2, "neighbours": REPLACE, "subject": "one person", "cap": 1000}
NAME_RULE = "must be 1 to 120 letters, digits or ._:/@-"
KEY_RULE = "key must be a printable text of 1 to 1000 characters"


@pytest.fixture
def ledger():
    made = MemoryLedger()
    made.open(Terms(**GOOD))
    return made


def message(call, error=ParameterError):
    with pytest.raises(error) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"name": ""}, f"name {NAME_RULE}, got ''"),
        ({"name": "-a"}, f"name {NAME_RULE}, got '-a'"),
        ({"name": None}, f"name {NAME_RULE}, got None"),
        ({"name": "x " * 19}, f"name {NAME_RULE}, got '{'x ' * 19}'"),
        ({"name": "x " * 20}, f"name {NAME_RULE}, got '{'x ' * 18}..."),
        ({"name": 10**5000}, f"name {NAME_RULE}, got a huge number"),
        ({"subject": ""}, "subject must be a printable text of 1 to 200 characters"),
        ({"subject": 5}, "subject must be a printable text of 1 to 200 characters"),
        ({"subject": "x" * 201}, "subject must be a printable text of 1 to 200 characters"),
        ({"cap": 0}, "cap must be >= 1, got 0"),
        ({"cap": MAX_UNITS + 1}, f"cap must be <= {MAX_UNITS}, got {MAX_UNITS + 1}"),
        ({"minimum": 0}, "minimum must be >= 1, got 0"),
        ({"minimum": 1001}, "minimum must be <= 1000, got 1001"),
    ],
    ids=lambda given: given[:60] if isinstance(given, str) else "",
)
def test_terms_name_what_is_wrong(given, words):
    assert message(lambda: Terms(**GOOD | given)) == words


@pytest.mark.parametrize(
    "make", [lambda **given: Terms(**GOOD | given), lambda **given: Amount(**AMOUNT | given)]
)
def test_units_and_neighbours_are_of_their_kind(make):
    assert message(lambda: make(unit="mu2"), ParameterTypeError) == "unit must be a Unit, got 'mu2'"
    words = "neighbours must be a Neighbours, got 'REPLACE_ONE'"
    assert message(lambda: make(neighbours="REPLACE_ONE"), ParameterTypeError) == words


AMOUNT = {"units": 5, "unit": Unit.MU2, "neighbours": REPLACE}


def test_what_just_fits_is_taken(ledger):
    edge = {
        "name": "x" * 120,
        "subject": "y" * 200,
        "cap": np.int64(MAX_UNITS),
        "minimum": np.int64(MAX_UNITS),
    }
    terms = Terms(**GOOD | edge)
    assert (type(terms.cap), terms.cap, type(terms.minimum)) == (int, MAX_UNITS, int)
    assert Terms(**GOOD | {"name": "0", "subject": "y", "cap": 1}).minimum == 1
    assert Terms(**GOOD | {"name": "a._:/@-Z9"}).name == "a._:/@-Z9"
    for units in (1, MAX_UNITS, np.int64(1)):
        assert Amount(units, Unit.MU2, REPLACE).units == units
        assert type(Amount(units, Unit.MU2, REPLACE).units) is int
    assert ledger.request("a", "k" * 1000, Amount(10, Unit.MU2, REPLACE), idempotency="i" * 120).charged == 10
    assert ledger.request("a", " ", Amount(10, Unit.MU2, REPLACE)).charged == 10
    values = [MOST_VALUE, -MOST_VALUE, np.int64(MOST_VALUE), np.int64(-MOST_VALUE), 0]
    assert ledger.fulfil(0, values).sums == tuple(10 * int(value) for value in values)
    assert len(ledger.fulfil(1, [0] * MOST_VALUES).sums) == MOST_VALUES


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        (("a b", "k", 5), ParameterError, f"account {NAME_RULE}, got 'a b'"),
        (("a", "", Amount(**AMOUNT)), ParameterError, f"{KEY_RULE}, got ''"),
        (("a", 7, Amount(**AMOUNT)), ParameterError, f"{KEY_RULE}, got 7"),
        (("a", "k\n", Amount(**AMOUNT)), ParameterError, f"{KEY_RULE}, got 'k\\n'"),
        (("a", "k" * 1001, Amount(**AMOUNT)), ParameterError, f"{KEY_RULE}, got '{'k' * 36}..."),
        (("a", "k", 5), ParameterTypeError, "information must be an Amount, got int"),
        (("a", "k", Amount(**AMOUNT), "i i"), ParameterError, f"idempotency {NAME_RULE}, got 'i i'"),
        (("b", "k", Amount(**AMOUNT)), UnknownAccount, "account b was never opened"),
        (
            ("a", "k", Amount(5, Unit.EPSILON, Neighbours.ADD_REMOVE_ONE)),
            MixedGuarantees,
            "account a is in mu2 (REPLACE_ONE), got epsilon (ADD_REMOVE_ONE)",
        ),
    ],
    ids=lambda given: given[:60] if isinstance(given, str) else "",
)
def test_requests_name_what_is_wrong(ledger, asked, error, words):
    account, key, information, *rest = asked
    idempotency = rest[0] if rest else None
    assert message(lambda: ledger.request(account, key, information, idempotency=idempotency), error) == words
    if error is UnknownAccount:
        assert [str(answer) for answer in ledger.request_many([Order(*asked)])] == [words]
    else:
        assert message(lambda: ledger.request_many([Order(*asked)]), error) == words
    assert ledger.balance("a").spent == 0


def test_orders_are_decided_in_turn(ledger):
    good = Amount(600, Unit.MU2, REPLACE)
    orders = [Order("a", "k", good), Order("b", "k", good), Order("a", "l", good)]
    answers = ledger.request_many([*orders, Order("a", "k", good, "again")])
    assert [str(answer) for answer in answers[1:3]] == [
        "account b was never opened",
        "account a: asked 600 units, only 400 left",
    ]
    pending = (Measurement(0, "a", "k", 600, fulfilled=False),)
    assert answers[0] == Grant("a", "k", 600, 600, 400, pending)
    assert answers[3] == Grant("a", "k", 600, 0, 400, pending)
    retried = ledger.request_many([Order("a", "n", Amount(10, Unit.MU2, REPLACE), "once")] * 2)
    assert [(grant.charged, grant.remaining) for grant in retried] == [(10, 390)] * 2
    words = message(lambda: ledger.request_many([orders[0], ("a", "k", good)]), ParameterTypeError)
    assert words == "orders must be Order, got tuple"


@pytest.mark.parametrize(
    ("number", "values", "error", "words"),
    [
        (-1, [1], ParameterError, "number must be >= 0, got -1"),
        (MAX_UNITS + 1, [1], ParameterError, f"number must be <= {MAX_UNITS}, got {MAX_UNITS + 1}"),
        ("0", [1], ParameterTypeError, "number must be a whole number, got '0'"),
        (0, "12", ParameterTypeError, "values must be a list of whole numbers, got str"),
        (0, b"12", ParameterTypeError, "values must be a list of whole numbers, got bytes"),
        (0, {1}, ParameterTypeError, "values must be a list of whole numbers, got set"),
        (0, [0] * (MOST_VALUES + 1), ParameterError, "values must be at most 65536, got 65537"),
        (0, [1, MOST_VALUE + 1], ParameterError, f"values[1] must be <= {MOST_VALUE}, got {MOST_VALUE + 1}"),
        (0, [-MOST_VALUE - 1], ParameterError, f"values[0] must be >= {-MOST_VALUE}, got {-MOST_VALUE - 1}"),
        (0, [1, 2, True], ParameterTypeError, "values[2] must be a whole number, got True"),
    ],
    ids=lambda given: repr(given)[:40],
)
def test_values_name_what_is_wrong(ledger, number, values, error, words):
    ledger.request("a", "k", Amount(10, Unit.MU2, REPLACE))
    assert message(lambda: ledger.fulfil(number, values), error) == words
    assert ledger.reading("a", "k") == Reading("a", "k", 0, (), 10)


class Told(MemoryLedger):
    """Keeps what it is told."""

    def __init__(self):
        super().__init__()
        self.told = []

    def _declare(self, *given):
        self.told.append(given)


DECLARED = {"account": "a", "key": "k", "question": "how many?", "grid": 24, "dimension": 3}


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"account": "a b"}, ParameterError, f"account {NAME_RULE}, got 'a b'"),
        ({"key": ""}, ParameterError, f"{KEY_RULE}, got ''"),
        ({"question": b"how many?"}, ParameterTypeError, "question must be a text, got bytes"),
        ({"question": ""}, ParameterError, "question must not be empty"),
        ({"grid": 1.0}, ParameterTypeError, "grid must be a whole number, got 1.0"),
        ({"grid": -32768}, ParameterError, "grid must be >= -32767, got -32768"),
        ({"grid": 32768}, ParameterError, "grid must be <= 32767, got 32768"),
        ({"dimension": True}, ParameterTypeError, "dimension must be a whole number, got True"),
        ({"dimension": 0}, ParameterError, "dimension must be >= 1, got 0"),
        ({"dimension": MOST_VALUES + 1}, ParameterError, "dimension must be <= 65536, got 65537"),
    ],
    ids=lambda given: repr(given)[:40],
)
def test_what_is_declared_is_checked_by_every_ledger(ledger, given, error, words):
    listening = Told()
    for one in (ledger, listening):
        assert message(lambda one=one: one.declare(**DECLARED | given), error) == words
    assert listening.told == []


def test_a_ledger_beside_the_data_needs_no_words(ledger):
    assert not ledger.measured_by_oracle
    assert ledger.declare(**DECLARED) is None
    assert ledger.reading("a", "k") == Reading("a", "k", 0, (), 0)
    listening = Told()
    for edge in ({}, {"grid": np.int64(-32767), "dimension": MOST_VALUES}, {"grid": 32767, "dimension": 1}):
        listening.declare(**DECLARED | edge)
    assert listening.told == [
        ("a", "k", "how many?", 24, 3),
        ("a", "k", "how many?", -32767, MOST_VALUES),
        ("a", "k", "how many?", 32767, 1),
    ]
    assert type(listening.told[1][3]) is int


def test_what_is_opened_is_terms(ledger):
    assert message(lambda: ledger.open("a"), ParameterTypeError) == "terms must be Terms, got str"
    assert ledger.open(Terms(**GOOD)) == Balance(Terms(**GOOD), 0)


def test_payments_are_checked_as_requests_are(ledger):
    events = pytest.importorskip("dp_accounting.dp_event", reason="dp-accounting is not installed")
    event = events.GaussianDpEvent(2.0**20)  # for a replaced row mu = 2^-19, and mu^2 is 3.64 units
    assert message(lambda: ledger.pay("a b", event, key="k")) == f"account {NAME_RULE}, got 'a b'"
    assert message(lambda: ledger.pay("a", event, key="")) == f"{KEY_RULE}, got ''"
    words = message(lambda: ledger.pay("a", event, key="k", idempotency="i i"))
    assert words == f"idempotency {NAME_RULE}, got 'i i'"
    assert ledger.pay("a", event, key="k") == Grant("a", "payment:k", 4, 4, 996, ())
    assert message(lambda: ledger.pay("a", event, key="k" * 993)).startswith(KEY_RULE)
    rule = "key must not begin with payment:, which names payments, got 'payment:k'"
    asked = Amount(1, Unit.MU2, Neighbours.REPLACE_ONE)
    assert message(lambda: ledger.request("a", "payment:k", asked)) == rule
    assert message(lambda: ledger.request_many([Order("a", "payment:k", asked)])) == rule
    assert message(lambda: ledger.declare(**DECLARED | {"key": "payment:k"})) == rule
    pure = {"unit": Unit.EPSILON, "name": "pure", "neighbours": Neighbours.ADD_REMOVE_ONE}
    ledger.open(Terms(**GOOD | pure))
    assert ledger.pay("pure", events.LaplaceDpEvent(2.0**30), key="k").charged == 932  # 931.3, rounded up
    words = message(lambda: ledger.pay("pure", event, key="l"), MixedGuarantees)
    assert words.startswith(
        "account pure is in epsilon, got Protects one row. Compared are two data sets, one with"
    )
    ledger.open(Terms(**GOOD | {"unit": Unit.EPSILON_PER_KM, "name": "map"}))
    words = message(lambda: ledger.pay("map", events.LaplaceDpEvent(1e10), key="l"), MixedGuarantees)
    assert words.startswith("account map is in epsilon_per_km, got Protects one row.")


def test_a_reading_divides_exactly():
    assert Reading("a", "k", 3, (6, -1, 0), 5).estimate() == (2, Fraction(-1, 3), 0)
    assert Reading("a", "k", 0, (), 5).estimate() == ()


def test_the_price_of_a_step():
    terms = Terms(**GOOD | {"minimum": 7})
    assert [increment(terms, 10, asked) for asked in (1, 10, 11, 17, 18)] == [0, 0, 7, 7, 8]


def test_a_ledger_closes_itself():
    class Closes(MemoryLedger):
        closed = False

        def close(self):
            self.closed = True

    with Closes() as ledger:
        assert isinstance(ledger, Closes)
        assert not ledger.closed
    assert ledger.closed
