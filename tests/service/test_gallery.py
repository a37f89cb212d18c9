"""Every page of a service with something of everything: by axe, light and dark, on a phone and a screen.

Each page is loaded once and looked at in all ways. What axe has seen is compared with the routes themselves.
"""

import contextlib
import json
import re
from pathlib import Path

import pytest
from fastapi.responses import HTMLResponse

import reticent
from reticent.ledger import audits
from reticent.ledger.audits import Verdict
from reticent.service.limits import Rate

from .browsing import SCRIPT
from .gallery import HOUSE, OWNERS, gallery
from .looking import Seen, faults, names
from .person_at_pages import Person
from .running import until
from .test_station_pages import FORECAST

STILL = """() => document.readyState === "complete"
    && !document.querySelector(".htmx-request, .htmx-settling")
    && [...document.querySelectorAll("[data-chart]")].every((place) => place.querySelector("canvas"))"""
CHARTS = "[...document.querySelectorAll('[data-chart]')].map((one) => one.dataset.chart)"
CHART = "echarts.getInstanceByDom(document.querySelector('#curve'))"
NAMELESS = """() => [...document.querySelectorAll("[data-chart]")].filter((place) => {
    const { xAxis, yAxis } = echarts.getInstanceByDom(place).getOption();
    return !xAxis[0].name || !yAxis[0].name; }).map((place) => place.dataset.chart)"""
UNEXPLAINED = """() => [...document.querySelectorAll(".map")].filter((place) => place.offsetParent
    && !place.parentElement.querySelector("ul.legend")?.textContent.trim()).map((place) => place.id)"""
OTHERWISE = re.compile(r"(?:epsilon|mu²) [\d.,]+ (?:of [\d.,]+|spent|left)", re.IGNORECASE)
ELSEWHERE = {  # routes that are no page of their own
    ("GET", "/overview"): "the cards of the overview, which holds them",
    ("GET", "/surveys/{name}/live"): "a part of the survey's page, which holds it",
    ("GET", "/places/{name}/live"): "a part of the campaign's page, which holds it",
    ("GET", "/datasets/{name}/jobs/{job}"): "waits: test_chain_page",
    ("GET", "/places/{name}/streets"): "data of a map",
    ("GET", "/stations/{name}/map"): "data of a map",
    ("GET", "/stations/{name}/forecast"): "data of a map",
    ("POST", "/datasets/{name}/download"): "a file",
    ("POST", "/datasets/{name}/quota"): "leads back to the data set",
    ("POST", "/owner/keys/revoke"): "leads back to the keys",
    ("POST", "/signout"): "leads to the sign-in page",
}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gallery")
    with gallery(folder, rows=500, devices=300, people=200) as held:
        (folder / "stations" / "town" / "forecast.json").write_text(json.dumps(FORECAST))
        for claim, verdict in (
            ("mechanism Duchi: epsilon 1", Verdict.NOTHING_FOUND),
            ("flower app shop:app: nothing that leaves depends on the data", Verdict.BROKEN),
            (f"mine: {SCRIPT}", Verdict.BROKEN),
        ):
            audits.record(held.desk.ledger, claim=claim, verdict=verdict, report=audits.mark())
        yield held


class Visit:
    """Somebody who walks through pages and notes what is wrong with each."""

    def __init__(self, service, browser, seen, who):
        self.service, self.who, self.wrong, self.charts = service, who, [], set()
        screen = {"viewport": {"width": 1280, "height": 800}, "bypass_csp": True}
        self.person = Person(service, browser, None, **screen)
        self.page, self._looked = self.person.page, seen.follow(self.person.page)
        if who is not None:
            self.person.sign_in(service.keys[who])

    def go(self, path):
        """Look at a page."""
        self.page.goto(path)
        if path == "/places/paris":
            until(lambda: self.page.evaluate("!!document.querySelector('#curve canvas')"))
        if path == "/stations/town":
            until(lambda: self.page.inner_text("#said").startswith("Query 1"))
        self.look(path)

    def look(self, where):
        """Look at the page as it is: what axe finds, what is too wide, spent otherwise, nameless, or ran."""
        until(lambda: self.page.evaluate(STILL))
        found = [
            *faults(self.page),
            *OTHERWISE.findall(
                self.page.inner_text("body")
            ),  # it would not be the share that stands beside it
            *self.page.evaluate(NAMELESS),
            *self.page.evaluate(UNEXPLAINED),
        ]
        self.wrong += [(self.who, where, one) for one in found]
        self.charts.update(self.page.evaluate(CHARTS))
        assert self.page.evaluate("window.hit") is None, where
        self._looked()

    def refused(self, path, status):
        """Look at a page that says no."""
        self.go(path)
        self.person.hear(f"status of {status}")


def by_strangers(visit):
    visit.go("/numbers")
    visit.go("/signin")
    visit.page.fill("#key", "rk_nobody")
    visit.person.follow("main button")
    visit.look("sign in, refused")
    visit.person.hear("status of 401")


