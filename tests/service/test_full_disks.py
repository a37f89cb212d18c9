"""Disks that are full or read-only under a service: nothing is charged twice or half done, and it says so."""

import contextlib
import errno
import os

import pytest

from reticent.errors import StorageUnavailable, WitnessUnavailable
from reticent.fleet import secret_file
from reticent.fleet.secret_file import kept_secret
from reticent.query.notebook import Notebook
from reticent.service.refusals import explained
from reticent.service.state import file as state_file

from .running import refused

HOW = ["full", "read-only"]
PARTS = " AND ".join(f"age > {years}" for years in range(100))
LONG = {"query": f"SELECT COUNT(*) FROM census WHERE ({PARTS}) OR ({PARTS})", "information": 1e-4}  # > a page


@contextlib.contextmanager
def trouble(connection, how):
    """No room for another page in a file of SQLite, or nothing may be written to it."""
    if how == "read-only":
        connection.execute("PRAGMA query_only=ON")
        yield
        connection.execute("PRAGMA query_only=OFF")
        return
    connection.execute("CREATE TABLE fill (bytes BLOB)")
    connection.execute(f"PRAGMA max_page_count={connection.execute('PRAGMA page_count').fetchone()[0]}")
    for size in (1000, 100, 10, 1):
        with contextlib.suppress(Exception):
            while True:
                connection.execute("INSERT INTO fill VALUES (zeroblob(?))", (size,))
    yield
    connection.execute(f"PRAGMA max_page_count={2**30}")
    connection.execute("DROP TABLE fill")


def asked_in_trouble(service, how):
    """Ask while the state cannot be written, then again: both replies, and what was spent after each."""
    said = []
    with trouble(service.desk.state._keeper._connection, how):
        said.append((service.ask("alice", LONG, key="one"), service.spent()))
    said.append((service.ask("alice", LONG, key="one"), service.spent()))
    return said


@pytest.mark.parametrize("how", HOW)
def test_a_full_disk_is_told_and_charges_nothing_twice(service, how):
    """It was `internal fault` (500)."""
    (during, before), (after, spent) = asked_in_trouble(service, how)
    why = {"full": "the disk is full", "read-only": "it is read-only"}[how]
    assert refused(during, 503, "storage_unavailable")["message"].endswith(f"cannot be used: {why}")
    assert during.headers["retry-after"] == "1"
    assert before in (0, 10**8)  # what is charged and not answered is answered later
    assert after.status_code == 200
    assert spent == service.used("alice") == 10**8


def test_planted_words_of_sqlite_that_nobody_explains_are_caught(service, monkeypatch):
    monkeypatch.setattr(state_file, "explained", lambda what: contextlib.nullcontext())
    (during, _), _ = asked_in_trouble(service, "read-only")
    refused(during, 500, "fault")


@pytest.mark.parametrize("how", HOW)
def test_a_notebook_that_cannot_be_written_says_so(tmp_path, how):
    with contextlib.closing(Notebook(tmp_path / "notebook")) as notebook:
        with trouble(notebook._connection, how):
            with pytest.raises(StorageUnavailable, match="the notebook cannot be used"):
                notebook.remember("key", "asked" * 5000)
            with pytest.raises(StorageUnavailable), notebook.drawing("key") as drawn:
                drawn[7] = [1] * 5000
        assert notebook.questions() == {}
        with notebook.drawing("key") as drawn:
            assert drawn == {}


def left_by_a_full_disk(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        with pytest.raises(StorageUnavailable, match=r"enrolment\.key cannot be written: No space left"):
            kept_secret(tmp_path / "enrolment.key")
    return list(tmp_path.iterdir())


def test_a_secret_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    """It left a hidden file with a secret in it, for each try."""
    assert left_by_a_full_disk(tmp_path, monkeypatch) == []
    assert len(kept_secret(tmp_path / "enrolment.key")) == 32


def test_planted_a_draft_that_stays_is_caught(tmp_path, monkeypatch):
    monkeypatch.setattr(secret_file.Path, "unlink", lambda *_, **__: None)
    assert left_by_a_full_disk(tmp_path, monkeypatch) != []


def ask_on_a_full_disk(service, monkeypatch):
    """Ask where the file that keeps the attempt cannot be written, by a call that nobody explains."""

    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(type(service.desk), "attempt", fail)
    return service.ask("alice", LONG, key="one")


def test_a_full_disk_that_no_part_explains_is_told_as_one(service, monkeypatch):
    """It was `internal fault` (500)."""
    reply = ask_on_a_full_disk(service, monkeypatch)
    assert (
        refused(reply, 503, "storage_unavailable")["message"] == "the service cannot write: the disk is full"
    )
    assert reply.headers["retry-after"] == "1"
    assert service.spent() == 0


def test_planted_a_guard_that_knows_no_full_disk_is_caught(service, monkeypatch):
    monkeypatch.setattr("reticent.service.guard.is_out_of_space", lambda error: False)
    refused(ask_on_a_full_disk(service, monkeypatch), 500, "fault")


def test_where_a_witness_listens_is_not_for_those_who_ask():
    """Planted: the same text as it is raised, for the operator."""
    said = WitnessUnavailable("the witness at http://10.1.2.3:8001 cannot be reached (TimeoutError)")
    assert "10.1.2.3" in str(said)
    assert explained(said)[1]["error"]["message"] == "the witness cannot be reached (TimeoutError)"
