"""Running the service: one process or several, that share the folder and the ledger."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from reticent.service.app import create_app
from reticent.service.desk import Desk
from reticent.service.protocol import BoundedProtocol
from reticent.service.settings import Settings

_VARIABLE = "RETICENT_SERVICE"  # how a worker is told its settings
_KEEP_ALIVE_S = 15
_MOST_CONNECTIONS = 4096  # of one process, most of them idle
_END_S = 30  # that replies may take once the process shall end


def serve(settings: Settings, *, host: str = "127.0.0.1", port: int = 8000, workers: int = 1) -> None:
    """Serve until interrupted. With several workers each is a process of its own."""
    Desk(settings).close()  # what is wrong with folder or ledger is said here, once
    os.environ[_VARIABLE] = json.dumps(asdict(settings), default=str)
    uvicorn.run(
        "reticent.service.serve:make",
        factory=True,
        host=host,
        port=port,
        workers=workers if workers > 1 else None,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_END_S,
        limit_concurrency=_MOST_CONNECTIONS,
        http=BoundedProtocol,
        ws="none",
    )


def make() -> FastAPI:
    """The application of a worker, from the settings that `serve` left."""
    told: dict[str, Any] = json.loads(os.environ[_VARIABLE])
    told["folder"] = Path(told["folder"])
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    return create_app(Settings(**told))
