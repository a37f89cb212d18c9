"""What PrivacyLedger.vy should do: who may do what is told here, what it costs by `MemoryLedger`."""

from dataclasses import dataclass, field

from reticent.errors import BudgetExceeded, ParameterError
from reticent.ledger import Amount, MemoryLedger, Terms, Unit
from reticent.ledger.base import increment
from reticent.privacy import MAX_UNITS, Neighbours

from .revm import NO_KEY, NOBODY, Refused, dataset_of, key_of, payment_of

REPLACE = Neighbours.REPLACE_ONE


@dataclass
class DataSet:
    account: str
    owner: str
    oracle: str
    candidate: str = NOBODY
    paused: bool = False
    quotas: dict = field(default_factory=dict)
    used: dict = field(default_factory=dict)
    keys: dict = field(default_factory=dict)  # to the number of values, None if it is left open
    leasts: dict = field(default_factory=dict)  # that a measurement under a key costs


NONE = DataSet("", NOBODY, NOBODY)  # what a contract reads where nothing was written


def refuse_unless(true, reason):
    if not true:
        raise Refused(reason)


class Model:
    """`call` answers as the contract must: what it returns, and the names of its events."""

    def __init__(self):
        self.ledger = MemoryLedger()
        self.datasets = {}
        self.measurements = []  # (data set, key, start, information) of each
        self.answers = {}

    def call(self, sender, function, *arguments):
        return getattr(self, function)(sender, *arguments)

    def find(self, dataset):
        return self.datasets.get(dataset, NONE)

    def reading(self, dataset, key):
        return self.ledger.reading(self.find(dataset).account, key.hex())

    def register(self, sender, name, unit, neighbours, subject, cap, minimum, oracle, commitment):
        dataset = dataset_of(sender, name)
        refuse_unless(dataset not in self.datasets, "registered already")
        refuse_unless(name, "name is empty")
        refuse_unless(0 < cap <= MAX_UNITS, "cap out of range")
        refuse_unless(0 < minimum <= cap, "minimum out of range")
        refuse_unless(oracle != NOBODY, "oracle is empty")
        self.ledger.open(Terms(dataset.hex(), Unit.MU2, REPLACE, "one", cap, minimum))
        self.datasets[dataset] = DataSet(dataset.hex(), sender, oracle)
        return dataset, ["Registered"]

    def declare(self, sender, dataset, name, question, grid, dimension):
        held = self.find(dataset)
        may = sender in (held.owner, held.oracle) or held.quotas.get(sender)
        refuse_unless(may, "not allowed")
        refuse_unless(name, "name is empty")
        refuse_unless(dimension <= 512, "too many values")
        key = key_of(name, question, grid, dimension)
        refuse_unless(key not in held.keys, "declared already")
        terms = self.ledger.balance(held.account).terms
        refuse_unless(terms.minimum * max(1, dimension) <= terms.cap, "past the cap")
        held.keys[key] = dimension or None
        held.leasts[key] = terms.minimum * max(1, dimension)
        return key, ["Declared"]

    def _earlier(self, place, body):
        """What an idempotency key was answered with, if it was."""
        if place[2] == NO_KEY or place not in self.answers:
            return None
        refuse_unless(self.answers[place][0] == body, "idempotency key used")
        return self.answers[place][1], []

    def _spend(self, held, charge, spend):
        refuse_unless(not (held.paused and charge), "paused")
        try:
            grant = spend()
        except BudgetExceeded:
            raise Refused("past the cap") from None
        assert grant.charged == charge
        return charge

    def request(self, sender, dataset, key, information, idempotency):
        held = self.find(dataset)
        place, body = (dataset, sender, idempotency), ("request", key, information)
        if earlier := self._earlier(place, body):
            return earlier
        owner, quota = sender == held.owner, held.quotas.get(sender, 0)
        refuse_unless(owner or quota, "not allowed")
        refuse_unless(key in held.keys, "unknown key")
        refuse_unless(0 < information <= MAX_UNITS, "information out of range")
        reading = self.reading(dataset, key)
        requested = reading.information + reading.pending
        charge = max(information - requested, held.leasts[key]) if information > requested else 0
        used = held.used.get(sender, 0) + charge
        refuse_unless(not charge or owner or used <= quota, "past the quota")
        asked = Amount(min(MAX_UNITS, requested + charge) if charge else information, Unit.MU2, REPLACE)
        self._spend(held, charge, lambda: self.ledger.request(held.account, key.hex(), asked))
        if charge:
            self.measurements.append((dataset, key, requested, charge))
            if not owner:
                held.used[sender] = used
        self.answers[place] = body, charge
        return charge, ["MeasurementRequested" if charge else "Reused"]

    def fulfil(self, sender, number, dataset, key, start, information, values):
        refuse_unless(sender == self.find(dataset).oracle, "not the oracle")
        refuse_unless(number < len(self.measurements), "unknown measurement")
        meant = self.measurements[number]
        waits = number in [m.number for m in self.ledger.pending(self.find(meant[0]).account)]
        refuse_unless(waits, "fulfilled already")
        refuse_unless(meant == (dataset, key, start, information), "another measurement")
        size = self.find(dataset).keys[key]
        refuse_unless(size in (None, len(values)), "wrong number of values")
        try:
            self.ledger._fulfil(number, tuple(values))
        except ParameterError:
            raise Refused("wrong number of values") from None
        return None, ["Fulfilled"]

    def pay(self, sender, dataset, name, information, idempotency):
        held, key = self.find(dataset), payment_of(name)
        place, body = (dataset, sender, idempotency), ("pay", key, information)
        if earlier := self._earlier(place, body):
            return earlier
        refuse_unless(sender in (held.owner, held.oracle), "not allowed")
        refuse_unless(0 < information <= MAX_UNITS, "information out of range")
        terms = self.ledger.balance(held.account).terms
        charge = increment(terms, 0, information)
        refuse_unless(name, "name is empty")
        refuse_unless(not self.reading(dataset, key).information, "key used")
        self._spend(held, charge, lambda: self.ledger._pay(terms, key.hex(), information, None))
        self.measurements.append((dataset, key, 0, charge))
        self.answers[place] = body, charge
        return charge, ["Paid"]

    def _owned(self, sender, dataset):
        refuse_unless(sender == self.find(dataset).owner, "not the owner")
        return self.datasets[dataset]

    def allow(self, sender, dataset, analyst, quota):
        held = self._owned(sender, dataset)
        refuse_unless(quota <= MAX_UNITS, "quota out of range")
        held.quotas[analyst] = quota
        return None, ["Allowed"]

    def pause(self, sender, dataset, paused):
        held = self._owned(sender, dataset)
        refuse_unless(held.paused != paused, "nothing to change")
        held.paused = paused
        return None, ["Paused"]

    def appoint(self, sender, dataset, oracle):
        held = self._owned(sender, dataset)
        refuse_unless(oracle != NOBODY, "oracle is empty")
        held.oracle = oracle
        return None, ["OracleAppointed"]

    def offer(self, sender, dataset, candidate):
        self._owned(sender, dataset).candidate = candidate
        return None, ["OwnershipOffered"]

    def take(self, sender, dataset):
        held = self.find(dataset)
        refuse_unless(sender == held.candidate, "not offered")
        held.owner, held.candidate = sender, NOBODY
        return None, ["OwnershipTaken"]
