"""A store in a node of IPFS: the RPC of Kubo, for blocks.

Blocks are pinned when they are put, so that the node keeps them.

Reference: Kubo RPC API v0, `block/get`, `block/put`, `pin/add`.
"""

from __future__ import annotations

from reticent.store.cid import DAG_PB, Cid
from reticent.store.remote import Remote


class Kubo(Remote):
    """A store in a node at its RPC address, usually port 5001.

    The address is not for strangers, see Kubo's `API.Authorizations`.
    """

    def _fetch(self, cid: Cid) -> bytes:
        # A node looks for a block all over the network until it is told to stop.
        wait = f"&timeout={max(1, int(self._timeout_s) - 1)}s"
        status, raw = self._asked("POST", f"/api/v0/block/get?arg={cid}{wait}", None, {"Content-Length": "0"})
        gone = status == 500 and (b"not found" in raw or b"deadline exceeded" in raw or b"not find" in raw)
        return self._read(cid, status, raw, missing=gone)

    def _finish(self, root: Cid) -> None:
        """Pin the file as a whole: its blocks are pinned one by one already."""
        if root.codec != DAG_PB:
            return
        status, raw = self._asked("POST", f"/api/v0/pin/add?arg={root}", None, {"Content-Length": "0"})
        if status != 200:
            raise self._refused(status, raw)
