"""Reports of places over HTTP: from a round to a count, retries, strangers, bad bodies, ends of rounds."""

import json
import threading
from collections import Counter

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent.apps.collect.api import MOST_REPORTS
from reticent.apps.location.work import _operator
from reticent.collect.wire import batch
from reticent.errors import LedgerError
from reticent.fleet.counted import Counted, question
from reticent.fleet.enrolment import enrolled
from reticent.fleet.record import Record
from reticent.fleet.secret_file import kept_secret
from reticent.ledger import SqlLedger
from reticent.location import LocationDevice, payload
from reticent.location.campaign import Campaign, Settings
from reticent.location.rounds import verified
from reticent.location.store import ReportStore

from ..unit.operating import operator
from .running import refused
from .test_survey_pages import signed_in  # noqa: F401

BYTES = {"Content-Type": "application/octet-stream"}
PLACES = "/api/v1/places"
ROUNDS = 3


class Crowd:
    """A campaign in the folder of a service, and people who answer it."""

    def __init__(self, service, people=20, name="paris", purpose="to test"):
        self.service, self.name, self.path = service, name, f"{PLACES}/{name}"
        own = service.folder / ".service"
        self.master = kept_secret(own / "enrolment.key")
        key = Ed25519PrivateKey.from_private_bytes(kept_secret(own / "survey.key"))
        self.signer = key.public_key().public_bytes_raw()
        settings = Settings(name, purpose, 48.8286, 48.8798, 2.2855, 2.3909, 4, 5, 0.5, ROUNDS)
        Campaign.begin(service.folder / "places" / name, settings, operator(self.master), key).close()
        self.people = [enrolled(self.master) for _ in range(people)]

    def asked(self):
        return verified(self.service.get(None, f"{self.path}/round").content, self.signer)

    def reports(self, cell=3):
        asked = self.asked()
        return [payload.written(asked, one, cell) for one in self.people]

    def send(self, reports, **options):
        body = reports if isinstance(reports, bytes) else batch(reports)
        options = {"content": body, "headers": BYTES, **options}
        return self.service.call(None, "POST", f"{self.path}/reports", **options)

    def end(self, number, who="olga"):
        return self.service.call(who, "POST", f"{self.path}/end", json={"number": number})

    def counted(self):
        campaign = self.service.app.state.places.named(self.name)
        return [int(campaign.counts(one.number).sum()) for one in campaign.store.rounds()]


@pytest.fixture
def crowd(service):
    return Crowd(service)


def test_a_device_reports_from_the_first_round_to_the_last(crowd, tmp_path):
    listed = crowd.service.get(None, PLACES).json()
    assert listed["signer"] == crowd.signer.hex()
    (told,) = listed["places"]
    assert (told["name"], told["round"], told["rounds"], told["cells"]) == ("paris", 0, ROUNDS, 20)
    assert told["level_per_km"] == pytest.approx(1.0)
    signer = bytes.fromhex(listed["signer"])
    with LocationDevice(tmp_path / "phone", crowd.people[0], signer, lifetime_per_km=9.0) as device:
        for number in range(ROUNDS):
            asked = device.take(crowd.service.get(None, f"{crowd.path}/round").content)
            assert asked.number == number
            sent = device.report(asked, 48.85, 2.33)
            assert crowd.send([sent]).json() == {"counts": {"counted": 1}, "outcomes": ["counted"]}
            assert crowd.send([sent]).json()["outcomes"] == ["duplicate"]
            ended = crowd.end(number)
            assert (ended.status_code, ended.json()["is_last"]) == (200, number == ROUNDS - 1)
    assert crowd.counted() == [1] * ROUNDS


