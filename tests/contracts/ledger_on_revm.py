"""The ledger's verbs over PrivacyLedger.vy in process, with nothing between, to compare with the others."""

from reticent.errors import (
    AccountConflict,
    AlreadyFulfilled,
    BudgetExceeded,
    IdempotencyConflict,
    KeyUsed,
    ParameterError,
    UnknownAccount,
    UnknownMeasurement,
)
from reticent.ledger import Balance, Grant, Ledger, Measurement, Reading
from reticent.ledger.base import PAYMENT

from .revm import ORACLE, OWNER, Contract, Refused, dataset_of, key_of, once, payment_of

REASONS = {
    "idempotency key used": IdempotencyConflict,
    "key used": KeyUsed,
    "fulfilled already": AlreadyFulfilled,
    "unknown measurement": UnknownMeasurement,
    "wrong number of values": ParameterError,
    "registered already": AccountConflict,  # unless the terms are the same
}
LOW = (1 << 64) - 1


class RevmLedger(Ledger):
    """One owner asks for everything; keys are declared without a question and without a number of values."""

    def __init__(self, what=None):
        self.contract = Contract(what)
        self.terms, self.measured = {}, []

    @staticmethod
    def _id(key):
        return (payment_of if key.startswith(PAYMENT) else key_of)(key.encode())

    def _call(self, sender, function, *arguments):
        try:
            return self.contract.call(sender, function, *arguments)
        except Refused as refusal:
            if refusal.reason == "past the cap":
                account = next(name for name in self.terms if dataset_of(OWNER, name) == arguments[0])
                raise BudgetExceeded(account, 0, self.balance(account).remaining) from None
            raise REASONS[refusal.reason](refusal.reason) from None

    def _open(self, terms):
        words = terms.name, terms.unit.value, terms.neighbours.value, terms.subject.encode()
        try:
            self._call(OWNER, "register", *words, terms.cap, terms.minimum, ORACLE, once("n"))
        except AccountConflict:
            if self.terms.get(terms.name) != terms:
                raise
        self.terms[terms.name] = terms
        return self.balance(terms.name)

    def balance(self, account):
        if account not in self.terms:
            raise UnknownAccount(account)
        held = self.contract.read("datasets", dataset_of(OWNER, account))
        assert held[4:6] == (self.terms[account].cap, self.terms[account].minimum)
        return Balance(self.terms[account], held[6])

    def accounts(self):
        return [self.balance(name) for name in sorted(self.terms)]

    def _request(self, terms, key, information, idempotency):
        dataset, text = dataset_of(OWNER, terms.name), key.encode()
        if not self.contract.read("keys", dataset, key_of(text))[0]:
            self.contract.call(OWNER, "declare", dataset, text, b"", 0, 0)
        return self._granted(terms, key, "request", dataset, key_of(text), information, once(idempotency))

    def _pay(self, terms, key, units, idempotency):
        dataset = dataset_of(OWNER, terms.name)
        return self._granted(terms, key, "pay", dataset, key.encode(), units, once(idempotency))

    def _granted(self, terms, key, function, dataset, what, information, mark):
        answer = self._call(OWNER, function, dataset, what, information, mark)
        for name, fields in answer.events:
            if name in ("MeasurementRequested", "Paid"):
                assert fields["number"] == len(self.measured)
                of = fields["dataset"], fields["key"], fields.get("start", 0), fields["information"]
                self.measured.append((terms.name, key, of, name == "Paid"))
        look = self.contract.read("look", dataset, self._id(key), OWNER, mark)
        bought = look[-1] >> 64 & LOW if look[-1] else look[-3]
        remaining = self.balance(terms.name).remaining
        pending = tuple(m for m in self.pending(terms.name) if m.key == key)
        return Grant(terms.name, key, bought, answer.value, remaining, pending)

    def _fulfil(self, number, values):
        known = number < len(self.measured)
        account, key, of, _ = self.measured[number if known else 0] if self.measured else ("", "", None, 0)
        if of is None:  # nothing was ever asked; any data set will do
            of = dataset_of(OWNER, next(iter(self.terms))), once("k"), 0, 1
        self._call(ORACLE, "fulfil", number, *of, values)
        self.measured[number] = (account, key, of, True)
        return self.reading(account, key)

    def reading(self, account, key):
        self.balance(account)
        dataset = dataset_of(OWNER, account)
        requested, recorded, sums = self.contract.read("recorded", dataset, self._id(key))
        return Reading(account, key, recorded, sums, requested - recorded)

    def pending(self, account):
        return [
            Measurement(number, name, key, of[3], fulfilled=False)
            for number, (name, key, of, done) in enumerate(self.measured)
            if name == account and not done
        ]

    def close(self):
        pass
