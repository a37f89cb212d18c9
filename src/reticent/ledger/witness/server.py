"""The witness: a process elsewhere that remembers the last head and the spent totals of logs.

It signs a head only if the log signed it, if a consistency proof leads to it from the head remembered, and
if no account has spent less than before. It knows account numbers and units, never names, and tells the
units to the log itself alone. Its state is a small SQLite file in a directory of its own; keep it on another
machine than the ledger, out of the reach of whoever restores the ledger's backups. The protocol is in
docs/ledger-format.md.

Sizes and roots of earlier heads are kept, all of the last ones and ever fewer of those before, so that a
recovery can tell where a restored ledger left the way that the witness saw.
"""

from __future__ import annotations

import argparse
import base64
import io
import ipaddress
import json
import re
import socket
import sqlite3
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from reticent.errors import LedgerDamaged, LedgerError, ParameterError
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

MOST_FIRST_BYTES = 64 << 10  # of the first line of a request, which is read before anybody is known
MOST_BYTES = 64 << 20  # of the totals that a known log sends with a new head
MOST_STRANGER_BYTES = 1 << 20  # of the totals of anybody else
MOST_LOGS = 10_000
MOST_HEADS = 1000  # earlier heads told at a time
KEPT_HEADS = 4096  # earlier heads of a log of which none is forgotten; half as many for each doubling before
NAME = "reticent/witness"
MOST_CONNECTIONS = 64
MOST_PER_ADDRESS = 16
TIMEOUT_S = 10.0  # for all of a request, from when the witness waits for it
TIME_GRAIN_S = 3600  # cosignatures tell the hour, not the second
SIGNATURE = "Reticent-Signature"  # header of an answer to a question with a nonce

_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)
_THINNING = 1024  # heads of a log are looked through once for so many added
_clock = time.monotonic
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
    """The witness does not sign. `status` is the HTTP status, `answer` what the log should know."""

    def __init__(self, status: int, message: str, answer: Answer | None = None) -> None:
        super().__init__(message)
        self.status, self.answer = status, answer or {}


class WitnessState:
    """What a witness remembers, in a directory of its own.

    Args:
        directory: holds `witness.db` and `witness.key`; made if it is missing.
        name: the witness's name in its signatures.
        trusted: keys of the logs that it serves; without any, a log is trusted on its first use.
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
        """How many bytes of totals may follow a request, whose checkpoint must be signed already.

        Anybody can have a checkpoint that the witness shows: only one that is new speaks for the log.
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
        """`POST /add-checkpoint`: sign a head that follows from the one remembered."""
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
        """`POST /recover`: go on from a head that does not follow, if the witness's operator allowed it."""
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
        """Let the log be recovered once, from the head remembered now: an act of whoever runs the witness."""
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
        """`GET /checkpoint`: the last head, and the heads abandoned in recoveries."""
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
        """`POST /totals`: what was spent at the last head, for whoever can sign as the log."""
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
        """`GET /heads`: sizes and roots of heads of at most that size that are remembered, largest first."""
        sql = (
            "SELECT size, root FROM head WHERE origin = ? AND size <= ? "
            "ORDER BY size DESC, number DESC LIMIT ? OFFSET ?"
        )
        with self._lock:
            rows = self._connection.execute(sql, (origin, most, MOST_HEADS, skip)).fetchall()
        return {"heads": [[size, root] for size, root in rows]}

    def signed(self, nonce: str, body: bytes) -> str:
        """A signature on an answer to a question that came with this nonce."""
        return base64.b64encode(self._key.sign(answer_text(nonce, body))).decode()

    def logs(self) -> Answer:
        """`GET /logs`: the witness's key and what it remembers, by origin."""
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
        """Close the file."""
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
    """Units spent by account: all, or those that changed."""
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


