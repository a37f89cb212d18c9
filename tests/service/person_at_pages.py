"""A person with a browser, for the tests of pages."""

import re
from urllib.parse import parse_qsl

import pytest

from .browsing import PATIENCE_MS, furnish, served
from .running import until


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    with served(folder, furnish(folder)) as found:
        for name in found.desk.names():  # each enters itself in the log, which tests look at
            found.desk.session(name)
        yield found


# What was asked is answered, and htmx is done with it: charts are drawn, and what it starts has begun.
SETTLED = (
    """() => !document.querySelector(".htmx-swapping, .htmx-settling, #busy.htmx-request, #send:disabled")"""
)


STILL_FORM = """() => document.querySelector("#price.htmx-request, .htmx-swapping, .htmx-settling") ? null
    : new URLSearchParams(new FormData(document.getElementById("builder"))).toString()"""


class Person:
    """Somebody at a browser. What the console says is kept in `said`."""

    def __init__(self, service, browser, who, **context):
        self.service, self.url = service, service.url
        self.context = browser.new_context(
            **({"viewport": {"width": 1100, "height": 800}, "base_url": service.url} | context)
        )
        self.said = []
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("console", self._spoke)
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.priced = None
        self.page.on("requestfinished", self._finished)
        if who is not None:
            self.sign_in(service.keys[who])

    def _spoke(self, message):
        if message.type in ("error", "warning"):
            self.said.append(message.text)

    def _finished(self, request):
        if request.url.endswith("/price"):
            self.priced = fields(request.post_data)

    def hear(self, *texts):
        """Wait until the console has said each of these, and forget that it did."""
        for text in texts:
            heard = until(
                lambda text=text: self.page.evaluate("0") or [one for one in self.said if text in one]
            )
            self.said.remove(heard[0])

    def follow(self, button):
        """Press what leads to another page, and wait for that."""
        with self.page.expect_navigation():
            self.page.click(button)

    def sign_in(self, key):
        self.page.goto("/signin")
        self.page.fill("#key", key)
        self.follow("main button")

    def price(self):
        """What the price says, once it is that of the form as it stands."""

        def is_still():
            form = self.page.evaluate(STILL_FORM)  # an answer that settles asks for a new price
            return form is not None and self.priced == fields(form)

        until(is_still)
        return self.page.inner_text("#price")

    def ask(self):
        with self.page.expect_response(re.compile(r".*/ask$")):
            self.page.click("#send")
        until(lambda: self.page.evaluate(SETTLED))
        return self.page.inner_text("#answer")

    def build(self, dataset, kind, column=None):
        self.priced = None
        self.page.goto(f"/datasets/{dataset}/ask")
        self.page.select_option("#kind", kind)
        if column:
            self.page.select_option("#column", column)


def fields(body):
    return sorted(parse_qsl(body, keep_blank_values=True))


@pytest.fixture
def visiting(service, browser):
    """A function that opens a browser for somebody; nothing may be said on its console."""
    people = []

    def visit(who="alice", **context):
        people.append(Person(service, browser, who, **context))
        return people[-1]

    yield visit
    for person in people:
        person.context.close()
    assert [text for person in people for text in person.said] == []


def kept(page):
    page.locator("#kept:is(.fine, .bad)").wait_for()
    return page.inner_text("#kept"), page.get_attribute("#kept", "class")
