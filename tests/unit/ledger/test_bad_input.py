"""Whatever is wrong with a call, it is refused in one clear line, and nothing is written."""

import sqlite3
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from reticent.errors import (
    AccountConflict,
    AlreadyFulfilled,
    BudgetExceeded,
    IdempotencyConflict,
    KeyUsed,
    LedgerError,
    MixedGuarantees,
    ParameterError,
    ParameterTypeError,
    UnknownAccount,
    UnknownMeasurement,
)
from reticent.ledger import Amount, MemoryLedger, SqlLedger, Terms, Unit
from reticent.ledger.base import MOST_VALUES, Order
from reticent.privacy import MAX_UNITS, Neighbours

REPLACE = Neighbours.REPLACE_ONE
HUGE = 1 << 62


def amount(units, unit=Unit.MU2, neighbours=REPLACE):
    return Amount(units, unit, neighbours)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def ledger(request, tmp_path):
    if request.param == "memory":
        made = MemoryLedger()
    elif request.param == "sqlite":
        made = SqlLedger(tmp_path / "ledger.db")
    else:
        made = SqlLedger(request.getfixturevalue("postgres")())
    with made:
        made.open(Terms("a", Unit.MU2, REPLACE, "one person", 1000, 10))
        made.open(Terms("local", Unit.EPSILON, Neighbours.ANY_TWO_VALUES, "one person", 1000))
        made.request("a", "done", amount(20), idempotency="first")
        made.fulfil(0, [1, 2])
        made.request("a", "half", amount(20))
        made.request("a", "half", amount(40))
        made.fulfil(1, [1, 2, 3])
        yield made


def state(ledger):
    """Everything that a call could have changed."""
    head = ledger.head() if isinstance(ledger, SqlLedger) else None
    names = [balance.terms.name for balance in ledger.accounts()]
    readings = [ledger.reading(name, key) for name in names for key in ("done", "half", "k")]
    return head, ledger.accounts(), [ledger.pending(name) for name in names], readings


def refused(ledger, call, error, match):
    before = state(ledger)
    with pytest.raises(error, match=match) as caught:
        call(ledger)
    assert "\n" not in str(caught.value)
    assert state(ledger) == before


BAD_UNITS = [
    (0, ParameterError, "information must be >= 1, got 0"),
    (-5, ParameterError, "information must be >= 1, got -5"),
    (HUGE, ParameterError, "information must be <= 4611686018427387903, got 4611686018427387904"),
    (10**5000, ParameterError, "information must be <= 4611686018427387903"),
    (1.0, ParameterTypeError, "information must be a whole number, got 1.0"),
    (float("nan"), ParameterTypeError, "information must be a whole number, got nan"),
    (float("inf"), ParameterTypeError, "information must be a whole number, got inf"),
    (True, ParameterTypeError, "information must be a whole number, got True"),
    (np.bool_(True), ParameterTypeError, "information must be a whole number"),
    (np.float64(5), ParameterTypeError, "information must be a whole number"),
    ("5", ParameterTypeError, "information must be a whole number, got '5'"),
    (b"5", ParameterTypeError, "information must be a whole number"),
    (None, ParameterTypeError, "information must be a whole number, got None"),
    (Fraction(5), ParameterTypeError, "information must be a whole number"),
    (Decimal(5), ParameterTypeError, "information must be a whole number"),
]


@pytest.mark.parametrize(("units", "error", "match"), BAD_UNITS, ids=map(str, range(len(BAD_UNITS))))
def test_bad_amounts(units, error, match):
    with pytest.raises(error, match=match) as caught:
        amount(units)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("field", ["cap", "minimum"])
@pytest.mark.parametrize("units", [given for given, _, _ in BAD_UNITS], ids=map(str, range(len(BAD_UNITS))))
def test_bad_terms(units, field):
    with pytest.raises((ParameterError, ParameterTypeError), match=f"{field} must be"):
        Terms("a", Unit.MU2, REPLACE, "one", **{"cap": 1000, field: units})


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"name": ""}, "name must be"),
        ({"name": "two words"}, "name must be"),
        ({"name": "x" * 121}, "name must be"),
        ({"name": "a\n"}, "name must be"),
        ({"name": 5}, "name must be"),
        ({"unit": "mu2"}, "unit must be a Unit"),
        ({"neighbours": "REPLACE_ONE"}, "neighbours must be a Neighbours"),
        ({"subject": ""}, "subject must be"),
        ({"subject": "x" * 201}, "subject must be"),
        ({"subject": "\ud800"}, "subject must be"),
        ({"subject": "a\x00b"}, "subject must be"),
        ({"minimum": 1001}, "minimum must be <= 1000"),
    ],
)
def test_bad_names_of_accounts(given, match):
    good = {"name": "a", "unit": Unit.MU2, "neighbours": REPLACE, "subject": "one", "cap": 1000}
    with pytest.raises((ParameterError, ParameterTypeError), match=match):
        Terms(**{**good, **given})


