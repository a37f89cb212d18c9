"""The page of what a server learns: it stands alone, escapes what it is given, and shows both sides."""

import re

import numpy as np
import pytest

from reticent.audit import Finding, gradients
from reticent.audit.leak_page import Exhibit, leak_page, of_update
from reticent.audit.leakage import Layers
from reticent.audit.leakage.sources import subject

HOSTILE = "<script>window.hit=1</script>"


def exhibit(**changes):
    given = {
        "title": "one", "found": True, "lines": ["the server learns everything"],
        "truth": np.array([[0.125, 2.0]]), "sent": ["theta (3): 1, 2, 3"],
        "rebuilt": np.array([[0.125, 2.0]]),
    }  # fmt: skip
    return Exhibit(**given | changes)


def test_it_stands_alone_and_escapes_everything():
    shown = exhibit(title=HOSTILE, lines=[HOSTILE], sent=[HOSTILE], columns=[HOSTILE, "b"], label=HOSTILE)
    found = Finding(HOSTILE, False, HOSTILE)
    text = leak_page([shown], title=HOSTILE, made=HOSTILE, findings=[found], notes=[HOSTILE])
    assert not re.search(r"https?:|<script|<link|<img|@import|url\(", text)
    assert text.count("&lt;script&gt;window.hit=1") >= 8
    assert len(re.findall('<meta name="reticent-audit" content="[0-9a-f]{64}">', text)) == 1


def test_words_follow_what_was_found():
    assert "The server learns what it should not" in leak_page([exhibit()], title="t")
    quiet = exhibit(found=False, rebuilt=None, lines=["nothing"])
    text = leak_page([quiet], title="t", findings=[Finding("a", True, "the same")])
    assert "Nothing was found that the server should not learn" in text
    assert "<td colspan=" in text
    assert "The server learns what it should not" in leak_page(
        [quiet], title="t", findings=[Finding("a", False, "other")]
    )


def test_rebuilt_records_stand_beside_the_true_ones():
    truth = np.array([[0.1, 0.2], [0.3, 0.4]])
    text = leak_page([exhibit(truth=truth, rebuilt=truth[::-1])], title="t")
    tables = re.findall("<table>(.*?)</table>", text)
    assert len(tables) == 2
    for table, row in zip(tables, ("0.1", "0.3"), strict=True):
        assert table.count(f"<td>{row}</td>") == 2


@pytest.mark.parametrize(("numbers", "drawn"), [(64, True), (49, False), (65, False)])
def test_squares_are_drawn(numbers, drawn):
    picture = np.linspace(0.0, 1.0, numbers)[None]
    text = leak_page([exhibit(truth=picture, rebuilt=picture)], title="t")
    assert ("<svg" in text) == drawn
    assert ("<table" in text) != drawn


def test_numbers_that_are_not_finite_and_many_records_do_no_harm():
    odd = np.full((20, 64), np.nan)
    text = leak_page([exhibit(truth=np.zeros((20, 64)), rebuilt=odd)], title="t")
    assert "12 more are not shown" in text
    assert "nan" not in text


def test_an_update_of_a_model():
    weights = np.arange(12.0).reshape(3, 4) / 10.0 - 0.5
    layers = Layers((weights,), (np.array([0.1, 0.0, -0.1]),))
    record = np.array([[0.5, -0.25, 0.125, 0.75]])
    arrays, _ = subject(layers).measured(record, [1])
    shown = of_update(gradients(layers, update=arrays, truth=record), arrays, title="mine")
    assert shown.found
    text = leak_page([shown], title="t")
    assert text.count("<td>0.75</td>") == 2
    assert "0.weight (3 x 4): " in text
