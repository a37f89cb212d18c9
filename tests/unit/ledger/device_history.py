"""What the tests of the device ledger share: a history, what a ledger tells of it, child processes."""

from __future__ import annotations

import os

from reticent.errors import KeyUsed, LedgerDamaged, ReticentError
from reticent.ledger.base import Amount, Terms, Unit
from reticent.ledger.device.ledger import DeviceLedger
from reticent.ledger.device.records import MAGIC
from reticent.privacy import Neighbours

LOCAL = Neighbours.ANY_TWO_VALUES
PHONE = Terms("phone", Unit.EPSILON, LOCAL, "the owner of the phone", 1000, 2)
KEYS = ["a", "b", "c/é", "paid"]


def units(amount):
    return Amount(amount, Unit.EPSILON, LOCAL)


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
    lambda ledger: pay(ledger, "phone", "paid", 30, "p"),
]


def pay(ledger, account, key, amount, idempotency=None):
    """As `Ledger.pay` does for an event of this price."""
    return ledger._pay(ledger.balance(account).terms, key, amount, idempotency)


class PaysInTwoSteps(DeviceLedger):
    """Planted: a payment is two records, and others may come between them."""

    def _pay(self, terms, key, units, idempotency):
        with self._held():
            held = self._find(terms.name)
            fresh = key not in held.keys
            if not fresh and (idempotency is None or idempotency not in held.answered):
                raise KeyUsed(f"account {terms.name}: a payment needs a fresh key")
        grant = self._request(terms, key, units, idempotency)
        for measurement in grant.pending if fresh else ():
            self._fulfil(measurement.number, ())
        with self._held():
            return held.grant(key, grant.information, grant.charged)


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


def opened(path, **options):
    """The view of the ledger at a path, or None if it refuses as damaged."""
    try:
        with DeviceLedger(path, **options) as ledger:
            return view(ledger)
    except LedgerDamaged:
        return None


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


def told(call):
    """What a call answers: its result, or the kind and text of its refusal."""
    try:
        return call()
    except ReticentError as refusal:
        return type(refusal), str(refusal)


def parts(content):
    """The format line and each record."""
    cuts = [len(MAGIC)]
    while cuts[-1] < len(content):
        cuts.append(cuts[-1] + 40 + int.from_bytes(content[cuts[-1] : cuts[-1] + 4], "big"))
    return [content[a:b] for a, b in zip([0, *cuts], cuts, strict=False)]


def in_child(work):
    """Fork; run `work` in the child, which ends with what it returns, or 1 if it raises."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = work() or 0
        finally:
            os._exit(code)
    return child


def exit_code(child):
    """Wait for a child to end; the negative number of the signal if one killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