REQUESTS = [
    (("nobody", "k", amount(5)), UnknownAccount, "account nobody was never opened"),
    (("", "k", amount(5)), ParameterError, "account must be"),
    (("a b", "k", amount(5)), ParameterError, "account must be"),
    ((5, "k", amount(5)), ParameterError, "account must be"),
    ((None, "k", amount(5)), ParameterError, "account must be"),
    ((10**5000, "k", amount(5)), ParameterError, "account must be"),
    (("a", "", amount(5)), ParameterError, "key must be"),
    (("a", "x" * 1001, amount(5)), ParameterError, "key must be"),
    (("a", "line\nline", amount(5)), ParameterError, "key must be"),
    (("a", "\ud800", amount(5)), ParameterError, "key must be"),
    (("a", "nul\x00", amount(5)), ParameterError, "key must be"),
    (("a", 5, amount(5)), ParameterError, "key must be"),
    (("a", "k", 5), ParameterTypeError, "information must be an Amount, got int"),
    (("a", "k", 5.0), ParameterTypeError, "information must be an Amount, got float"),
    (("a", "k", None), ParameterTypeError, "information must be an Amount"),
    (("a", "k", amount(5, Unit.EPSILON)), MixedGuarantees, "account a is in mu2"),
    (("a", "k", amount(5, Unit.EPSILON_PER_KM)), MixedGuarantees, "got epsilon_per_km"),
    (("a", "k", amount(5, neighbours=Neighbours.ADD_REMOVE_ONE)), MixedGuarantees, "got mu2 .ADD_REMOVE_ONE"),
    (("local", "k", amount(5)), MixedGuarantees, "account local is in epsilon"),
    (("a", "k", amount(941)), BudgetExceeded, "account a: asked 941 units, only 940 left"),
    (("a", "k", amount(MAX_UNITS)), BudgetExceeded, "only 940 left"),
    (("a", "half", amount(981)), BudgetExceeded, "asked 941 units, only 940 left"),
]


@pytest.mark.parametrize(("asked", "error", "match"), REQUESTS, ids=map(str, range(len(REQUESTS))))
def test_bad_requests(ledger, asked, error, match):
    refused(ledger, lambda one: one.request(*asked), error, match)
    refused(ledger, lambda one: one.request(*asked, idempotency="new"), error, match)


def test_bad_requests_among_many(ledger):
    good = Order("a", "k", amount(20))
    for asked, error, match in REQUESTS:
        if issubclass(error, LedgerError):
            before = ledger.balance("a").spent
            refusal, unknown = ledger.request_many([Order(*asked), Order("nobody", "k", amount(5))])
            assert type(refusal) is error
            assert type(unknown) is UnknownAccount
            assert ledger.balance("a").spent == before
        else:
            refused(ledger, lambda one, asked=asked: one.request_many([good, Order(*asked)]), error, match)
    refused(ledger, lambda one: one.request_many([good, ("a", "k", amount(5))]), ParameterTypeError, "orders")
    assert ledger.request_many([]) == []


@pytest.mark.parametrize(
    ("given", "error", "match"),
    [
        ({"idempotency": ""}, ParameterError, "idempotency must be"),
        ({"idempotency": 5}, ParameterError, "idempotency must be"),
        ({"idempotency": "two words"}, ParameterError, "idempotency must be"),
        ({"idempotency": "first"}, IdempotencyConflict, "idempotency key first was used for another request"),
        ({"idempotency": "first", "key": "other"}, IdempotencyConflict, "used for another request"),
    ],
)
def test_bad_idempotency_keys(ledger, given, error, match):
    asked = {"key": "done", "information": amount(21), **given}
    refused(ledger, lambda one: one.request("a", **asked), error, match)


