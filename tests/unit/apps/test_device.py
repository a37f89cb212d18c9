"""A person reads her device's ledger: who learnt what, when, for how much, what is left."""

import contextlib
import math
import re
import sys
from html.parser import HTMLParser
from io import StringIO

import pytest

from reticent.apps import main
from reticent.ledger.device import lifetime, statement
from reticent.ledger.device.ledger import DeviceLedger
from reticent.ledger.device.lifetime import Lifetime
from reticent.ledger.device.told import Told
from reticent.privacy import UNITS_PER_ONE

from ..restored import folder, no_waiting
from ..rooms import ROOMS

__all__ = ["folder", "no_waiting"]  # fixtures

TOTAL = Lifetime(10.0, distance_km=2.0)


def reported(path, *names, times=2, **options):
    for name in names:
        room = ROOMS[name]()
        with room.open(path, **options) as device:
            for number in range(times):
                room.report(device, number)
        options = {}
    return path


def command(*words):
    said, wrong = StringIO(), StringIO()
    sys.argv = ["reticent", "device", *map(str, words)]
    with (
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(wrong),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    return ended.value.code, said.getvalue() + wrong.getvalue()


def test_all_that_left_is_said(folder):
    path = reported(folder / "ledger", "collect", "federated", "location", total=TOTAL)
    found = statement.read(path)
    assert [statement.kind(room.balance.terms) for room in found.rooms] == ["Surveys", "Trainings", "Places"]
    assert [one.reports for room in found.rooms for one in room.series] == [2, 2, 2]
    assert sum(one.of_lifetime for room in found.rooms for one in room.series) == found.total.spent
    assert found.is_counted
    first = found.rooms[0].series[0]
    assert first.told.what == "survey"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", first.told.first)


def test_reading_changes_nothing_and_needs_no_lock(folder):
    path = reported(folder / "ledger", "collect")
    with ROOMS["collect"]().open(path):
        stored = path.read_bytes()
        assert len(statement.read(path).rooms) == 1
        assert path.read_bytes() == stored


def test_the_command(folder):
    path = reported(folder / "ledger", "collect", "location", total=TOTAL)
    code, said = command("show", path)
    assert code == 0
    assert "Of epsilon 10 in all, 2" in said
    assert "at most 2 km apart" in said
    assert "Surveys: epsilon 2 of epsilon 1000 spent, 99.8 % left" in said


def test_without_a_lifetime_nobody_adds_up(folder):
    code, said = command("show", reported(folder / "ledger", "collect"))
    assert code == 0
    assert "No lifetime over all of it is set" in said


def test_what_an_earlier_release_left_uncounted_is_said(folder, monkeypatch):
    path = reported(folder / "ledger", "collect", total=TOTAL)
    with monkeypatch.context() as patch:
        patch.setattr(lifetime, "opened", lambda *_: None)
        reported(path, "federated")
    assert "counts when the ledger is opened next" in statement.sentences(statement.read(path))[-1]


def test_the_lifetime_is_set_by_the_command(folder):
    path = reported(folder / "ledger", "collect")
    code, said = command("lifetime", path, "--epsilon", "4")
    assert (code, "epsilon 4, no places, for ever; 50 % of it was spent before" in said) == (0, True)
    code, said = command("lifetime", path, "--epsilon", "5")
    assert code == 2
    assert (
        said
        == "error: the lifetime of this ledger is fixed: epsilon 4, no places; got epsilon 5, no places\n"
    )
    with pytest.raises(lifetime.MixedGuarantees):
        reported(path, "location")


@pytest.mark.parametrize("words", [("show", "none"), ("lifetime", "x/y", "--epsilon", "1")])
def test_bad_paths_are_one_line(folder, monkeypatch, words):
    monkeypatch.chdir(folder)
    code, said = command(*words)
    assert code == 2
    assert said.count("\n") == 1


def test_a_file_that_is_no_ledger(folder):
    (folder / "x").write_text("hello")
    code, said = command("show", folder / "x")
    assert code == 2
    assert "is no device ledger" in said


class Text(HTMLParser):
    def __init__(self):
        super().__init__()
        self.words, self.tags = [], []

    def handle_data(self, data):
        self.words.append(data)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


def test_the_page_in_words(folder):
    path = reported(folder / "ledger", "collect", "federated", "location", total=TOTAL)
    assert command("show", path, "--html", folder / "told.html")[0] == 0
    page = Text()
    page.feed((folder / "told.html").read_text())
    words = " ".join(page.words)
    for said in ("What this device has told", "Surveys", "Trainings", "Places", "at most 2 km apart"):
        assert said in words
    assert not [attrs for _, attrs in page.tags if "src" in attrs or "href" in attrs]
    assert oct((folder / "told.html").stat().st_mode & 0o777) == "0o600"


def test_what_operators_write_is_no_markup(folder):
    path = folder / "ledger"
    with DeviceLedger(path) as ledger:
        ledger.open(Lifetime(1.0).terms)
    reported(path, "collect", times=1)
    stored = statement.read(path)
    bad = Told("survey", "<script>alert(1)</script>", "<img src=x>", "ab" * 16, "2026-01-01", "2026-01-02")
    room = stored.rooms[0]
    series = type(room.series[0])(room.series[0].head, bad, 1, 1, 1, 0)
    from reticent.apps.device import page

    made = page.made(type(stored)((type(room)(room.balance, (series,)),), stored.total))
    assert "<script" not in made
    assert "<img" not in made


def test_the_page_is_not_written_over_the_ledger(folder):
    path = reported(folder / "ledger", "collect")
    stored = path.read_bytes()
    code, said = command("show", path, "--html", path)
    assert (code, path.read_bytes()) == (2, stored)
    assert "html must not be the ledger" in said


def test_how_sure_somebody_may_be():
    pure, gaussian = Lifetime(5.0).terms, Lifetime(5.0, 1e-6).terms
    assert statement.certainty(pure, 0) == statement.certainty(gaussian, 0) == 0.5
    for epsilon in (0.1, 1.0, 3.0):
        right = math.exp(epsilon) / (1 + math.exp(epsilon))
        assert right <= statement.certainty(pure, int(epsilon * UNITS_PER_ONE)) <= right + 0.001
    assert statement.certainty(gaussian, UNITS_PER_ONE) == pytest.approx(
        0.692, abs=1e-9
    )  # Phi(1/2) = 0.69146


def test_notes_are_short_whatever_a_purpose_says():
    import datetime

    told = Told.noted(None, "survey", "n", "\x07\n\u2028" * 400, b"k" * 32, datetime.date(2026, 1, 1))
    assert len(told.text) <= 1000
    assert told.text.isprintable()
    later = Told.noted(told.text, "survey", "n", "why", b"k" * 32, datetime.date(2026, 1, 3))
    assert (later.first, later.last) == ("2026-01-01", "2026-01-03")
    assert Told.read("no json") is None
