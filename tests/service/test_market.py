"""The market over HTTP: from an offer to a payment and a refund, retries, strangers, bad bodies."""

import io
import json
import time
from fractions import Fraction

import pyarrow.parquet
import pytest

from reticent.collect.device import Device
from reticent.collect.wire import batch
from reticent.fleet.counted import question
from reticent.fleet.enrolment import enrolled
from reticent.market.escrow import account_of
from reticent.market.goods import GUARANTEE
from reticent.market.outcomes import HoldOutcome, SaleOutcome
from reticent.market.seller import Seller

from .running import refused

BYTES = {"Content-Type": "application/octet-stream"}
MARKET = "/api/v1/market"


def offer(**changes):
    return {
        "name": "speeds",
        "purpose": "to plan roads",
        "attributes": [{"name": "speed", "low": 0.0, "high": 130.0}],
        "levels": [{"epsilon": 0.25, "cents": 30}, {"epsilon": 0.5, "cents": 50}],
        "deposit": 1000,
        "closes": int(time.time()) + 3600,
    } | changes


class Desk:
    """A market behind a service, as a seller sees it."""

    def __init__(self, service):
        self.service = service

    def post(self, path, content):
        return self.service.call(None, "POST", f"{MARKET}/{path}", content=content, headers=BYTES)

    def hold(self, asks):
        told = self.post("holds", batch(asks)).json()["holds"]
        return [
            (HoldOutcome(one["outcome"]), None if one["hold"] is None else one["hold"].encode())
            for one in told
        ]

    def receive(self, reports):
        return [SaleOutcome(one) for one in self.post("sales", batch(reports)).json()["outcomes"]]


class Bazaar:
    """A service with one funded bill of the buyer bert, and sellers."""

    def __init__(self, service, folder, **changes):
        self.service, self.folder, self.desk = service, folder, Desk(service)
        made = service.call("bert", "POST", f"{MARKET}/bills", json=offer(**changes))
        assert made.status_code == 201, made.text
        self.bill = made.json()["id"]
        assert made.json()["state"] == "waiting"
        self.master = service.app.state.collecting.master
        self.devices = []

    def fund(self):
        reply = self.service.call("olga", "POST", f"{MARKET}/bills/{self.bill}/fund")
        assert reply.json()["state"] == "open", reply.text
        return self

    def account(self, who="bert"):
        return self.service.get(who, f"{MARKET}/bills/{self.bill}/account").json()

    def seller(self, price=20, **changes):
        listed = self.service.get(None, f"{MARKET}/bills").json()
        device = Device(
            self.folder / f"{len(self.devices)}.ledger",
            enrolled(self.master),
            bytes.fromhex(listed["signer"]),
            lifetime=2.0,
        )
        self.devices.append(device)
        seller = Seller(device, price=Fraction(price), **changes)
        bills = [
            seller.take(one["file"].encode(), [text.encode() for text in one["surveys"]])
            for one in listed["bills"]
        ]
        return seller, bills


@pytest.fixture
def bazaar(service, tmp_path):
    found = Bazaar(service, tmp_path)
    yield found
    for device in found.devices:
        device.close()


def test_from_an_offer_to_a_payment_and_a_refund(bazaar):
    assert bazaar.service.get(None, f"{MARKET}/bills").json()["bills"] == []  # no deposit yet
    bazaar.fund()
    for number in range(3):
        seller, bills = bazaar.seller()
        (sale,) = seller.sell(bills, {"speed": 50.0}, bazaar.desk)
        assert (sale.outcome, sale.cents) == (SaleOutcome.COUNTED, 50)
        assert bazaar.account()["paid"] == 50 * (number + 1)
        (again,) = seller.sell(bills, {"speed": 90.0}, bazaar.desk)
        assert (again.outcome, again.report) == (SaleOutcome.DUPLICATE, sale.report)
    asked = question(seller._device.enrolment, "market")
    (told,) = bazaar.desk.post("earned", asked).json()["sales"]
    assert (told["cents"], told["is_paid"], told["place"]) == (50, True, 1)
    done = bazaar.service.call("bert", "POST", f"{MARKET}/bills/{bazaar.bill}/close").json()
    assert (done["state"], done["paid"], done["refund"], done["left"]) == ("closed", 150, 850, 0)
    assert done["sold"] == [0, 3]
    accounts = bazaar.service.get("bert", "/api/v1/ledger").json()["accounts"]
    (money,) = [one for one in accounts if one["name"] == account_of(bytes.fromhex(bazaar.bill))]
    assert (money["unit"], money["cap"], money["spent"]) == ("money", "1000", "1000")
    assert bazaar.seller()[1] == []