@pytest.mark.parametrize(
    ("number", "values", "error", "match"),
    [
        (0, [1, 2], AlreadyFulfilled, "measurement 0 has its values"),
        (1, [9, 9, 9], AlreadyFulfilled, "measurement 1 has its values"),
        (3, [1], UnknownMeasurement, "measurement 3 was never asked for"),
        (MAX_UNITS, [1], UnknownMeasurement, "was never asked for"),
        (HUGE, [1], ParameterError, "number must be <="),
        (-1, [1], ParameterError, "number must be >= 0, got -1"),
        (1.0, [1], ParameterTypeError, "number must be a whole number"),
        (True, [1], ParameterTypeError, "number must be a whole number"),
        ("2", [1], ParameterTypeError, "number must be a whole number"),
        (None, [1], ParameterTypeError, "number must be a whole number"),
        (2, [1, 2], ParameterError, "values must be 3 under this key, got 2"),
        (2, [], ParameterError, "values must be 3 under this key, got 0"),
        (2, [0] * (MOST_VALUES + 1), ParameterError, "values must be at most 65536, got 65537"),
        (2, [1, 2, 3.0], ParameterTypeError, r"values\[2\] must be a whole number, got 3.0"),
        (2, [1, float("nan"), 3], ParameterTypeError, r"values\[1\] must be a whole number, got nan"),
        (2, [True, 2, 3], ParameterTypeError, r"values\[0\] must be a whole number"),
        (2, ["1", 2, 3], ParameterTypeError, r"values\[0\] must be a whole number"),
        (2, [1, 2, HUGE], ParameterError, r"values\[2\] must be <="),
        (2, [1, 2, -HUGE], ParameterError, r"values\[2\] must be >="),
        (2, np.array([1.0, 2.0, 3.0]), ParameterTypeError, r"values\[0\] must be a whole number"),
        (2, "123", ParameterTypeError, "values must be a list of whole numbers, got str"),
        (2, b"123", ParameterTypeError, "values must be a list of whole numbers, got bytes"),
        (2, {1, 2, 3}, ParameterTypeError, "values must be a list of whole numbers, got set"),
        (2, 5, ParameterTypeError, "values must be a list of whole numbers, got int"),
        (2, None, ParameterTypeError, "values must be a list of whole numbers, got NoneType"),
        (2, iter([1, 2, 3]), ParameterTypeError, "values must be a list of whole numbers"),
    ],
    ids=lambda given: repr(given)[:24].replace("\\", ""),
)
def test_bad_values(ledger, number, values, error, match):
    refused(ledger, lambda one: one.fulfil(number, values), error, match)


@pytest.mark.parametrize("terms", [None, "a", {"name": "a"}, amount(5)])
def test_what_is_no_terms_opens_nothing(ledger, terms):
    refused(ledger, lambda one: one.open(terms), ParameterTypeError, "terms must be Terms")


@pytest.mark.parametrize(
    "change", [{"cap": 1001}, {"unit": Unit.EPSILON}, {"subject": "two"}, {"minimum": 11}]
)
def test_an_account_does_not_change_its_terms(ledger, change):
    given = {"name": "a", "unit": Unit.MU2, "neighbours": REPLACE, "subject": "one person", "cap": 1000}
    terms = Terms(**{**given, "minimum": 10, **change})
    refused(ledger, lambda one: one.open(terms), AccountConflict, "account a is open with other terms")


def test_bad_payments(ledger):
    events = pytest.importorskip("dp_accounting.dp_event", reason="dp-accounting is not installed")
    gaussian, laplace = events.GaussianDpEvent(1e5), events.LaplaceDpEvent(1e12)
    for event, error, match in [
        (events.NonPrivateDpEvent(), ParameterError, "must be private"),
        (events.NoOpDpEvent(), ParameterError, "costs nothing"),
        (events.UnsupportedDpEvent(), ParameterError, "not known here"),
        (events.PoissonSampledDpEvent(0.1, gaussian), ParameterError, "not known here"),
        (events.ZCDpEvent(0.1), MixedGuarantees, "mu2"),
        (events.ComposedDpEvent([gaussian, laplace]), MixedGuarantees, None),
        (events.GaussianDpEvent(0.0), ParameterError, "must be private"),
        (events.GaussianDpEvent(float("nan")), ParameterError, "noise_multiplier"),
        (events.GaussianDpEvent(-1.0), ParameterError, "noise_multiplier"),
        (events.GaussianDpEvent(1e-9), (ParameterError, BudgetExceeded), None),
        (events.GaussianDpEvent(1.0), BudgetExceeded, "only 940 left"),
        (None, ParameterError, "not known here"),
        (5, ParameterError, "not known here"),
    ]:
        refused(ledger, lambda one, event=event: one.pay("a", event, key="k"), error, match)
    refused(ledger, lambda one: one.pay("nobody", gaussian, key="k"), UnknownAccount, "never opened")
    refused(ledger, lambda one: one.pay(5, gaussian, key="k"), ParameterError, "account must be")
    refused(ledger, lambda one: one.pay("a", gaussian, key=""), ParameterError, "key must be")
    refused(ledger, lambda one: one.pay("local", gaussian, key="k"), (ParameterError, MixedGuarantees), None)
    grant = ledger.pay("a", gaussian, key="k", idempotency="p")
    assert (grant.charged, grant.pending) == (grant.information, ())
    assert ledger.pay("a", gaussian, key="k", idempotency="p") == grant
    assert ledger.reading("a", grant.key).estimate() == ()
    refused(ledger, lambda one: one.pay("a", gaussian, key="k"), KeyUsed, "a payment needs a fresh key")
    told = lambda one: one.pay("a", gaussian, key="k", idempotency="q")  # noqa: E731
    refused(ledger, told, KeyUsed, "a payment needs a fresh key")


