"""The page stands alone, escapes what it is given, and says which audits failed; the plot is drawn."""

import re
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from reticent.apps.audit.work import _table
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


@pytest.mark.parametrize("width", [60, 80, 92, 120])
def test_no_terminal_cuts_a_word_of_the_table(width):
    long = replace(GOOD, name="a mechanism of one's own with a long name", notion="epsilon per kilometre")

    def shown(table):
        console = Console(file=StringIO(), width=width)
        console.print(table)
        return console.file.getvalue()

    table = _table([long, BAD], width)
    assert "…" not in shown(table)
    assert all(word in shown(table) for word in ("holds", "FAULT", ">= 7."))
    assert ("fit p" in shown(table)) == (width >= 92)
    for column in table.columns:  # planted: as it was
        column.no_wrap, column.overflow = True, "ellipsis"
    assert "…" in shown(table) or width > 100