def by_analysts(visit):
    person, page, desk = visit.person, visit.page, visit.service.desk
    key = next(one for one in desk.session("census").questions() if one.startswith("count"))
    for path in (*HOUSE, visit.service.training, f"/datasets/census/answers?key={key}"):
        visit.go(path)
        if path == "/places/paris":
            page.focus("#estimate")
            page.keyboard.press("ArrowUp")
            until(lambda: page.is_visible("#laws"))
            visit.look("one cell under two channels")
            page.evaluate("document.querySelector('#estimate-scale').remove()")
            assert page.evaluate(UNEXPLAINED) == ["estimate"]  # planted
            page.evaluate(f"{CHART}.setOption({{ xAxis: {{ name: '' }} }})")
            assert page.evaluate(NAMELESS) == ["levels"]  # planted
    person.build("clinic", "count")
    page.select_option("#by-1", "race")
    person.price()
    person.ask()
    visit.look("an answer by group")
    page.fill("#error", "0.001")
    person.ask()
    visit.look("refused, and the best that is free")
    page.fill("#error", "nothing")
    person.price()
    visit.look("a price that cannot be")
    visit.go("/datasets/census/plan")
    asked = [f"SELECT COUNT(*) FROM census WHERE age >= {age} AND sex = 'male'" for age in (20, 40)]
    page.fill("#sql", "-- error 400\n" + ";\n".join(asked))
    page.click("#send")
    page.wait_for_selector("#proposal table")
    visit.look("a plan")
    page.evaluate("document.querySelector('label[for=error]').remove()")
    assert names(faults(page)) == {"label"}  # planted
    page.evaluate("document.querySelector('h1').style = 'color: #444; width: 2000px'")
    assert names(faults(page)) == {"label", "color-contrast", "too wide"}  # planted: seen in dark, and at 390
    visit.refused("/datasets/none", 404)
    visit.refused("/nowhere", 404)
    visit.refused("/ledger?last=-1", 422)
    app = visit.service.app
    rate, app.state.rate = app.state.rate, Rate(1e-3, 1)
    app.state.rate.wait_s(str(desk.state.named("alice").number))  # the one that she may
    visit.refused("/ledger", 429)
    app.state.rate = rate


def by_owners(visit):
    person, page = visit.person, visit.page
    for path in (*OWNERS, f"/market/{visit.service.bill}"):
        visit.go(path)
    page.goto("/owner/register?file=extra.csv")
    person.follow("main button")
    visit.look("blanks that are not filled in")
    person.hear("status of 400")
    for place, text in (("#epsilon", "1"), ("#delta", "1e-6"), ("#rows", "2")):
        page.fill(place, text)
    page.select_option("#unit", "row")
    page.select_option("#type-3", "boolean")
    person.follow("main button")
    page.click("summary")
    visit.look("what is promised")
    page.fill("#declaration", "name: extra")
    for button in ("text=Show what the changed text promises", "main button:text-is('Register')"):
        person.follow(button)
        visit.look("a declaration that is wrong")
        person.hear("status of 400")
    page.goto("/owner/keys")
    page.fill("#name", "carol")
    person.follow("text=Make a key")
    visit.look("a key, shown once")
    person.follow("tr:has-text('carol') >> text=Replace")
    visit.look("another key, shown once")
    page.evaluate("document.querySelector('[name=csrf]').value = 'old'")
    person.follow("text=Sign out")
    visit.look("a stale form")
    person.hear("status of 403")


def by_auditors(visit):
    for path in ("/", "/ledger", "/datasets/census", "/audits"):
        visit.go(path)
    visit.refused("/datasets/census/ask", 403)


def by_buyers(visit):
    for path in ("/ledger", "/market", f"/market/{visit.service.bill}"):
        visit.go(path)


WALKS = {None: by_strangers, "alice": by_analysts, "olga": by_owners, "vera": by_auditors, "bert": by_buyers}


def test_every_page_can_be_read(service, browser):
    """By axe nothing serious; nothing too wide, no epsilon beside a share, no chart or map without words."""
    app = service.app

    @app.get("/planted")
    def planted() -> HTMLResponse:
        return HTMLResponse("<p>Nobody looks here.</p>")

    seen, wrong, charts = Seen(app), [], set()
    for who, walk in WALKS.items():
        visit = Visit(service, browser, seen, who)
        with contextlib.closing(visit.person.context):
            walk(visit)
        assert visit.person.said == [], who
        wrong += visit.wrong
        charts |= visit.charts
    assert wrong == []
    assert charts == {"burn", "cells", "curve", "free", "levels", "reuse"}
    assert seen.missing(without=ELSEWHERE) == {("GET", "/planted")}


def test_what_is_spent_otherwise_would_be_found():
    assert OTHERWISE.findall("70 % spent, 30 % left\nepsilon 6.41 of 8 at delta 0.0001")  # planted: as it was


LOOKED_AT = {  # what makes pages, and which test looks at them
    "service/app.py": "test_gallery",
    "apps/federated/page.py": "test_training_page",
    "apps/crowd/page.py": "test_crowd_page",
    "apps/device/page.py": "test_device_page",
    "audit/page.py": "test_device_page",
}


def test_nothing_else_makes_pages():
    source = Path(reticent.__file__).parent
    made = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if re.search(r"FastAPI\(|<!doctype html", path.read_text())
    }
    assert made == set(LOOKED_AT)
    for test in LOOKED_AT.values():
        assert "faults(" in (Path(__file__).parent / f"{test}.py").read_text()
