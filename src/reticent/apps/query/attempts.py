"""A question on its way through the service: which request it is, what was paid for it, and how it leaves."""

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
        id: what it is counted under.
        ledger: the text under which the ledger knows it; None if it cannot be tried again.
        answer: the JSON of its answer, if it was given one.
        day: on which it began, before anything was measured.
    """

    id: str
    ledger: str | None
    answer: str | None
    day: str = ""


@dataclass(frozen=True)
class Settled:
    """A question that somebody asked, paid for and recorded: what is left is to tell the answer.

    Attributes:
        attempt: which request it is.
        paid: None if the attempt was answered before.
        reserved: units that its quota was asked for.
        is_first: whether nothing was counted before this try.
    """

    attempt: Attempt
    paid: Paid | None
    reserved: int = 0
    is_first: bool = False


@dataclass(frozen=True)
class Shaped:
    """An answer as it leaves, and what is noted of it."""

    reply: bytes
    note: Asked

    @classmethod
    def of(cls, person: Person, name: str, answer: Answer) -> Shaped:
        """The answer to a person who asked about a data set of that name."""
        return cls(written(answer.to_json()), noted(person, name, answer))


def noted(person: Person, name: str, answer: Answer) -> Asked:
    """What was asked, for the pages; a repeated question that cost nothing is one line too."""
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
