"""Notes in a device's ledger of who asked for reports on which days, for the device's owner alone."""

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
    """A note in a ledger about a series of reports.

    Attributes:
        what: Kind of the request: a survey, a task, a round.
        name: Name of the survey, task or round.
        purpose: Reason for the request, in the words of the asker.
        signer: First half of the public key that asks, in hexadecimal digits.
        first: Day of the first report, in UTC.
        last: Day of the newest report.
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
        """Build today's note, after an earlier note if there was one."""
        held, day = None if before is None else cls.read(before), today.isoformat()
        first = day if held is None or not held.first else held.first
        return cls(what, name, purpose[:_MOST_WORDS], signer[:16].hex(), first, day)

    @property
    def text(self) -> str:
        """The note as JSON text: printable, whatever its purpose contains."""
        held = self
        while len(text := json.dumps(asdict(held), separators=(",", ":"))) > _LONGEST:
            held = replace(held, purpose=held.purpose[: len(held.purpose) // 2], name=held.name[:100])
        return text

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Read a note; return None if this release did not write it."""
        try:
            given = json.loads(text)
            found = {one.name: given[one.name] for one in fields(cls)}
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        return cls(**found) if all(isinstance(one, str) for one in found.values()) else None


def note_name(account: str, head: str) -> str:
    """Return the name under which a ledger stores the note of a series."""
    return f"{_NOTE}{account}/{head}"
