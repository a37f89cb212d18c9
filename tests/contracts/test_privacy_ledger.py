"""Every function of PrivacyLedger.vy, and every event."""

import pytest

from .privacy_ledger import (
    DATASET,
    FULFIL,
    KEY,
    LEAVE,
    MAX_UNITS,
    OPEN,
    OPEN_KEY,
    OTHER,
    PARTS,
    TERMS,
    asked,
    ledger,
    ready,
    reason,
    scenario,
    state,
)
from .revm import (
    ANNA,
    BRUNO,
    NEXT,
    NO_KEY,
    NOBODY,
    ORACLE,
    OWNER,
    STRANGER,
    Contract,
    Refused,
    artifact,
    dataset_of,
    identity_of,
    key_of,
    once,
    payment_of,
    planted,
    register,
)

__all__ = ["ledger"]  # fixtures


def test_what_stands_behind_a_name_in_the_call_does_not_matter(ledger):
    """Padding is not checked by the compiler; were it hashed, one name would have many identifiers."""
    data = ledger.data("register", *TERMS)
    place = data.rindex(b"census") + len(b"census")
    assert ledger.raw(OWNER, data[:place] + b"\xff" * 26 + data[place + 26 :], ["bytes32"]).value == DATASET
    data = ledger.data("declare", DATASET, b"ages", b"how many?", -3, 2)
    place = data.rindex(b"ages") + len(b"ages")
    assert ledger.raw(OWNER, data[:place] + b"\xff" * 28 + data[place + 28 :], ["bytes32"]).value == KEY


@scenario
def test_register(ledger):
    answer = ledger.call(OWNER, "register", *TERMS)
    assert answer.value == DATASET
    fields = {
        "dataset": DATASET, "owner": OWNER, "oracle": ORACLE, "name": "census", "unit": "mu2", "cap": 1000,
        "neighbours": "replace_one", "subject": b"one person", "minimum": 5, "commitment": TERMS[7],
    }  # fmt: skip
    assert answer.events == [("Registered", fields)]
    assert ledger.read("datasets", DATASET) == (OWNER, NOBODY, ORACLE, False, 1000, 5, 0, ledger.block)
    assert ledger.call(NEXT, "register", *TERMS).value == dataset_of(NEXT, "census")  # each has own names
    assert ledger.call(OWNER, "register", "another", *TERMS[1:]).value == OTHER
    longest = ("n" * 120, "u" * 16, "n" * 16, b"s" * 800, MAX_UNITS, MAX_UNITS, ORACLE, NO_KEY)
    answer = ledger.call(OWNER, "register", *longest)
    assert answer.value == dataset_of(OWNER, "n" * 120)
    assert (
        tuple(answer.events[0][1][field] for field in ("name", "unit", "neighbours", "subject"))
        == longest[:4]
    )


@scenario
def test_declare(ledger):
    register(ledger, minimum=1)
    answer = ledger.call(OWNER, "declare", DATASET, *PARTS)
    assert answer.value == KEY
    fields = {
        "dataset": DATASET, "key": KEY, "declarer": OWNER, "name": b"ages", "question": b"how many?",
        "grid": -3, "dimension": 2,
    }  # fmt: skip
    assert answer.events == [("Declared", fields)]
    assert ledger.read("keys", DATASET, KEY) == (2, True, 2, 0, 0)
    assert ledger.call(ORACLE, "declare", DATASET, *OPEN).value == OPEN_KEY
    assert ledger.read("keys", DATASET, OPEN_KEY) == (1, False, 0, 0, 0)
    others = [(b"age", *PARTS[1:]), (b"ages", b"how many", -3, 2), (*PARTS[:2], 3, 2), (*PARTS[:3], 1)]
    others += [(b"agesh", b"ow many?", -3, 2), (b"n" * 4000, b"q" * 8192, -(2**15), 512)]
    identifiers = {ledger.call(OWNER, "declare", DATASET, *parts).value for parts in others}
    assert identifiers == {key_of(*parts) for parts in others}
    assert len(identifiers | {KEY, OPEN_KEY}) == 8
    assert ledger.read("keys", OTHER, KEY) == (0, False, 0, 0, 0)


