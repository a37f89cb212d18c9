"""The pages of providers of stations, in a real chromium and without: an example journey, and for whom."""

import contextlib
import json

import numpy as np
import pytest

from reticent.apps.stations import pages, town
from reticent.apps.stations.example import Example
from reticent.apps.stations.provider_work import provider
from reticent.location.stations.provider import Provider
from reticent.location.stations.sealing import Kind, Point
from reticent.randomness import SimulationStream

from .browsing import IMAGE, served
from .person_at_pages import Person
from .running import make_keys, until
from .test_place_pages import is_painted
from .test_survey_pages import signed_in  # noqa: F401

ASKED = "/stations/town/example?level=5&k=3&m=10"
FORECAST = {
    "made": 1_700_000_000, "minutes": 60, "points": 600, "queries": 60, "confidence": 0.95,
    "sites": [
        {"name": name, "at": [45.01, -29.99], "connectors": 2, "arrivals": arrivals, "low": 3.0, "high": 12.0,
         "free": [0.8, 0.6, 0.9]} for name, arrivals in (("less", 1.0), (IMAGE, 7.5))
    ],
    "missing": [{"at": [45.02, -29.98], "saved_m": 120.0, "share": 0.25}],
}  # fmt: skip
PATHS = ("/stations", "/stations/town", "/stations/town/map", "/stations/town/sites", ASKED)


def built(folder, purpose="The nearest free stations."):
    """A provider in the invented town, as the command makes it."""
    (folder / "files").mkdir()
    (folder / "stations").mkdir()
    edges, stations = town.write(folder / "files")
    provider(
        folder / "stations" / "town",
        file=edges, nodes=None, stations=stations, purpose=purpose, level=5.0, horizon=4.0, k=3, m=10,
        period=300, segment=100.0, journeys=40,
    )  # fmt: skip


@pytest.fixture(scope="module")
def town_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("town")
    built(folder)
    return folder


@pytest.fixture
def there(service, town_folder):
    """A service with that provider."""
    (service.folder / "stations").symlink_to(town_folder / "stations")
    return service


@pytest.fixture(scope="module")
def example(town_folder):
    """The journey of the page."""
    with contextlib.closing(Provider(town_folder / "stations" / "town")) as held:
        where = np.array([(one.latitude, one.longitude) for one in held.stations])
        companions = held.area.companions(held.library_file, held.signer)
        return Example(held.area.roads, *where.T, companions)


def test_what_is_shown(there, signed_in):  # noqa: F811
    look = signed_in("olga")
    assert 'href="/stations/town"' in look("/stations").text
    page = look("/stations/town").text
    assert "5 per km of street between any two places of the map" in page
    assert '<div class="number">16</div>' in page
    drawn = look("/stations/town/map").json()
    assert len(drawn["lines"]) == 408, "every street of the map"
    stations = look("/stations/town/sites").json()["stations"]
    assert sum(one["free"] for one in stations) == sum(one["connectors"] for one in stations) == 32


def test_an_example_is_what_the_programs_would_do(there, signed_in, example):  # noqa: F811
    told = signed_in("olga")(ASKED).json()
    assert (told["level"], told["k"], told["m"], len(told["asked"])) == (5.0, 3, 10, 3)
    exact = example._queries(3).pure(2.5)
    assert told["free"] == pytest.approx(exact.share_free, rel=1e-3)
    for one in told["asked"]:
        assert sorted(one["seen"]) == sorted([one["report"], *one["companions"]]), "and nothing else"
        assert len(one["seen"]) == 10
        assert one["chosen"] in one["told"]
        assert one["drive_m"] >= one["nearest_m"] >= 0.0
        assert (one["chosen"] == one["nearest"]) == (one["drive_m"] == one["nearest_m"])
        assert one["route"][0] == one["true"]
    free = [one["more"] for one in told["curve"]]
    assert free == sorted(free), "a higher level costs less"


def test_the_draws_are_those_of_the_channel(example):
    """Reports of the true place by the exact law, at a false-alarm rate of 1e-6; planted: half the noise."""
    place, draws = int(example.asked[0]), 200
    for level, is_right in ((5.0, True), (10.0, False)):
        stream = SimulationStream(7)
        away = [example.drawn(level, 1, 1, stream)["asked"][0]["moved_m"] for _ in range(draws)]
        weights = np.exp(-2.5 * (far := example.roads.distances(place)))
        law = weights / weights.sum()
        mean = 1000.0 * float(law @ far)
        error = 1000.0 * np.sqrt(float(law @ far**2) - (mean / 1000.0) ** 2) / np.sqrt(draws)
        assert (abs(np.mean(away) - mean) < 4.9 * error) == is_right


class Around:
    """Planted: companions near the true places, as the documents' dummies are."""

    def __init__(self, example):
        self._near = example.roads.rows(0.3, example.asked)

    def journeys(self, count, queries, rng=None):
        return np.stack([self._near.row(number)[0][:count] for number in range(queries)], axis=1)


def test_companions_are_not_around_the_car(example):
    def nearness(companions):
        """The median distance of companions' reports over that of all places."""
        drawn = Example(example.roads, example.latitudes, example.longitudes, companions)
        one = drawn.drawn(20.0, 1, 10, SimulationStream(3))["asked"]
        away = [np.array(each["companions"]) - each["true"] for each in one]
        wide = [np.hypot(*(example.roads.points - each["true"]).T) for each in one]
        return np.median(np.hypot(*np.concatenate(away).T)) / np.median(wide)

    assert nearness(example.companions) > 0.6
    assert nearness(Around(example)) < 0.4


