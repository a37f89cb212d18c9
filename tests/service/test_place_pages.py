"""The pages of campaigns, in a real chromium and without: maps, rounds, how one cell hides, and to whom."""

import contextlib
import json
import re

import numpy as np
import pytest

from reticent.apps.location import pages as place_pages
from reticent.apps.location import streets
from reticent.location import payload
from reticent.spaces.roads import RoadMap, Street

from .browsing import IMAGE, served
from .person_at_pages import Person
from .running import make_keys, until
from .test_places import Crowd
from .test_survey_pages import signed_in  # noqa: F401


def filled(service, purpose="to test"):
    """A campaign with one round that ended and one with some reports."""
    crowd = Crowd(service, people=60, purpose=purpose)
    campaign = service.app.state.places.named("paris")
    for number in range(2):
        asked = campaign.current
        cells = np.arange(len(crowd.people)) % 7
        campaign.add([payload.written(asked, *one) for one in zip(crowd.people, cells.tolist(), strict=True)])
        if number == 0:
            campaign.end_round()
    return crowd


@pytest.fixture
def crowd(service):
    return filled(service)


def test_what_is_shown(crowd, signed_in):  # noqa: F811
    look = signed_in("alice")
    assert 'href="/places/paris"' in look("/places").text
    page = look("/places/paris").text
    assert '<div class="number">60</div>' in page
    assert "120 in all rounds" in page
    assert "1 per km between the centres of any two cells" in page
    live = re.search(r'hx-get="([^"]+)"', page)[1]
    assert look(live).status_code == 204, "nothing is new"
    assert look(live.split("?")[0]).status_code == 200
    maps = look("/places/paris/maps").json()
    assert [one["reports"] for one in maps["rounds"]] == [60, 60]
    for one in maps["rounds"]:
        assert sum(one["estimate"]) == pytest.approx(1.0, abs=1e-2)
        assert sum(one["reported"]) == pytest.approx(1.0, abs=1e-2)
    grid = crowd.service.app.state.places.named("paris").settings.grid
    corners = np.array(maps["corners"])
    assert corners.shape == (grid.rows + 1, grid.columns + 1, 2)
    middles = (corners[:-1, :-1] + corners[1:, 1:]).reshape(-1, 2) / 2.0
    assert grid.cells(*middles.T).tolist() == list(range(grid.size)), "cells are drawn where they are"
    falling = [one["privic"] for one in maps["curve"]]
    assert falling == sorted(falling, reverse=True), "more privacy, more distance"


def test_one_cell_under_two_channels(crowd, signed_in):  # noqa: F811
    look = signed_in("vera")
    for number in (0, 1):
        told = look(f"/places/paris/law?number={number}&cell=3").json()["laws"]
        asked = crowd.service.app.state.places.named("paris").store.rounds()[number]
        assert told["channel"]["stays"] == pytest.approx(float(asked.channel.staying[3]))
        for law in told.values():
            assert sum(law["shares"]) == pytest.approx(1.0, abs=1e-2)
    for wrong in ("number=2&cell=3", "number=0&cell=20"):
        assert look(f"/places/paris/law?{wrong}").status_code == 404
    assert look("/places/paris/law?number=0&cell=-1").status_code == 422


def test_the_truth_is_shown_in_simulations_only(crowd, signed_in):  # noqa: F811
    """Planted: the file that a demonstration writes."""
    look = signed_in("alice")
    assert look("/places/paris/maps").json()["truth"] is None
    assert "really are" not in look("/places/paris").text
    folder = crowd.service.folder / "places" / "paris"
    (folder / place_pages.SIMULATED).write_text(json.dumps([0.05] * 20))
    crowd.service.app.state.places.drawn.clear()
    assert look("/places/paris/maps").json()["truth"] == [0.05] * 20
    assert "(a simulation)" in look("/places/paris").text


