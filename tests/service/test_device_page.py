"""The page of a device's ledger in a real chromium: words, widths, light and dark."""

import contextlib

import pytest

from reticent.apps.device import page
from reticent.ledger.device import statement

from ..unit.apps.test_device import TOTAL, reported
from .browsing import AXE
from .test_every_page import found, too_wide


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """The page of a device that answered a survey, a training and a campaign."""
    place = tmp_path_factory.mktemp("device")
    path = reported(place / "ledger", "collect", "federated", "location", total=TOTAL)
    (place / "told.html").write_text(page.made(statement.read(path)))
    return place / "told.html"


def test_nothing_serious_is_found_by_axe_and_nothing_is_too_wide(browser, file):
    if not AXE.is_file():
        pytest.skip("no axe-core on this machine (npm installs it)")
    with contextlib.closing(browser.new_page(viewport={"width": 1280, "height": 800})) as seen:
        seen.goto(file.as_uri())
        assert found(seen) == []
        for width in (390, 1280):
            seen.set_viewport_size({"width": width, "height": 800})
            assert not too_wide(seen), width


def test_it_says_what_is_left_in_words(browser, file):
    with contextlib.closing(browser.new_page()) as seen:
        seen.goto(file.as_uri())
        words = seen.inner_text("main")
    assert "Of epsilon 10 in all" in words
    assert "is left" in words
    assert words.count("key ") == 3
