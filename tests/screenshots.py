"""The pictures of pages in the docs: `make screenshots` makes all of them anew, from a furnished service.

Beside them lies a note of what each shows: a digest of the templates and scripts that are the page's own.
If one of these changed since, a test says so (`tests/unit/test_screenshots.py`);
after a change of the style that all pages share, make them anew too.
"""

import argparse
import contextlib
import hashlib
import io
import json
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
NOTE = IMAGES / "screenshots.json"
WIDTH = 960
COLOURS = 96  # of a picture; pages have few, and files stay small


def _of(app, *names):
    """Templates and scripts of a capability, without their folders."""
    return [
        f"apps/{app}/static/{name}" if name.endswith(".js") else f"apps/{app}/templates/{name}.html"
        for name in names
    ]


_SHELL = ["service/templates/base.html"]
SOURCES = {  # what each picture is made of
    "service-overview.png": [*_SHELL, *_of("query", "overview", "cards", "meter", "burn")],
    "service-ask.png": [*_SHELL, *_of("query", "ask", "fields", "answer_part", "price_part")],
    "service-ledger.png": [*_SHELL, *_of("ledger", "ledger", "accounts")],
    "service-register.png": [*_SHELL, *_of("query", "register_blanks")],
    "service-survey.png": [*_SHELL, *_of("collect", "survey", "survey_part")],
    "service-places.png": [*_SHELL, *_of("location", "place", "places.js")],
    "service-stations.png": [*_SHELL, *_of("stations", "station_provider", "stations.js")],
    "service-chain.png": [*_SHELL, *_of("chain", "chain", "transactions"), *_of("ledger", "accounts")],
    "training.png": [*_SHELL, *_of("federated", "training", "training_part")],
}


def digest(picture):
    """Of what a picture is made of."""
    found = hashlib.sha256()
    for path in SOURCES[picture]:
        found.update((ROOT / "src/reticent" / path).read_bytes())
    return found.hexdigest()[:16]


class Camera:
    """A browser whose pictures are cut to a height, have few colours, and are noted."""

    def __init__(self, browser, folder):
        self._browser, self._folder = browser, folder
        self.noted = json.loads(NOTE.read_text()) if NOTE.exists() else {}

    def person(self, service, who):
        """Somebody at a screen of the pictures' width."""
        from tests.service.person_at_pages import Person

        return Person(service, self._browser, who, viewport={"width": WIDTH, "height": 700})

    def take(self, page, name, height, at="body"):
        """A picture of a page from some place on, once nothing on it moves any more."""
        from PIL import Image
        from tests.service.running import until
        from tests.service.test_gallery import STILL

        until(lambda: page.evaluate(STILL))
        page.set_viewport_size({"width": WIDTH, "height": height})
        until(lambda: page.evaluate(STILL))
        page.evaluate("([at]) => document.querySelector(at).scrollIntoView()", [at])
        page.wait_for_timeout(500)  # charts and maps that were resized are painted
        shot = Image.open(io.BytesIO(page.screenshot()))
        small = shot.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        small.save(self._folder / name, optimize=True)
        self.noted[name] = digest(name)
        print(f"{name}: {(self._folder / name).stat().st_size / 1000:.0f} kB")


