"""Reports over HTTP: from a device to an estimate, retries, strangers, bad bodies, secrets."""

import json
import stat
import threading
import time
from collections import Counter

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent.apps.collect.api import MOST_REPORTS
from reticent.collect.collector import Collector
from reticent.collect.device import Device
from reticent.collect.signing import signed
from reticent.collect.wire import batch
from reticent.errors import LedgerDamaged, ReportForgotten
from reticent.fleet.counted import Counted, question
from reticent.fleet.enrolment import enrolled
from reticent.fleet.secret_file import kept_secret
from reticent.ledger import Marks

from ..unit.collect.many_devices import Fleet, make_survey
from .running import Service, refused

REPORTS, BATCH, SURVEYS = "/api/v1/reports", "/api/v1/reports/batch", "/api/v1/surveys"
BYTES = {"Content-Type": "application/octet-stream"}


class Operator:
    """Whoever runs the service: has its secrets, and a fleet that answers a survey."""

    def __init__(self, service, size=40, **changes):
        folder = service.folder / ".service"
        self.service, self.master = service, kept_secret(folder / "enrolment.key")
        self.key = Ed25519PrivateKey.from_private_bytes(kept_secret(folder / "survey.key"))
        self.fleet = Fleet(size, make_survey(**changes), key=self.key, master=self.master)
        self.survey = self.fleet.survey

    def collect(self, who="olga", file=None):
        return self.service.call(who, "POST", SURVEYS, json=json.loads(file or self.fleet.file))

    def send(self, body, path=REPORTS, **options):
        return self.service.call(None, "POST", path, **{"content": body, "headers": BYTES, **options})

    def estimates(self, who="alice", **params):
        return self.service.get(who, f"{SURVEYS}/{self.survey.name}/estimates", params=params)

    def faults(self):
        return self.fleet.faults(self.service.app.state.collecting.collector)


@pytest.fixture
def operator(service):
    found = Operator(service)
    assert found.collect().status_code == 201
    return found


# From a device to an estimate


def test_a_device_reports_and_an_analyst_reads(operator, tmp_path):
    listed = operator.service.get(None, SURVEYS).json()
    signer = operator.key.public_key().public_bytes_raw()
    assert listed["signer"] == signer.hex()
    (told,) = listed["surveys"]
    assert told["name"] == "fleet"
    for number in range(5):
        with Device(tmp_path / str(number), enrolled(operator.master), signer, lifetime=10.0) as device:
            survey = device.take(told["file"].encode())
            report = device.report(survey, {"speed": 50.0, "kind": "bus"})
            reply = operator.send(report)
            assert (reply.status_code, reply.json()) == (200, {"outcome": "counted"})
            assert operator.send(device.report(survey, {"speed": 99.0})).json() == {"outcome": "duplicate"}
    reply = operator.send(batch(operator.fleet.reports()), BATCH).json()
    assert reply == {"counts": {"counted": 40}, "outcomes": ["counted"] * 40}
    found = operator.estimates().json()
    assert (found["name"], found["id"], found["reports"]) == ("fleet", survey.id.hex(), {"0": 45})
    speed, kind = found["estimates"]
    assert speed["reports"] + kind["reports"] == 45
    assert 0.0 <= speed["mean"]["lower"] <= speed["mean"]["upper"] <= 130.0
    assert [one["category"] for one in kind["frequencies"]] == ["car", "bus", "bike", "train"]
    assert set(speed["shifts"]) == {"0.001", "0.01", "0.1"}
    assert operator.service.get("vera", f"{SURVEYS}/{survey.id.hex()}/estimates").json() == found