@scenario
def test_request_charges_the_increment(ledger):
    ready(ledger)
    answer = ledger.call(ANNA, "request", DATASET, KEY, 20, NO_KEY)
    fields = {
        "number": 0, "dataset": DATASET, "key": KEY, "analyst": ANNA, "start": 0, "information": 20,
        "spent": 20, "idempotency": NO_KEY,
    }  # fmt: skip
    assert (answer.value, answer.events) == (20, [("MeasurementRequested", fields)])
    assert ledger.read("waiting", 0) == identity_of(DATASET, KEY, 0, 20)
    for information in (20, 1):  # bought before
        answer = ledger.call(ANNA, "request", DATASET, KEY, information, NO_KEY)
        fields = {
            "dataset": DATASET, "key": KEY, "analyst": ANNA, "information": information, "requested": 20,
            "idempotency": NO_KEY,
        }  # fmt: skip
        assert (answer.value, answer.events) == (0, [("Reused", fields)])
    answer = ledger.call(OWNER, "request", DATASET, KEY, 21, once("o"))  # the least is 5 for each of 2 values
    fields = {
        "number": 1, "dataset": DATASET, "key": KEY, "analyst": OWNER, "start": 20, "information": 10,
        "spent": 30, "idempotency": once("o"),
    }  # fmt: skip
    assert (answer.value, answer.events) == (10, [("MeasurementRequested", fields)])
    assert ledger.read("keys", DATASET, KEY) == (10, True, 2, 30, 0)
    assert ledger.read("datasets", DATASET)[6] == 30
    assert ledger.read("analysts", DATASET, ANNA) == (500, 20)
    assert ledger.read("analysts", DATASET, OWNER) == (0, 0)
    assert ledger.read("measurements") == 2


@scenario
def test_each_value_costs(ledger):
    """Whoever may spend little cannot make an oracle record much: 20 values of 5 units, however asked for."""
    ready(ledger)
    ledger.call(OWNER, "allow", DATASET, BRUNO, 100)
    wide = ledger.call(BRUNO, "declare", DATASET, b"wide", b"", 0, 21).value
    assert reason(ledger, BRUNO, "request", DATASET, wide, 1, NO_KEY) == "past the quota"
    fits = ledger.call(BRUNO, "declare", DATASET, b"fits", b"", 0, 20).value
    assert ledger.call(BRUNO, "request", DATASET, fits, 1, NO_KEY).value == 100
    assert ledger.call(BRUNO, "request", DATASET, fits, 100, NO_KEY).value == 0
    assert reason(ledger, BRUNO, "request", DATASET, fits, 101, NO_KEY) == "past the quota"
    assert ledger.call(OWNER, "request", DATASET, fits, 250, NO_KEY).value == 150
    largest = 1000 // 5
    whole = ledger.call(OWNER, "declare", DATASET, b"whole", b"", 0, largest).value
    assert reason(ledger, OWNER, "request", DATASET, whole, 1, NO_KEY) == "past the cap"


@scenario
def test_the_largest_least(ledger):
    """It passes 64 bits, and is refused as any other that passes the cap."""
    register(ledger, cap=MAX_UNITS, minimum=MAX_UNITS)
    assert reason(ledger, OWNER, "declare", DATASET, b"n", b"", 0, 512) == "past the cap"
    assert reason(ledger, OWNER, "declare", DATASET, b"n", b"", 0, 2) == "past the cap"
    key = ledger.call(OWNER, "declare", DATASET, b"n", b"", 0, 1).value
    assert ledger.call(OWNER, "request", DATASET, key, 1, NO_KEY).value == MAX_UNITS


