"""The collector's word on what a device that forgot has reported."""

import shutil

import pytest

from reticent.errors import LedgerError, ParameterError, ReportForgotten
from reticent.fleet.counted import Counted, asker, question
from reticent.fleet.enrolment import enrolled
from reticent.ledger.device.marks import Marks

from .restored import folder, no_waiting, restored, room
from .rooms import ROOMS

__all__ = ["folder", "no_waiting", "room"]  # fixtures


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
