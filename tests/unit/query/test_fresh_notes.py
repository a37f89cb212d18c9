"""Since when a draw is fresh is kept once for each idempotency text, in a file or beside a shared ledger."""

from __future__ import annotations

import pytest

from reticent import postgres
from reticent.ledger import Reading
from reticent.query.notebook import Notebook
from reticent.query.shared_notebook import TABLES, SharedNotebook

FIRST = Reading("town", "count/a", 10**18, (-(1 << 70), 5), 3)
LATER = Reading("town", "count/a", 10**18 + 7, (9, 9), 0)
OTHER = Reading("town", "count/b", 1, (1,), 0)


@pytest.fixture(params=["file", "shared"])
def notebook(request, tmp_path):
    if request.param == "file":
        held = Notebook(tmp_path / "notebook.sqlite")
    else:
        url = request.getfixturevalue("server")
        held = SharedNotebook(
            postgres.Database(url, "fresh_notes", "the notebook", TABLES), "town", is_own=True
        )
    yield held
    held.close()


def test_the_first_look_counts(notebook):
    assert notebook.since("one", FIRST) == FIRST
    assert notebook.since("one", LATER) == FIRST, "a retry asks for the same"
    assert notebook.since("two", LATER) == LATER
    assert notebook.since("one", OTHER) == OTHER, "another question: the ledger refuses the text"
