"""A store read through IPFS's trustless gateway: any gateway will do, since every block is verified here.

Reference: IPFS Trustless Gateway specification, `application/vnd.ipld.raw`.
"""

from __future__ import annotations

from reticent.store.cid import Cid
from reticent.store.remote import Remote

RAW_TYPE = "application/vnd.ipld.raw"


class Gateway(Remote):
    """A store that reads `/ipfs/{cid}?format=raw`.

    It writes, if the same address allows it, as `reticent store serve`.
    """

    def _fetch(self, cid: Cid) -> bytes:
        status, raw = self._asked("GET", f"/ipfs/{cid}?format=raw", None, {"Accept": RAW_TYPE})
        return self._read(cid, status, raw, missing=status in (404, 410))