def test_nothing_that_vehicles_ask_is_on_a_page(there, signed_in, monkeypatch):  # noqa: F811
    """Planted: a page that tells how many points were opened."""
    look = signed_in("olga")
    held = there.app.state.stations.named("town")

    def differs():
        before = [look(path).content for path in PATHS[:-1]]
        points = [Point.made(Kind.QUERY, place) for place in (1, 2, 3)]
        held.answers([one.sealed(held.service.id, held.service.key) for one in points])
        return before != [look(path).content for path in PATHS[:-1]]

    assert not differs()
    news, answer, opened = pages._news, held._answer, []
    monkeypatch.setattr(held, "_answer", lambda *given: opened.append(1) or answer(*given))
    monkeypatch.setattr(pages, "_news", lambda one: news(one) | {"stations": len(opened)})
    assert differs()


def test_owners_only_and_what_is_not_there(there, signed_in):  # noqa: F811
    for path in PATHS:
        assert there.client.get(path, follow_redirects=False).status_code == 303
    look = signed_in("olga")
    for path in ("", "/map", "/sites", "/example?level=5&k=3&m=10"):
        assert look(f"/stations/nothing{path}").status_code == 404
    for wrong in (
        "level=0&k=3&m=10",
        "level=nan&k=3&m=10",
        "level=5&k=9&m=10",
        "level=5&k=3&m=99",
        "k=3&m=1",
    ):
        assert look(f"/stations/town/example?{wrong}").status_code == 422
    look = signed_in("alice")
    for path in PATHS:
        assert look(path).status_code == 404
    assert "/stations" not in look("/").text


def test_a_large_map_is_not_drawn(there, signed_in, monkeypatch):  # noqa: F811
    monkeypatch.setattr(pages, "_MOST_PLACES", 100)
    look = signed_in("olga")
    assert "too many places" in look("/stations/town").text
    assert look("/stations/town/map").status_code == look(ASKED).status_code == 404


def test_a_provider_without_streets_is_drawn_by_its_places(there, signed_in, example, monkeypatch):  # noqa: F811
    monkeypatch.setattr(pages.streets, "drawn", lambda folder: None)
    drawn = signed_in("olga")("/stations/town/map").json()
    assert len(drawn["lines"]) == len(example.roads.street.ends) // 2, "each pair of neighbours once"
    first = np.array(drawn["lines"][0]).reshape(2, 2).cumsum(axis=0) / 1e5 + drawn["origin"]
    near = [int(example.roads.cells(*one)) for one in first]
    assert near[1] in example.roads.street.ends[slice(*example.roads.street.starts[near[0] :][:2])]


def test_forecasts_are_shown_if_one_was_made(there, signed_in, town_folder):  # noqa: F811
    look, file = signed_in("olga"), town_folder / "stations" / "town" / "forecast.json"
    assert look("/stations/town/forecast").status_code == 404
    assert "none was made" in look("/stations/town").text
    file.write_text('{"sites": []}')
    try:
        assert look("/stations/town/forecast").json() == {"sites": []}
        assert "none was made" not in look("/stations/town").text
    finally:
        file.unlink()


def test_without_a_library_nobody_travels_along(example):
    alone = Example(example.roads, example.latitudes, example.longitudes, None)
    assert alone.drawn(5.0, 2, 10, SimulationStream(1))["m"] == 1


# In a browser


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    built(folder, purpose=IMAGE)
    (folder / "stations" / "town" / "forecast.json").write_text(json.dumps(FORECAST))
    with served(folder, make_keys(folder)) as service:
        yield service


def said(page):
    return page.inner_text("#said")


def test_the_page_in_a_browser(running, browser):
    with contextlib.closing(Person(running, browser, "olga").context) as context:
        page, heard = context.pages[0], []
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.goto("/stations/town")
        until(lambda: said(page).startswith("Query 1: reported"))
        for name in ("car", "seen"):
            until(lambda name=name: is_painted(page, name))
        assert page.locator("#edge tr").count() == 3
        assert "882" in page.inner_text("#edge")
        page.focus("#query")
        page.keyboard.press("ArrowRight")
        until(lambda: said(page).startswith("Query 2: reported"))
        before = said(page)
        page.focus("#m")
        page.keyboard.press("Home")
        until(lambda: "1 point of this vehicle" in page.inner_text("#seen-said"))
        page.focus("#level")
        page.keyboard.press("End")
        until(
            lambda: (
                page.inner_text("#level-shown") == "20" and "At 20 per km" in page.inner_text("#curve-said")
            )
        )
        assert said(page) != before
        page.focus("#again")
        with page.expect_response("**/example?*"):
            page.keyboard.press("Enter")
        until(lambda: is_painted(page, "coming"))
        assert page.locator("#arrivals tr").first.inner_text().split("\t") == [
            IMAGE, "7.5", "3 to 12", "2", "80 % (60 % to 90 %)",
        ]  # fmt: skip
        assert "would save 120 m on average, for 25 % of those who ask" in page.inner_text("#forecast-said")
        assert page.evaluate("window.hit") is None
        assert heard == []
        page.evaluate("console.error('planted')")
        until(lambda: page.evaluate("0") or heard == ["planted"])
