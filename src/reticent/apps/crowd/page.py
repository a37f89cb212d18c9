"""A page of its own for one task on a chain: verified again whenever the chain grows, and shown to observers.

It listens on this machine and asks the observer's own node and store: a page that somebody else serves would
have to be believed, and everything on it is public anyway, so it needs neither accounts nor `reticent serve`.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import HTMLResponse, Response
from fastapi.staticfiles import StaticFiles

from reticent.errors import ReticentError
from reticent.federated.crowd.contract import NOBODY
from reticent.federated.crowd.observing import Seen
from reticent.federated.crowd.task_text import CrowdTask
from reticent.federated.crowd.verify import Contradiction, Report
from reticent.peers import one_line
from reticent.service import layout
from reticent.service.guard import Guard
from reticent.service.metrics import Metrics
from reticent.service.serve import address, running
from reticent.service.settings import Settings
from reticent.service.showing import percent
from reticent.service.visits import part


@dataclass(frozen=True)
class Look:
    """What was found at one look: all of a task, or why not."""

    number: int
    text: CrowdTask | None = None
    seen: Seen | None = None
    contradiction: str = ""
    trouble: str = ""  # the node or the store does not answer


class Observer:
    """Looks again when the chain has grown. Threads may share it.

    Args:
        head: the number of the last block.
        look: verifies the task and says what is seen of it.
    """

    def __init__(self, head: Callable[[], int], look: Callable[[], tuple[Report, Seen]]) -> None:
        self._head, self._look = head, look
        self._guard = threading.Lock()
        self._block = -1
        self.last = Look(0)

    def now(self) -> Look:
        """The newest look."""
        with self._guard:
            try:
                block = self._head()
                if block == self._block and not self.last.trouble:
                    return self.last
                report, seen = self._look()
                found = Look(self.last.number + 1, report.text, seen)
            except Contradiction as error:
                found = Look(self.last.number + 1, contradiction=one_line(error, 500))
            except ReticentError as error:
                trouble = one_line(error, 300)
                if trouble == self.last.trouble:
                    return self.last
                found = Look(self.last.number + 1, self.last.text, self.last.seen, trouble=trouble)
                block = -1
            self._block, self.last = block, found
            return found


@contextmanager
def watched(observer: Observer, title: str, place: socket.socket) -> Iterator[str]:
    """Serve the page at a socket that listens already, while the block runs; yields its address."""
    with running(create_app(observer, title), place):
        yield address(*place.getsockname())


def create_app(observer: Observer, title: str) -> FastAPI:
    """The page, its live part, and the files that both need."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/")
    def page(request: Request) -> HTMLResponse:
        return part(request, "crowd.html", _shown(observer.now(), title))

    @app.get("/live")
    def live(request: Request, seen: Annotated[int, Query(ge=0, le=1 << 30)] = 0) -> Response:
        now = observer.now()
        if now.number == seen:
            return Response(status_code=204)
        return part(request, "crowd_part.html", _shown(now, title))

    app.state.templates = layout.templates([Path(__file__).parent])
    app.mount("/static", StaticFiles(directory=layout.SHELL / "static"))
    app.add_middleware(Guard, settings=Settings(Path()), metrics=Metrics())
    return app


def _shown(look: Look, title: str) -> dict[str, Any]:
    seen = look.seen
    found: dict[str, Any] = {"look": look, "title": title, "task": look.text, "seen": seen}
    if seen is None:
        return found
    known = [one.accuracy for one in seen.rounds if one.accuracy is not None]
    last = known[-1] if known else seen.start
    return found | {
        "drawn": [_bar(one) for one in seen.rounds],
        "chart_words": _words(seen),
        "accuracy": "not known" if last is None else percent(last),
        "start": "" if seen.start is None else percent(seen.start),
        "judged": sum(one.is_judged_again for one in seen.rounds),
        "decided": sum(bool(one.model) for one in seen.rounds),
        "paid": sum(one.pay for one in seen.customers),
        "money": "wei" if seen.token == NOBODY else f"smallest parts of the token {seen.token}",
    }


def _bar(one: Any) -> dict[str, Any]:
    accuracy = None if one.accuracy is None else round(100 * one.accuracy, 2)
    parts = {name: getattr(one, name) for name in ("accepted", "kept", "low", "uncounted")}
    return {"round": one.number, "accuracy": accuracy, **parts}


def _words(seen: Seen) -> str:
    """The chart in words."""
    told = [
        f"round {one.number}: {one.accepted} accepted, {one.kept} rejected, {one.low} low, "
        f"{one.uncounted} not counted"
        + ("" if one.accuracy is None else f", accuracy {percent(one.accuracy)}")
        for one in seen.rounds
    ]
    return "; ".join(told) or "no round yet"
