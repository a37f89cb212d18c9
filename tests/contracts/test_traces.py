"""T14: traces of ledger calls by chance give the same on the contract and on SQLite, to the last integer."""

import random
import tempfile
from pathlib import Path

import pytest

from reticent.errors import BudgetExceeded, ReticentError
from reticent.ledger import Amount, SqlLedger, Terms, Unit
from reticent.ledger.base import payment_key
from reticent.privacy import MAX_UNITS, Neighbours

from .ledger_on_revm import RevmLedger
from .revm import planted
from .test_state_machine import PLANTED

REPLACE = Neighbours.REPLACE_ONE
KEYS = ["k", "l", "visits per hour", "Größe"]
MARKS = [None, None, None, "once", "twice"]
MOST = (1 << 62) - 1
SHARED = 100  # traces on one ledger, each with accounts of its own
MEMORY = Path("/dev/shm")  # where there is one; a disk would be waited for at each commit


def outcome(call, ledger):
    """What a call gives; of a refusal its class, and what is left."""
    try:
        return call(ledger)
    except BudgetExceeded as refusal:
        return BudgetExceeded, refusal.left
    except ReticentError as refusal:
        return type(refusal)


def calls_of(chance, name, first):
    """A trace: its calls, on an account of its own, with the measurements from `first` on."""
    terms = Terms(
        name, Unit.MU2, REPLACE, "one", chance.choice([60, 300, MAX_UNITS]), chance.choice([1, 7, 30])
    )
    yield lambda ledger: ledger.open(terms)
    for _ in range(chance.randint(7, 14)):
        verb = chance.choices(["request", "fulfil", "pay", "open"], [8, 6, 3, 1])[0]
        key, mark = chance.choice(KEYS), chance.choice(MARKS)
        edge = min(terms.cap + chance.randint(0, 1), MAX_UNITS)
        units = chance.choice([chance.randint(1, 70), chance.randint(1, 70), 20, 20, edge])
        if verb == "request":
            asked = Amount(units, Unit.MU2, REPLACE)
            yield lambda ledger, key=key, asked=asked, mark=mark: ledger.request(
                name, key, asked, idempotency=mark
            )
        elif verb == "pay":
            asked = Amount(units, Unit.MU2, REPLACE)
            yield lambda ledger, key=key, asked=asked, mark=mark: ledger.charge(
                name, key, asked, idempotency=mark
            )
        elif verb == "fulfil":
            number = first + chance.randint(0, 4)
            values = [
                chance.choice([MOST, -MOST, chance.randint(-9, 9)])
                for _ in range(chance.choice([1, 1, 1, 2, 0]))
            ]
            yield lambda ledger, number=number, values=values: ledger.fulfil(number, values)
        else:
            other = Terms(
                name, chance.choice([Unit.MU2, Unit.EPSILON]), REPLACE, "one", terms.cap, terms.minimum
            )
            yield lambda ledger, other=other: ledger.open(other)


def compare(what, *, traces, seed):
    """Run so many traces on the contract and on SQLite; return how many calls, and how many were refused."""
    chance, calls, refused = random.Random(seed), 0, 0
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        for nth in range(0, traces, SHARED):
            ours = RevmLedger(what)
            with SqlLedger(Path(folder) / str(nth)) as theirs:
                for trace in range(nth, min(traces, nth + SHARED)):
                    name = f"a{trace}"
                    for call in calls_of(chance, name, len(ours.measured)):
                        got = outcome(call, ours)
                        assert got == outcome(call, theirs)
                        calls, refused = calls + 1, refused + isinstance(got, (type, tuple))
                    assert ours.balance(name) == theirs.balance(name)
                    assert ours.pending(name) == theirs.pending(name)
                    for key in [*KEYS, *map(payment_key, KEYS)]:
                        assert ours.reading(name, key) == theirs.reading(name, key)
    return calls, refused


def test_traces_are_the_same_on_the_contract_and_in_sql():
    calls, refused = compare(None, traces=100, seed=6)
    assert calls > 1000
    assert 0.1 < refused / calls < 0.6


@pytest.mark.slow
def test_10_000_traces():
    calls, _ = compare(None, traces=10_000, seed=7)
    assert calls > 100_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "bug",
    ["off-by-one cap", "unguarded second fulfil", "minimum forgotten", "charged again", "idempotency ignored",
     "idempotency of another verb", "sums not weighted", "any number of values", "payment for a used key",
     "payments among questions"],
)  # fmt: skip
def test_planted_bugs_are_found(bug):
    with pytest.raises(AssertionError):
        compare(planted(PLANTED[bug]), traces=300, seed=8)
