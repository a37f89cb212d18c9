"""Who was told something by a device, on which days: notes in its ledger, for the person behind it alone."""

from __future__ import annotations

import datetime
import json
from dataclasses import asdict, dataclass, fields, replace
from typing import Self

_NOTE = "told/"
_LONGEST = 1000  # of a note
_MOST_WORDS = 400  # of a purpose, in the note


@dataclass(frozen=True)
class Told:
    """What a ledger says of a series of reports.

    Attributes:
        what: a survey, a task, a round.
        name: of what is asked.
        purpose: why, in the words of whoever asks.
        signer: the first half of the public key that asks, in hexadecimal digits.
        first: the day of the first report, in UTC.
        last: of the newest one.
    """

    what: str
    name: str
    purpose: str
    signer: str
    first: str
    last: str

    @classmethod
    def noted(
        cls, before: str | None, what: str, name: str, purpose: str, signer: bytes, today: datetime.date
    ) -> Self:
        """The note of today, after an earlier one if there was one."""
        held, day = None if before is None else cls.read(before), today.isoformat()
        first = day if held is None or not held.first else held.first
        return cls(what, name, purpose[:_MOST_WORDS], signer[:16].hex(), first, day)

    @property
    def text(self) -> str:
        """The note: printable, whatever a purpose says."""
        held = self
        while len(text := json.dumps(asdict(held), separators=(",", ":"))) > _LONGEST:
            held = replace(held, purpose=held.purpose[: len(held.purpose) // 2], name=held.name[:100])
        return text

    @classmethod
    def read(cls, text: str) -> Self | None:
        """What a note says; None if it is none of this release."""
        try:
            given = json.loads(text)
            found = {one.name: given[one.name] for one in fields(cls)}
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        return cls(**found) if all(isinstance(one, str) for one in found.values()) else None


def note_name(account: str, head: str) -> str:
    """Under which a ledger keeps the note of a series."""
    return f"{_NOTE}{account}/{head}"