def test_a_buyer_gets_estimates_and_reports_without_names(bazaar, tmp_path):
    bazaar.fund()
    names = set()
    for number in range(6):
        seller, bills = bazaar.seller(price=20 if number % 2 else 100)
        (sale,) = seller.sell(bills, {"speed": 50.0}, bazaar.desk)
        assert sale.place == number % 2
        names.add(seller._device.enrolment.id)
    base = f"{MARKET}/bills/{bazaar.bill}"
    told = bazaar.service.get("bert", f"{base}/results").json()
    (estimate,) = told["estimates"]
    assert (estimate["name"], estimate["reports"], told["sold"]) == ("speed", 6, [3, 3])
    assert 0.0 <= estimate["mean"]["lower"] <= estimate["mean"]["upper"] <= 130.0
    assert [one[0]["reports"] for one in told["of_levels"]] == [3, 3]
    surveys = [json.loads(one)["survey"] for one in bazaar.service.get(None, base).json()["surveys"]]
    for place in range(2):
        content = bazaar.service.get("bert", f"{base}/reports/{place}").content
        assert not [one for one in names if one in content or one.hex().encode() in content]
        table = pyarrow.parquet.read_table(io.BytesIO(content))
        assert (table.column_names, table.num_rows) == (["speed"], 3)
        kept = json.loads(table.schema.metadata[GUARANTEE])
        assert (kept["epsilon"], kept["level"]) == ((0.25, 0.5)[place], place)
        assert table.schema.metadata[b"reticent.survey"].decode() == surveys[place]
    refused(bazaar.service.get("bert", f"{base}/reports/2"), 400, "bad_request")
    accounts = {one["name"] for one in bazaar.service.get("bert", "/api/v1/ledger").json()["accounts"]}
    assert len([one for one in accounts if one.startswith("survey:")]) == 2


def test_a_foreign_bill_looks_like_none(bazaar):
    for path in ("account", "close", "results", "reports/0"):
        method = "POST" if path == "close" else "GET"
        foreign = bazaar.service.call("berta", method, f"{MARKET}/bills/{bazaar.bill}/{path}")
        missing = bazaar.service.call("berta", method, f"{MARKET}/bills/{'0' * 16}/{path}")
        assert (
            (foreign.status_code, foreign.text) == (missing.status_code, missing.text) == (404, missing.text)
        )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"deposit": 29}, "deposit must be"),
        ({"levels": [{"epsilon": 0.5, "cents": 30}, {"epsilon": 0.6, "cents": 30}]}, "must pay more"),
        ({"levels": [{"epsilon": 0.5, "cents": 30}, {"epsilon": 0.4, "cents": 40}]}, "must pay more"),
        ({"closes": 10}, "closes must be"),
        ({"attributes": [{"name": "speed", "low": 1.0}]}, "low and high, or values"),
        ({"attributes": [{"name": "speed", "low": 1.0, "high": 1.0}]}, "bounds"),
        ({"name": "no such name"}, "name must be"),
    ],
)
def test_bad_offers_are_refused_in_one_line(bazaar, changes, words):
    before = bazaar.service.get("vera", "/api/v1/ledger").json()
    error = refused(
        bazaar.service.call("bert", "POST", f"{MARKET}/bills", json=offer(**changes)), 400, "bad_request"
    )
    assert words in error["message"]
    assert "\n" not in error["message"]
    assert bazaar.service.get("vera", "/api/v1/ledger").json() == before


@pytest.mark.parametrize(
    "field", [{"deposit": "1e309"}, {"deposit": -5}, {"deposit": 1.5}, {"levels": []}, {"price": 3}]
)
def test_bad_bodies_are_refused(bazaar, field):
    reply = bazaar.service.call("bert", "POST", f"{MARKET}/bills", json=offer(**field))
    assert reply.status_code == 422
    levels = json.dumps(offer()).replace("0.25", "1e309")
    reply = bazaar.service.call(
        "bert", "POST", f"{MARKET}/bills", content=levels, headers={"Content-Type": "application/json"}
    )
    assert reply.status_code == 422
