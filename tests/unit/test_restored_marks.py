"""Marks of devices: kept through crashes, torn, refused, and in keyrings."""

import contextlib
import os
import shutil
import sys
import types

import pytest

from reticent.errors import LedgerDamaged, LedgerError, RolledBack
from reticent.fleet.reporter import Reporter
from reticent.ledger.device import disk
from reticent.ledger.device import ledger as device_module
from reticent.ledger.device import marks as device_marks
from reticent.ledger.device.ledger import DeviceLedger
from reticent.ledger.device.marks import SLOT, Mark, Marks, system_keyring
from reticent.ledger.device.records import MAGIC

from .ledger.device_history import STEPS
from .restored import deleted, folder, no_waiting, reports_of_one_period, restored, room
from .rooms import ROOMS

__all__ = ["folder", "no_waiting", "room"]  # fixtures


# A mark that cannot be kept, crashes, and what is stored


def test_what_cannot_be_marked_does_not_leave(room, folder, monkeypatch):
    """The draw is recorded, and the very same is sent once it is marked."""
    path = folder / "ledger"
    with room.open(path) as one:
        room.report(one, 0)
        real, tries = Mark.write, []

        def full(self, number, tip):
            tries.append(number)
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Mark, "write", full)
        for value in (0, 1):
            with pytest.raises(LedgerError, match="could not be marked: No space left on device"):
                room.report(one, 1, value)
        assert len(tries) == 2
        monkeypatch.setattr(Mark, "write", real)
        first = room.report(one, 1)
    with room.open(path) as one:
        assert room.report(one, 1, value=1) == first


class Ending:
    """Stands for `os` in the ledger's module: the process ends before or after the call of this turn."""

    def __init__(self, turn, is_done):
        self.turn, self.is_done, self.calls = turn, is_done, 0

    def __getattr__(self, name):
        real = getattr(os, name)
        if name not in {"open", "pwrite", "fsync", "replace", "unlink", "ftruncate", "close"}:
            return real

        def call(*arguments, **options):
            self.calls += 1
            if self.calls == self.turn and not self.is_done:
                os._exit(7)
            answer = real(*arguments, **options)
            if self.calls == self.turn:
                os._exit(7)
            return answer

        return call


def crashes(room, folder, periods=(0, 1)):
    """End a device at every call on the file system, in its first report and a later one; what was wrong."""
    wrong, moments = [], 0
    for period in periods:
        for is_done in (False, True):
            for turn in range(1, 200):
                for one in (folder, folder.with_name("marks")):
                    shutil.rmtree(one, ignore_errors=True)
                folder.mkdir()
                marks = Marks(folder.with_name("marks"))
                for earlier in range(period):
                    with room.open(folder / "ledger", marks=marks) as one:
                        room.report(one, earlier)
                read, write = os.pipe()
                child = os.fork()
                if child == 0:
                    code = 1
                    try:
                        disk.os = Ending(turn, is_done)
                        with room.open(folder / "ledger", marks=marks) as one:
                            os.write(write, room.report(one, period))
                        code = 0
                    finally:
                        os._exit(code)
                os.close(write)
                with os.fdopen(read, "rb") as answers:
                    left = answers.read()
                code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                try:
                    with room.open(folder / "ledger", marks=marks) as one:
                        again = room.report(one, period, value=1)
                        paid = len(one.ledger.pending(one.ledger.accounts()[0].terms.name)) == 0
                    if (left and again != left) or not paid:
                        wrong.append(f"period {period}, call {turn}: another report")
                except LedgerError as error:
                    wrong.append(f"period {period}, call {turn}: {error}")
                if code == 0:
                    break
                assert code == 7
                moments += 1
    print(f"{moments} moments")
    assert moments > 20
    return wrong


def test_a_crash_anywhere_neither_loses_nor_doubles_nor_locks_out(folder):
    assert crashes(ROOMS["collect"](), folder) == []


