"""The station providers of a service: each a folder in `stations`."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request

from reticent.location.stations.provider import SERVICE, Provider
from reticent.service.folders import Folders
from reticent.service.settings import Settings

FOLDER = "stations"


class Providers(Folders[Provider]):
    """The providers of a service.

    Args:
        settings: Settings of the service.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings.folder / FOLDER, SERVICE, "provider of stations", Provider)
        self.drawing = threading.Lock()
        self.examples: dict[str, Any] = {}  # of pages, by provider


async def _the_providers(request: Request) -> Providers:
    found: Providers = request.app.state.stations
    return found


TheProviders = Annotated[Providers, Depends(_the_providers)]


def prepare(app: FastAPI, settings: Settings) -> None:
    """Put the providers where the routes find them."""
    app.state.stations = Providers(settings)


@contextlib.contextmanager
def running(app: FastAPI) -> Iterator[None]:
    """Close them with the application."""
    try:
        yield
    finally:
        app.state.stations.close()
