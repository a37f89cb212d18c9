"""A full disk, or a quota that is used up: one clear line, exit code 2, and no half of a file."""

import errno
import os
import sqlite3
from functools import partial
from pathlib import Path

import pytest

from reticent import files, sqlite
from reticent.cli.entry import _explain
from reticent.errors import SourceError, StorageUnavailable
from reticent.files import is_full, is_out_of_space, new_file, write_new
from reticent.ledger import SqlLedger
from reticent.ledger.checkpoint import load_key
from reticent.query.rows.source import quietly

NO_SPACE = [errno.ENOSPC, errno.EDQUOT]


def system_error(code):
    return OSError(code, os.strerror(code))


def sqlite_error(name):
    """Build an error as SQLite raises it."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorname, error.sqlite_errorcode = name, getattr(sqlite3, name)
    return error


def caused(error, cause):
    error.__cause__ = cause
    return error


@pytest.fixture
def full(monkeypatch):
    """Let nothing become durable: what is written does not fit on the disk."""

    def fail(descriptor):
        raise system_error(errno.ENOSPC)

    monkeypatch.setattr(os, "fsync", fail)


@pytest.mark.parametrize(
    "error",
    [
        *map(system_error, NO_SPACE),
        sqlite_error("SQLITE_FULL"),
        sqlite_error("SQLITE_IOERR_SHMSIZE"),
        caused(SourceError(), RuntimeError("IO Error: Could not write file: No space left on device")),
        caused(StorageUnavailable("x cannot be used: the disk is full"), None),
        caused(SourceError(), system_error(errno.EDQUOT)),
    ],
)
def test_a_full_disk_is_told_in_one_line(error, capsys):
    assert is_out_of_space(error)
    assert _explain(error) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "the disk is full" in line
    assert line.endswith("free some space, then run the command again")
    assert "Could not write file" not in line, "the words of an engine may hold data"


@pytest.mark.parametrize(
    "error", [system_error(errno.EIO), sqlite_error("SQLITE_IOERR_WRITE"), SourceError(), None]
)
def test_other_trouble_is_not_told_so(error):
    assert not is_out_of_space(error)


@pytest.mark.parametrize(("code", "is_so"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False)])
def test_a_quota_is_told_from_a_failing_disk(tmp_path, monkeypatch, code, is_so):
    """SQLite says `disk I/O error` of both."""

    def fail(descriptor):
        raise system_error(code)

    error = sqlite_error("SQLITE_IOERR_WRITE")
    assert sqlite.describe_trouble(error, tmp_path) == "the disk failed", "control: there is room"
    monkeypatch.setattr(os, "fsync", fail)
    assert is_full(tmp_path) is is_so
    assert (sqlite.describe_trouble(error, tmp_path) == "the disk is full") is is_so


def test_the_index_of_the_log_that_does_not_fit_is_a_full_disk():
    """Found on a full file system: SQLITE_IOERR_SHMSIZE was told as a failing disk."""
    error = sqlite_error("SQLITE_IOERR_SHMSIZE")
    assert sqlite.describe_trouble(error) == "the disk is full"
    assert sqlite.UNAVAILABLE[error.sqlite_errorcode & 0xFF] == "the disk failed", "planted: as it was"


def test_a_ledger_says_so(tmp_path, monkeypatch):
    with SqlLedger(tmp_path / "l.sqlite") as ledger:
        told = ledger._store._explanation(sqlite_error("SQLITE_IOERR_SHMSIZE"))
    assert isinstance(told, StorageUnavailable)
    assert str(told) == "the ledger cannot be used: the disk is full"


def fail_without_room():
    raise RuntimeError("IO Error: Could not write file rows.duckdb: No space left on device")


def test_an_engine_without_room_says_so_and_nothing_of_its_words():
    """It was `the data cannot be read`."""
    with pytest.raises(StorageUnavailable, match="the rows cannot be worked on: the disk is full") as told:
        quietly(fail_without_room)
    assert (told.value.__cause__, told.value.__context__) == (None, None)


def test_control_an_engine_that_fails_otherwise_does_not(monkeypatch):
    monkeypatch.setattr("reticent.query.rows.source.is_out_of_space", lambda error: False)  # planted
    with pytest.raises(SourceError, match="the data cannot be read"):
        quietly(fail_without_room)


# New files


def fail_at(monkeypatch, name):
    def fail(*args, **options):
        raise system_error(errno.ENOSPC)

    monkeypatch.setattr(os, name, fail)


@pytest.mark.parametrize("step", ["open", "fsync", "link"])
def test_nothing_is_left_of_a_new_file(tmp_path, monkeypatch, step):
    with monkeypatch.context() as disk:
        fail_at(disk, step)
        with pytest.raises(OSError, match="No space left"):
            write_new(tmp_path / "new", "text")
    assert list(tmp_path.iterdir()) == []
    write_new(tmp_path / "new", "text")
    assert (tmp_path / "new").read_text() == "text"


def write_with(path, meanwhile):
    """Write a new file, and do something in the middle."""
    with new_file(path) as file:
        file.write(b"second")
        meanwhile()


def test_nothing_is_left_of_a_file_that_is_cut_off(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        write_with(tmp_path / "new", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_stays(tmp_path):
    write_new(tmp_path / "new", b"first")
    with pytest.raises(FileExistsError, match="new"):
        write_new(tmp_path / "new", b"second")
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("new", b"first")]


def test_another_who_is_first_keeps_the_name(tmp_path):
    """The name is taken while the file is written; on file systems without hard links too."""
    for name, has_links in (("a", True), ("b", False)):
        with pytest.MonkeyPatch.context() as patch:
            if not has_links:
                patch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(system_error(errno.EPERM)))
            with pytest.raises(FileExistsError):
                write_with(tmp_path / name, partial((tmp_path / name).write_bytes, b"first"))
        assert (tmp_path / name).read_bytes() == b"first"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_without_hard_links_it_appears_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(system_error(errno.EPERM)))
    write_new(tmp_path / "new", "text", mode=0o600)
    assert [(path.name, path.stat().st_mode & 0o777) for path in tmp_path.iterdir()] == [("new", 0o600)]


def test_no_empty_key_is_left(tmp_path, full):
    """It left an empty file, and every later command said that it holds no key."""
    with pytest.raises(OSError, match="No space left"):
        load_key(tmp_path / "key")
    assert list(tmp_path.iterdir()) == []


COMMANDS = [
    ["survey", "new", "s.yaml", "--purpose", "x"],
    ["survey", "enrol", "--out", "devices", "--master", "master"],
    ["federated", "new", "f.yaml"],
    ["dataset", "example", "census"],
    ["ledger", "key", "ledger.key"],
    ["chain", "key", "chain.key"],
    ["dataset", "new", "rows.csv", "--yes"],
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: "-".join(arguments[:2]))
def test_a_command_says_so_and_leaves_nothing_half_done(arguments, command, tmp_path, monkeypatch, full):
    monkeypatch.chdir(tmp_path)
    Path("rows.csv").write_text("age\n1\n")
    code, _, err = command(*arguments)
    assert code == 2
    assert "the disk is full" in err
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["rows.csv"]


def test_control_a_file_that_is_written_under_its_name_is_left_half_done(
    tmp_path, monkeypatch, full, command
):
    """Planted: what commands did."""

    def write_at_once(path, content, **options):
        with Path(path).open("x") as file:
            file.write(content)
            os.fsync(file.fileno())

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("reticent.apps.collect.work.write_new", write_at_once)
    command("survey", "new", "s.yaml", "--purpose", "x")
    assert [path.name for path in tmp_path.iterdir()] == ["s.yaml"]
    assert files.FULL == "the disk is full"