@scenario
def test_fulfil_keeps_exact_sums(ledger):
    ready(ledger)
    weights = {0: 20, 20: 10, 30: 300}
    ends = [(2**63 - 1, -(2**63)), (-1, 2**62), (-(2**62), 0)]
    for start, weight in weights.items():
        ledger.call(ANNA, "request", DATASET, KEY, start + weight, NO_KEY)
    for number, (start, weight) in reversed(list(enumerate(weights.items()))):  # in any order
        answer = ledger.call(ORACLE, "fulfil", number, DATASET, KEY, start, weight, ends[number])
        fields = {
            "number": number, "dataset": DATASET, "key": KEY, "start": start, "information": weight,
            "grid_values": ends[number],
        }  # fmt: skip
        assert (answer.value, answer.events) == (None, [("Fulfilled", fields)])
        assert ledger.read("waiting", number) == NO_KEY
    sums = tuple(sum(w * v[i] for w, v in zip(weights.values(), ends, strict=True)) for i in range(2))
    assert ledger.read("recorded", DATASET, KEY) == (330, 330, sums)
    assert [ledger.read("sums", DATASET, KEY, i) for i in range(3)] == [*sums, 0]


@scenario
def test_the_largest_amounts_and_values(ledger):
    ready(ledger, cap=MAX_UNITS, minimum=1)
    parts = (b"most", b"", 0, 0)
    key = ledger.call(OWNER, "declare", DATASET, *parts).value
    assert ledger.call(OWNER, "request", DATASET, key, MAX_UNITS, once("all")).value == MAX_UNITS
    assert reason(ledger, OWNER, "request", DATASET, KEY, 1, NO_KEY) == "past the cap"
    values = [2**63 - 1, -(2**63)] * 256
    ledger.call(ORACLE, "fulfil", 0, DATASET, key, 0, MAX_UNITS, values)
    sums = tuple(MAX_UNITS * value for value in values)
    assert ledger.read("recorded", DATASET, key) == (MAX_UNITS, MAX_UNITS, sums)
    assert ledger.read("keys", DATASET, key) == (1, True, 512, MAX_UNITS, MAX_UNITS)
    look = ledger.read("look", DATASET, key, OWNER, once("all"))
    assert look[-1] % 2**128 == MAX_UNITS << 64 | MAX_UNITS


@scenario
def test_the_last_unit_of_a_cap_can_be_spent(ledger):
    ready(ledger, cap=100, minimum=50)
    assert ledger.call(OWNER, "request", DATASET, KEY, 1, NO_KEY).value == 100
    assert reason(ledger, OWNER, "request", DATASET, OPEN_KEY, 1, NO_KEY) == "past the cap"
    assert ledger.call(OWNER, "request", DATASET, KEY, 100, NO_KEY).value == 0


@scenario
def test_the_first_record_fixes_what_was_left_open(ledger):
    ready(ledger)
    for information in (10, 20, 30):
        ledger.call(ANNA, "request", DATASET, OPEN_KEY, information, NO_KEY)
    ledger.call(ORACLE, "fulfil", 1, DATASET, OPEN_KEY, 10, 10, [7, -7, 0])
    assert ledger.read("keys", DATASET, OPEN_KEY) == (5, True, 3, 30, 10)
    late = (0, DATASET, OPEN_KEY, 0, 10)
    assert reason(ledger, ORACLE, "fulfil", *late, []) == "wrong number of values"
    ledger.call(ORACLE, "fulfil", *late, [1, 1, 1])
    assert ledger.read("recorded", DATASET, OPEN_KEY) == (30, 20, (80, -60, 10))
    empty = ledger.call(OWNER, "declare", DATASET, b"empty", b"", 0, 0).value
    ledger.call(OWNER, "request", DATASET, empty, 10, NO_KEY)
    ledger.call(ORACLE, "fulfil", 3, DATASET, empty, 0, 10, [])
    ledger.call(OWNER, "request", DATASET, empty, 20, NO_KEY)
    assert reason(ledger, ORACLE, "fulfil", 4, DATASET, empty, 10, 10, [1]) == "wrong number of values"


@scenario
def test_pay_is_charged_in_full_and_recorded(ledger):
    ready(ledger)
    paid = payment_of(b"elsewhere")
    answer = ledger.call(ORACLE, "pay", DATASET, b"elsewhere", 2, once("p"))
    fields = {
        "number": 0, "dataset": DATASET, "key": paid, "payer": ORACLE, "name": b"elsewhere", "information": 5,
        "spent": 5, "idempotency": once("p"),
    }  # fmt: skip
    assert (answer.value, answer.events) == (5, [("Paid", fields)])
    assert ledger.read("keys", DATASET, paid) == (0, True, 0, 5, 5)
    assert ledger.read("waiting", 0) == NO_KEY
    assert ledger.read("datasets", DATASET)[6] == 5
    assert ledger.call(ORACLE, "pay", DATASET, b"elsewhere", 2, once("p")).events == []
    assert ledger.read("recorded", DATASET, paid) == (5, 5, ())
    assert ledger.read("version") == 2


