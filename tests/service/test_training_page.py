"""The page of a training, in a real chromium and without: what it shows while rounds end, and to whom."""

import contextlib
import re

import httpx
import numpy as np

from reticent.apps.federated.page import create_app, watched
from reticent.federated.curves import Curves, Origin
from reticent.federated.explanation import explain
from reticent.federated.models import Linear, Logistic
from reticent.federated.simulation import simulate
from reticent.federated.tasks import designed
from reticent.service.serve import listen

from .browsing import IMAGE, PATIENCE_MS
from .looking import Seen, faults, visited
from .running import until

FEATURES = np.linspace(-1.0, 1.0, 600).reshape(300, 2)
NOT_KEPT = httpx.Limits(max_keepalive_connections=0)  # a training may take longer than a line is kept
TARGETS = np.where(FEATURES[:, 0] > 0.0, 1.0, -1.0)


def training(model=None, origin=Origin.HOLD_OUT, purpose="To warn drivers."):
    task = designed(
        "braking", model or Logistic(2), epsilon=2.0, purpose=purpose, rounds=3, group=100, rate=1.0
    )
    return Curves(task, FEATURES, TARGETS, origin)


def train(curves):
    simulate(curves.task, FEATURES, TARGETS, on_round=curves.add)


@contextlib.contextmanager
def served(curves):
    with listen("127.0.0.1", 0) as place, watched(curves, explain(curves.task)[1:], place) as url:
        yield url


def test_rounds_appear_as_they_end():
    curves = training()
    with served(curves) as url, httpx.Client(timeout=60, limits=NOT_KEPT) as client:
        page = client.get(url)
        assert "The first round is not over yet" in page.text
        live = url.rsplit("/", 1)[0] + re.search(r'hx-get="([^"]+)"', page.text)[1]
        assert client.get(live).status_code == 204, "nothing is new"
        train(curves)
        part = client.get(live)
        assert part.status_code == 200
        assert part.text.count('data-chart="curve"') == 4
        assert "hx-get" not in part.text, "it is over: nothing to fetch any more"
        assert (
            '<div class="number">100 %</div><div class="soft">of epsilon 2, by the busiest client'
            in part.text
        )
        assert page.headers["content-security-policy"].startswith("default-src 'self'")


def test_curves_of_private_records_are_marked():
    """Planted: the same records under the name of a hold-out are not."""
    for origin, is_marked in ((Origin.SIMULATION, True), (Origin.HOLD_OUT, False)):
        curves = training(origin=origin)
        train(curves)
        with served(curves) as url:
            text = httpx.get(url, timeout=60).text
        assert ("simulation only" in text) is is_marked
        assert ("Simulation only" in text) is is_marked
        assert text.count("By round; public hold-out.") == (0 if is_marked else 2)


def test_a_linear_model_has_a_squared_error():
    curves = training(Linear(2))
    train(curves)
    with served(curves) as url:
        text = httpx.get(url, timeout=60).text
    assert "Mean squared error" in text
    assert "Right answers" not in text


def test_whoever_has_not_the_address_sees_nothing():
    """Planted: the path of the page itself opens it."""
    curves = training()
    with served(curves) as url:
        base = url.rsplit("/", 1)[0]
        for path in ("/", "/live", "/docs", "/openapi.json", url.removeprefix(base)[:-1]):
            assert httpx.get(base + path, timeout=60).status_code == 404, path
        assert httpx.get(url, timeout=60).status_code == 200
    assert len(url.removeprefix(base)) > 20


def test_in_a_browser(browser):
    """Charts are drawn and grow, nothing is said on the console, names do no harm."""
    curves, said = training(purpose=IMAGE), []
    with served(curves) as url, contextlib.closing(browser.new_context()) as place:
        page = place.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(url)
        assert "not over yet" in page.inner_text("#live")
        train(curves)
        until(lambda: page.locator(".cards .number").first.inner_text() == "3")  # rounds come one by one
        until(lambda: page.locator(".chart canvas").count() == 4)
        assert page.evaluate("window.hit") is None
        assert said == []
        page.evaluate("console.error('planted')")
        until(lambda: page.evaluate("0") or said == ["planted"])


def test_it_can_be_read(browser):
    """By axe nothing serious, nothing too wide; each route of the page was looked at."""
    curves = training(origin=Origin.SIMULATION)
    train(curves)
    app = create_app(curves, explain(curves.task)[1:], "secret")
    seen = Seen(app)
    with visited(browser, app) as (page, url):
        looked = seen.follow(page)
        page.goto(f"{url}/secret")
        until(lambda: page.locator(".chart canvas").count() == 4)
        assert faults(page) == []
        looked()
    assert seen.missing() == {("GET", "/secret/live")}, "a part that the page holds"