def test_a_device_that_forgot_everything_is_told_in_which_rounds_it_was_counted(crowd, tmp_path):
    who, study = crowd.people[0], "campaign:paris"

    def ask(asked):
        return crowd.service.call(None, "POST", f"{crowd.path}/counted", content=asked, headers=BYTES)

    assert ask(question(who, study)).json()["counted"] == []
    crowd.send(crowd.reports())
    crowd.end(0)
    word = ask(question(who, study)).json()
    assert word == {"study": study, "enrolment": who.id.hex(), "counted": [0], "closed": 1}
    refused(ask(question(enrolled(bytes(32)), study)), 403, "not_enrolled")
    with LocationDevice(tmp_path / "phone", who, crowd.signer, lifetime_per_km=9.0) as device:
        asked = device.take(crowd.service.get(None, f"{crowd.path}/round").content)
        assert device.heed(asked, Counted.from_json(json.dumps(word))) == [0]
        device.report(asked, 48.85, 2.33)  # round 1 is open, and not counted yet
        assert device.spent_per_km == pytest.approx(2.0)


def test_a_round_ends_once_over_http(crowd, monkeypatch):
    """Planted: a call that ends whatever round is open."""
    for _ in range(3):
        assert crowd.end(0).json()["round"] == 1
    refused(crowd.end(2), 400, "bad_request")
    end = Campaign.end_round
    monkeypatch.setattr(Campaign, "end_round", lambda self, number: end(self))
    assert crowd.end(0).json()["round"] == 2


def told_at_once(crowd):
    """Outcomes of everybody's report, sent twice, by four at once."""
    reports, told = crowd.reports(), []

    def send(number):
        for one in reports[number % 2 :: 2]:
            told.extend(crowd.send([one]).json()["outcomes"])

    threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return Counter(told)


def test_each_is_counted_once(crowd, monkeypatch):
    """Planted: a store that counts what it has."""
    assert told_at_once(crowd) == {"counted": 20, "duplicate": 20}
    assert crowd.send(crowd.reports(cell=4)).json()["counts"] == {"second": 20}
    assert crowd.counted() == [20]
    crowd.end(0)
    monkeypatch.setattr(ReportStore, "_counted", lambda *_: payload.Outcome.COUNTED)
    assert told_at_once(crowd) != {"counted": 20, "duplicate": 20}


def test_bad_bodies(crowd):
    good = crowd.reports()[0]
    assert crowd.send(b"").json() == {"counts": {}, "outcomes": []}
    refused(crowd.send(batch([good])[:-1]), 400, "bad_request")
    refused(crowd.send(batch([b""] * (MOST_REPORTS + 1))), 400, "bad_request")
    refused(
        crowd.send(batch([good]), headers={"Content-Type": "application/x-www-form-urlencoded"}),
        415,
        "unsupported_media_type",
    )
    wrong = [b"", good[:-1], b"\1" + good[1:], bytes([2]) * len(good), good[:-1] + bytes([good[-1] ^ 1])]
    told = crowd.send(wrong).json()["outcomes"]
    assert told == ["length", "length", "version", "round", "tag"]
    assert crowd.counted() == [0]
    for body in ({}, {"number": -1}, {"number": "0"}, {"number": 0, "more": 1}, {"number": 1 << 40}):
        reply = crowd.service.call("olga", "POST", f"{crowd.path}/end", json=body)
        refused(reply, 422, "invalid")


@pytest.mark.parametrize("name", ["nothing", "%2e%2e", "a%2fb", "x" * 80])
def test_what_is_not_there(crowd, name):
    for verb, rest, options in (
        ("GET", "round", {}),
        ("POST", "reports", {"content": b"", "headers": BYTES}),
        ("POST", "end", {"json": {"number": 0}}),
    ):
        reply = crowd.service.call("olga", verb, f"{PLACES}/{name}/{rest}", **options)
        assert reply.status_code in (404, 405), reply.text
        assert set(reply.json()) == {"error"}


def test_roles(crowd):
    for who in ("alice", "vera"):
        refused(crowd.end(0, who), 403, "not_allowed")
    refused(crowd.end(0, None), 401, "not_signed_in")
    assert crowd.asked().number == 0


