"""Every page of a service with something of everything, light and dark, on a phone and on a screen."""

import contextlib
import re

import pytest

from .browsing import AXE
from .gallery import HOUSE, OWNERS, gallery
from .person_at_pages import Person
from .running import until
from .test_every_page import found, too_wide

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


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with gallery(tmp_path_factory.mktemp("gallery"), rows=500, devices=300, people=200) as held:
        yield held


def ready(page, path):
    page.goto(path)
    if path == "/places/paris":
        until(lambda: page.evaluate("!!document.querySelector('#curve canvas')"))
    if path == "/stations/town":
        until(lambda: page.inner_text("#said").startswith("Query 1"))
    until(lambda: page.evaluate(STILL))


def paths(service):
    return (
        ("alice", (*HOUSE, service.training, "/datasets/census/answers?key=" + key(service))),
        ("olga", (*OWNERS, f"/market/{service.bill}")),
        ("vera", ("/", "/ledger", "/datasets/census")),
        ("bert", ("/ledger", "/market", f"/market/{service.bill}")),
        (None, ("/signin", "/numbers")),
    )


def key(service):
    return next(one for one in service.desk.session("census").questions() if one.startswith("count"))


@pytest.mark.parametrize("width", [390, 1280])
def test_every_page_can_be_read(service, browser, width):
    """By axe: nothing serious in light, no colours too near each other in dark; nothing is too wide."""
    if not AXE.exists():
        pytest.skip("no axe-core on this machine (npm installs it)")
    screen = {"viewport": {"width": width, "height": 800}, "bypass_csp": True}
    wrong = []
    for who, pages in paths(service):
        person = Person(service, browser, who, **screen)
        with contextlib.closing(person.context):
            for path in pages:
                ready(person.page, path)
                wrong += [(who, path, one) for one in found(person.page)]
                if too_wide(person.page):
                    wrong.append((who, path, "too wide"))
            assert person.said == []
            if who == "alice":
                person.page.evaluate("document.querySelector('h1').style.width = '2000px'")
                assert too_wide(person.page)  # planted
    assert wrong == []


OTHERWISE = re.compile(r"(?:epsilon|mu²) [\d.,]+ (?:of [\d.,]+|spent|left)", re.IGNORECASE)


def test_what_is_spent_is_a_share_on_every_page(service, browser):
    """No page says how much epsilon is spent: it would not be the share that stands beside it."""
    wrong = []
    for who, pages in paths(service):
        with contextlib.closing(Person(service, browser, who).context) as context:
            for path in pages:
                context.pages[0].goto(path)
                wrong += [(path, one) for one in OTHERWISE.findall(context.pages[0].inner_text("body"))]
    assert wrong == []
    assert OTHERWISE.findall("70 % spent, 30 % left\nepsilon 6.41 of 8 at delta 0.0001")  # planted: as it was


def test_every_chart_has_axes_and_every_map_a_legend(service, browser):
    seen, wrong = [], []
    for who, pages in paths(service)[:2]:
        person = Person(service, browser, who)
        with contextlib.closing(person.context):
            page = person.page
            for path in pages:
                ready(page, path)
                seen += page.evaluate(CHARTS)
                wrong += [(path, one) for one in page.evaluate(NAMELESS) + page.evaluate(UNEXPLAINED)]
                if path == "/places/paris":
                    page.evaluate("document.querySelector('#estimate-scale').remove()")
                    assert page.evaluate(UNEXPLAINED) == ["estimate"]  # planted
                    page.evaluate(f"{CHART}.setOption({{ xAxis: {{ name: '' }} }})")
                    assert page.evaluate(NAMELESS) == ["levels"]  # planted
    assert wrong == []
    assert set(seen) == {"burn", "cells", "curve", "free", "levels", "reuse"}
