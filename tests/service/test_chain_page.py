"""Pages of a service whose ledger is on a chain, by axe: the ledger, an answer, and waiting for one."""

import contextlib

from .browsing import served
from .looking import Seen, faults
from .person_at_pages import Person
from .running import make_keys, until
from .test_chain import front, measuring, place

__all__ = ["front", "place"]  # fixtures
SEEN = {("GET", "/ledger"), ("POST", "/datasets/{name}/ask"), ("GET", "/datasets/{name}/jobs/{job}")}


def test_they_can_be_read(place, front, browser):
    keys = make_keys(front)
    with served(front, keys, **place.settings, longest_s=0.3) as service:
        seen = Seen(service.app)
        alice = Person(service, browser, None, bypass_csp=True)
        page, looked = alice.page, seen.follow(alice.page)
        alice.sign_in(keys["alice"])
        with contextlib.closing(alice.context):
            page.goto("/ledger")
            assert faults(page) == []
            looked()
            alice.build("census", "mean", "income")
            with page.expect_response("**/jobs/*"):  # nobody measures yet: it looks again
                alice.ask()
            assert "the oracle" in page.inner_text("#answer")
            assert faults(page) == []
            looked()
            with measuring(place):
                until(lambda: "On the chain" in page.inner_text("#answer"))
            assert faults(page) == []
            assert alice.said == []
        assert seen.seen >= SEEN