def test_a_campaign_that_is_damaged_does_not_hide_the_others(crowd):
    other = crowd.service.folder / "places" / "broken"
    other.mkdir()
    (other / "campaign.json").write_text("{")
    assert [one["name"] for one in crowd.service.get(None, PLACES).json()["places"]] == ["paris"]
    assert crowd.service.get(None, f"{PLACES}/broken/round").status_code == 400


def test_the_rate_is_that_of_the_device(serving):
    """A stranger's nonsense holds up no device; a device that sends too much waits."""
    crowd = Crowd(serving(rate=0.01, burst=3), people=2)
    reports = crowd.reports()
    told = [crowd.send([b"nonsense"]).status_code for _ in range(3)]
    assert told[-1] == 429
    assert [crowd.send([reports[0]]).status_code for _ in range(4)] == [200, 200, 200, 429]
    assert crowd.send([reports[1]]).status_code == 200
    assert crowd.counted() == [2]


def test_a_disk_that_fails_acknowledges_nothing(crowd, monkeypatch):
    import sqlite3

    def fails(*_):
        raise sqlite3.OperationalError("disk full of 48.85")

    monkeypatch.setattr(ReportStore, "add", fails)
    error = refused(crowd.send(crowd.reports()), 503, "not_counted")
    assert "48.85" not in json.dumps(error)


def test_the_command_uses_the_keys_of_the_service(crowd):
    folder = crowd.service.folder / "places" / "paris"
    with _operator(folder) as (found, key):
        assert (found.master, key.public_key().public_bytes_raw()) == (crowd.master, crowd.signer)
    assert not (folder.parent / "round.key").exists()


# The ledger


def entered(service):
    return {one.terms.name: one.spent for one in service.desk.ledger.accounts() if ":" in one.terms.name}


SHOWN = {
    "maps": lambda crowd, look: look("/places/paris/maps"),
    "the end of a round": lambda crowd, look: crowd.end(0),
}


@pytest.mark.parametrize("shown", SHOWN.values(), ids=SHOWN)
def test_what_is_shown_is_in_the_ledger_first(crowd, signed_in, shown):  # noqa: F811
    """It failed: campaigns entered nothing in the operator's ledger."""
    look = signed_in("alice")
    crowd.send(crowd.reports())
    name = f"campaign:{crowd.asked().id.hex()}"
    units = crowd.asked().units
    assert name in look("/places/paris").text
    assert entered(crowd.service) == {}, "how many reports there are tells nothing of places"
    assert shown(crowd, look).status_code == 200
    assert entered(crowd.service) == {name: units}
    shown(crowd, look)
    assert entered(crowd.service) == {name: units}, "once"


@pytest.mark.parametrize("shown", SHOWN.values(), ids=SHOWN)
def test_a_ledger_that_cannot_be_written_shows_nothing(crowd, signed_in, shown, monkeypatch):  # noqa: F811
    """Planted: a record that enters nothing."""
    look = signed_in("alice")
    crowd.send(crowd.reports())

    def fails(*_):
        raise LedgerError("disk full")

    with monkeypatch.context() as full:
        full.setattr(SqlLedger, "_request", fails)
        reply = shown(crowd, look)
        assert reply.status_code >= 400
        assert "estimate" not in reply.text
        assert crowd.asked().number == 0
    monkeypatch.setattr(Record, "learn", lambda *_: None)
    assert shown(crowd, look).status_code == 200
    assert not any(entered(crowd.service).values())


def test_a_device_that_was_taken_back_counts_nowhere(crowd):
    """It failed: revocation bound surveys only."""
    crowd.service.app.state.collecting.revocations.revoke(crowd.people[3].id)
    assert crowd.send(crowd.reports()[2:5]).json()["outcomes"] == ["counted", "revoked", "counted"]
