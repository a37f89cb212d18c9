"""A device that is restored, deleted, copied or replaced reports no period a second time, in any room.

The attack is the first test: a ledger is put back from a backup and asked for the same period, 40 times. On
the code of before, all four kinds of devices made a fresh report each time, and each said that one was spent.
"""

import contextlib
import shutil

import pytest

from reticent.errors import LedgerError, RolledBack
from reticent.fleet.reporter import Reporter
from reticent.ledger.device import ledger as device_module
from reticent.ledger.device.ledger import DeviceLedger
from reticent.ledger.device.marks import Mark, Marks

from .restored import deleted, folder, no_waiting, reports_of_one_period, restored, room
from .rooms import ROOMS

__all__ = ["folder", "no_waiting", "room"]  # fixtures


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
        RolledBack, match=r"was restored from an older copy: it has 5 records, and had 7 when"
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
    monkeypatch.setattr(Reporter, "_note", lambda *_: None)  # which asks the ledger once more
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
