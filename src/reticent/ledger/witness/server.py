"""The witness server: a process elsewhere that remembers the last head and the spent totals of logs.

`state` decides when the witness signs; this module is its server. The witness knows account numbers and
units, never names, and tells the units to the log itself alone. Its state is a small SQLite file in a
directory of its own; keep it on another machine than the ledger, out of the reach of the people who restore
the ledger's backups. The protocol is in docs/ledger-format.md.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from reticent import listening, peers
from reticent.errors import LedgerDamaged, ParameterError
from reticent.ledger.checkpoint import (
    PublicKey,
)
from reticent.ledger.witness.state import (
    _HASH,
    _NUMBER,
    MOST_BYTES,
    NAME,
    Answer,
    Refused,
    WitnessState,
    _count,
)

MOST_FIRST_BYTES = 64 << 10  # of the first line of a request, which is read before anybody is known
SIGNATURE = "Reticent-Signature"  # header of an answer to a question with a nonce


class _Handler(listening.TimedHandler):
    server_version = "reticent-witness"
    server: WitnessServer
    nonce = ""
    _left = 0  # bytes of the request that were not read

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
        """Read the request: a line of JSON, and a line of spent totals, limited in size for strangers."""
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
        self.connection.settimeout(listening.TIMEOUT_S)
        self.send_response(status)
        if self.nonce:
            self.send_header(SIGNATURE, self.server.state.signed(self.nonce, body))
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)


def _object(body: bytes) -> Answer:
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused(400, "the request is not JSON") from error
    if not isinstance(asked, dict):
        raise Refused(400, "the request must be a JSON object")
    return asked


class WitnessServer(listening.BoundedServer):
    """An HTTP server of a witness's state, run by `serve_forever`."""

    def __init__(self, state: WitnessState, host: str = "127.0.0.1", port: int = 0) -> None:
        self.state = state
        super().__init__(_Handler, host, port)


def serve(
    directory: Path,
    *,
    host: str,
    port: int,
    name: str = NAME,
    trusted: Sequence[PublicKey] = (),
    to_all: bool = False,
) -> None:
    """Run a witness until it is interrupted, and print its address and its key.

    Args:
        directory: Directory of the state; see `WitnessState`.
        host: Host name or address to listen on.
        port: Port to listen on; 0 takes a free one.
        name: Name of the witness; see `WitnessState`.
        trusted: Keys of the logs that the witness serves; see `WitnessState`.
        to_all: True to serve any log on its first use under a name, beyond this machine too.
    """
    if not (trusted or to_all or peers.is_here(host)):
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
    """Run `python -m reticent.ledger.witness.server --dir D`, a witness without the command line."""
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
