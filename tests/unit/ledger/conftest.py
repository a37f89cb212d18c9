"""Places for ledgers, in SQLite or in a real PostgreSQL server, and a witness: fresh for each test."""

import itertools
import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from reticent.ledger import SqlLedger, Terms
from reticent.ledger.witness.client import WitnessedLedger

from ...support.postgres_server import start_server, stop_server
from .sql_ledgers import terms
from .witness_process import KEY, MU2, TERMS, Inside, Process, put_back, units


@pytest.fixture(scope="session")
def postgres():
    """A function that gives the address of a fresh, empty schema on a real server."""
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
    folder = tempfile.mkdtemp(prefix="pg-")  # a short path: a socket lies in it
    server = start_server(folder)
    counter, parent = itertools.count(), os.getpid()

    def fresh():
        name = f"ledger_{next(counter)}"
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")
        return f"{server.get_uri()}&options=-csearch_path%3D{name}"

    yield fresh
    if os.getpid() == parent:
        stop_server(server)
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


@pytest.fixture
def ledger(place):
    """A ledger with one account."""
    with SqlLedger(place) as made:
        made.open(terms())
        yield made


@pytest.fixture
def path(tmp_path) -> Path:
    """Where a new device ledger may be made."""
    return tmp_path / "ledger"


@pytest.fixture(scope="session")
def ethereum(anvil):
    """A function that deploys a fresh contract and gives a ledger on it; options are the ledger's."""
    from reticent.chain.node import Node
    from reticent.chain.sender import Sender
    from reticent.ledger.ethereum.contract import artifact
    from reticent.ledger.ethereum.ledger import EthereumLedger

    deployer = Sender(Node(anvil.url), anvil.keys[9])

    def fresh(**options):
        made = deployer.transact(None, artifact().creation, gas=4_000_000)
        options = {"first_block": made.block, "key": anvil.keys[0], **options}
        return EthereumLedger(Node(anvil.url), made.contract, options.pop("key"), **options)

    yield fresh
    deployer.node.close()


@pytest.fixture
def no_waiting(request, monkeypatch):
    """The disk is not waited for, unless the test asks for `real_disk`: only a loss of power could tell."""
    if "real_disk" not in request.fixturenames:
        monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def real_disk():
    """Do wait for the disk."""


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A witness in a process of its own."""
    process = Process(tmp_path_factory.mktemp("elsewhere"))
    yield process
    process.kill()


@pytest.fixture
def inside(tmp_path):
    """A witness in threads of this process, which remembers nothing yet."""
    made = Inside(tmp_path / "inside")
    yield made
    made.close()


@pytest.fixture
def witness(running):
    """A running witness that remembers nothing yet."""
    if running.process.poll() is not None:
        running.start()
    with closing(sqlite3.connect(running.directory / "witness.db")) as db:
        for table in ("log", "total", "abandoned", "head", "allowed"):
            db.execute(f"DELETE FROM {table}")
        db.commit()
    return running


@pytest.fixture
def witnessed(database, witness):
    """A ledger that has an account and a witness."""
    with closing(WitnessedLedger(database, client=witness.client(), key=KEY)) as made:
        made.open(TERMS)
        yield made


@pytest.fixture
def restored(database, witnessed, tmp_path):
    """A ledger that went on, put back to an older copy of itself; returns its path."""
    witnessed.request(TERMS.name, "early", units(100))
    witnessed.close()
    shutil.copyfile(database, tmp_path / "backup.db")
    with closing(WitnessedLedger(database, client=witnessed._client, key=KEY)) as on:
        on.request(TERMS.name, "late", units(300))
        on.open(Terms("late-account", *MU2, "late-subject", 500))
        on.request("late-account", "q", units(40))
    put_back(database, tmp_path / "backup.db")
    return database