def test_strangers_and_what_is_not_there(crowd, signed_in):  # noqa: F811
    for path in ("", "/paris", "/paris/maps", "/paris/streets", "/paris/law?number=0&cell=0"):
        assert crowd.service.client.get(f"/places{path}", follow_redirects=False).status_code == 303
    look = signed_in("bob")
    for path in ("", "/live", "/maps", "/streets", "/law?number=0&cell=0"):
        assert look(f"/places/nothing{path}").status_code == 404


def test_streets_are_drawn_where_an_owner_put_them(crowd, signed_in):  # noqa: F811
    look = signed_in("alice")
    assert look("/places/paris/streets").status_code == 404
    assert "data-streets" not in look("/places/paris").text
    paved(crowd.service)
    assert 'data-streets="yes"' in look("/places/paris").text
    assert look("/places/paris/streets").json()["lines"] == [[0, 4000, 4000, 0], [2000, 0, 0, 8000]]


def paved(service):
    """Two streets that cross, in the folder of the campaign."""
    nodes = {1: (48.83, 2.34), 2: (48.87, 2.34), 3: (48.85, 2.30), 4: (48.85, 2.38)}
    streets.write(service.folder / "places" / "paris", RoadMap.of(nodes, [Street(1, 2), Street(3, 4)]))


def test_maps_are_worked_out_once(crowd, signed_in, monkeypatch):  # noqa: F811
    look, goes = signed_in("alice"), []
    made = place_pages._maps
    monkeypatch.setattr(place_pages, "_maps", lambda one: goes.append(1) or made(one))
    for _ in range(3):
        look("/places/paris/maps")
    assert len(goes) == 1
    crowd.end(1)
    look("/places/paris/maps")
    assert len(goes) == 2


def test_a_large_grid_has_no_map(crowd, signed_in, monkeypatch):  # noqa: F811
    monkeypatch.setattr(place_pages, "_MOST_CELLS", 10)
    look = signed_in("alice")
    assert "too many cells" in look("/places/paris").text
    assert look("/places/paris/maps").status_code == 404


# In a browser


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = tmp_path_factory.mktemp("places")
    with served(folder, make_keys(folder)) as service:
        filled(service, purpose=IMAGE)
        paved(service)
        (folder / "places" / "paris" / place_pages.SIMULATED).write_text(json.dumps([0.05] * 20))
        yield service


def is_painted(page, name):
    """Whether a map shows cells: not all of its pixels are alike."""
    return page.evaluate(
        """(name) => {
          const canvas = document.querySelector(`#${name} canvas`);
          if (!canvas || !canvas.width) return false;
          const copy = new OffscreenCanvas(canvas.width, canvas.height);  // or the browser warns, read often
          const ink = copy.getContext("2d", { willReadFrequently: true });
          ink.drawImage(canvas, 0, 0);
          const pixels = ink.getImageData(0, 0, canvas.width, canvas.height).data;
          const seen = new Set();
          for (let i = 3; i < pixels.length; i += 4) seen.add(pixels[i]);
          return seen.size > 3;
        }""",
        name,
    )


def test_maps_in_a_browser(running, browser):
    with contextlib.closing(Person(running, browser, "alice").context) as context:
        page, said = context.pages[0], []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto("/places/paris")
        for name in ("estimate", "reported", "truth"):
            until(lambda name=name: is_painted(page, name))
        assert not page.is_visible("#laws")
        page.focus("#estimate")
        page.keyboard.press("ArrowUp")
        page.keyboard.press("ArrowRight")
        until(lambda: "row 2, column 3, in round 2" in page.inner_text("#cell-said"))
        until(lambda: is_painted(page, "channel") and is_painted(page, "laplace"))
        page.focus("#round")
        page.keyboard.press("ArrowLeft")
        until(lambda: "in round 1" in page.inner_text("#cell-said"))
        box = page.locator("#reported").bounding_box()
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        until(lambda: "row 2, column 2" in page.inner_text("#cell-said"))
        assert page.evaluate("window.hit") is None
        assert said == []
        page.evaluate("console.error('planted')")
        until(lambda: page.evaluate("0") or said == ["planted"])