def test_a_device_that_forgot_everything_is_told_what_was_counted(operator, tmp_path):
    """Ledger and marks are gone: it asks, and draws nothing for the period that was counted."""
    signer, enrolment = operator.key.public_key().public_bytes_raw(), enrolled(operator.master)
    (told,) = operator.service.get(None, SURVEYS).json()["surveys"]
    study, place = f"survey:{told['id']}", f"{SURVEYS}/fleet/counted"

    def ask(question):
        return operator.service.call(None, "POST", place, content=question, headers=BYTES)

    word = ask(question(enrolment, study)).json()
    assert word == {"study": study, "enrolment": enrolment.id.hex(), "counted": [], "closed": 0}
    with Device(tmp_path / "ledger", enrolment, signer, lifetime=10.0) as device:
        assert operator.send(device.report(device.take(told["file"].encode()), {})).status_code == 200
    word = ask(question(enrolment, study)).json()
    assert word["counted"] == [0]
    marks = Marks(tmp_path / "nothing is known here")
    with Device(tmp_path / "new", enrolment, signer, lifetime=10.0, marks=marks) as device:
        survey = device.take(told["file"].encode())
        assert device.heed(survey, Counted.from_json(json.dumps(word))) == [0]
        with pytest.raises(ReportForgotten, match="period 0 of fleet"):
            device.report(survey, {}, period=0)
        assert device.spent == survey.epsilon
    assert ask(question(enrolled(operator.master), study)).json()["counted"] == []
    for bad in (b"", bytes(24), question(enrolment, "survey:other"), question(enrolled(bytes(32)), study)):
        refused(ask(bad), 403, "not_enrolled")
    refused(
        operator.service.call(None, "POST", f"{SURVEYS}/none/counted", content=bytes(24), headers=BYTES),
        404,
        "not_found",
    )


def test_before_the_first_report(operator):
    found = operator.estimates().json()
    assert (found["reports"], found["rejected"]) == ({}, {})
    assert [(one["reports"], one["mean"], one["frequencies"]) for one in found["estimates"]] == [
        (0, None, None)
    ] * 2
    operator.send(operator.fleet.reports()[0])
    assert operator.estimates().json()["reports"] == {"0": 1}
    assert operator.estimates(first=1).json()["reports"] == {}
    assert operator.estimates(last=0).json()["reports"] == {"0": 1}
    refused(operator.service.get("alice", f"{SURVEYS}/nothing/estimates"), 404, "not_found")


def test_retries_count_once(operator):
    reports = operator.fleet.reports()
    assert operator.send(batch(reports[:30]), BATCH).json()["counts"] == {"counted": 30}
    assert operator.send(batch(reports), BATCH).json()["counts"] == {"counted": 10, "duplicate": 30}
    assert all(operator.send(one).json()["outcome"] == "duplicate" for one in reports[:5])
    assert operator.faults() == []


