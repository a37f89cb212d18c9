"""A ledger as a text file that anybody can verify without the database.

One JSON object per line: a header; each entry exactly as it is hashed, followed, if asked for, by a line
that opens its commitment (the nonce and the committed texts: private data, for an auditor who may see
them); and the head, signed if the ledger has its key. The exact bytes are in docs/ledger-format.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any, TextIO

from reticent.errors import LedgerDamaged
from reticent.ledger import entries
from reticent.ledger.checkpoint import Head, PublicKey
from reticent.ledger.replay import Replay, Report
from reticent.ledger.sql.ledger import SqlLedger
from reticent.ledger.sql.rows import stored_bytes
from reticent.ledger.verify import CHUNK, Answered, Expected, Progress, answered, signed_head

VERSION = "1"
_is_audit = entries.PATTERNS["audit"].fullmatch  # opened by its report, which is not here
_LONGEST_LINE = 4 << 20
_SIZE = re.compile("[1-9][0-9]{0,18}")


def export(
    ledger: SqlLedger, file: TextIO, *, openings: bool = False, progress: Progress | None = None
) -> Head:
    """Write the ledger to a file, in one consistent view, and return its head.

    With a witness, this returns once the witness has signed that head. If it raises, discard the file.
    """
    return ledger.in_view(lambda view: _write_view(view, file, openings=openings, progress=progress))


def _write_view(ledger: SqlLedger, file: TextIO, *, openings: bool, progress: Progress | None) -> Head:
    """Write the ledger as the current view shows it, and return its head."""
    with closing(answered(ledger._store)) as answers:
        head = ledger.head()
        _put(file, {"export": VERSION, "openings": openings, "origin": ledger.origin, "size": str(head.size)})
        for start in range(0, head.size, CHUNK):
            leaves = ledger.leaves(start, min(start + CHUNK, head.size))
            opened = _openings(ledger, leaves, answers) if openings else {}
            for entry, leaf in enumerate(leaves):
                file.write(leaf + "\n")
                if entry in opened:
                    nonce, parts = opened[entry]
                    _put(file, {"nonce": nonce.hex(), "opens": parts})
            if progress is not None:
                progress(start + len(leaves), head.size)
        if ledger._key is None:
            _put(file, {"head": head.text()})
        else:
            _put(file, {"checkpoint": ledger.checkpoint()})
    return head


def _put(file: TextIO, line: dict[str, Any]) -> None:
    file.write(json.dumps(line, sort_keys=True, separators=(",", ":")) + "\n")


def _openings(
    ledger: SqlLedger, leaves: list[str], answers: Iterator[Answered]
) -> dict[int, tuple[bytes, list[str]]]:
    """Return nonce and committed texts of a chunk's entries by index; `answers` advances with the log."""
    found: dict[int, tuple[bytes, list[str]]] = {}
    for place, leaf in enumerate(leaves):
        fields = entries.decode(leaf)
        match fields["type"]:
            case "open":
                sql = "SELECT nonce, name, subject FROM account WHERE id = ?"
                number = fields["account"]
            case "request":
                sql = "SELECT b.nonce, b.name FROM bought b WHERE b.id = ?"
                number = fields["key"]
            case "fulfil":
                sql = "SELECT nonce, recorded FROM measurement WHERE number = ?"
                number = fields["measurement"]
            case "answer":
                answer = next(answers, None)
                if answer is None:
                    raise LedgerDamaged("an answer that an entry speaks of is missing")
                found[place] = (stored_bytes(answer.nonce), list(answer.parts))
                continue
            case _:
                continue
        row = ledger._store.one(sql, (int(number),))
        if row is None or row[0] is None:
            raise LedgerDamaged(f"a row that entry {place} of this part speaks of is missing")
        found[place] = (stored_bytes(row[0]), [str(part) for part in row[1:]])
    return found


