"""What a service holds for its campaigns."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request

from reticent.apps.collect.collecting import Collecting
from reticent.errors import ParameterError
from reticent.location.campaign import SETTINGS, Campaign
from reticent.service.refusals import not_found
from reticent.service.settings import Settings

FOLDER = "places"


class Places:
    """The campaigns of a service, opened when they are first needed.

    Args:
        settings: of the service.
        collecting: whose two secrets sign rounds and know devices, and whose ledger is charged.
    """

    def __init__(self, settings: Settings, collecting: Collecting) -> None:
        self._folder, self.collecting = settings.folder / FOLDER, collecting
        self._guard = threading.Lock()
        self._open: dict[str, Campaign] = {}
        self.drawing = threading.Lock()
        self.drawn: dict[str, tuple[Any, Any]] = {}  # maps of pages, by campaign, with their stamp

    def names(self) -> list[str]:
        """Of every campaign."""
        return sorted(one.parent.name for one in self._folder.glob(f"*/{SETTINGS}"))

    def campaign(self, name: str) -> Campaign:
        """The campaign of that name."""
        with self._guard:
            if name not in self._open:
                if name not in self.names():
                    raise not_found("campaign")
                held = self.collecting
                self._open[name] = Campaign(self._folder / name, held.operator, held.signing_key)
            return self._open[name]

    def all(self) -> list[tuple[str, Campaign]]:
        """Every campaign by its name; one that cannot be read is left out."""
        found = []
        for name in self.names():
            with contextlib.suppress(ParameterError, sqlite3.Error):
                found.append((name, self.campaign(name)))
        return found

    def close(self) -> None:
        """Close the campaigns."""
        with self._guard:
            for one in self._open.values():
                one.close()
            self._open.clear()


async def _the_places(request: Request) -> Places:
    found: Places = request.app.state.places
    return found


ThePlaces = Annotated[Places, Depends(_the_places)]


def prepare(app: FastAPI, settings: Settings) -> None:
    """Put the campaigns where the routes find them."""
    app.state.places = Places(settings, app.state.collecting)


@contextlib.contextmanager
def running(app: FastAPI) -> Iterator[None]:
    """Close them with the application."""
    try:
        yield
    finally:
        app.state.places.close()
