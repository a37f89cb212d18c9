"""Long texts in a ledger: whole or not at all, and no note that the ledger could not read again."""

import itertools

import pytest

from reticent.errors import ParameterError
from reticent.ledger.device import long_texts
from reticent.ledger.device.ledger import DeviceLedger
from reticent.ledger.device.marks import Marks


@pytest.fixture
def opened(tmp_path):
    return lambda: DeviceLedger(tmp_path / "ledger", marks=Marks(tmp_path / "marks"))


@pytest.mark.parametrize("length", [0, 1, 999, 1000, 1001, 5432])
def test_a_text_is_kept_and_replaced(opened, length):
    text = "".join(chr(97 + at % 26) for at in range(length))
    with opened() as ledger:
        assert long_texts.kept(ledger, "a") is None
        long_texts.keep(ledger, "a", text)
    with opened() as ledger:
        assert long_texts.kept(ledger, "a") == text
        long_texts.keep(ledger, "a", "other")
        assert long_texts.kept(ledger, "a") == "other"


class Stopped(Exception):
    """Where a process ended."""


def torn(ledger, after):
    """What is left of a replacement that ended after so many notes; None if it was whole by then."""
    keep, left = ledger.keep, itertools.count(after, -1)

    def counted(name, text):
        if next(left) <= 0:
            raise Stopped
        keep(name, text)

    long_texts.keep(ledger, "a", "x" * 2500)
    ledger.keep = counted
    try:
        long_texts.keep(ledger, "a", "y" * 2500)
        return None
    except Stopped:
        return long_texts.kept(ledger, "a")
    finally:
        ledger.keep = keep


def test_a_text_that_was_being_replaced_is_none(opened):
    for after in range(1, 4):
        with opened() as ledger:
            assert torn(ledger, after) is None
            assert long_texts.kept(ledger, "a") in (None, "y" * 2500)
    with opened() as ledger:
        assert torn(ledger, 0) == "x" * 2500  # nothing was written yet


def test_planted_without_the_hash_a_mixture_passes(opened, monkeypatch):
    monkeypatch.setattr(long_texts, "_hash", lambda text: "same")
    with opened() as ledger:
        assert torn(ledger, 1) == "y" * 1000 + "x" * 1500


@pytest.mark.parametrize(
    ("name", "text"), [("a", ""), ("a", "x" * 1001), ("", "x"), ("a", "x\n"), ("n" * 1001, "x")]
)
def test_a_note_that_could_not_be_read_again_is_not_written(opened, name, text):
    with opened() as ledger:
        ledger.keep("b", "kept")
        with pytest.raises(ParameterError, match="must be 1 to 1000 printable characters"):
            ledger.keep(name, text)
    with opened() as ledger:
        assert ledger.kept("b") == "kept"
