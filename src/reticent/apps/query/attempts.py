"""A question on its way through the service: its request, its payment, and its reply."""

from __future__ import annotations

import json
from dataclasses import dataclass

from reticent.query import Answer
from reticent.query.language.tree import to_json
from reticent.query.paying import Paid
from reticent.service.keys import Person
from reticent.service.replies import written
from reticent.service.state import Asked, today


@dataclass(frozen=True)
class Attempt:
    """One request to be answered, with all its retries.

    Attributes:
        id: Id under which the request is counted.
        ledger: Text under which the ledger knows the request; None if it cannot be tried again.
        answer: JSON of the answer, if the request was given one.
        day: Day on which the request began, before anything was measured.
    """

    id: str
    ledger: str | None
    answer: str | None
    day: str = ""


@dataclass(frozen=True)
class Settled:
    """A question that somebody asked, paid for and recorded, and whose answer is still to be told.

    Attributes:
        attempt: Request that the question belongs to.
        paid: Payment for the question; None if the attempt was answered before, or needs no payment.
        reserved: Units that were reserved from the quota.
        is_first: True if nothing was counted before this try.
    """

    attempt: Attempt
    paid: Paid | None
    reserved: int = 0
    is_first: bool = False


@dataclass(frozen=True)
class Shaped:
    """An answer as it leaves the service, and the note that is kept of it."""

    reply: bytes
    note: Asked

    @classmethod
    def of(cls, person: Person, name: str, answer: Answer) -> Shaped:
        """Shape the answer to a person who asked about the data set of this name."""
        return cls(written(answer.to_json()), noted(person, name, answer))


def noted(person: Person, name: str, answer: Answer) -> Asked:
    """Build the note of a question for the pages; a free repetition becomes a line too."""
    one = answer.cells[0].estimate if len(answer.cells) == 1 and not answer.cells[0].labels else None
    return Asked(
        0,
        name,
        person.name,
        json.dumps(to_json(answer.query)),
        answer.case.value,
        answer.cost,
        answer.without_reuse,
        answer.spent,
        today(),
        len(answer.cells),
        *((one.value, one.low, one.high) if one is not None else ()),
    )
