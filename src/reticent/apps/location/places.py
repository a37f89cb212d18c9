"""What a service holds for its campaigns."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request

from reticent.apps.collect.collecting import Collecting
from reticent.location.campaign import SETTINGS, Campaign
from reticent.service.folders import Folders
from reticent.service.settings import Settings

FOLDER = "places"


class Places(Folders[Campaign]):
    """The campaigns of a service.

    Args:
        settings: of the service.
        collecting: whose two secrets sign rounds and know devices, and whose ledger is charged.
    """

    def __init__(self, settings: Settings, collecting: Collecting) -> None:
        def opened(folder: Path) -> Campaign:
            return Campaign(folder, collecting.operator, collecting.signing_key)

        super().__init__(settings.folder / FOLDER, SETTINGS, "campaign", opened)
        self.collecting = collecting
        self.drawing = threading.Lock()
        self.drawn: dict[str, tuple[Any, Any]] = {}  # maps of pages, by campaign, with their stamp


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
