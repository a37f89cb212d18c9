"""Long texts in a device's ledger, whose notes are short: in pieces, which count once the last is there.

A text is replaced by writing the pieces of the new one over those of the old, and then, under the name
itself, how many there are and a hash of all. After a crash in between the hash is not theirs, and there is no
text: whoever keeps one must be able to make another, as long as nothing has left by it.
"""

from __future__ import annotations

import hashlib

from reticent.ledger.device.ledger import DeviceLedger
from reticent.ledger.device.records import LONGEST_NOTE


def keep(ledger: DeviceLedger, name: str, text: str) -> None:
    """Keep a text of any length under a name, in place of an earlier one."""
    pieces = [text[at : at + LONGEST_NOTE] for at in range(0, len(text), LONGEST_NOTE)]
    for number, piece in enumerate(pieces):
        ledger.keep(f"{name}/{number}", piece)
    ledger.keep(name, f"{len(pieces)} {_hash(text)}")


def kept(ledger: DeviceLedger, name: str) -> str | None:
    """The text under a name; None if there is none, or it was being replaced."""
    count, _, due = (ledger.kept(name) or "").partition(" ")
    if not due:
        return None
    text = "".join(ledger.kept(f"{name}/{number}") or "" for number in range(int(count)))
    return text if _hash(text) == due else None


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
