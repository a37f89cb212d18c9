"""The mapping from addresses to stores."""

from __future__ import annotations

from reticent.store.base import Store
from reticent.store.directory import Directory
from reticent.store.gateway import Gateway
from reticent.store.kubo import Kubo

_KUBO = "kubo+"


def at(place: str, *, token: str | None = None, timeout_s: float = 60.0) -> Store:
    """Return the store at a place.

    Args:
        place: Address `http(s)://host:port` of a trustless gateway or `reticent store serve`,
            `kubo+http(s)://host:port` of a node's RPC, or a folder.
        token: Token for stores that ask for one.
        timeout_s: Seconds that one block may take.

    >>> at("https://store.example")
    Gateway(store.example)
    """
    if place.startswith(_KUBO):
        return Kubo(place.removeprefix(_KUBO), token=token, timeout_s=timeout_s)
    if "://" in place:
        return Gateway(place, token=token, timeout_s=timeout_s)
    return Directory(place)
