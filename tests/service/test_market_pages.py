"""The pages of the market: offers without names, bills for those who may see them, money that adds up."""

import json
import re
from fractions import Fraction
from html import unescape

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent.apps.market import pages
from reticent.apps.market.demo import _Together
from reticent.fleet import signing
from reticent.market import offering
from reticent.market.federations import Valuation
from reticent.market.federations.purchases import Wanted as Purchase
from reticent.market.federations.purchases import awarded
from reticent.market.menus import Level, Menu, best_levels
from reticent.privacy.budget import UNITS_PER_ONE

from .browsing import PATIENCE_MS
from .running import refused
from .test_market import MARKET, bazaar, offer
from .test_survey_pages import signed_in

SLIDE = """(slid) => {
    for (const [id, value] of slid) {
        const place = document.getElementById(id);
        place.value = value;
        place.dispatchEvent(new Event("input"));
    }
}"""
__all__ = ["bazaar", "signed_in"]  # fixtures


def content(page):
    return page.text.split('<main id="main"')[1].split("</main>")[0]


def test_offers_are_seen_and_who_buys_is_not(bazaar, signed_in):
    bazaar.fund()
    for who in ("alice", "vera", "berta"):
        page = signed_in(who)("/market")
        assert page.status_code == 200
        assert "to plan roads" in content(page)
        assert "bert" not in content(page)


def test_no_offer_ends_on_a_day_that_a_page_cannot_show(bazaar, signed_in, monkeypatch):
    late = offer(closes=1 << 40)
    reply = bazaar.service.call("bert", "POST", f"{MARKET}/bills", json=late)
    assert "closes must be" in refused(reply, 400, "bad_request")["message"]
    monkeypatch.setattr(offering, "LAST_MOMENT", 1 << 40)  # as one that was published by other means
    reply = bazaar.service.call("bert", "POST", f"{MARKET}/bills", json=late)
    bazaar.service.call("olga", "POST", f"{MARKET}/bills/{reply.json()['id']}/fund")
    assert "until 9999-12-31" in content(signed_in("alice")("/market"))


def test_planted_a_page_that_names_the_buyer_is_caught(bazaar, signed_in, monkeypatch):
    plain = pages._offer
    monkeypatch.setattr(pages, "_offer", lambda held: plain(held) | {"purpose": f"of {held.buyer}"})
    with pytest.raises(AssertionError):
        test_offers_are_seen_and_who_buys_is_not(bazaar, signed_in)


def test_a_bill_is_for_its_buyer_and_for_who_runs_the_service(bazaar, signed_in):
    path = f"/market/{bazaar.bill}"
    for who, status in (("olga", 200), ("vera", 200), ("bert", 200), ("berta", 404)):
        assert signed_in(who)(path).status_code == status, who
    assert signed_in("bert")("/market/0000000000000000").status_code == 404
    listed = content(signed_in("berta")("/market"))
    assert bazaar.bill not in listed


def test_the_owner_says_that_the_deposit_is_here(bazaar, signed_in):
    look = signed_in("olga")
    page = look(f"/market/{bazaar.bill}")
    token = re.search(r'name="csrf" value="([^"]+)"', content(page))[1]
    client = bazaar.service.client
    assert client.post(f"/market/{bazaar.bill}/fund", data={"csrf": "x"}).status_code == 403
    assert bazaar.account()["state"] == "waiting"
    assert "open" in content(client.post(f"/market/{bazaar.bill}/fund", data={"csrf": token}))
    assert bazaar.account()["state"] == "open"
    signed_in("bert")
    assert client.post(f"/market/{bazaar.bill}/fund", data={"csrf": token}).status_code in (403, 404)


def test_sales_and_what_they_come_to(bazaar, signed_in):
    bazaar.fund()
    assert "Nobody sold yet" in content(signed_in("bert")(f"/market/{bazaar.bill}"))
    for _ in range(4):
        seller, bills = bazaar.seller()
        seller.sell(bills, {"speed": 50.0}, bazaar.desk)
    shown = content(signed_in("bert")(f"/market/{bazaar.bill}"))
    assert '<div class="number">4</div>' in shown
    assert '<div class="number">2.00</div>' in shown  # 4 times 50 cents
    low, high = re.search(r"with 95 % confidence from (\S+) to (\S+)\.", shown).groups()
    assert float(low) < float(high)


def test_an_analyst_sees_no_money(bazaar, signed_in):
    bazaar.fund()
    assert "All bills" not in content(signed_in("alice")("/market"))


def test_the_browser_chooses_as_a_device_does(bazaar, signed_in, browser):
    """The sum of pay less what it is worth, beside the exact choice of a seller, for twelve settings."""
    bazaar.fund()
    page = signed_in("alice")("/market")
    offers = json.loads(unescape(re.search(r'data-offers="([^"]+)"', page.text)[1]))
    menus = [
        Menu(tuple(Level(round(one["epsilon"] * UNITS_PER_ONE), one["cents"]) for one in offer["levels"]))
        for offer in offers
    ]
    script = (pages.__file__).replace("pages.py", "static/market.js")
    tab = browser.new_page()
    tab.set_default_timeout(PATIENCE_MS)
    tab.set_content(page.text)
    tab.add_script_tag(path=script)
    tab.evaluate(
        "document.dispatchEvent(new Event('DOMContentLoaded')); dispatchEvent(new Event('DOMContentLoaded'))"
    )
    for price in (0, 40, 90, 130):
        for budget in (0.2, 0.3, 2.0):
            tab.evaluate(SLIDE, [["price", price], ["budget", budget]])
            best = best_levels(menus, Fraction(price), int(budget * UNITS_PER_ONE))
            wanted = [
                "none" if place is None else f"{menu.levels[place].units / UNITS_PER_ONE:g}"
                for menu, place in zip(menus, best.places, strict=True)
            ]
            shown = [row.split("\t")[1] for row in tab.locator("#chosen tr").all_inner_texts()]
            assert shown == wanted, (price, budget)
    tab.close()


def dealt(folder):
    """A federation beside a service, north, after a deal."""
    together = _Together("north", folder, 3)
    wanted = Purchase("ages", "1", "To count ages.", 6_000, 4, Valuation(0.1, 0.0005))
    buyer = Ed25519PrivateKey.generate()
    together.do(0, together.federation.act_of(signing.signed(wanted, buyer)))
    bids = {together.federation.id: together.federation.deal.made}
    together.do(0, together.federation.act_of(signing.signed(awarded(wanted, bids), buyer)))
    together.collect(None)
    together.do(0, together.federation.act_of(together.delivery(buyer)))
    return together


def test_a_federation_has_a_page_whose_sums_are_redone(bazaar, signed_in, folder):
    together = dealt(folder)
    assert 'href="/market/federations/north"' in signed_in("alice")("/market").text
    shown = content(signed_in("alice")("/market/federations/north"))
    paid = sum(together.federation.settled[0][1].paid.values())
    assert f"{paid} cents to 3 members" in shown
    assert shown.count("earned") == 3
    for name in ("none", "..%2fdesk", "%2e%2e", ".service"):
        assert signed_in("alice")(f"/market/federations/{name}").status_code in (404, 422), name
    some = folder / "federations" / "north" / "000003.json"
    some.write_bytes(some.read_bytes().replace(b"1", b"2"))  # planted
    assert "does not add up" in content(signed_in("alice")("/market/federations/north"))