def of_the_service(camera):
    """Every page of the furnished service that the docs show."""
    from tests.service.gallery import gallery
    from tests.service.running import until

    with tempfile.TemporaryDirectory() as folder, gallery(Path(folder)) as service:
        alice = camera.person(service, "alice")
        page = alice.page
        page.goto("/surveys/traffic")
        camera.take(page, "service-survey.png", 940)
        page.goto("/")
        camera.take(page, "service-overview.png", 760)
        alice.build("census", "mean", "income")
        page.locator("#exactness").fill("76")
        alice.price()
        alice.ask()
        alice.price()
        camera.take(page, "service-ask.png", 920)
        page.goto("/ledger")
        page.click("#verify-all")
        page.wait_for_selector("#verified.good")
        camera.take(page, "service-ledger.png", 900, at="#checkpoint")
        page.goto("/places/paris")
        until(lambda: page.evaluate("!!document.querySelector('#curve canvas')"))
        camera.take(page, "service-places.png", 860)
        olga = camera.person(service, "olga").page
        olga.goto("/owner/register?file=extra.csv")
        for place, text in (("#epsilon", "1"), ("#delta", "1e-6"), ("#rows", "2")):
            olga.fill(place, text)
        for place, kind in (
            ("#unit", "row"),
            ("#type-1", "integer"),
            ("#type-2", "category"),
            ("#type-3", "boolean"),
        ):
            olga.select_option(place, kind)
        for place, text in (("#low-1", "0"), ("#high-1", "120"), ("#missing-1", "0"), ("#values-2", "a, b")):
            olga.fill(place, text)
        camera.take(olga, "service-register.png", 940)
        olga.goto("/stations/town")
        until(lambda: olga.inner_text("#said").startswith("Query 1"))
        camera.take(olga, "service-stations.png", 1080)


def of_a_training(camera):
    """The page of a simulated training."""
    import numpy as np
    from tests.service.test_training_page import served

    from reticent.federated.curves import Curves, Origin
    from reticent.federated.models import Logistic
    from reticent.federated.simulation import simulate
    from reticent.federated.tasks import designed

    rng = np.random.default_rng(1)
    features = rng.uniform(-1.0, 1.0, (45_000, 8))
    targets = np.where(features @ np.linspace(-1.0, 1.0, 8) + rng.normal(0.0, 0.3, 45_000) > 0.0, 1.0, -1.0)
    purpose = "To warn drivers in time, we learn when vehicles brake hard."
    task = designed("braking", Logistic(8), epsilon=2.0, purpose=purpose, rounds=40, group=1000, rate=3.0)
    curves = Curves(task, features[40_000:], targets[40_000:], Origin.HOLD_OUT)
    simulate(task, features[:40_000], targets[:40_000], on_round=curves.add)
    with served(curves) as url:
        page = camera._browser.new_page(viewport={"width": WIDTH, "height": 700})
        page.goto(url)
        camera.take(page, "training.png", 860)


def on_a_chain(camera):
    """The ledger of a service on a chain."""
    from tests.service.browsing import served
    from tests.service.running import make_keys
    from tests.service.test_chain import measuring, placed

    from reticent.chain.anvil import Anvil

    with contextlib.ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory()))
        (folder / "rows").mkdir()
        (folder / "front").mkdir()
        place = held.enter_context(placed(held.enter_context(Anvil()).url, folder / "rows"))
        (folder / "front" / "census.yaml").write_text(place.declaration.read_text())
        held.enter_context(measuring(place))
        keys = make_keys(folder / "front")
        service = held.enter_context(served(folder / "front", keys, **place.settings))
        alice = service.desk.state.named("alice")
        for query, much in (
            ("SELECT AVG(income) FROM census", 0.02),
            ("SELECT AVG(income) FROM census", 0.05),
        ):
            service.desk.ask(alice, "census", query, information=much)
        page = camera.person(service, "alice").page
        page.goto("/ledger")
        camera.take(page, "service-chain.png", 700)


def main():
    """Make all pictures, or those of one kind."""
    from playwright.sync_api import sync_playwright
    from tests.service.browsing import launch

    kinds = {"service": of_the_service, "training": of_a_training, "chain": on_a_chain}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", choices=[*kinds, []], help="by default all")
    parser.add_argument("--out", type=Path, default=IMAGES)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as running, contextlib.closing(launch(running.chromium)) as browser:
        camera = Camera(browser, given.out)
        for kind in given.kinds or kinds:
            kinds[kind](camera)
    (given.out / NOTE.name).write_text(json.dumps(camera.noted, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