def test_numpy_integers_are_taken_as_plain_ones(ledger):
    asked = Amount(np.int64(30), Unit.MU2, REPLACE)
    grant = ledger.request("a", "numpy", asked)
    assert (type(grant.charged), grant.charged) == (int, 30)
    reading = ledger.fulfil(grant.pending[0].number, np.array([1 << 61, -3]))
    assert reading.sums == (30 << 61, -90)
    assert ledger.reading("a", "numpy") == reading


def test_the_largest_amounts_are_exact(tmp_path):
    with SqlLedger(tmp_path / "l.db") as ledger:
        ledger.open(Terms("a", Unit.MU2, REPLACE, "one", MAX_UNITS))
        for i, information in enumerate([MAX_UNITS - 1, MAX_UNITS]):
            grant = ledger.request("a", "k", amount(information))
            ledger.fulfil(grant.pending[0].number, [MAX_UNITS, -MAX_UNITS])
            assert grant.remaining == 1 - i
        assert ledger.reading("a", "k").sums == (MAX_UNITS**2, -(MAX_UNITS**2))
        assert ledger.reading("a", "k").estimate() == (MAX_UNITS, -MAX_UNITS)
        kinds = ledger._store.all("SELECT DISTINCT typeof(spent), typeof(cap) FROM account")
        assert kinds == [("integer", "integer")]
        assert ledger._store.all("SELECT DISTINCT typeof(sums) FROM bought") == [("text",)]


def test_a_foreign_measurement_number_is_unknown(tmp_path):
    with SqlLedger(tmp_path / "one.db") as one, SqlLedger(tmp_path / "other.db") as other:
        for ledger in (one, other):
            ledger.open(Terms("a", Unit.MU2, REPLACE, "one", 100))
        number = one.request("a", "k", amount(5)).pending[0].number
        before = other.head()
        with pytest.raises(UnknownMeasurement, match="was never asked for"):
            other.fulfil(number, [1])
        assert other.head() == before


class TakesFloats(MemoryLedger):
    """Planted: a float is charged as it is."""

    def request(self, account, key, information, *, idempotency=None):
        if isinstance(information, float):
            return self._request(self._terms(account), key, information, idempotency)
        return super().request(account, key, information, idempotency=idempotency)


class WritesFirst(MemoryLedger):
    """Planted: charges, then looks."""

    def _request(self, terms, key, information, idempotency):
        self._find(terms.name).spent += 1
        return super()._request(terms, key, information, idempotency)


@pytest.mark.parametrize("planted", [TakesFloats, WritesFirst])
def test_the_checks_find_planted_bugs(planted):
    ledger = planted()
    ledger.open(Terms("a", Unit.MU2, REPLACE, "one person", 1000, 10))
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        refuses_what_is_bad(ledger)


def refuses_what_is_bad(ledger):
    for asked, error, match in REQUESTS:
        if asked[0] == "a":
            refused(ledger, lambda one, asked=asked: one.request(*asked), error, match)


@pytest.mark.parametrize("where", [None, 5, b"x\x00y", "", "/nowhere/at/all/ledger.db", ":memory:"])
def test_a_ledger_needs_a_place(where, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LedgerError) as caught:
        SqlLedger(where)
    assert "\n" not in str(caught.value)


def test_what_is_no_ledger_is_left_alone(tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("these are notes, and long enough to be a page of a database\n" * 100)
    with pytest.raises(LedgerError, match="damaged or no ledger"):
        SqlLedger(text)
    assert text.read_text().startswith("these are notes")
    other = tmp_path / "other.db"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE people (name)")
    connection.close()
    with pytest.raises(LedgerError, match="is a database, and no ledger"):
        SqlLedger(other)
    connection = sqlite3.connect(other)
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("people",)]
    connection.close()