def blocked(ledger):
    """What an analyst who sees a payment coming can do against it, and with it."""
    ready(ledger)
    names = (b"foreseen", b"open")  # `open` is declared, and asked for, by now
    ledger.call(ANNA, "request", DATASET, OPEN_KEY, 20, NO_KEY)
    foreseen = ledger.call(ANNA, "declare", DATASET, b"foreseen", b"", 0, 0).value
    ledger.call(ANNA, "request", DATASET, foreseen, 20, NO_KEY)
    wrong = []
    for name in names:
        try:
            ledger.call(OWNER, "pay", DATASET, name, 10, NO_KEY)
        except Refused as refusal:
            wrong.append(f"{name.decode()}: {refusal.reason}")
        if reason(ledger, ANNA, "request", DATASET, payment_of(name), 20, NO_KEY) != "unknown key":
            wrong.append(f"{name.decode()}: asked for")
    return wrong


@scenario
def test_nobody_blocks_a_payment_by_asking_first(ledger):
    """It failed: whoever declared and requested the name first made every payment `key used`."""
    assert blocked(ledger) == []


def test_planted_payments_among_questions_are_found():
    what = planted(("self._payment(name)", 'self._key(name, b"", 0, 0)'))
    assert blocked(Contract(what)) == ["foreseen: key used", "open: key used"]


@scenario
def test_an_idempotency_key_is_answered_as_at_first(ledger):
    ready(ledger)
    first = ledger.call(ANNA, "request", DATASET, KEY, 20, once("i"))
    free = ledger.call(ANNA, "request", DATASET, KEY, 10, once("free"))
    paid = ledger.call(OWNER, "pay", DATASET, b"paid", 7, once("i"))  # Anna's "i" is not the owner's
    ledger.call(OWNER, "request", DATASET, KEY, 90, NO_KEY)
    before = state(ledger)
    for sender, call, answer in [
        (ANNA, ("request", DATASET, KEY, 20, once("i")), first),
        (ANNA, ("request", DATASET, KEY, 10, once("free")), free),
        (OWNER, ("pay", DATASET, b"paid", 7, once("i")), paid),
    ]:
        again = ledger.call(sender, *call)
        assert (again.value, again.events) == (answer.value, [])
    assert [first.value, free.value, paid.value] == [20, 0, 7]
    for sender, *call in [
        (ANNA, "request", DATASET, KEY, 21, once("i")),
        (ANNA, "request", DATASET, KEY, 0, once("free")),
        (ANNA, "request", DATASET, OPEN_KEY, 10, once("free")),
        (OWNER, "request", DATASET, key_of(b"paid"), 7, once("i")),
        (OWNER, "pay", DATASET, b"paid", 8, once("i")),
        (OWNER, "pay", DATASET, b"paid too", 7, once("i")),
    ]:
        assert reason(ledger, sender, *call) == "idempotency key used"
    assert state(ledger) == before
    look = ledger.read("look", DATASET, KEY, ANNA, once("i"))[-1]
    assert (look >> 64 & 2**64 - 1, look & 2**64 - 1) == (20, 20)
    look = ledger.read("look", DATASET, KEY, ANNA, once("free"))[-1]
    assert (look >> 64 & 2**64 - 1, look & 2**64 - 1) == (20, 0)
    assert ledger.read("look", DATASET, KEY, ANNA, NO_KEY)[-1] == 0
    register(ledger, name="another")
    ledger.call(OWNER, "declare", OTHER, *PARTS)
    assert ledger.call(OWNER, "request", OTHER, KEY, 7, once("i")).value == 10  # nor that of another data set


