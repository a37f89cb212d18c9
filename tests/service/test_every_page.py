"""What every page must be: quiet, and safe against what is written in it. How it is read: `test_gallery`."""

import json

from .browsing import IMAGE, SCRIPT
from .person_at_pages import kept, service, visiting

__all__ = ["service", "visiting"]  # fixtures


def test_names_and_labels_never_become_elements(service, visiting):
    alice = visiting()
    page = alice.page
    for path in ("", "/ask", "/plan", "/answers", "/reuse"):
        page.goto(f"/datasets/hostile{path}")
        assert injected(page) == 0, path
    alice.build("hostile", "count")
    page.select_option("#by-1", "{{7*7}}")
    alice.ask()
    assert [row.split("\t")[0] for row in page.locator("#answer tbody tr").all_inner_texts()] == [
        SCRIPT, IMAGE, "{{7*7}}",
    ]  # fmt: skip
    page.select_option("[name=where_column]", SCRIPT)
    page.fill("[name=where_value]", SCRIPT)
    assert SCRIPT[:20] in alice.price()  # an error message
    page.select_option("[name=where_column]", "{{7*7}}")
    page.fill("[name=where_value]", SCRIPT)
    page.select_option("#by-1", "")
    alice.ask()
    assert SCRIPT in page.inner_text("#answer .asked")
    for path in ("", "/answers"):
        page.goto(f"/datasets/hostile{path}")
        assert SCRIPT in page.inner_text("main")
        assert injected(page) == 0
    olga = visiting("olga")
    olga.page.goto("/owner/keys")
    olga.page.fill("#name", SCRIPT)
    olga.follow("text=Make a key")
    assert SCRIPT in olga.page.inner_text("[role=alert]")
    assert injected(olga.page) == 0
    olga.hear("400")
    olga.page.evaluate(f"document.querySelector('main').insertAdjacentHTML('beforeend', {json.dumps(IMAGE)})")
    assert injected(olga.page) == 1  # planted
    assert olga.page.evaluate("window.hit") is None  # and even then the policy keeps it from running
    olga.hear("Content Security Policy", "404")  # the picture itself is not there


def injected(page):
    """How many elements came out of a text."""
    assert page.evaluate("window.hit") is None
    return page.evaluate("document.querySelectorAll('main script, main img, script:not([src])').length")


def test_an_inline_script_is_blocked(service, visiting):
    alice = visiting()

    def plant(route):
        reply = route.fetch()
        route.fulfill(response=reply, body=reply.text().replace("</main>", f"{SCRIPT}</main>"))

    alice.page.route("**/ledger", plant)
    alice.page.goto("/ledger")
    kept(alice.page)
    assert alice.page.locator("main script").count() == 1
    assert alice.page.evaluate("window.hit") is None
    alice.hear("Content Security Policy")


def test_the_cookie_is_out_of_reach_and_signing_out_ends_it(service, visiting):
    alice = visiting()
    alice.page.wait_for_url(f"{service.url}/")
    (cookie,) = [one for one in alice.context.cookies() if one["name"] == "reticent"]
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    assert alice.page.evaluate("document.cookie") == ""
    alice.page.click("text=Sign out")
    alice.page.wait_for_url("**/signin")
    alice.context.add_cookies([cookie])
    alice.page.goto("/ledger")
    alice.page.wait_for_url("**/signin")
