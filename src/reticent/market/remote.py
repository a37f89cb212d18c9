"""A market behind a service: the same verbs over HTTP, for devices and for buyers.

What is sent twice is counted once, so whatever was lost on the way is sent again as it was.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reticent.collect.wire import batch
from reticent.errors import SourceError
from reticent.fleet.counted import question
from reticent.fleet.enrolment import Enrolment
from reticent.fleet.transport import Http
from reticent.market.outcomes import HoldOutcome, SaleOutcome

BASE = "api/v1/market"


@dataclass(frozen=True)
class Listed:
    """A bill as a service lists it: its signed file, and those of its surveys."""

    file: bytes
    surveys: tuple[bytes, ...]


class RemoteMarket:
    """The market of a service.

    Args:
        line: to the service; with a key for what buyers and owners do.
    """

    def __init__(self, line: Http) -> None:
        self._line = line

    # For devices

    def bills(self) -> tuple[bytes, list[Listed]]:
        """Who signs there, and the bills that are open. A device trusts a signer it knew before."""
        told = self._read(self._line.fetch(f"{BASE}/bills"))
        try:
            found = [
                Listed(one["file"].encode("ascii"), tuple(text.encode("ascii") for text in one["surveys"]))
                for one in told["bills"]
            ]
            return bytes.fromhex(told["signer"]), found
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _odd() from error

    def hold(self, asks: Sequence[bytes]) -> list[tuple[HoldOutcome, bytes | None]]:
        """See `Market.hold`."""
        told = self._read(self._line.send(f"{BASE}/holds", batch(asks)))
        try:
            found = [
                (HoldOutcome(one["outcome"]), None if one["hold"] is None else one["hold"].encode("ascii"))
                for one in told["holds"]
            ]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _odd() from error
        return _as_many(found, asks)

    def receive(self, reports: Sequence[bytes]) -> list[SaleOutcome]:
        """See `Market.receive`."""
        told = self._read(self._line.send(f"{BASE}/sales", batch(reports)))
        try:
            found = [SaleOutcome(one) for one in told["outcomes"]]
        except (KeyError, TypeError, ValueError) as error:
            raise _odd() from error
        return _as_many(found, reports)

    def earned(self, enrolment: Enrolment) -> list[dict[str, Any]]:
        """What an enrolment has sold there, and was paid."""
        told = self._read(self._line.send(f"{BASE}/earned", question(enrolment, "market")))
        if not isinstance(told.get("sales"), list):
            raise _odd()
        return list(told["sales"])

    # For buyers, and for who runs the service

    def offer(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Draw up and sign a bill."""
        content = json.dumps(body, allow_nan=False).encode()
        return self._read(self._line.send(f"{BASE}/bills", content, kind="application/json"))

    def account(self, bill: str) -> dict[str, Any]:
        """How a bill stands."""
        return self._read(self._line.fetch(f"{BASE}/bills/{bill}/account"))

    def fund(self, bill: str) -> dict[str, Any]:
        """Say that the deposit of a bill is here."""
        return self._read(self._line.send(f"{BASE}/bills/{bill}/fund", b""))

    def close(self, bill: str) -> dict[str, Any]:
        """End a bill."""
        return self._read(self._line.send(f"{BASE}/bills/{bill}/close", b""))

    def results(self, bill: str) -> dict[str, Any]:
        """What the reports that were bought come to."""
        return self._read(self._line.fetch(f"{BASE}/bills/{bill}/results"))

    def reports(self, bill: str, level: int) -> bytes:
        """The reports of a level, as Parquet."""
        return self._line.fetch(f"{BASE}/bills/{bill}/reports/{level}")

    def _read(self, reply: bytes) -> dict[str, Any]:
        try:
            told = json.loads(reply)
        except (ValueError, RecursionError) as error:
            raise _odd() from error
        if not isinstance(told, dict):
            raise _odd()
        return told


def _as_many(found: list[Any], given: Sequence[bytes]) -> list[Any]:
    if len(found) != len(given):
        raise _odd()
    return found


def _odd() -> SourceError:
    return SourceError("the service answered something that no market says")