def verify_export(
    lines: Iterable[str],
    *,
    public_key: PublicKey | None = None,
    checkpoint: str | None = None,
    progress: Progress | None = None,
) -> Report:
    """Verify an exported ledger: its log, its accounts, its openings if there are any, and its head.

    Args:
        lines: Lines of the file.
        public_key: Key that must have signed the head, and the checkpoint.
        checkpoint: Head stored elsewhere; the log must pass through it.
        progress: Callback that receives the number of entries read and the number of all entries.

    Raises:
        LedgerDamaged: names the first place that does not verify, and no data.
    """
    numbered = _Lines(lines)
    header = numbered.object()
    shape = {"export": VERSION, "openings": header.get("openings"), "origin": header.get("origin")}
    origin, total = header.get("origin"), str(header.get("size"))
    if (
        header != {**shape, "size": total}
        or type(header["openings"]) is not bool
        or not _SIZE.fullmatch(total)
    ):
        raise LedgerDamaged("the file does not begin as an exported ledger")
    if not isinstance(origin, str):
        raise LedgerDamaged("the file names no log")
    expected, checked = Expected(), None
    if checkpoint is not None:
        head = signed_head(checkpoint, origin, public_key)
        expected.add("the checkpoint", head)
        checked = head.size
    replay, openings = Replay(), _Openings() if header["openings"] else None
    while replay.size < int(total):
        start = replay.size
        for stop in expected.stops(start, min(int(total), start - start % CHUNK + CHUNK)):
            leaves = list(_entries(numbered, stop - replay.size, openings))
            replay.read(leaves)
            if openings is not None:
                openings.check(replay)
            expected.check(replay)
        if progress is not None:
            progress(replay.size, int(total))
    expected.check(replay)
    if replay.size and replay.origin != origin:
        raise LedgerDamaged("the header names another log than entry 0")
    _finish(numbered.object(), replay, public_key)
    if numbered.more():
        raise LedgerDamaged("the file goes on after its head")
    expected.finish(replay.size)
    return replay.report(checked=checked)


def _finish(tail: dict[str, Any], replay: Replay, public_key: PublicKey | None) -> None:
    told = replay.head()
    if public_key is not None or set(tail) == {"checkpoint"}:
        text = tail.get("checkpoint")
        if not isinstance(text, str):
            raise LedgerDamaged("the head of the file is not signed")
        if signed_head(text, told.origin, public_key) != told:
            raise LedgerDamaged("the signed head is not that of the entries")
    elif tail != {"head": told.text()}:
        raise LedgerDamaged("the head of the file is not that of its entries")


def _entries(lines: _Lines, wanted: int, openings: _Openings | None) -> Iterator[str]:
    for _ in range(wanted):
        leaf = lines.next()
        if (
            openings is not None
            and '"commitment":"' in leaf
            and not entries.PATTERNS["audit"].fullmatch(leaf)
        ):
            openings.add(lines.object())
        yield leaf


def _is_text(part: str) -> bool:
    """Return whether a text can be encoded in UTF-8: half a surrogate pair cannot."""
    try:
        part.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Lines:
    """A reader of the lines of an export; a missing line or invalid JSON is damage."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self._number = 0

    def next(self) -> str:
        line = next(self._lines, "")
        self._number += 1
        if not line.endswith("\n") or len(line) > _LONGEST_LINE or not _is_text(line):
            raise LedgerDamaged(f"line {self._number} is missing, cut off, too long or no text")
        return line[:-1]

    def object(self) -> dict[str, Any]:
        text = self.next()
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise LedgerDamaged(f"line {self._number} is no JSON object")
        return found

    def more(self) -> bool:
        return next(self._lines, None) is not None


class _Openings:
    """The openings (nonces and texts) of the entries read last, in order."""

    def __init__(self) -> None:
        self._held: list[tuple[bytes, list[str]]] = []

    def add(self, line: dict[str, Any]) -> None:
        try:
            nonce, parts = bytes.fromhex(line["nonce"]), list(line["opens"])
            if set(line) != {"nonce", "opens"} or not all(
                isinstance(part, str) and _is_text(part) for part in parts
            ):
                raise ValueError
        except (KeyError, TypeError, ValueError) as error:
            raise LedgerDamaged("a line that should open an entry does not") from error
        self._held.append((nonce, parts))

    def check(self, replay: Replay) -> None:
        told = sorted(
            [(one.entry, one.commitment) for one in replay.opened]
            + [(one[0], one[4]) for one in replay.requested]
            + [(one[0], one[2]) for one in replay.values]
            + [(one[0], one[2]) for one in replay.answers]
        )
        if len(told) != len(self._held):
            raise LedgerDamaged("entries and the lines that open them do not match")
        for (entry, commitment), (nonce, parts) in zip(told, self._held, strict=True):
            if entries.commitment(nonce, *parts) != commitment:
                raise LedgerDamaged(f"entry {entry}: what opens it does not fit")
        self._held = []
