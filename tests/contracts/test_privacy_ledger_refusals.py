"""Every reason and every role of PrivacyLedger.vy: who is refused what, and that nothing changes."""

import re
from itertools import product

import pytest

from .privacy_ledger import (
    DATASET,
    FULFIL,
    KEY,
    LEAVE,
    MAX_UNITS,
    OPEN_KEY,
    OTHER,
    PARTS,
    ROLES,
    TERMS,
    asked,
    ledger,
    reason,
    scenario,
    state,
)
from .revm import (
    ANNA,
    NEXT,
    NO_KEY,
    NOBODY,
    ORACLE,
    OWNER,
    STRANGER,
    artifact,
    key_of,
    once,
    payment_of,
    source,
)

__all__ = ["ledger"]  # fixtures


REFUSALS = [
    ("registered already", OWNER, "register", *TERMS),
    ("name is empty", OWNER, "register", "", *TERMS[1:]),
    ("cap out of range", NEXT, "register", *TERMS[:4], 0, *TERMS[5:]),
    ("cap out of range", NEXT, "register", *TERMS[:4], MAX_UNITS + 1, *TERMS[5:]),
    ("minimum out of range", NEXT, "register", *TERMS[:5], 0, *TERMS[6:]),
    ("minimum out of range", NEXT, "register", *TERMS[:5], 1001, *TERMS[6:]),
    ("oracle is empty", NEXT, "register", *TERMS[:6], NOBODY, TERMS[7]),
    ("not allowed", STRANGER, "declare", DATASET, *PARTS),
    ("not allowed", ANNA, "declare", OTHER, *PARTS),
    ("name is empty", ANNA, "declare", DATASET, b"", *PARTS[1:]),
    ("too many values", ANNA, "declare", DATASET, *PARTS[:3], 513),
    ("too many values", ANNA, "declare", DATASET, *PARTS[:3], 65535),
    ("declared already", OWNER, "declare", DATASET, *PARTS),
    ("past the cap", ANNA, "declare", DATASET, *PARTS[:3], 201),  # 5 each
    ("not allowed", STRANGER, "request", DATASET, KEY, 20, NO_KEY),
    ("not allowed", ANNA, "request", OTHER, KEY, 20, NO_KEY),
    ("unknown key", ANNA, "request", DATASET, key_of(b"never declared"), 20, NO_KEY),
    ("information out of range", ANNA, "request", DATASET, KEY, 0, NO_KEY),
    ("information out of range", ANNA, "request", DATASET, KEY, MAX_UNITS + 1, NO_KEY),
    ("past the quota", ANNA, "request", DATASET, KEY, 501, NO_KEY),
    ("past the cap", OWNER, "request", DATASET, KEY, 1001, NO_KEY),
    ("idempotency key used", ANNA, "request", DATASET, KEY, 21, once("i")),
    ("idempotency key used", ANNA, "request", DATASET, OPEN_KEY, 20, once("i")),
    ("idempotency key used", ANNA, "pay", DATASET, PARTS[0], 20, once("i")),
    ("not the oracle", OWNER, "fulfil", *FULFIL, [1, 2]),
    ("not the oracle", ORACLE, "fulfil", 0, OTHER, KEY, 0, 20, [1, 2]),
    ("unknown measurement", ORACLE, "fulfil", 1, *FULFIL[1:], [1, 2]),
    ("another measurement", ORACLE, "fulfil", 0, DATASET, OPEN_KEY, 0, 20, [1, 2]),
    ("another measurement", ORACLE, "fulfil", 0, DATASET, KEY, 1, 20, [1, 2]),
    ("another measurement", ORACLE, "fulfil", 0, DATASET, KEY, 0, 21, [1, 2]),
    ("wrong number of values", ORACLE, "fulfil", *FULFIL, [1]),
    ("wrong number of values", ORACLE, "fulfil", *FULFIL, [1, 2, 3]),
    ("wrong number of values", ORACLE, "fulfil", *FULFIL, []),
    ("not allowed", ANNA, "pay", DATASET, b"fresh", 20, NO_KEY),
    ("information out of range", OWNER, "pay", DATASET, b"fresh", 0, NO_KEY),
    ("information out of range", OWNER, "pay", DATASET, b"fresh", MAX_UNITS + 1, NO_KEY),
    ("name is empty", OWNER, "pay", DATASET, b"", 20, NO_KEY),
    ("past the cap", OWNER, "pay", DATASET, b"fresh", 981, NO_KEY),
    ("not the owner", ANNA, "allow", DATASET, ANNA, 600),
    ("quota out of range", OWNER, "allow", DATASET, ANNA, MAX_UNITS + 1),
    ("not the owner", ORACLE, "pause", DATASET, True),
    ("nothing to change", OWNER, "pause", DATASET, False),
    ("not the owner", ORACLE, "appoint", DATASET, ORACLE),
    ("oracle is empty", OWNER, "appoint", DATASET, NOBODY),
    ("not the owner", NEXT, "offer", DATASET, NEXT),
    ("not offered", OWNER, "take", DATASET),
    # compilers' checks of what a call may hold
    ("", OWNER, "register", "x" * 121, *TERMS[1:]),
    ("", OWNER, "register", "x", "u" * 17, *TERMS[2:]),
    ("", OWNER, "register", "x", "u", "n" * 17, *TERMS[3:]),
    ("", OWNER, "register", *TERMS[:3], b"s" * 801, *TERMS[4:]),
    ("", ANNA, "declare", DATASET, b"n" * 4001, *PARTS[1:]),
    ("", ANNA, "declare", DATASET, b"n", b"q" * 8193, 0, 1),
    ("", OWNER, "pay", DATASET, b"n" * 4001, 20, NO_KEY),
    ("", ORACLE, "fulfil", *FULFIL, [0] * 513),
]


