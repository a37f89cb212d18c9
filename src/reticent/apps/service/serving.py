"""The service with every capability, in this process or in workers."""

from __future__ import annotations

import gc
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from reticent.apps.listed import APPS
from reticent.apps.query.desk import Desk
from reticent.service import app
from reticent.service import serve as shell
from reticent.service.settings import Settings

__all__ = ["create_app", "make", "serve", "serving", "uvicorn"]


def create_app(
    settings: Settings,
    *,
    desk: Callable[[], Desk] | None = None,
    apart: bool = False,
    warmed: Callable[[], None] = lambda: None,
) -> FastAPI:
    """Create the application of one process.

    Args:
        settings: Settings of the service.
        desk: Function that makes the desk once the process runs; by default the desk is made from the
            settings.
        apart: True to make answers of many cells in a process of their own (`apart`).
        warmed: Function that is called once everything is loaded.
    """
    capabilities = [one.served() for one in APPS if one.served is not None]
    made = app.create_app(settings, capabilities, desk=desk or (lambda: Desk(settings)), warmed=warmed)
    made.state.is_apart = apart
    return made


def serve(
    settings: Settings,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    workers: int = 1,
    say: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve until interrupted, as `service.serve` does, and report faults of folder or ledger first."""
    Desk(settings).close()
    shell.serve(settings, f"{__name__}:make", host=host, port=port, workers=workers, say=say)


def make() -> FastAPI:
    """Create the application of a worker."""
    # Loaded objects are no garbage: see `lanes`.
    return shell.made(lambda settings: create_app(settings, apart=True, warmed=gc.freeze))


@contextmanager
def serving(settings: Settings, place: socket.socket) -> Iterator[None]:
    """Serve in a thread of this process, at a socket that listens already, while the block runs."""
    with shell.running(create_app(settings), place):
        yield
