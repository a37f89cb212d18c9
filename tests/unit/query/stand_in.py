"""A chain of paper for the tests of the oracle: it keeps what waits, what was sent and what is recorded.

It takes requests that no real session would make, forgets blocks at will, and keeps every record that was
ever handed to it, which is what the world has seen.
"""

from dataclasses import replace
from hashlib import sha256
from types import SimpleNamespace

from reticent.errors import AlreadyFulfilled, NodeUnavailable, NotConfirmed, UnknownMeasurement
from reticent.ledger import Balance
from reticent.ledger.ethereum.orders import Waiting

CONTRACT = "0x" + "c0" * 20


def identity(one):
    return one.dataset, one.key, one.start, one.information


class Paper:
    """What an oracle asks of the ledger on a chain.

    Attributes:
        seen: every record that ever left the oracle, in order: (measurement, values).
        recorded: what the chain holds, by number.
        address: the oracle's; `oracle` is the one that the chain names.
        away: whether the node does not answer.
        slow: whether nothing gets deep enough.
    """

    contract, chain_id = CONTRACT, 31337

    def __init__(self, data, terms=None):
        self.terms, self.dataset = terms or data.terms, sha256(data.name.encode()).digest()
        self.requests, self.recorded, self.seen = [], {}, []
        self.away = self.slow = False
        self.address = self.oracle = "0x" + "0a" * 20

    def status(self, account):
        return SimpleNamespace(oracle=self.oracle)

    def balance(self, account):
        return Balance(self.terms, sum(one.information for one in self.requests))

    def ask(self, plan, information, **changes):
        """A request as a session makes it, changed as told; the next number is its own."""
        question = plan.question
        made = Waiting(
            number=len(self.requests),
            name=question.key,
            question=question.text,
            grid=plan.shift,
            dimension=question.cells * plan.coordinates,
            dataset=self.dataset,
            key=b"",
            start=0,
            information=information,
            block=0,
        )
        made = replace(made, **changes)
        key = sha256(repr((made.name, made.question, made.grid, made.dimension)).encode()).digest()
        start = sum(one.information for one in self.requests if one.key == key)
        made = replace(made, **{"key": key, "start": start} | changes)
        self.requests.append(made)
        return made

    def forget(self, length):
        """A reorganisation: only so many requests are left, and what was recorded for the others is gone."""
        del self.requests[length:]
        self.recorded = {number: one for number, one in self.recorded.items() if number < length}

    def waiting(self, account):
        if self.away:
            raise NodeUnavailable("the node at paper does not answer (Away)")
        return [one for one in self.requests if one.number not in self.recorded]

    def record_many(self, records):
        return [self.record(*one) for one in records]

    def record(self, waiting, values):
        self.seen.append((waiting, tuple(values)))
        return self.seen[-1]

    def settle_many(self, sent):
        if self.slow:
            raise NotConfirmed("not deep enough")
        return [self._mined(*one) for one in sent]

    def _mined(self, waiting, values):
        if waiting.number in self.recorded:
            return AlreadyFulfilled("it has its values")
        held = self.requests[waiting.number] if waiting.number < len(self.requests) else None
        if held is None or identity(held) != identity(waiting):
            return UnknownMeasurement("it was never asked for")
        self.recorded[waiting.number] = values
        return waiting

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass

    def draws(self):
        """The different values that ever left the oracle for each measurement, whatever its number."""
        found = {}
        for waiting, values in self.seen:
            found.setdefault(identity(waiting), set()).add(values)
        return found
