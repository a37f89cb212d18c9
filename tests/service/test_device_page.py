"""Pages that are written to files, of a device's ledger and of an audit, in a real chromium."""

import contextlib

import pytest

from reticent.apps.device import page
from reticent.audit.page import write_page
from reticent.ledger.device import statement

from ..unit.apps.test_device import TOTAL, reported
from ..unit.audit.test_page import BAD, GOOD
from .browsing import PATIENCE_MS
from .looking import faults


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """The page of a device that answered a survey, a training and a campaign."""
    place = tmp_path_factory.mktemp("device")
    path = reported(place / "ledger", "collect", "federated", "location", total=TOTAL)
    (place / "told.html").write_text(page.made(statement.read(path)))
    return place / "told.html"


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """The page of an audit, with a mechanism that keeps its claim and one that breaks it."""
    place = tmp_path_factory.mktemp("audit") / "audit.html"
    write_page([GOOD, BAD], place, made="today")
    return place


@pytest.mark.parametrize("which", ["file", "audited"])
def test_it_can_be_read(browser, request, which):
    """By axe nothing serious, in light and dark; nothing is too wide."""
    with contextlib.closing(browser.new_page()) as seen:
        seen.set_default_timeout(PATIENCE_MS)
        seen.goto(request.getfixturevalue(which).as_uri())
        for one in seen.locator("summary").all():
            one.click()
        assert faults(seen) == []


def test_it_says_what_is_left_in_words(browser, file):
    with contextlib.closing(browser.new_page()) as seen:
        seen.set_default_timeout(PATIENCE_MS)
        seen.goto(file.as_uri())
        words = seen.inner_text("main")
    assert "Of epsilon 10 in all" in words
    assert "is left" in words
    assert words.count("key ") == 3
