"""A device that is restored, deleted, copied or replaced reports no period a second time, in any room.

The attack is the first test: a ledger is put back from a backup and asked for the same period, 40 times. On
the code of before, all four kinds of devices made a fresh report each time, and each said that one was spent.
"""

import contextlib
import os
import shutil
import sys
import types

import pytest

from reticent.errors import LedgerDamaged, LedgerError, ParameterError, ReportForgotten, RolledBack
from reticent.fleet.counted import Counted, asker, question
from reticent.fleet.enrolment import enrolled
from reticent.ledger.device import ledger as device_module
from reticent.ledger.device import marks as device_marks
from reticent.ledger.device.ledger import DeviceLedger
from reticent.ledger.device.marks import SLOT, Mark, Marks, system_keyring
from reticent.ledger.device.records import MAGIC

from .ledger.device_history import STEPS
from .rooms import ROOMS

TIMES = 40


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    """The disk is not waited for: only a loss of power could tell."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture(params=ROOMS)
def room(request):
    """One kind of devices."""
    return ROOMS[request.param]()


@pytest.fixture
def folder(tmp_path):
    """The folder of a device, as its backup has it."""
    made = tmp_path / "device"
    made.mkdir()
    return made


def restored(folder, before):
    """The whole folder as it was."""
    shutil.rmtree(folder)
    shutil.copytree(before, folder)


def deleted(folder, before):
    """The ledger is gone, and whatever lies beside it."""
    shutil.rmtree(folder)
    folder.mkdir()


def reports_of_one_period(room, folder, again, times=TIMES, **options):
    """How many reports of one period leave if the device is put back before each: all are drawn anew."""
    path, before = folder / "ledger", folder.with_name("backup")
    with room.open(path, **options) as one:
        room.report(one, 0)
    shutil.copytree(folder, before)
    left, refusals = [], []
    for _ in range(times):
        try:
            with room.open(path, **options) as one:
                left.append(room.report(one, 1))
        except LedgerError as refusal:
            refusals.append(refusal)
        again(folder, before)
    assert all(isinstance(one, RolledBack) for one in refusals)
    return len(left)


@pytest.mark.parametrize("again", [restored, deleted])
def test_no_period_is_reported_twice_however_often_a_device_is_put_back(room, folder, again):
    assert reports_of_one_period(room, folder, again) == 1


def test_it_says_why(room, folder):
    path = folder / "ledger"
    with room.open(path) as one:
        room.report(one, 0)
    older = path.read_bytes()
    with room.open(path) as one:
        first = room.report(one, 1)
    newest = path.read_bytes()
    path.write_bytes(older)
    with pytest.raises(
        RolledBack, match=r"was restored from an older copy: it has 4 records, and had 6 when"
    ):
        room.open(path)
    path.unlink()
    with pytest.raises(
        RolledBack, match="not the one that this enrolment has reported from, which was deleted"
    ):
        room.open(path)
    with pytest.raises(RolledBack, match="not the one that this enrolment has reported from"):
        room.open(folder / "another")
    path.write_bytes(newest)
    with room.open(path) as one:
        assert room.report(one, 1, value=1) == first


def folder_of_marks(place):
    """The folder gives way to a copy of it, as a restored backup of it would."""
    gone = place.with_name("gone")
    place.rename(gone)
    shutil.copytree(gone, place)


def file_of_mark(place):
    """Each mark gives way to a copy of it."""
    for mark in place.glob("*.mark"):
        copy = place / "copy"
        shutil.copy(mark, copy)
        copy.replace(mark)


def reports_while_marks_are_replaced(room, folder, replaced):
    """How many draws of one period leave, if the mark is replaced under a device that is open."""
    path, place, left = folder / "ledger", folder.with_name("marks"), []  # two draws may be equal
    with room.open(path, marks=Marks(place)) as one:
        room.report(one, 0)
    before = path.read_bytes()
    for again in (replaced, lambda place: None):
        with contextlib.suppress(LedgerError), room.open(path, marks=Marks(place)) as one:
            again(place)
            left.append(room.report(one, 1))
        path.write_bytes(before)
    return len(left)


@pytest.mark.parametrize("replaced", [folder_of_marks, file_of_mark])
def test_a_mark_that_is_replaced_while_open_lets_nothing_leave(room, folder, replaced):
    """It was written into the file that was gone, and the copy in its place knew nothing of it."""
    assert reports_while_marks_are_replaced(room, folder, replaced) == 1


@pytest.mark.parametrize("replaced", [folder_of_marks, file_of_mark])
def test_planted_marks_whose_place_is_not_looked_at_are_found(room, folder, monkeypatch, replaced):
    """As it was."""
    monkeypatch.setattr(DeviceLedger, "_check_mark", lambda ledger: None)
    assert reports_while_marks_are_replaced(room, folder, replaced) == 2


def test_it_says_that_the_mark_is_gone(folder):
    room, place = ROOMS["collect"](), folder.with_name("marks")
    with room.open(folder / "ledger", marks=Marks(place)) as one:
        shutil.rmtree(place)
        with pytest.raises(LedgerError, match=r"the mark of the ledger .* was deleted, moved or replaced"):
            room.report(one, 0)


def test_a_mark_that_is_a_link_is_refused(folder):
    room, place = ROOMS["collect"](), folder.with_name("marks")
    with room.open(folder / "ledger", marks=Marks(place)) as one:
        room.report(one, 0)
    (mark,) = place.glob("*.mark")
    mark.rename(place / "elsewhere")
    mark.symlink_to(place / "elsewhere")
    with pytest.raises(LedgerError, match="is a link, or was replaced just now"):
        room.open(folder / "ledger", marks=Marks(place))


class Unmarked(Mark):
    """Planted: the mark stays where it was made."""

    def write(self, number, tip):
        if self.number < 0:
            super().write(number, tip)


@pytest.mark.parametrize("again", [restored, deleted])
def test_planted_without_marks_the_attack_is_found(room, folder, monkeypatch, again):
    monkeypatch.setattr(device_module, "Mark", Unmarked)
    monkeypatch.setattr(Marks, "owner", lambda self, owner: None)
    assert reports_of_one_period(room, folder, again, times=5) == 5


@pytest.mark.parametrize("again", [restored, deleted])
def test_planted_marks_beside_the_ledger_are_found(room, folder, again):
    """The copy of the folder brings them back."""
    assert reports_of_one_period(room, folder, again, times=5, marks=Marks(folder / "marks")) == 5


def test_planted_marks_after_the_report_are_found(room, folder, monkeypatch):
    """What leaves is marked when the ledger is next asked, and the ledger is put back before that."""
    append = DeviceLedger._append

    def late(self, record):
        mark, self._mark = self._mark, None
        append(self, record)
        self._mark = mark

    monkeypatch.setattr(DeviceLedger, "_append", late)
    assert reports_of_one_period(room, folder, restored, times=5) == 5


# While open


def put_back(path, older):
    path.with_name("older").write_bytes(older)
    path.with_name("older").replace(path)


def put_back_in_place(path, older):
    path.write_bytes(older)


def taken_away(path, older):
    path.unlink()


def reports_while_open(room, folder, change, times=5):
    """The reports of one period that leave if the file is changed before each, while the device is open."""
    path, left = folder / "ledger", []
    with room.open(path) as one:
        room.report(one, 0)
    older = path.read_bytes()
    for _ in range(times):
        with contextlib.suppress(LedgerError), room.open(path) as one:
            change(path, older)
            left.append(room.report(one, 1))
    return left


@pytest.mark.parametrize("change", [put_back, put_back_in_place, taken_away])
def test_a_ledger_that_is_changed_while_open_reports_no_period_twice(room, folder, change):
    """In place, the open device remembers, and the next opening refuses; else nothing leaves at all."""
    left = reports_while_open(room, folder, change)
    assert len(set(left)) == (change is put_back_in_place)


@pytest.mark.parametrize("change", [put_back, taken_away])
def test_planted_a_device_that_does_not_look_is_found(room, folder, monkeypatch, change):
    monkeypatch.setattr(DeviceLedger, "_check_place", lambda self: None)
    monkeypatch.setattr(device_module, "Mark", Unmarked)
    monkeypatch.setattr(Marks, "owner", lambda self, owner: None)
    assert len(reports_while_open(room, folder, change)) == 5


def test_of_two_copies_one_can_be_open(room, folder, monkeypatch):
    monkeypatch.setattr(device_module, "_MARK_S", 0.0)
    with room.open(folder / "ledger") as one:
        first = room.report(one, 0)
        shutil.copy(folder / "ledger", folder / "copy")
        with pytest.raises(LedgerError, match=r"a copy of the ledger .* is in use"):
            room.open(folder / "copy")
    with room.open(folder / "copy") as copy:  # as new as the other: it says the same
        assert room.report(copy, 0, value=1) == first
        room.report(copy, 1)
    with pytest.raises(RolledBack, match="older copy"):
        room.open(folder / "ledger")


def test_a_copy_that_went_on_elsewhere_is_not_taken_back(room, folder, tmp_path):
    """It has more records than the mark says, and not those that left here."""
    path, copy = folder / "ledger", folder / "copy"
    with room.open(path) as one:
        room.report(one, 0)
    shutil.copy(path, copy)
    with room.open(path) as one:
        room.report(one, 1)
    with room.open(copy, marks=Marks(tmp_path / "elsewhere", moved=True)) as one:
        for period in (2, 3, 4):
            room.report(one, period)
    copy.replace(path)
    with pytest.raises(RolledBack, match="older copy"):
        room.open(path)


def test_another_machine_is_told_of_a_move(room, folder, tmp_path):
    with room.open(folder / "ledger") as one:
        first = room.report(one, 0)
    with pytest.raises(RolledBack, match=r"has no mark in .*: it is a copy from another machine"):
        room.open(folder / "ledger", marks=Marks(tmp_path / "elsewhere"))
    older = (folder / "ledger").read_bytes()
    with room.open(folder / "ledger", marks=Marks(tmp_path / "elsewhere", moved=True)) as one:
        assert room.report(one, 0, value=1) == first
        room.report(one, 1)
    with room.open(folder / "ledger", marks=Marks(tmp_path / "elsewhere")) as one:
        room.report(one, 2)
    (folder / "ledger").write_bytes(older)
    with pytest.raises(RolledBack, match="older copy"):  # a move is no pardon
        room.open(folder / "ledger", marks=Marks(tmp_path / "elsewhere", moved=True))


def test_rooms_and_enrolments_may_have_a_ledger_each_or_share_one(room, folder):
    others = [one() for one in ROOMS.values() if one is not type(room)]
    with room.open(folder / "ledger") as one:
        room.report(one, 0)
    with room.open(folder / "ledger", number=8) as one:
        room.report(one, 0)
    for number, other in enumerate(others):
        with other.open(folder / f"ledger-{number}") as one:
            other.report(one, 0)
        with other.open(folder / "ledger", number=9) as one:
            other.report(one, 0)
    with room.open(folder / "ledger") as one:
        room.report(one, 1)
    with pytest.raises(RolledBack, match="not the one that this enrolment"):
        room.open(folder / "ledger-0", number=8)


def test_a_ledger_that_nothing_left_by_may_be_thrown_away(room, folder):
    """Before the first report an owner may begin again; of two new ledgers one reports."""
    room.open(folder / "ledger").close()
    (folder / "ledger").unlink()
    with room.open(folder / "ledger") as one, room.open(folder / "second") as two:
        room.report(one, 0)
        for _ in range(2):
            with pytest.raises(RolledBack, match="not the one that this enrolment has reported from"):
                room.report(two, 0)
        room.report(one, 1)


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
                        device_module.os = Ending(turn, is_done)
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


# The collector's word


def forgot(room, folder):
    """A device that has reported periods 0 and 1, put back to after 0 with all its marks."""
    marks, before = Marks(folder / "marks"), folder.with_name("before")
    with room.open(folder / "ledger", marks=marks) as one:
        first = room.report(one, 0)
    shutil.copytree(folder, before)
    with room.open(folder / "ledger", marks=marks) as one:
        second = room.report(one, 1)
        spent = room.spent(one)
    restored(folder, before)
    return marks, first, second, spent


def test_what_was_counted_and_is_forgotten_is_never_drawn(room, folder):
    """What it remembers it sends again as it was; what it does not is paid for, and refused ever after."""
    marks, first, _, spent = forgot(room, folder)
    with room.open(folder / "ledger", marks=marks) as one:
        assert room.heed(one, [0, 1]) == [1]
        assert room.spent(one) == spent  # as it was before it forgot
        assert room.heed(one, [0, 1]) == [1]
        assert room.spent(one) == spent
    for _ in range(2):
        with room.open(folder / "ledger", marks=marks) as one:
            assert room.report(one, 0, value=1) == first
            for value in (0, 1):
                with pytest.raises(ReportForgotten, match=r"1 of .*: its collector counts no"):
                    room.report(one, 1, value)
            assert room.spent(one) == spent
    with room.open(folder / "ledger", marks=marks) as one:
        room.report(one, 2)


def test_planted_without_the_word_it_is_drawn_again(room, folder):
    marks, _, second, _ = forgot(room, folder)
    with room.open(folder / "ledger", marks=marks) as one:
        left = [room.report(one, 1)]
    assert left[0] != second or isinstance(room, ROOMS["location"])  # which has few cells


def test_periods_that_are_closed_are_not_drawn_unless_they_are_remembered(room, folder):
    with room.open(folder / "ledger") as one:
        first = room.report(one, 1)
        assert room.heed(one, [], closed=3) == []
        spent = room.spent(one)
    with room.open(folder / "ledger") as one:
        room.heed(one, [], closed=2)  # an older word changes nothing
        assert room.report(one, 1, value=1) == first
        for period in (0, 2):
            with pytest.raises(ReportForgotten):
                room.report(one, period)
        assert room.spent(one) == spent
        room.report(one, 3)


def test_a_crash_between_charge_and_draw_and_then_the_word(room, folder, monkeypatch):
    """What waits to be drawn is closed too, and charged once."""
    with room.open(folder / "ledger") as one:
        with monkeypatch.context() as broken:
            broken.setattr(one.ledger, "fulfil", lambda *_: (_ for _ in ()).throw(LedgerError("full")))
            with pytest.raises(LedgerError, match="full"):
                room.report(one, 0)
        spent = room.spent(one)
        assert room.heed(one, [0]) == [0]
        assert room.spent(one) == spent
        with pytest.raises(ReportForgotten):
            room.report(one, 0)
        assert one.ledger.pending(one.ledger.accounts()[0].terms.name) == []


def test_a_word_on_more_than_there_is_budget_for_leaves_nothing_to_draw(room, folder):
    lifetime = "lifetime_per_km" if isinstance(room, ROOMS["location"]) else "lifetime"
    with room.open(folder / "first", number=8) as one:
        room.report(one, 0)
        price = room.spent(one)
    with room.open(folder / "ledger", **{lifetime: 2.5 * price}) as one:
        assert room.heed(one, [0, 1, 2, 3]) == [0, 1, 2, 3]
        (balance,) = one.ledger.accounts()
        assert balance.remaining == 0
        for period in range(6):
            with pytest.raises(LedgerError):
                room.report(one, period)


def test_a_word_on_somebody_else_or_something_else_is_refused(room, folder, monkeypatch):
    with room.open(folder / "ledger") as one:
        with pytest.raises(ParameterError, match="on the enrolment of this device, got one on another"):
            room.heed(one, [0], number=8)
        with pytest.raises(ParameterError):
            room.heed(one, [1 << 31])
        with monkeypatch.context() as other:
            other.setattr(room, "word", lambda study, *_: Counted(f"{study}0", room.numbered(7).id, (0,)))
            with pytest.raises(ParameterError, match="the word must be on"):
                room.heed(one, [0])
        assert room.spent(one) == 0.0
        room.report(one, 0)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "7", '{"study": "x"}', "[" * 100_000]
    + [
        f'{{"study": "x", "enrolment": "00", "counted": {periods}, "closed": {closed}}}'
        for periods, closed in (
            ("[-1]", 0),
            ("[1.5]", 0),
            ("[true]", 0),
            ('"12"', 0),
            ("[]", -1),
            ("[]", "null"),
        )
    ]
    + ['{"study": "x", "enrolment": "zz", "counted": [], "closed": 0}'],
)
def test_a_word_that_is_none_is_refused(text):
    with pytest.raises(ParameterError, match="counted"):
        Counted.from_json(text)


def test_a_word_survives_its_text():
    word = Counted("survey:00", bytes(8), (1, 5), 1)
    assert Counted.from_json(word.to_json()) == word


def test_only_who_has_the_key_can_ask():
    enrolment = enrolled(bytes(32))
    asked = question(enrolment, "survey:00")
    assert asker(bytes(32), "survey:00", asked) == enrolment.id
    for master, study, wrong in (
        (bytes(32), "survey:01", asked),
        (bytes([1] * 32), "survey:00", asked),
        (bytes(32), "survey:00", asked[:-1]),
        (bytes(32), "survey:00", bytes(8) + asked[8:]),
    ):
        assert asker(master, study, wrong) is None


# How long a report takes


def looks(room, folder, earlier, monkeypatch):
    """How often the ledger is asked, and how many bytes it writes, for one more report."""
    with room.open(folder / str(earlier), number=earlier) as one:
        for period in range(earlier):
            room.report(one, period)
        counted, held, size = [], DeviceLedger._held, one.ledger._end

        def count(self):
            counted.append(1)
            return held(self)

        with monkeypatch.context() as watched:
            watched.setattr(DeviceLedger, "_held", count)
            room.report(one, earlier)
        return len(counted), one.ledger._end - size


def test_a_report_asks_the_ledger_no_more_often_after_many(room, folder, monkeypatch):
    few, many = (looks(room, folder, earlier, monkeypatch) for earlier in (2, 150))
    assert many[0] == few[0] <= 7
    assert many[1] <= few[1] + 200  # digits, and what the draw comes to


def test_planted_a_search_of_all_earlier_ones_is_found(folder, monkeypatch):
    from reticent.federated.participation import Participations

    remembered = Participations.remembered

    def forgetful(self, number):
        self._places, self._count = {}, 0
        return remembered(self, number)

    monkeypatch.setattr(Participations, "remembered", forgetful)
    room = ROOMS["federated"]()
    few, many = (looks(room, folder, earlier, monkeypatch) for earlier in (2, 150))
    assert many[0] > few[0] + 100
