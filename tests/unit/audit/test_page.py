"""The page stands alone, escapes what it is given, and says which audits failed; the plot is drawn."""

import re

from reticent.audit import audit, audit_callable
from reticent.audit.page import page, plot, write_page
from reticent.audit.planted.tables import PrintedMiddle
from reticent.mechanisms.numeric import Duchi

GOOD = audit(Duchi(epsilon=1.0), quick=True)
BAD = audit(PrintedMiddle(), quick=True)
OWN = audit_callable(lambda value, size: [0] * size, [0, 1], epsilon=1.0, samples=1000, name="<b>mine</b>")


def test_the_page_fetches_nothing_and_runs_nothing():
    text = page([GOOD, BAD, OWN])
    assert not re.search(r"https?:|<script|<link|<img|@import|url\(", text)
    assert text.count('class="row"') == 3
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text


def test_the_page_says_what_failed():
    assert "nothing found against any claim" in page([GOOD])
    text = page([GOOD, BAD])
    assert "1 of 2 audits found a fault" in text
    assert "sum to 1" in text
    assert "<details open>" in text


def test_names_are_escaped():
    assert "<b>mine" not in page([OWN])
    assert "&lt;b&gt;mine" in page([OWN])


def test_files_are_written(tmp_path):
    write_page([GOOD], tmp_path / "deep" / "audit.html", made="today")
    assert "today" in (tmp_path / "deep" / "audit.html").read_text()
    plot([GOOD, BAD, OWN], tmp_path / "plots" / "audit.png")
    assert (tmp_path / "plots" / "audit.png").read_bytes().startswith(b"\x89PNG")
