"""A ledger on a full disk can be looked at: nothing of it needs space there.

The disk is full for a child process by its limit on the size of files. SQLite makes its files as on a real
one, and then nothing fits into them.
"""

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from reticent.apps.ledger.work import opened
from reticent.errors import StorageUnavailable
from reticent.ledger import Amount, SqlLedger, Terms, Unit
from reticent.ledger.sql.sqlite_store import SqliteStore
from reticent.ledger.verify import verify
from reticent.privacy import Neighbours

from ...support.crash_points import CRASHED, _run_child, run_to_end

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

TERMS = Terms("a", Unit.MU2, Neighbours.REPLACE_ONE, "one person of a", 10**12)
ENTRIES = 2 + 2 * 20
FITS = 16  # bytes of a file


def spend(path, number=20):
    with SqlLedger(path) as ledger:
        spend_in(ledger, number)


def spend_in(ledger, number):
    ledger.open(TERMS)
    for place in range(number):
        grant = ledger.request("a", f"k{place}", Amount(10**9, TERMS.unit, TERMS.neighbours))
        for one in grant.pending:
            ledger.fulfil(one.number, [place])


@pytest.fixture
def path(tmp_path):
    """Return the path of a ledger that was closed."""
    spend(tmp_path / "ledger.sqlite")
    return tmp_path / "ledger.sqlite"


@pytest.fixture
def torn(tmp_path):
    """Return the path of a ledger whose process was killed: all entries are in the log ahead of it."""
    path = tmp_path / "torn.sqlite"

    def crash():
        spend_in(SqlLedger(path), 20)
        os._exit(CRASHED)

    assert _run_child(crash)[0] == CRASHED
    assert Path(f"{path}-wal").stat().st_size
    return path


def fill_disk():
    resource.setrlimit(resource.RLIMIT_FSIZE, (FITS, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def on_full_disk(run):
    """Run a function in a child process that can write next to nothing."""

    def run_without_space():
        fill_disk()
        run()

    run_to_end(run_without_space)


def count_entries(path):
    with opened(str(path)) as ledger:
        assert verify(ledger).size == ENTRIES
        assert ledger.balance("a").spent == 20 * 10**9


@pytest.mark.parametrize("name", ["path", "torn"])
def test_a_ledger_on_a_full_disk_is_verified(name, request):
    path = request.getfixturevalue(name)
    for _ in range(2):
        on_full_disk(lambda: count_entries(path))
    count_entries(path)
    spend(path, 25)
    with SqlLedger(path) as ledger:
        assert ledger.balance("a").spent == 25 * 10**9


def test_nothing_is_written_on_a_full_disk(path):
    before = path.read_bytes()

    def charge():
        with opened(str(path)) as ledger, pytest.raises(StorageUnavailable, match="read-only"):
            spend_in(ledger, 21)

    on_full_disk(charge)
    assert path.read_bytes() == before


def test_control_connections_that_share_an_index_need_space(path, monkeypatch):
    """Planted: what looking at a ledger did."""
    connected = SqliteStore._connected

    def share(self, *given, alone=False):
        return connected(self, *given)

    monkeypatch.setattr(SqliteStore, "_connected", share)

    def look():
        with pytest.raises(StorageUnavailable, match="the disk is full"):
            opened(str(path))

    on_full_disk(look)


def test_a_ledger_that_spends_needs_space(path):
    def change():
        with pytest.raises(StorageUnavailable, match="the disk is full"):
            SqlLedger(path)

    on_full_disk(change)


@pytest.mark.parametrize("is_open", [False, True])
def test_the_command_verifies_on_a_full_disk(path, is_open):
    """Beside another process that has it open, too."""
    ledger = SqlLedger(path) if is_open else None
    told = subprocess.run(
        [sys.executable, "-m", "reticent", "ledger", "verify", str(path)],
        preexec_fn=fill_disk,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (told.returncode, told.stderr) == (0, "")
    assert re.search(rf"entries\W+{ENTRIES}\b", told.stdout)
    if ledger is not None:
        spend_in(ledger, 21)
        ledger.close()
