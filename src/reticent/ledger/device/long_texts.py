"""Long texts in a device's ledger, split into short notes that count once the last one is written.

A text is replaced by writing the pieces of the new one over those of the old, and then, under the name
itself, how many there are and a hash of all. After a crash in between, the hash does not match the pieces,
and there is no text: a program that stores a text must be able to make another, as long as nothing has left
by the text.
"""

from __future__ import annotations

import hashlib

from reticent.ledger.device.ledger import DeviceLedger
from reticent.ledger.device.records import LONGEST_NOTE


def keep(ledger: DeviceLedger, name: str, text: str) -> None:
    """Store a text of any length under a name, in place of an earlier text."""
    pieces = [text[at : at + LONGEST_NOTE] for at in range(0, len(text), LONGEST_NOTE)]
    for number, piece in enumerate(pieces):
        ledger.keep(f"{name}/{number}", piece)
    ledger.keep(name, f"{len(pieces)} {_hash(text)}")


def kept(ledger: DeviceLedger, name: str) -> str | None:
    """Return the text under a name; None if there is none, or if its replacement was interrupted."""
    count, _, due = (ledger.kept(name) or "").partition(" ")
    if not due:
        return None
    text = "".join(ledger.kept(f"{name}/{number}") or "" for number in range(int(count)))
    return text if _hash(text) == due else None


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
