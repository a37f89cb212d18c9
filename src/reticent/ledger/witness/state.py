"""The state of a witness, and the rules by which it signs: the arithmetic, without the server.

It signs a head only if the log signed it, if a consistency proof leads to it from the head remembered, and
if no account has spent less than before.

Sizes and roots of earlier heads are kept, all of the last ones and ever fewer of those before, so that a
recovery can find where a restored ledger departs from the log that the witness saw.
"""

from __future__ import annotations

import base64
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reticent.errors import LedgerError, ParameterError
from reticent.files import made
from reticent.ledger.checkpoint import (
    WITNESS,
    Head,
    PublicKey,
    answer_text,
    checked_name,
    cosignature_line,
    holds,
    load_key,
    parse,
    reader_text,
    signed_by,
    totals_hash,
)
from reticent.ledger.merkle import EMPTY_ROOT, verify_consistency
from reticent.privacy import MAX_UNITS
from reticent.sqlite import opened, writing

MOST_BYTES = 64 << 20  # of the totals that a known log sends with a new head
MOST_STRANGER_BYTES = 1 << 20  # of the totals of anybody else
MOST_LOGS = 10_000
MOST_HEADS = 1000  # earlier heads told at a time
KEPT_HEADS = 4096  # earlier heads of a log of which none is forgotten; half as many for each doubling before
NAME = "reticent/witness"
TIME_GRAIN_S = 3600  # cosignatures tell the hour, not the second
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)
_THINNING = 1024  # heads of a log are looked through once for so many added
_SCHEMA = """
CREATE TABLE IF NOT EXISTS log (origin TEXT PRIMARY KEY, key TEXT NOT NULL, checkpoint TEXT);
CREATE TABLE IF NOT EXISTS total (
    origin TEXT, account INTEGER, spent INTEGER NOT NULL, PRIMARY KEY (origin, account)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS abandoned (id INTEGER PRIMARY KEY, origin TEXT NOT NULL, checkpoint TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS head (
    origin TEXT, number INTEGER, size INTEGER NOT NULL, root TEXT NOT NULL, PRIMARY KEY (origin, number))
    WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS head_of ON head (origin, size, root);
CREATE TABLE IF NOT EXISTS allowed (origin TEXT PRIMARY KEY, size INTEGER NOT NULL, root TEXT NOT NULL);
DROP TABLE IF EXISTS permit;
"""
Answer = dict[str, Any]


class Refused(LedgerError):
    """An error that says why the witness does not sign.

    `status` is the HTTP status, `answer` holds details for the log.
    """

    def __init__(self, status: int, message: str, answer: Answer | None = None) -> None:
        super().__init__(message)
        self.status, self.answer = status, answer or {}


