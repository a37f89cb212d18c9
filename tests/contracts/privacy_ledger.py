"""The contract PrivacyLedger ready to be called, who may call what, and the tests that reach its branches."""

import pytest

from .revm import (
    ANNA,
    BRUNO,
    NEXT,
    NO_KEY,
    ORACLE,
    OWNER,
    STRANGER,
    Contract,
    Refused,
    dataset_of,
    key_of,
    once,
    register,
)

MAX_UNITS = 2**62 - 1


TERMS = ("census", "mu2", "replace_one", b"one person", 1000, 5, ORACLE, b"\x5a" * 32)


DATASET = dataset_of(OWNER, "census")


OTHER = dataset_of(OWNER, "another")


PARTS = (b"ages", b"how many?", -3, 2)  # of a declared key


KEY = key_of(*PARTS)


OPEN = (b"open", b"", 0, 0)  # a key whose number of values is left to the first record


OPEN_KEY = key_of(*OPEN)


SCENARIOS = []


def scenario(test):
    """A test that also counts towards the branches."""
    SCENARIOS.append(test)
    return test


def ready(ledger, **terms):
    """A data set with two keys and an analyst."""
    register(ledger, **terms)
    ledger.call(OWNER, "allow", DATASET, ANNA, 500)
    ledger.call(ANNA, "declare", DATASET, *PARTS)
    ledger.call(OWNER, "declare", DATASET, *OPEN)
    return ledger


def reason(ledger, sender, function, *arguments):
    """Why a call is refused."""
    with pytest.raises(Refused) as refusal:
        ledger.call(sender, function, *arguments)
    return refusal.value.reason


def state(ledger):
    """All that can be read of the data set and its keys."""
    people, numbers = (OWNER, ANNA, BRUNO, ORACLE), range(ledger.read("measurements") + 1)
    return (
        ledger.read("datasets", DATASET),
        [ledger.read("analysts", DATASET, person) for person in people],
        [ledger.read("keys", DATASET, key) for key in (KEY, OPEN_KEY)],
        [ledger.read("recorded", DATASET, key) for key in (KEY, OPEN_KEY)],
        [ledger.read("waiting", number) for number in numbers],
        [ledger.read("look", DATASET, KEY, person, once("i")) for person in people],
    )


@pytest.fixture
def ledger():
    return Contract()


# What makes each refusal, on `ready` after Anna requested 20 under KEY (measurement 0, waiting). More than
# one per reason where the source has it more than once, or where a range has two ends.
FULFIL = (0, DATASET, KEY, 0, 20)


def asked(ledger, **terms):
    ready(ledger, **terms).call(ANNA, "request", DATASET, KEY, 20, once("i"))
    return ledger


ROLES = {"owner": OWNER, "oracle": ORACLE, "analyst": ANNA, "candidate": NEXT, "stranger": STRANGER}


LEAVE = {  # arguments, who may, why others may not
    "register": (("mine", *TERMS[1:]), set(ROLES), None),
    "declare": ((DATASET, b"new", b"q", 0, 1), {"owner", "oracle", "analyst"}, "not allowed"),
    "request": ((DATASET, KEY, 60, NO_KEY), {"owner", "analyst"}, "not allowed"),
    "fulfil": ((*FULFIL, [1, 2]), {"oracle"}, "not the oracle"),
    "pay": ((DATASET, b"paid", 60, NO_KEY), {"owner", "oracle"}, "not allowed"),
    "allow": ((DATASET, BRUNO, 1), {"owner"}, "not the owner"),
    "pause": ((DATASET, True), {"owner"}, "not the owner"),
    "appoint": ((DATASET, NEXT), {"owner"}, "not the owner"),
    "offer": ((DATASET, BRUNO), {"owner"}, "not the owner"),
    "take": ((DATASET,), {"candidate"}, "not offered"),
}
