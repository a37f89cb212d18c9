"""The base of remote stores: requests that end, bounded replies, one line for each failure."""

from __future__ import annotations

import http.client
import os
import threading
from urllib.parse import urlsplit

from reticent import peers
from reticent.arguments import real
from reticent.errors import ContentForged, ContentMissing, ParameterError, StoreFull, StoreUnavailable
from reticent.store.base import Store
from reticent.store.cid import CODECS, Cid
from reticent.store.unixfs import MOST_BLOCK_BYTES

_MOST_IDLE = 4  # connections that are kept
_MOST_ANSWER_BYTES = 1 << 16  # of what is no block


class Remote(Store):
    """A store at an http(s) address, written to by Kubo's RPC.

    Redirects are not followed.

    Args:
        url: Address of the store; a path in it comes before those of the protocol.
        token: Token sent as `Authorization: Bearer`, if there is one; over https or to this machine alone.
        timeout_s: Seconds that one block may take, in all.
    """

    def __init__(self, url: str, *, token: str | None = None, timeout_s: float = 60.0) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise ParameterError("the address of a store must read http(s)://host:port")
        self._secure = parts.scheme == "https"
        self._host, self._port, self._path = parts.hostname, port, parts.path.rstrip("/")
        if token is not None and (not token.isascii() or not token.isprintable() or not token):
            raise ParameterError("the token of a store must be printable ASCII")
        if token is not None and not self._secure and not peers.is_here(self._host):
            raise ParameterError("the address of a store with a token must begin with https://")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._timeout_s = real("timeout_s", timeout_s, low=0.0, open_low=True)
        self._guard = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._host})"

    def close(self) -> None:
        """Close the connections."""
        with self._guard:
            idle, self._idle = self._idle, []
        for one in idle:
            one.close()

    def _keep(self, cid: Cid, block: bytes) -> None:
        """Store a block by Kubo's `block/put`, and check the identifier that the store returns."""
        edge = os.urandom(16).hex()
        head = (
            f'--{edge}\r\nContent-Disposition: form-data; name="data"; filename="block"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        )
        status, raw = self._asked(
            "POST",
            f"/api/v0/block/put?cid-codec={CODECS[cid.codec]}&mhtype=sha2-256&pin=true",
            head.encode() + block + f"\r\n--{edge}--\r\n".encode(),
            {"Content-Type": f"multipart/form-data; boundary={edge}"},
        )
        if status == 507:
            raise StoreFull(f"the store at {self._host} takes no more")
        try:
            kept = peers.read_json(raw)["Key"] if status == 200 else None
        except (ValueError, TypeError, KeyError):
            kept = None
        if kept is None:
            raise self._refused(status, raw)
        if kept != str(cid):
            raise ContentForged(f"the store at {self._host} kept another block than {cid}")

    def _refused(self, status: int, raw: bytes) -> StoreUnavailable:
        words = peers.one_line(raw.decode("utf-8", "replace"))
        return StoreUnavailable(f"the store at {self._host} refused ({status}): {words or 'no reason'}")

    def _read(self, cid: Cid, status: int, raw: bytes, *, missing: bool) -> bytes:
        """Return the body of a reply that holds a block."""
        if missing:
            raise ContentMissing(f"the store at {self._host} has no {cid}")
        if status in (301, 302, 303, 307, 308):
            raise StoreUnavailable(f"the store at {self._host} redirects: give the address that it leads to")
        if status != 200:
            raise self._refused(status, raw)
        return raw

    def _asked(
        self, method: str, path: str, data: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        """Send a request, and send it again if a kept connection is gone: asking twice does no harm."""
        with self._guard:
            kept = self._idle.pop() if self._idle else None
        if kept is not None:
            try:
                return self._once(kept, method, path, data, headers)
            except (OSError, http.client.HTTPException):
                pass
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        try:
            return self._once(
                kind(self._host, self._port, timeout=self._timeout_s), method, path, data, headers
            )
        except (OSError, http.client.HTTPException) as error:
            raise StoreUnavailable(
                f"the store at {self._host} cannot be reached ({type(error).__name__})"
            ) from error

    def _once(
        self,
        line: http.client.HTTPConnection,
        method: str,
        path: str,
        data: bytes | None,
        headers: dict[str, str],
    ) -> tuple[int, bytes]:
        try:
            reply, raw = peers.exchange(
                line,
                method,
                self._path + path,
                data,
                {**self._headers, **headers, "Accept-Encoding": "identity"},
                seconds=self._timeout_s,
                most=MOST_BLOCK_BYTES + _MOST_ANSWER_BYTES,
            )
        except BaseException:
            line.close()
            raise
        with self._guard:
            if len(self._idle) < _MOST_IDLE and not reply.will_close:
                self._idle.append(line)
                return reply.status, raw
        line.close()
        return reply.status, raw
