"""What axe finds on a page in every light and width, and which pages of an application it has not seen."""

import inspect
from collections import deque
from contextlib import closing, contextmanager

import pytest

from reticent.service.serve import address, listen, running

from .browsing import AXE, PATIENCE_MS

ANY, COLOURS = "", "runOnly: ['color-contrast'],"
# Rules that are not about colour are the same in both lights: each width has all of them once.
LOOKS = ((1280, "light", COLOURS), (1280, "dark", ANY), (390, "dark", COLOURS), (390, "light", ANY))
DATA = ("Reply", "Json", "JSONResponse", "RedirectResponse", "str", "dict[str, Any]")  # what is no page
STATIC = ("/api/", "/static", "/openapi.json")


def faults(page, looks=LOOKS):
    """What axe finds serious, in light and dark, on a screen and a phone, or what is too wide there."""
    if not AXE.exists():
        pytest.skip("no axe-core on this machine (npm installs it)")
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(AXE.read_text())
    wrong = []
    for width, scheme, rules in looks:
        if page.viewport_size["width"] != width:
            page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=scheme)
        told = page.evaluate(f"axe.run(document, {{ {rules} resultTypes: ['violations'] }})")
        wrong += [
            (width, scheme, one["id"], one["nodes"][0]["html"][:200])
            for one in told["violations"]
            if one["impact"] in ("serious", "critical")
        ]
        if rules is ANY and (much := too_wide(page)):
            wrong.append((width, scheme, "too wide", much))
    return wrong


def names(found):
    """The faults by name."""
    return {one[2] for one in found}


def too_wide(page):
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


@contextmanager
def visited(browser, app):
    """A page of a browser, and the address of an application that runs meanwhile."""
    with (
        listen("127.0.0.1", 0) as place,
        running(app, place),
        closing(browser.new_context(bypass_csp=True)) as context,
    ):
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        yield page, address(*place.getsockname())


class Seen:
    """Keeps which routes of an application axe has looked at: pages, and parts that they fetched."""

    def __init__(self, app):
        self._routes = [one for one in routes(app) if not _is_data(one)]
        self.seen = set()

    def follow(self, page):
        """Keep what a page fetches; the function that is returned says that it was looked at."""
        fetched = deque()

        def heard(response):
            if response.headers.get("content-type", "").startswith("text/html"):
                request = response.request
                fetched.append((request.method, request.url.split("?")[0].split("/", 3)[-1]))

        def looked():
            self.seen.update(map(self._route, fetched))
            fetched.clear()

        page.on("response", heard)
        return looked

    def _route(self, fetched):
        method, path = fetched
        for route in self._routes:
            if method in route.methods and route.path_regex.match(f"/{path}"):
                return method, route.path
        return None

    def missing(self, without=()):
        """The routes that axe has not seen, but for those that are no pages or are looked at elsewhere."""
        every = {(method, one.path) for one in self._routes for method in one.methods - {"HEAD"}}
        assert set(without) <= every, "a route that is gone"
        return every - self.seen - set(without)


def _is_data(route):
    """Whether a route says that it returns no page; one that says nothing may."""
    told = inspect.signature(route.endpoint).return_annotation
    return getattr(told, "__name__", told) in DATA


def routes(app):
    """Every route of an application, without calls of programs and files."""
    found, left = [], [*app.routes]
    while left:
        route = left.pop(0)
        left += getattr(route, "routes", None) or getattr(
            getattr(route, "original_router", None), "routes", []
        )
        if getattr(route, "methods", None) and not route.path.startswith(STATIC):
            found.append(route)
    return found
