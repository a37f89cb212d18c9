"""What the ledger was asked for is kept for each idempotency text, in a file or beside a shared ledger."""

from __future__ import annotations

import pytest

from reticent import postgres
from reticent.ledger import Reading
from reticent.query.idempotent_requests import RequestNote
from reticent.query.notebook import Notebook
from reticent.query.shared_notebook import TABLES, SharedNotebook

FRESH = RequestNote("count/a", 2, 10**18 + 5, Reading("", "count/a", 10**18, (-(1 << 70), 5), 3), False)
EMPTY = RequestNote("count/a", 5, 5, Reading("", "count/a", 0, (), 0), False)
REUSING = RequestNote("count/a", 2, 10**18 + 5, None, False)


@pytest.fixture
def database(server):
    held = postgres.Database(server, "request_notes", "the notebook", TABLES)
    yield held
    held.close()


@pytest.fixture(params=["file", "shared"])
def notebook(request, tmp_path):
    if request.param == "file":
        held = Notebook(tmp_path / "notebook.sqlite")
    else:
        held = SharedNotebook(request.getfixturevalue("database"), "town")
    yield held
    held.close()


def by_amount(notes):
    return sorted(notes, key=repr)


def test_notes_are_kept_as_they_were_made(notebook):
    for note in (FRESH, EMPTY, REUSING):
        notebook.note_request("one", note)
    assert by_amount(notebook.request_notes("one")) == by_amount([FRESH, EMPTY, REUSING])
    assert notebook.request_notes("two") == []


def test_a_charged_amount_stays_charged(notebook):
    charged = FRESH._replace(is_charged=True)
    for note in (FRESH, charged, FRESH):
        notebook.note_request("three", note)
    assert notebook.request_notes("three") == [charged]


def test_a_shared_notebook_takes_notes_over(tmp_path, database):
    shared = SharedNotebook(database, "taken")
    notebook = Notebook(tmp_path / "notebook.sqlite")
    for note in (FRESH, REUSING._replace(is_charged=True)):
        notebook.note_request("one", note)
    for _ in range(2):  # publishing again takes nothing twice
        shared.take(notebook)
    assert by_amount(shared.request_notes("one")) == by_amount(notebook.request_notes("one"))
    assert len(shared.request_notes("one")) == 2
    notebook.close()