@scenario
def test_a_refused_request_uses_no_idempotency_key(ledger):
    ready(ledger)
    assert reason(ledger, ANNA, "request", DATASET, KEY, 501, once("i")) == "past the quota"
    assert ledger.call(ANNA, "request", DATASET, KEY, 10, once("i")).value == 10


@scenario
def test_quotas(ledger):
    ready(ledger)
    answer = ledger.call(OWNER, "allow", DATASET, BRUNO, 30)
    assert answer.events == [("Allowed", {"dataset": DATASET, "analyst": BRUNO, "quota": 30})]
    assert ledger.call(BRUNO, "request", DATASET, KEY, 30, NO_KEY).value == 30  # all of it
    assert reason(ledger, BRUNO, "request", DATASET, KEY, 31, NO_KEY) == "past the quota"
    assert ledger.call(BRUNO, "request", DATASET, KEY, 30, NO_KEY).value == 0  # reuse needs none
    ledger.call(OWNER, "allow", DATASET, BRUNO, 40)
    assert ledger.call(BRUNO, "request", DATASET, KEY, 31, NO_KEY).value == 10
    ledger.call(OWNER, "allow", DATASET, BRUNO, 10)  # below what is used
    assert reason(ledger, BRUNO, "request", DATASET, KEY, 41, NO_KEY) == "past the quota"
    assert ledger.call(BRUNO, "request", DATASET, KEY, 40, NO_KEY).value == 0
    assert ledger.read("analysts", DATASET, BRUNO) == (10, 40)
    ledger.call(OWNER, "allow", DATASET, BRUNO, 0)
    assert reason(ledger, BRUNO, "request", DATASET, KEY, 30, NO_KEY) == "not allowed"
    assert reason(ledger, BRUNO, "declare", DATASET, b"mine", b"", 0, 1) == "not allowed"
    ledger.call(OWNER, "allow", DATASET, BRUNO, MAX_UNITS)
    assert reason(ledger, BRUNO, "request", DATASET, KEY, MAX_UNITS, NO_KEY) == "past the cap"
    assert ledger.read("analysts", DATASET, BRUNO) == (MAX_UNITS, 40)  # what is used stays


@scenario
def test_a_pause_stops_spending_and_rewrites_nothing(ledger):
    asked(ledger)
    before = state(ledger)
    answer = ledger.call(OWNER, "pause", DATASET, True)
    assert answer.events == [("Paused", {"dataset": DATASET, "paused": True})]
    paused = state(ledger)
    assert paused[0][3] is True
    assert paused[0][:3] + paused[0][4:] == before[0][:3] + before[0][4:]
    assert paused[1:5] == before[1:5]
    assert reason(ledger, OWNER, "request", DATASET, KEY, 21, NO_KEY) == "paused"
    assert ledger.call(ANNA, "request", DATASET, KEY, 20, NO_KEY).value == 0
    assert ledger.call(ANNA, "request", DATASET, KEY, 20, once("i")).value == 20
    ledger.call(ORACLE, "fulfil", *FULFIL, [4, 5])
    assert ledger.read("recorded", DATASET, KEY) == (20, 20, (80, 100))
    answer = ledger.call(OWNER, "pause", DATASET, False)
    assert answer.events == [("Paused", {"dataset": DATASET, "paused": False})]
    assert ledger.call(ANNA, "request", DATASET, KEY, 40, NO_KEY).value == 20


@scenario
def test_ownership_moves_in_two_steps(ledger):
    ready(ledger)
    answer = ledger.call(OWNER, "offer", DATASET, NEXT)
    assert answer.events == [("OwnershipOffered", {"dataset": DATASET, "candidate": NEXT})]
    assert ledger.read("datasets", DATASET)[:2] == (OWNER, NEXT)
    assert reason(ledger, NEXT, "pause", DATASET, True) == "not the owner"
    ledger.call(OWNER, "offer", DATASET, NOBODY)  # taken back
    assert reason(ledger, NEXT, "take", DATASET) == "not offered"
    ledger.call(OWNER, "offer", DATASET, NEXT)
    assert reason(ledger, STRANGER, "take", DATASET) == "not offered"
    answer = ledger.call(NEXT, "take", DATASET)
    assert answer.events == [("OwnershipTaken", {"dataset": DATASET, "owner": NEXT})]
    assert ledger.read("datasets", DATASET)[:2] == (NEXT, NOBODY)
    assert reason(ledger, NEXT, "take", DATASET) == "not offered"
    assert reason(ledger, OWNER, "allow", DATASET, BRUNO, 1) == "not the owner"
    assert reason(ledger, OWNER, "request", DATASET, KEY, 20, NO_KEY) == "not allowed"
    assert reason(ledger, OWNER, "register", *TERMS) == "registered already"  # no second budget
    assert ledger.call(NEXT, "request", DATASET, KEY, 20, NO_KEY).value == 20


