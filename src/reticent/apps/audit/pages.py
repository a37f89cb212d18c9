"""The page of audits: what the ledger keeps of them, in words.

The log is read once and then only where it grew, at most so many entries for each look: a page must not take
longer the longer the log is.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import HTMLResponse

from reticent.apps.query.dependencies import TheDesk
from reticent.ledger import SqlLedger, audits
from reticent.ledger.audits import AuditEntry, Verdict
from reticent.service.settings import Settings
from reticent.service.visits import Seen, page

router = APIRouter(include_in_schema=False)

_SHOWN = 100  # of the newest audits
_AT_ONCE = 20 * audits.CHUNK  # entries that one look reads


@dataclass
class Read:
    """What was read of the log so far."""

    size: int = 0
    found: list[AuditEntry] = field(default_factory=list)
    guard: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def upto(self, ledger: SqlLedger) -> tuple[list[AuditEntry], int, int]:
        """Read on; the audits, how many entries were read, and how many there are."""
        with self.guard:
            size = ledger.head().size
            if size < self.size:  # another ledger was put in its place
                self.size, self.found = 0, []
            stop = min(size, self.size + _AT_ONCE)
            self.found += list(audits.recorded(ledger, self.size, stop))
            self.size = stop
            return list(self.found), stop, size


def prepare(app: FastAPI, _settings: Settings) -> None:
    """Put what was read where the page finds it."""
    app.state.audits = Read()


@router.get("/audits")
def audits_page(request: Request, desk: TheDesk, visit: Seen) -> HTMLResponse:
    """Every claim that was audited with the last word on it, and the audits themselves."""
    return page(request, "audits.html", visit, here="audits", **_shown(request, desk.ledger))


def _shown(request: Request, ledger: Any) -> dict[str, Any]:
    if not isinstance(ledger, SqlLedger):
        return {"claims": [], "audits": [], "read": 0, "size": 0, "is_elsewhere": True}
    read: Read = request.app.state.audits
    found, stop, size = read.upto(ledger)
    last = {one.claim: one for one in found}
    claims = sorted(last.values(), key=lambda one: (one.verdict is not Verdict.BROKEN, -one.entry))
    return {
        "claims": [_in_words(one) for one in claims[:_SHOWN]],
        "audits": [_in_words(one) for one in found[: -_SHOWN - 1 : -1]],
        "more": max(0, len(found) - _SHOWN),
        "read": stop,
        "size": size,
        "is_elsewhere": False,
    }


def _in_words(one: AuditEntry) -> dict[str, Any]:
    return {
        "claim": one.claim,
        "entry": one.entry,
        "is_broken": one.verdict is Verdict.BROKEN,
        "words": one.verdict.words,
    }