def test_many_at_once(operator):
    reports, told = operator.fleet.reports(), []

    def send(number):
        for one in reports[number::2]:
            told.append(operator.send(one).json()["outcome"])

    threads = [threading.Thread(target=send, args=(number % 2,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(told) == {"counted": 40, "duplicate": 40}
    assert operator.faults() == []


def test_another_service_of_the_folder_goes_on(operator, serving):
    reports = operator.fleet.reports()
    operator.send(batch(reports[:20]), BATCH)
    again = serving()
    assert again.client.post(REPORTS, content=reports[0], headers=BYTES).json() == {"outcome": "duplicate"}
    again.client.post(BATCH, content=batch(reports[20:]), headers=BYTES)
    assert operator.faults() == []


def test_who_reported_is_forgotten_when_a_service_starts(service):
    """In periods that are over: what they said stays counted."""
    operator = Operator(service, start=int(time.time()) - 3 * 86_400)
    path = service.folder / ".service" / "collected.sqlite"
    with Collector(path, operator.master, late_s=1e9) as patient:
        patient.collect(operator.fleet.file, operator.key.public_key().public_bytes_raw())
        assert {one.value for one in patient.receive(operator.fleet.reports())} == {"counted"}
        assert operator.estimates().json()["reports"] == {"0": 40}
        assert patient._counts.reader.execute("SELECT count(*) FROM seen").fetchone() == (0,)
        assert operator.faults() == []


# What is refused


def test_refused_reports_say_why(operator):
    report, other = operator.fleet.reports()[0], operator.fleet.reports(period=999)[1]
    forged = report[:-1] + bytes([report[-1] ^ 1])
    for body, outcome in ((b"", "length"), (b"{}", "version"), (forged, "tag"), (other, "period")):
        error = refused(operator.send(body), 422, "report_refused")
        assert error["outcome"] == outcome
    told = operator.send(batch([forged, report, b""]), BATCH).json()
    assert told == {
        "counts": {"counted": 1, "length": 1, "tag": 1},
        "outcomes": ["tag", "counted", "length"],
    }
    refused(operator.send(batch([report])[:-1], BATCH), 400, "bad_request")
    refused(operator.send(batch([b""] * (MOST_REPORTS + 1)), BATCH), 400, "bad_request")
    assert operator.send(b"", BATCH).json() == {"counts": {}, "outcomes": []}
    expected = {"length": 4, "version": 1, "tag": 2, "period": 1}
    assert operator.estimates().json()["rejected"] == expected


@pytest.mark.parametrize("kind", ["application/json", "text/plain", ""])
def test_another_kind_of_body_is_refused(operator, kind):
    reply = operator.send(operator.fleet.reports()[0], headers={"Content-Type": kind})
    assert reply.status_code in (400, 415)  # 400: it cannot be JSON
    assert set(reply.json()) == {"error"}


def test_a_body_that_is_too_large(operator):
    refused(operator.send(bytes(operator.service.settings.largest_body + 1), BATCH), 413, "too_large")


BRACKETS = b"[" * 40_000  # the deepest JSON that there could be, and no JSON


def test_brackets_in_reports_are_no_nesting(operator):
    told = operator.send(batch([BRACKETS]), BATCH)
    assert told.json()["counts"] == {"version": 1}
    body = {"survey": "x", "signer": "0" * 64, "signature": "0" * 128}
    text = json.dumps(body).replace('"x"', BRACKETS.decode())
    for kind in ("application/json", "application/octet-stream", ""):
        reply = operator.service.call(
            "olga", "POST", SURVEYS, content=text, headers={"Content-Type": kind}
        )  # nobody reads it as JSON
        assert reply.status_code in (400, 422)


def test_planted_a_guard_that_takes_reports_for_json_is_caught(operator, monkeypatch):
    monkeypatch.setattr("reticent.service.guard._NO_JSON", ())
    assert operator.send(batch([BRACKETS]), BATCH).status_code == 400  # and not counted


def test_a_collector_that_cannot_write_asks_to_come_again(operator):
    collector = operator.service.app.state.collecting.collector
    reports = operator.fleet.reports()
    collector._counts.connection.execute("PRAGMA query_only=ON")
    reply = operator.send(batch(reports), BATCH)
    refused(reply, 503, "not_counted")
    assert reply.headers["Retry-After"] == "1"
    collector._counts.connection.execute("PRAGMA query_only=OFF")
    assert operator.send(batch(reports), BATCH).json()["counts"] == {"counted": 40}
    assert operator.faults() == []


# Rates


def test_strangers_do_not_hold_up_devices_behind_the_same_address(serving):
    operator = Operator(serving(rate=0.001, burst=20))
    operator.collect()
    reports = operator.fleet.reports()
    statuses = Counter(operator.send(b"\x02" + bytes(60)).status_code for _ in range(40))
    assert statuses == {422: 20, 429: 20}
    assert all(operator.send(one).status_code == 200 for one in reports)
    assert operator.faults() == []


def test_planted_a_rate_by_host_alone_is_caught(serving, monkeypatch):
    operator = Operator(serving(rate=0.001, burst=20))
    operator.collect()
    monkeypatch.setattr("reticent.collect.collector.Collector.knows", lambda self, report: False)
    for _ in range(20):
        operator.send(b"junk")
    assert operator.send(operator.fleet.reports()[0]).status_code == 429


def test_one_device_has_a_rate_too(serving):
    operator = Operator(serving(rate=0.001, burst=20))
    operator.collect()
    mine, other = operator.fleet.reports()[:2]
    statuses = Counter(operator.send(mine).status_code for _ in range(40))
    assert statuses == {200: 20, 429: 20}
    assert operator.send(other).status_code == 200


def test_a_batch_of_forgeries_costs_by_its_size(serving):
    operator = Operator(serving(rate=0.001, burst=20))
    operator.collect()
    report = operator.fleet.reports()[0]
    forged = batch([report[:-1] + bytes([report[-1] ^ 1])] * 1000)
    assert [operator.send(forged, BATCH).status_code for _ in range(3)] == [200, 200, 429]


# Surveys and secrets


def test_only_surveys_of_the_operator_are_collected(operator):
    other = Fleet(1, make_survey(name="other"))
    error = refused(operator.collect(file=other.file), 400, "bad_request")
    assert "signed by somebody else" in error["message"]
    told = json.loads(signed(make_survey(name="third"), operator.key))
    for change in (
        {"survey": told["survey"].replace("third", "forth")},
        {"survey": "\ud800"},
        {"survey": ""},
        {"signature": told["signature"][:-1]},
        {"more": 1},
    ):
        reply = operator.service.call("olga", "POST", SURVEYS, content=json.dumps(told | change))
        assert reply.status_code in (400, 422), reply.text
        assert set(reply.json()) == {"error"}
    assert [one["name"] for one in operator.service.get(None, SURVEYS).json()["surveys"]] == ["fleet"]
    reply = operator.collect(file=json.dumps(told))
    assert (reply.status_code, reply.json()["name"]) == (201, "third")
    assert operator.collect(file=json.dumps(told)).status_code == 201  # again: nothing changes
    assert len(operator.service.get(None, SURVEYS).json()["surveys"]) == 2


def test_the_newest_survey_of_a_name_is_meant(operator):
    newer = Operator(operator.service, version="2")
    assert newer.collect().status_code == 201
    assert newer.estimates().json()["version"] == "2"
    old = operator.service.get("alice", f"{SURVEYS}/{operator.survey.id.hex()}/estimates").json()
    assert old["version"] == "1"


def test_secrets_are_for_their_owner(operator, folder, tmp_path):
    for name in ("enrolment.key", "survey.key", "collected.sqlite"):
        assert stat.S_IMODE((folder / ".service" / name).stat().st_mode) == 0o600
    assert not list((folder / ".service").glob(".*"))
    (tmp_path / "cut").write_text("00ff")
    with pytest.raises(LedgerDamaged, match="cut must hold 64 hexadecimal digits"):
        kept_secret(tmp_path / "cut")


def test_processes_agree_on_a_new_secret(tmp_path):
    found, barrier = set(), threading.Barrier(8)

    def look():
        barrier.wait()
        found.add(kept_secret(tmp_path / "a.key"))

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a.key"]


def test_a_survey_that_is_called_like_anothers_id_hides_nothing(operator):
    """It failed: the newest survey of that name came first. Planted: looking by name alone."""
    collecting, first = operator.service.app.state.collecting, operator.survey
    named = make_survey(name=first.id.hex())
    collecting.collector.collect(signed(named, operator.key), collecting.signer)
    assert collecting.survey(first.id.hex()).id == first.id
    assert collecting.survey(named.id.hex()).id == named.id
    assert [one.id for one in collecting.collector.surveys() if one.name == first.id.hex()] == [named.id]


# One ledger for what devices told


def looked(operator, folder, ledger):
    """What a look at a survey is answered by a service of the folder with a ledger."""
    service = Service(folder, operator.service.keys, ledger=ledger)
    with service.client:
        return service.get("alice", f"{SURVEYS}/{operator.survey.name}/estimates")


def test_what_devices_told_is_entered_in_one_ledger(operator, tmp_path, monkeypatch):
    """It failed: a service with --ledger and a command without had each their own. Planted: no note."""
    operator.send(operator.fleet.reports()[0])
    folder, other = operator.service.folder, str(tmp_path / "other.sqlite")
    assert operator.estimates().status_code == 200
    told = refused(looked(operator, folder, other), 409, "refused")
    assert "is entered in the ledger ledger.sqlite, not in" in told["message"]
    assert looked(operator, folder, str(folder / ".service" / "ledger.sqlite")).status_code == 200
    assert stat.S_IMODE((folder / ".service" / "book").stat().st_mode) == 0o600
    monkeypatch.setattr("reticent.apps.query.service_ledger.check_note", lambda *_: None)
    assert looked(operator, folder, other).status_code == 200
