"""The pictures of pages in the docs are of the pages as they are, and small."""

import json
import re

import pytest

from .. import screenshots

MOST_BYTES = 60_000


def old():
    """The pictures that were made of other templates or scripts than these."""
    noted = json.loads(screenshots.NOTE.read_text())
    return [name for name in screenshots.SOURCES if noted.get(name) != screenshots.digest(name)]


def test_pictures_are_current():
    assert old() == [], "pages changed since: run make screenshots"


def test_planted_a_page_that_changed_is_found(monkeypatch, tmp_path):
    for path in {path for paths in screenshots.SOURCES.values() for path in paths}:
        place = tmp_path / "src/reticent" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes((screenshots.ROOT / "src/reticent" / path).read_bytes())
    note = tmp_path / "note.json"
    note.write_text(json.dumps({name: screenshots.digest(name) for name in screenshots.SOURCES}))
    monkeypatch.setattr(screenshots, "NOTE", note)
    monkeypatch.setattr(screenshots, "ROOT", tmp_path)
    assert old() == []
    changed = tmp_path / "src/reticent/apps/collect/templates/survey_part.html"
    changed.write_text(changed.read_text() + "<p>More.</p>")
    assert old() == ["service-survey.png"]


@pytest.mark.parametrize("name", screenshots.SOURCES)
def test_a_picture_is_small_and_shown(name):
    assert 2_000 < (screenshots.IMAGES / name).stat().st_size < MOST_BYTES
    docs = "".join(path.read_text() for path in (screenshots.ROOT / "docs" / "how-to").glob("*.md"))
    assert f"(../images/{name})" in docs


def test_every_picture_of_a_page_is_made_by_the_target():
    shown = {path.name for path in screenshots.IMAGES.glob("*.png")}
    assert {name for name in shown if re.match("service-|training", name)} == set(screenshots.SOURCES)