def test_planted_a_mark_before_the_record_is_found(folder, monkeypatch):
    """A crash in between leaves an honest ledger behind its mark."""
    append = DeviceLedger._append

    def early(self, record):
        if record[0] == "fulfil" and self._mark is not None:
            self._mark.write(self._state.entries + 1, device_module.framed(self._tip, record)[1])
        append(self, record)

    monkeypatch.setattr(DeviceLedger, "_append", early)
    assert any("older copy" in one for one in crashes(ROOMS["collect"](), folder, periods=(1,)))


def test_planted_a_ledger_that_names_its_mark_before_it_is_there_is_found(folder, monkeypatch):
    def early(self, marks):
        self._mark, mark = None, self._mark
        self._append(["note", "mark", mark.identity])
        self._mark = mark
        mark.write(self._state.entries, self._tip)

    def once(self, record, append=DeviceLedger._append):
        if record[0] != "note" or "mark" not in self._state.notes:
            append(self, record)

    monkeypatch.setattr(DeviceLedger, "_put_mark", early)
    monkeypatch.setattr(DeviceLedger, "_append", once)
    assert any("no mark" in one for one in crashes(ROOMS["collect"](), folder, periods=(0,)))


def filed(folder):
    """The file of the one mark."""
    (found,) = folder.glob("*.mark")
    return found


def test_a_torn_mark_is_the_one_before(folder):
    """Whatever a power loss leaves of the slot that was written last, nothing is refused or drawn again."""
    room, marks = ROOMS["collect"](), Marks(folder.with_name("marks"))
    with room.open(folder / "ledger", marks=marks) as one:
        for period in range(3):
            room.report(one, period)
        before = filed(marks.folder).read_bytes()
        last = room.report(one, 3)
    after = filed(marks.folder).read_bytes()
    assert len(before) == len(after) == 2 * SLOT
    (slot,) = [at for at in (0, SLOT) if before[at : at + SLOT] != after[at : at + SLOT]]
    for cut in (*range(0, 200, 7), SLOT):
        for rest in (before, bytes(2 * SLOT), b"\xff" * 2 * SLOT):
            torn = after[slot : slot + cut] + rest[slot + cut : slot + SLOT]
            filed(marks.folder).write_bytes(after[:slot] + torn + after[slot + SLOT :])
            with room.open(folder / "ledger", marks=marks) as one:
                assert room.report(one, 3, value=1) == last
    filed(marks.folder).write_bytes(b"x" * 2 * SLOT)
    with pytest.raises(LedgerDamaged, match="the mark of a device's ledger is damaged"):
        room.open(folder / "ledger", marks=marks)
    filed(marks.folder).write_bytes(b"")
    with pytest.raises(RolledBack, match="has no mark in"):
        room.open(folder / "ledger", marks=marks)


def accepted(contents, marks, path, **options):
    """Which of these contents of a ledger its mark lets pass."""
    found = []
    for number, content in enumerate(contents):
        path.write_bytes(content)
        with contextlib.suppress(RolledBack), DeviceLedger(path, marks=marks, **options):
            found.append(number)
    return found


@pytest.mark.parametrize("compact_bytes", [0, 400, 1 << 20])
def test_every_older_content_is_refused_also_of_compacted_ledgers(folder, compact_bytes):
    """After each record; those of before the last record by which something left are refused."""
    path, marks, left = folder / "ledger", Marks(folder.with_name("marks")), 0
    with DeviceLedger(path, marks=marks, compact_bytes=compact_bytes) as ledger:
        contents = [path.read_bytes()]
        for step in [*STEPS, lambda ledger: ledger.fulfil(3, [6]), STEPS[1]]:
            before = ledger._mark.number
            step(ledger)
            if path.read_bytes() == contents[-1]:
                continue
            contents.append(path.read_bytes())
            left = len(contents) - 1 if ledger._mark.number > before else left
    assert left > 8
    kept = filed(marks.folder).read_bytes()
    for number, content in enumerate(contents):
        filed(marks.folder).write_bytes(kept)
        assert accepted([content], marks, path, compact_bytes=compact_bytes) == (
            [0] if number >= left else []
        )