class WitnessState:
    """The memory of a witness, in a directory of its own.

    Args:
        directory: Directory of `witness.db` and `witness.key`, created if it is missing.
        name: Name of the witness in its signatures.
        trusted: Keys of the logs that the witness serves; without any, a log is trusted on its first use.
    """

    def __init__(self, directory: Path, *, name: str = NAME, trusted: Sequence[PublicKey] = ()) -> None:
        made(directory)
        self._key = load_key(directory / "witness.key")
        self.key = PublicKey(checked_name("name", name), self._key.public_key(), WITNESS)
        self._trusted = {key.name: key for key in trusted}
        self._lock = threading.Lock()
        self._connection = opened(directory / "witness.db")
        self._connection.executescript(_SCHEMA)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._lock, writing(self._connection):
            yield

    def _known(self, origin: str) -> tuple[PublicKey, str] | None:
        row = self._connection.execute(
            "SELECT key, checkpoint FROM log WHERE origin = ?", (origin,)
        ).fetchone()
        return (PublicKey.parse(row[0]), row[1]) if row else None

    def _totals(self, origin: str) -> dict[int, int]:
        sql = "SELECT account, spent FROM total WHERE origin = ? ORDER BY account"
        return dict(self._connection.execute(sql, (origin,)).fetchall())

    def most_totals(self, asked: Answer) -> int:
        """Return the largest size in bytes of the totals after a request with a signed checkpoint.

        Anybody can copy a checkpoint that the witness shows: only a new one comes from the log itself.
        """
        head, text = _head(asked)
        with self._lock:
            known = self._known(head.origin)
            signed_by(text, self._log_key(head.origin, asked, known))
            if known is None:
                return MOST_BYTES if self._trusted else MOST_STRANGER_BYTES
            last = parse(known[1])[0]
            expected = head.size > last.size or self._is_allowed(last)
            return MOST_BYTES if expected else MOST_STRANGER_BYTES

    def add(self, asked: Answer) -> Answer:
        """Answer `POST /add-checkpoint`: sign a head that follows from the one remembered."""
        old_size, proof = _size(asked, "old_size"), _proof(asked)
        head, text = _head(asked)
        changed = _amounts(asked)
        with self._writing():
            known = self._known(head.origin)
            line = signed_by(text, self._log_key(head.origin, asked, known))
            last = Head(head.origin, 0, EMPTY_ROOT, totals_hash({}))
            if known is not None:
                last = parse(known[1])[0]
            if old_size != last.size or head.size < last.size:
                raise self._conflict(f"the witness saw {last.size} entries", known)
            if not verify_consistency(last.size, head.size, proof, last.root, head.root):
                raise self._conflict(f"no proof that the first {last.size} entries are the same", known)
            self._raise_totals(head, changed, known)
            return {"cosignature": self._remember(head, line, asked, known)}

    def recover(self, asked: Answer) -> Answer:
        """Answer `POST /recover`: accept a head that does not follow, if the operator allowed a recovery."""
        head, text = _head(asked)
        size, root = _size(asked, "old_size"), str(asked.get("old_root"))
        with self._writing():
            known = self._known(head.origin)
            if known is None:
                raise Refused(404, f"the witness never saw the log {head.origin}")
            line = signed_by(text, self._log_key(head.origin, asked, known))
            last = parse(known[1])[0]
            if (size, root) != (last.size, last.root.hex()):
                raise self._conflict(f"the witness saw {last.size} entries", known)
            if not self._is_allowed(last):
                raise Refused(403, "the operator of the witness has not allowed a recovery from this head")
            self._connection.execute("DELETE FROM allowed WHERE origin = ?", (head.origin,))
            self._raise_totals(head, _amounts(asked), known)
            self._connection.execute(
                "INSERT INTO abandoned (origin, checkpoint) VALUES (?, ?)", (head.origin, known[1])
            )
            return {"cosignature": self._remember(head, line, asked, known)}

    def allow_recovery(self, origin: str) -> None:
        """Allow one recovery of the log, from the head remembered now, as the witness's operator."""
        with self._writing():
            known = self._known(origin)
            if known is None:
                raise ParameterError("the witness never saw a log of that origin")
            last = parse(known[1])[0]
            self._connection.execute(
                "INSERT OR REPLACE INTO allowed (origin, size, root) VALUES (?, ?, ?)",
                (origin, last.size, last.root.hex()),
            )

    def _is_allowed(self, last: Head) -> bool:
        sql = "SELECT size, root FROM allowed WHERE origin = ?"
        row = self._connection.execute(sql, (last.origin,)).fetchone()
        return row is not None and tuple(row) == (last.size, last.root.hex())

    def last(self, origin: str) -> Answer:
        """Answer `GET /checkpoint`: the last head, and the heads abandoned in recoveries."""
        with self._lock:
            known = self._known(origin)
            if known is None:
                raise Refused(404, "the witness never saw a log of that origin")
            abandoned = self._connection.execute(
                "SELECT checkpoint FROM abandoned WHERE origin = ? ORDER BY id", (origin,)
            ).fetchall()
            return {
                "abandoned": [checkpoint for (checkpoint,) in abandoned],
                "checkpoint": known[1],
                "key": str(known[0]),
                "recovery": self._is_allowed(parse(known[1])[0]),
            }

    def totals(self, asked: Answer) -> Answer:
        """Answer `POST /totals`: the units spent at the last head, if the request is signed by the log."""
        origin, signature = _text(asked, "origin", 200), _text(asked, "signature", 200)
        with self._lock:
            known = self._known(origin)
            if known is None:
                raise Refused(404, "the witness never saw a log of that origin")
            last, key = parse(known[1])[0], self._log_key(origin, asked, known)
            if not holds(reader_text(last), signature, key):
                raise Refused(403, "only the log itself may read what was spent, and at the last head")
            return {"totals": {str(account): str(spent) for account, spent in self._totals(origin).items()}}

    def heads(self, origin: str, most: int, skip: int) -> Answer:
        """Answer `GET /heads`: sizes and roots of remembered heads up to a size, largest first."""
        sql = (
            "SELECT size, root FROM head WHERE origin = ? AND size <= ? "
            "ORDER BY size DESC, number DESC LIMIT ? OFFSET ?"
        )
        with self._lock:
            rows = self._connection.execute(sql, (origin, most, MOST_HEADS, skip)).fetchall()
        return {"heads": [[size, root] for size, root in rows]}

    def signed(self, nonce: str, body: bytes) -> str:
        """Return a signature on an answer to a question that came with this nonce."""
        return base64.b64encode(self._key.sign(answer_text(nonce, body))).decode()

    def logs(self) -> Answer:
        """Answer `GET /logs`: the witness's key and the logs that it remembers, by origin."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT origin, checkpoint, (SELECT count(*) FROM abandoned a WHERE a.origin = log.origin) "
                "FROM log ORDER BY origin"
            ).fetchall()
        logs = [{"origin": origin, "checkpoint": text, "abandoned": count} for origin, text, count in rows]
        return {"key": str(self.key), "logs": logs}

    def _log_key(self, origin: str, asked: Answer, known: tuple[PublicKey, str] | None) -> PublicKey:
        if self._trusted:
            if origin not in self._trusted:
                raise Refused(403, "the witness does not serve this log")
            return self._trusted[origin]
        if known is not None:
            return known[0]
        (logs,) = self._connection.execute("SELECT count(*) FROM log").fetchone()
        if logs >= MOST_LOGS:
            raise Refused(403, "the witness serves no more logs")
        key = PublicKey.parse(_text(asked, "key", 400))
        if key.name != origin:
            raise Refused(400, "key must bear the name of the log")
        return key

    def _raise_totals(self, head: Head, changed: dict[int, int], known: Any) -> None:
        held = self._totals(head.origin)
        for account, spent in changed.items():
            if spent < held.get(account, 0):
                raise self._conflict(f"account {account} has spent less than the witness saw", known)
        if totals_hash({**held, **changed}) != head.totals:
            raise Refused(400, "totals do not have the hash in the checkpoint")
        self._connection.executemany(
            "INSERT OR REPLACE INTO total (origin, account, spent) VALUES (?, ?, ?)",
            [(head.origin, account, spent) for account, spent in changed.items()],
        )

    def _remember(self, head: Head, line: str, asked: Answer, known: tuple[PublicKey, str] | None) -> str:
        seconds = int(time.time()) // TIME_GRAIN_S * TIME_GRAIN_S
        cosignature = cosignature_line(head.text(), self.key.name, self._key, seconds)
        key = self._log_key(head.origin, asked, known)
        self._connection.execute(
            "INSERT OR REPLACE INTO log (origin, key, checkpoint) VALUES (?, ?, ?)",
            (head.origin, str(key), f"{head.text()}\n{line}{cosignature}"),
        )
        self._keep(head)
        return cosignature

    def _keep(self, head: Head) -> None:
        """Remember a head among the earlier ones, once, and forget some of those in turn.

        The n-th head of a log is forgotten when more than KEPT_HEADS times 2^k came after it, where 2^k is
        the largest power of two that divides n. So one in two, four, eight... is left at twice the age each.
        """
        db, place = self._connection, (head.origin, head.size, head.root.hex())
        if db.execute("SELECT 1 FROM head WHERE origin = ? AND size = ? AND root = ?", place).fetchone():
            return
        last = "SELECT coalesce(max(number), 0) FROM head WHERE origin = ?"
        number = db.execute(last, (head.origin,)).fetchone()[0] + 1
        db.execute("INSERT INTO head (number, origin, size, root) VALUES (?, ?, ?, ?)", (number, *place))
        if not number % _THINNING:
            old = "DELETE FROM head WHERE origin = ? AND ? - number > ? * (number & -number)"
            db.execute(old, (head.origin, number, KEPT_HEADS))

    @staticmethod
    def _conflict(message: str, known: tuple[PublicKey, str] | None) -> Refused:
        return Refused(409, message, {"checkpoint": known[1] if known else None})

    def close(self) -> None:
        """Close the state's database file."""
        with self._lock:
            self._connection.close()