class TimedReader(io.RawIOBase):
    """Reads a socket until a deadline, which does not move when a byte arrives."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._deadline = connection, 0.0

    def start(self, seconds: float) -> None:
        """Set the deadline."""
        self._deadline = _clock() + seconds

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what has arrived, or wait for some; TimeoutError at the deadline."""
        left = self._deadline - _clock()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "reticent-witness", ""
    disable_nagle_algorithm = True
    server: WitnessServer
    nonce = ""
    _left = 0  # bytes of the request that were not read

    def setup(self) -> None:
        """Read under one deadline for each request, however its bytes are dealt out."""
        super().setup()
        self.rfile.close()
        self._source = TimedReader(self.connection)
        self.rfile = io.BufferedReader(self._source)

    def handle_one_request(self) -> None:
        """Serve a request; `TimeoutError` in it closes the connection."""
        self._source.start(TIMEOUT_S)
        super().handle_one_request()

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        state, asked = self.server.state, parse_qs(parts.query)
        origin, most, skip, nonce = (asked.get(name, [""])[0] for name in ("origin", "most", "skip", "nonce"))
        self.nonce = nonce if _HASH.fullmatch(nonce) else ""
        if parts.path == "/logs":
            self._answer(state.logs)
        elif parts.path == "/checkpoint":
            self._answer(lambda: state.last(origin))
        elif parts.path == "/heads":
            self._answer(lambda: state.heads(origin, _count(most), _count(skip)))
        else:
            self._send(404, {"error": "no such page"})

    def do_POST(self) -> None:
        state = self.server.state
        pages = {"/add-checkpoint": state.add, "/recover": state.recover, "/totals": state.totals}
        work = pages.get(self.path)
        self.nonce = ""
        length = self.headers.get("Content-Length", "")
        if work is None or not _NUMBER.fullmatch(length) or int(length) > MOST_FIRST_BYTES + MOST_BYTES:
            self.close_connection = True  # what was sent stays unread
            if work is None:
                self._send(404, {"error": "no such page"})
            elif not length:
                self._send(411, {"error": "the request must tell its length"})
            else:
                self._send(413, {"error": "the request is too large"})
            return
        self._left = int(length)
        self._answer(lambda: work(self._asked()))

    def _asked(self) -> Answer:
        """The request: a line of JSON, and what was spent in another, which a stranger cannot make long."""
        first = self._read(self.rfile.readline, MOST_FIRST_BYTES)
        asked = _object(first)
        if self._left and self.path != "/totals":
            most = self.server.state.most_totals(asked)
            if self._left > most:
                raise Refused(413, "the request is too large")
            asked["totals"] = _object(self._read(self.rfile.read, most))
        return asked

    def _read(self, read: Callable[[int], bytes], most: int) -> bytes:
        part = read(min(self._left, most))
        self._left -= len(part)
        return part

    def _answer(self, work: Callable[[], Answer]) -> None:
        try:
            self._send(200, work())
        except Refused as refused:
            self._send(refused.status, {"error": str(refused), **refused.answer})
        except (LedgerDamaged, ParameterError) as error:
            self._send(400, {"error": str(error)})
        except sqlite3.Error:
            self._send(503, {"error": "the witness cannot write"})

    def _send(self, status: int, answer: Answer) -> None:
        body = json.dumps(answer).encode()
        self.close_connection = self.close_connection or bool(self._left)  # what was sent stays unread
        self.connection.settimeout(TIMEOUT_S)
        self.send_response(status)
        if self.nonce:
            self.send_header(SIGNATURE, self.server.state.signed(self.nonce, body))
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
        """Say nothing: who asked when is nobody's business."""


def _object(body: bytes) -> Answer:
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused(400, "the request is not JSON") from error
    if not isinstance(asked, dict):
        raise Refused(400, "the request must be a JSON object")
    return asked


class WitnessServer(ThreadingHTTPServer):
    """HTTP around a state. `serve_forever` runs it."""

    daemon_threads = True
    request_queue_size = 2 * MOST_CONNECTIONS

    def __init__(self, state: WitnessState, host: str = "127.0.0.1", port: int = 0) -> None:
        self.state = state
        self._guard = threading.Lock()
        self._connected: Counter[str] = Counter()  # by address
        super().__init__((host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve in a thread, if one is free, and not too many serve this address."""
        address = client_address[0]
        with self._guard:
            free = self._connected.total() < MOST_CONNECTIONS and self._connected[address] < MOST_PER_ADDRESS
            if free:
                self._connected[address] += 1
        if free:
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._guard:
                self._connected[client_address[0]] -= 1
                self._connected += Counter()  # forget addresses that left

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away, or is too slow, is no news."""

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}"


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serve(
    directory: Path,
    *,
    host: str,
    port: int,
    name: str = NAME,
    trusted: Sequence[PublicKey] = (),
    to_all: bool = False,
) -> None:
    """Run a witness until it is interrupted; say where it listens and what its key is.

    Args:
        directory: see `WitnessState`.
        host: where to listen.
        port: where to listen; 0 takes a free one.
        name: see `WitnessState`.
        trusted: see `WitnessState`.
        to_all: serve whoever comes first under a name, beyond this machine too.
    """
    if not (trusted or to_all or _is_loopback(host)):
        raise ParameterError(
            "a witness that others can reach serves chosen logs: give --log-key, or --open to serve any"
        )
    state = WitnessState(directory, name=name, trusted=trusted)
    with WitnessServer(state, host, port) as server:
        print(f"witness {server.url} {state.key}", flush=True)
        try:
            server.serve_forever()
        finally:
            state.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m reticent.ledger.witness.server --dir D`: a witness on a machine without the command line."""
    parser = argparse.ArgumentParser(description="Remember the last head of privacy ledgers.")
    parser.add_argument("--dir", type=Path, required=True, help="where the witness keeps its state")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--name", default=NAME)
    parser.add_argument("--log-key", action="append", default=[], help="serve only logs with these keys")
    parser.add_argument("--open", action="store_true", help="serve any log, beyond this machine too")
    given = parser.parse_args(arguments)
    try:
        trusted = [PublicKey.parse(text) for text in given.log_key]
        with suppress(KeyboardInterrupt):
            serve(
                given.dir,
                host=given.host,
                port=given.port,
                name=given.name,
                trusted=trusted,
                to_all=given.open,
            )
    except ParameterError as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