@scenario
def test_every_refusal_names_its_reason(ledger):
    asked(ledger)
    for expected, *call in REFUSALS:
        assert reason(ledger, *call) == expected, call[1:]
    ledger.call(ORACLE, "fulfil", *FULFIL, [1, 2])
    assert reason(ledger, ORACLE, "fulfil", *FULFIL, [1, 2]) == "fulfilled already"
    assert reason(ledger, ORACLE, "fulfil", *FULFIL, [3, 4]) == "fulfilled already"
    ledger.call(OWNER, "pause", DATASET, True)
    assert reason(ledger, OWNER, "pause", DATASET, True) == "nothing to change"
    assert reason(ledger, ANNA, "request", DATASET, KEY, 30, NO_KEY) == "paused"
    assert reason(ledger, OWNER, "pay", DATASET, b"fresh", 30, NO_KEY) == "paused"
    ledger.call(OWNER, "pause", DATASET, False)
    ledger.call(OWNER, "pay", DATASET, b"paid", 10, NO_KEY)
    assert reason(ledger, OWNER, "pay", DATASET, b"paid", 10, NO_KEY) == "key used"
    assert reason(ledger, ORACLE, "fulfil", 1, DATASET, payment_of(b"paid"), 0, 10, []) == "fulfilled already"


def test_a_refused_call_changes_nothing(ledger):
    before = state(asked(ledger))
    for _, *call in REFUSALS:
        reason(ledger, *call)
        assert state(ledger) == before


def test_no_reason_is_left_out():
    tried = {expected for expected, *_ in REFUSALS} - {""}
    assert set(re.findall(r'assert .*"ledger: (.+)"', source())) == tried | {
        "fulfilled already",
        "paused",
        "key used",
    }
    assert source().count("assert ") == len(
        re.findall(r'assert .*, "ledger: (.+)"', source())
    )  # each has a reason


@pytest.mark.parametrize(("function", "role"), product(LEAVE, ROLES))
def test_roles(ledger, function, role):
    asked(ledger).call(OWNER, "offer", DATASET, NEXT)
    arguments, may, otherwise = LEAVE[function]
    if role in may:
        assert ledger.call(ROLES[role], function, *arguments).events
    else:
        assert reason(ledger, ROLES[role], function, *arguments) == otherwise


def test_every_function_is_in_the_table_of_roles():
    changing = {
        part["name"]
        for part in artifact().abi
        if part["type"] == "function" and part["stateMutability"] != "view"
    }
    assert changing == set(LEAVE)
    assert all(part.get("stateMutability") != "payable" for part in artifact().abi)
