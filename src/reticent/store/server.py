"""A server of a store for readers and permitted writers: IPFS's trustless gateway, and Kubo's block RPC.

    GET, HEAD /ipfs/{cid}?format=raw        a block (or `Accept: application/vnd.ipld.raw`)
    POST /api/v0/block/get?arg={cid}        a block
    POST /api/v0/block/put?cid-codec=raw    keep one (or dag-pb); {"Key": cid, "Size": bytes}
    POST /api/v0/pin/add?arg={cid}          whether it is kept; everything is

So any reader of IPFS reads it, and any writer to Kubo writes to it. It assembles no files and lists nothing.
Whatever is kept is public.
"""

from __future__ import annotations

import hmac
import json
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

from reticent import listening
from reticent.errors import (
    ContentForged,
    ContentMissing,
    ParameterError,
    StoreError,
    StoreFull,
)
from reticent.store.base import Store
from reticent.store.cid import CODECS, Cid
from reticent.store.gateway import RAW_TYPE
from reticent.store.unixfs import MOST_BLOCK_BYTES

_MOST_FORM_BYTES = 4096  # around the block
_BOUNDARY = re.compile(r'multipart/form-data;\s*boundary="?([0-9A-Za-z\'()+_,./:=?-]{1,70})"?')
_LENGTH = re.compile("[0-9]{1,9}")
_CODECS = {name: codec for codec, name in CODECS.items()}


class _Refused(Exception):
    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


class _Handler(listening.PlainHandler):
    server_version = "reticent-store"
    server: StoreServer

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        asked = parse_qs(parts.query)
        self._left = 0
        raw = asked.get("format") == ["raw"] or RAW_TYPE in self.headers.get("Accept", "")
        if not parts.path.startswith("/ipfs/"):
            self._say(404, "no such page")
        elif not raw:
            self._say(406, f"this gateway serves blocks: ask with ?format=raw, or accept {RAW_TYPE}")
        else:
            self._block(parts.path.removeprefix("/ipfs/"), gateway=True)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        parts = urlsplit(self.path)
        asked = parse_qs(parts.query)
        length = self.headers.get("Content-Length", "0")
        if not _LENGTH.fullmatch(length) or "Transfer-Encoding" in self.headers:
            self._left = 1
            return self._say(411, "the request must tell its length")
        self._left = int(length)
        if self._left > MOST_BLOCK_BYTES + _MOST_FORM_BYTES:
            return self._say(413, f"a block must have at most {MOST_BLOCK_BYTES} bytes")
        argument = asked.get("arg", [""])[0]
        if parts.path == "/api/v0/block/get":
            self._block(argument, gateway=False)
        elif parts.path in ("/api/v0/block/put", "/api/v0/pin/add"):
            self._written(parts.path, asked, argument)
        else:
            self._say(404, "no such page")
        return None

    def _block(self, text: str, *, gateway: bool) -> None:
        try:
            cid = Cid.parse(text)
            block = self.server.store.block(cid)
        except ParameterError as error:
            return self._say(400, str(error))
        except ContentMissing:  # Kubo says so by 500
            return self._say(404 if gateway else 500, "block was not found")
        except StoreError:  # a block that is damaged here is not served
            return self._say(502, "the block cannot be read")
        # It never changes, and no browser shall take it for a page.
        headers = {
            "Cache-Control": "public, max-age=29030400, immutable",
            "Content-Disposition": f'attachment; filename="{cid}.bin"',
            "ETag": f'"{cid}.raw"',
            "X-Content-Type-Options": "nosniff",
        }
        return self._send(200, block, RAW_TYPE if gateway else "application/octet-stream", headers)

    def _written(self, path: str, asked: dict[str, list[str]], argument: str) -> None:
        try:
            self._allowed()
            if path == "/api/v0/pin/add":
                self.server.store.block(Cid.parse(argument))
                return self._json({"Pins": [argument]})
            codec = _CODECS.get(asked.get("cid-codec", ["raw"])[0])
            if codec is None or asked.get("mhtype", ["sha2-256"]) != ["sha2-256"]:
                raise _Refused(400, "cid-codec must be raw or dag-pb, and mhtype sha2-256")
            block = self._form()
            return self._json({"Key": str(self.server.store.put_block(codec, block)), "Size": len(block)})
        except _Refused as refused:
            return self._say(refused.status, str(refused))
        except (ParameterError, ContentMissing, ContentForged) as error:
            return self._say(400, str(error))
        except StoreFull:
            return self._say(507, "the store takes no more")
        except StoreError:
            return self._say(503, "the store cannot be written")

    def _allowed(self) -> None:
        """Refuse a writer without the token; without any token, nobody writes unless the store is open."""
        token = self.server.token
        if token is None:
            if not self.server.is_open:
                raise _Refused(403, "this store is for reading")
            # A page in a browser of this machine may post here: it cannot hide where it comes from.
            if "Origin" in self.headers or "Referer" in self.headers:
                raise _Refused(403, "pages may not write here")
            return
        given = self.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode("latin-1", "replace"), f"Bearer {token}".encode()):
            raise _Refused(401, "the token of this store is missing or wrong")

    def _form(self) -> bytes:
        """Return the one file of a form."""
        boundary = _BOUNDARY.fullmatch(self.headers.get("Content-Type", ""))
        if boundary is None:
            raise _Refused(400, "the block must come as multipart/form-data")
        body = self.rfile.read(self._left)
        self._left -= len(body)
        if self._left:
            raise TimeoutError
        edge = b"--" + boundary[1].encode()
        head, gap, rest = body.partition(b"\r\n\r\n")
        block, end, after = rest.rpartition(b"\r\n" + edge + b"--")
        if not (head.startswith(edge + b"\r\n") and gap and end) or after.strip():
            raise _Refused(400, "the form must hold one block")
        if b"\r\n" + edge in block:
            raise _Refused(400, "the form must hold one block")
        return block

    def _json(self, answer: dict[str, Any]) -> None:
        self._send(200, json.dumps(answer).encode() + b"\n", "application/json", {})


class StoreServer(listening.BoundedServer):
    """An HTTP server of a store, run by `serve_forever`.

    Args:
        store: Store whose blocks are served.
        host: Host name or address to listen on.
        port: Port to listen on; 0 takes a free one.
        token: Token that permits its sender to write.
        is_open: True to let anybody who reaches the server write, if there is no token.
    """

    def __init__(
        self,
        store: Store,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        token: str | None = None,
        is_open: bool = False,
    ) -> None:
        self.store, self.token, self.is_open = store, token, is_open
        super().__init__(_Handler, host, port)