def test_ledgers_of_before_go_on(room, folder, monkeypatch):
    """They have no mark, and get one when they are first opened."""
    path = folder / "ledger"
    with monkeypatch.context() as plain:
        plain.setattr(DeviceLedger, "_bind", lambda *_: None)
        plain.setattr(Reporter, "_note", lambda *_: None)
        with room.open(path) as one:
            first = room.report(one, 0)
    assert b'["note",' not in path.read_bytes()
    before = path.read_bytes()
    with room.open(path) as one:
        assert room.report(one, 0, value=1) == first
        room.report(one, 1)
    assert path.read_bytes().startswith(before)
    path.write_bytes(before)
    with pytest.raises(RolledBack):
        room.open(path)


def test_marks_are_for_their_owner_alone_and_left_out_of_backups(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    room, old = ROOMS["collect"](), os.umask(0)
    try:
        with room.open(folder / "ledger") as one:
            room.report(one, 0)
    finally:
        os.umask(old)
    marks = tmp_path / "state" / "reticent" / "devices"
    assert marks.stat().st_mode & 0o777 == 0o700
    assert sorted(one.suffix for one in marks.iterdir()) == ["", ".TAG", ".mark", ".owner"]
    assert {one.stat().st_mode & 0o777 for one in marks.iterdir()} == {0o600}
    assert (marks / "CACHEDIR.TAG").read_bytes().startswith(b"Signature: 8a477f597d28d172789f06886806bc55")
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Marks().folder == tmp_path / ".local" / "state" / "reticent" / "devices"


def test_a_place_where_no_marks_can_be(folder, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(LedgerError, match=r"the folder of marks .* cannot be used"):
        ROOMS["collect"]().open(folder / "ledger", marks=Marks(tmp_path / "file" / "marks"))
    assert (folder / "ledger").read_bytes() == MAGIC


# Keyrings


class Chain:
    """A keyring in memory, as the backends of the package `keyring` are used."""

    priority = 5

    def __init__(self):
        self.held, self.is_locked = {}, False

    def get_password(self, service, username):
        if self.is_locked:
            raise RuntimeError("locked")
        return self.held.get((service, username))

    def set_password(self, service, username, password):
        if self.is_locked:
            raise RuntimeError("locked")
        self.held[service, username] = password


@pytest.mark.parametrize("again", [restored, deleted])
def test_a_keyring_knows_when_all_folders_are_put_back(room, folder, again):
    marks = Marks(folder / "marks", keyring=Chain())
    assert reports_of_one_period(room, folder, again, times=5, marks=marks) == 1


def test_a_locked_keyring_lets_nothing_leave(folder):
    room, keyring = ROOMS["collect"](), Chain()
    marks = Marks(folder.with_name("marks"), keyring=keyring)
    with room.open(folder / "ledger", marks=marks) as one:
        room.report(one, 0)
        keyring.is_locked = True
        with pytest.raises(LedgerError, match="the keyring cannot be written: RuntimeError"):
            room.report(one, 1)
        keyring.is_locked = False
        first = room.report(one, 1)
    keyring.is_locked = True
    with pytest.raises(LedgerError, match="the keyring cannot be read: RuntimeError"):
        room.open(folder / "ledger", marks=marks)
    keyring.is_locked = False
    shutil.rmtree(marks.folder)
    with room.open(folder / "ledger", marks=marks) as one:  # the keyring's word will do
        assert room.report(one, 1, value=1) == first


@pytest.mark.parametrize(
    ("priority", "is_used"), [(5, True), (1, True), (0.5, False), (0, False), (-1, False)]
)
def test_only_a_recommended_keyring_is_used(monkeypatch, priority, is_used):
    module = types.ModuleType("keyring")
    backend = Chain()
    backend.priority = priority
    module.get_keyring = lambda: backend
    module.__spec__ = types.SimpleNamespace(name="keyring")
    monkeypatch.setitem(sys.modules, "keyring", module)
    assert system_keyring() is (backend if is_used else None)
    assert Marks().keyring is (backend if is_used else None)
    assert Marks("elsewhere").keyring is None


def test_a_system_without_the_package_has_no_keyring(monkeypatch):
    monkeypatch.setattr(device_marks.importlib.util, "find_spec", lambda name: None)
    assert Marks().keyring is None
