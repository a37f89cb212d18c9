"""What a service holds for its providers of stations: each a folder in `stations`."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request

from reticent.errors import LedgerDamaged, ParameterError, StorageUnavailable
from reticent.location.stations.provider import SERVICE, Provider
from reticent.service.refusals import not_found
from reticent.service.settings import Settings

FOLDER = "stations"


class Providers:
    """The providers of a service, opened when they are first needed.

    Args:
        settings: of the service.
    """

    def __init__(self, settings: Settings) -> None:
        self._folder = settings.folder / FOLDER
        self._guard = threading.Lock()
        self._open: dict[str, Provider] = {}
        self.drawing = threading.Lock()
        self.examples: dict[str, Any] = {}  # of pages, by provider

    def names(self) -> list[str]:
        """Of every provider."""
        return sorted(one.parent.name for one in self._folder.glob(f"*/{SERVICE}"))

    def provider(self, name: str) -> Provider:
        """The provider of that name."""
        held = self._open.get(name)
        if held is not None:
            return held
        with self._guard:
            if name not in self._open:
                if name not in self.names():
                    raise not_found("provider of stations")
                self._open[name] = Provider(self._folder / name)
            return self._open[name]

    def all(self) -> list[tuple[str, Provider]]:
        """Every provider by its name; one that cannot be read is left out."""
        found = []
        for name in self.names():
            with contextlib.suppress(ParameterError, LedgerDamaged, StorageUnavailable, OSError):
                found.append((name, self.provider(name)))
        return found

    def close(self) -> None:
        """Close them."""
        with self._guard:
            for one in self._open.values():
                one.close()
            self._open.clear()


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