def _text(asked: Answer, field: str, longest: int) -> str:
    text = asked.get(field)
    if not isinstance(text, str) or len(text) > longest:
        raise Refused(400, f"{field} must be a text of at most {longest} characters")
    if any("\ud800" <= one <= "\udfff" for one in text):
        raise Refused(400, f"{field} must be a text that UTF-8 can hold")
    return text


def _size(asked: Answer, field: str) -> int:
    size = asked.get(field)
    if type(size) is not int or not 0 <= size < 1 << 63:
        raise Refused(400, f"{field} must be a whole number")
    return size


def _proof(asked: Answer) -> list[bytes]:
    proof = asked.get("proof")
    if not isinstance(proof, list) or len(proof) > 128:
        raise Refused(400, "proof must be a list of at most 128 hashes")
    if not all(isinstance(one, str) and _HASH.fullmatch(one) for one in proof):
        raise Refused(400, "proof must hold hashes of 64 hexadecimal digits")
    return [bytes.fromhex(one) for one in proof]


def _head(asked: Answer) -> tuple[Head, str]:
    text = _text(asked, "checkpoint", 8192)
    return parse(text)[0], text


def _amounts(asked: Answer) -> dict[int, int]:
    """Return the units spent by account, of all accounts or of those that changed."""
    totals = asked.get("totals")
    if not isinstance(totals, dict):
        raise Refused(400, "totals must map account numbers to units")
    for account, spent in totals.items():
        if not (isinstance(spent, str) and _NUMBER.fullmatch(account) and _NUMBER.fullmatch(spent)):
            raise Refused(400, "totals must map account numbers to units, as decimal texts")
    amounts = {int(account): int(spent) for account, spent in totals.items()}
    if any(number > MAX_UNITS for pair in amounts.items() for number in pair):
        raise Refused(400, "totals must be below 2^62")
    return amounts


def _count(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise Refused(400, "most and skip must be whole numbers")
    return min(int(text), MAX_UNITS)