@scenario
def test_another_oracle(ledger):
    asked(ledger)
    answer = ledger.call(OWNER, "appoint", DATASET, NEXT)
    assert answer.events == [("OracleAppointed", {"dataset": DATASET, "oracle": NEXT})]
    assert reason(ledger, ORACLE, "fulfil", *FULFIL, [1, 2]) == "not the oracle"
    ledger.call(NEXT, "fulfil", *FULFIL, [1, 2])


def test_the_oracle_of_one_data_set_records_for_no_other(ledger):
    asked(ledger)
    ledger.call(STRANGER, "register", "mine", *TERMS[1:6], STRANGER, TERMS[7])
    mine = dataset_of(STRANGER, "mine")
    assert reason(ledger, STRANGER, "fulfil", *FULFIL, [1, 2]) == "not the oracle"
    assert reason(ledger, STRANGER, "fulfil", 0, mine, KEY, 0, 20, [1, 2]) == "another measurement"


@scenario
def test_look(ledger):
    asked(ledger)
    both = (False, True, True, 2, 1000, 5, 20)
    assert ledger.read("look", DATASET, KEY, ANNA, NO_KEY) == (*both, 500, 20, 20, 0, 0)
    assert ledger.read("look", DATASET, KEY, OWNER, NO_KEY) == (*both, 1000, 0, 20, 0, 0)
    assert ledger.read("look", DATASET, KEY, STRANGER, NO_KEY) == (*both, 0, 0, 20, 0, 0)
    assert ledger.read("look", OTHER, KEY, ANNA, NO_KEY) == (False, False, False, *[0] * 9)
    assert ledger.read("recorded", OTHER, KEY) == (0, 0, ())


@scenario
def test_calls_that_are_none_are_refused(ledger):
    """No money, no unknown function, no call cut short, no argument past its type."""
    asked(ledger)
    for call in artifact().calls.values():
        number = int.from_bytes(call.selector)  # the compiler sorts functions by remainders of it
        strange = [(number + i).to_bytes(4) for i in (1, *range(10, 24))]
        for data in [call.selector, *strange] if call.inputs else strange:
            with pytest.raises(Refused) as refusal:
                ledger.raw(OWNER, data)
            assert refusal.value.reason == ""
        with pytest.raises(Refused):
            ledger.raw(OWNER, call.selector + b"\xff" * 32 * len(call.inputs), worth=1)
    for data in (b"", b"\0\0\0"):
        with pytest.raises(Refused):
            ledger.raw(OWNER, data)
    for function, arguments in PLAIN.items():
        data = ledger.data(function, *arguments)
        for i, kind in enumerate(artifact().calls[function].inputs):
            if kind in ("address", "bool", "int16", "uint16", "uint64"):  # narrower than what the call holds
                place = 4 + 32 * i
                with pytest.raises(Refused) as refusal:
                    ledger.raw(OWNER, data[:place] + b"\x7f" * 32 + data[place + 32 :])
                assert refusal.value.reason == "", (function, kind)
    data = ledger.data("fulfil", *FULFIL, [1, 2])
    with pytest.raises(Refused) as refusal:
        ledger.raw(ORACLE, data[:-32] + b"\x7f" * 32)  # a value past int64
    assert refusal.value.reason == ""


PLAIN = {function: arguments for function, (arguments, *_) in LEAVE.items()} | {
    "look": (DATASET, KEY, ANNA, NO_KEY),
    "analysts": (DATASET, ANNA),
}
