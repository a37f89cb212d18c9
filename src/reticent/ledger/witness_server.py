"""The witness: a process elsewhere that remembers the last head and the spent totals of logs.

It signs a head only if the log signed it, if a consistency proof leads to it from the head remembered, and
if no account has spent less than before. It knows account numbers and units, never names. Its state is a
small SQLite file in a directory of its own; keep it on another machine than the ledger, out of the reach of
whoever restores the ledger's backups. The protocol is in docs/ledger-format.md.
"""

from __future__ import annotations

import argparse
import json
import re
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from reticent.errors import LedgerDamaged, LedgerError, ParameterError
from reticent.ledger.checkpoint import (
    WITNESS,
    Head,
    PublicKey,
    checked_name,
    cosignature_line,
    load_key,
    parse,
    signed_by,
    totals_hash,
)
from reticent.ledger.merkle import EMPTY_ROOT, verify_consistency
from reticent.privacy import MAX_UNITS

MOST_BYTES = 64 << 20  # of a request
MOST_LOGS = 10_000
NAME = "reticent/witness"
MOST_CONNECTIONS = 64
TIMEOUT_S = 10.0
TIME_GRAIN_S = 3600  # cosignatures tell the hour, not the second

_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)
_SCHEMA = """
CREATE TABLE IF NOT EXISTS log (origin TEXT PRIMARY KEY, key TEXT NOT NULL, checkpoint TEXT);
CREATE TABLE IF NOT EXISTS total (
    origin TEXT, account INTEGER, spent INTEGER NOT NULL, PRIMARY KEY (origin, account)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS abandoned (id INTEGER PRIMARY KEY, origin TEXT NOT NULL, checkpoint TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS permit (origin TEXT PRIMARY KEY);
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
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._key = load_key(directory / "witness.key")
        self.key = PublicKey(checked_name("name", name), self._key.public_key(), WITNESS)
        self._trusted = {key.name: key for key in trusted}
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(
            directory / "witness.db", isolation_level=None, check_same_thread=False, timeout=60
        )
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.executescript(_SCHEMA)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                self._connection.rollback()
                raise

    def _known(self, origin: str) -> tuple[PublicKey, str] | None:
        row = self._connection.execute(
            "SELECT key, checkpoint FROM log WHERE origin = ?", (origin,)
        ).fetchone()
        return (PublicKey.parse(row[0]), row[1]) if row else None

    def _totals(self, origin: str) -> dict[int, int]:
        sql = "SELECT account, spent FROM total WHERE origin = ? ORDER BY account"
        return dict(self._connection.execute(sql, (origin,)).fetchall())

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
            line = signed_by(text, known[0])
            last = parse(known[1])[0]
            if (size, root) != (last.size, last.root.hex()):
                raise self._conflict(f"the witness saw {last.size} entries", known)
            permits = self._connection.execute("DELETE FROM permit WHERE origin = ?", (head.origin,))
            if permits.rowcount != 1:
                raise Refused(403, "the operator of the witness has not allowed a recovery of this log")
            self._raise_totals(head, _amounts(asked), known)
            self._connection.execute(
                "INSERT INTO abandoned (origin, checkpoint) VALUES (?, ?)", (head.origin, known[1])
            )
            return {"cosignature": self._remember(head, line, asked, known)}

    def allow_recovery(self, origin: str) -> None:
        """Let the log be recovered once: an act of whoever runs the witness."""
        with self._writing():
            if self._known(origin) is None:
                raise ParameterError("the witness never saw a log of that origin")
            self._connection.execute("INSERT OR IGNORE INTO permit (origin) VALUES (?)", (origin,))

    def last(self, origin: str) -> Answer:
        """`GET /checkpoint`: the last head, what was spent, and the heads abandoned in recoveries."""
        with self._lock:
            known = self._known(origin)
            if known is None:
                raise Refused(404, "the witness never saw a log of that origin")
            abandoned = self._connection.execute(
                "SELECT checkpoint FROM abandoned WHERE origin = ? ORDER BY id", (origin,)
            ).fetchall()
            permits = self._connection.execute("SELECT 1 FROM permit WHERE origin = ?", (origin,)).fetchall()
            return {
                "abandoned": [checkpoint for (checkpoint,) in abandoned],
                "checkpoint": known[1],
                "key": str(known[0]),
                "recovery": bool(permits),
                "totals": {str(account): str(spent) for account, spent in self._totals(origin).items()},
            }

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
        return cosignature

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


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "reticent-witness", ""
    timeout = TIMEOUT_S
    disable_nagle_algorithm = True
    server: WitnessServer

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        state = self.server.state
        if parts.path == "/logs":
            self._answer(state.logs)
        elif parts.path == "/checkpoint":
            self._answer(lambda: state.last(parse_qs(parts.query).get("origin", [""])[0]))
        else:
            self._send(404, {"error": "no such page"})

    def do_POST(self) -> None:
        state = self.server.state
        work = {"/add-checkpoint": state.add, "/recover": state.recover}.get(self.path)
        length = self.headers.get("Content-Length", "")
        if work is None or not _NUMBER.fullmatch(length) or int(length) > MOST_BYTES:
            self.close_connection = True  # what was sent stays unread
            status = 404 if work is None else 411 if not length else 413
            self._send(status, {"error": "no such page" if work is None else "the request is too large"})
            return
        body = self.rfile.read(int(length))
        self._answer(lambda: work(_object(body)))

    def _answer(self, work: Any) -> None:
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
        self.send_response(status)
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
    except (ValueError, RecursionError):
        raise Refused(400, "the request is not JSON") from None
    if not isinstance(asked, dict):
        raise Refused(400, "the request must be a JSON object")
    return asked


class WitnessServer(ThreadingHTTPServer):
    """HTTP around a state. `serve_forever` runs it."""

    daemon_threads = True

    def __init__(self, state: WitnessState, host: str = "127.0.0.1", port: int = 0) -> None:
        self.state = state
        self._slots = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__((host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve in a thread, if one is free."""
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away, or is too slow, is no news."""

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}"


def serve(
    directory: Path, *, host: str, port: int, name: str = NAME, trusted: Sequence[PublicKey] = ()
) -> None:
    """Run a witness until it is interrupted; say where it listens and what its key is."""
    state = WitnessState(directory, name=name, trusted=trusted)
    with WitnessServer(state, host, port) as server:
        print(f"witness {server.url} {state.key}", flush=True)
        try:
            server.serve_forever()
        finally:
            state.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """`python -m reticent.ledger.witness_server --dir D`: a witness on a machine without the command line."""
    parser = argparse.ArgumentParser(description="Remember the last head of privacy ledgers.")
    parser.add_argument("--dir", type=Path, required=True, help="where the witness keeps its state")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--name", default=NAME)
    parser.add_argument("--log-key", action="append", default=[], help="serve only logs with these keys")
    given = parser.parse_args(arguments)
    trusted = [PublicKey.parse(text) for text in given.log_key]
    with suppress(KeyboardInterrupt):
        serve(given.dir, host=given.host, port=given.port, name=given.name, trusted=trusted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
