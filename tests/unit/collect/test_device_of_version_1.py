"""A device's ledger of the first release: its reports are sent again as they were, and not paid for twice."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from reticent.collect.device import ACCOUNT, NONCE_BYTES, Device
from reticent.collect.signing import signer_of
from reticent.collect.wire import HEAD_BYTES, TAG_BYTES
from reticent.fleet import memory
from reticent.fleet.counted import Counted
from reticent.fleet.enrolment import Enrolment
from reticent.ledger.base import Amount, Unit
from reticent.privacy import Neighbours

KEPT = json.loads((Path(__file__).parent / "data" / "device-ledger-of-version-1.json").read_text())
ENROLMENT = Enrolment.from_json(KEPT["enrolment"])
FILE = KEPT["survey"].encode()
VALUES = {"speed": 50.0, "kind": "bus"}


@pytest.fixture
def device(tmp_path):
    """A device of this release with the ledger that the first release wrote."""
    (tmp_path / "ledger").write_bytes(base64.b64decode(KEPT["ledger"]))
    with Device(tmp_path / "ledger", ENROLMENT, signer_of(FILE), lifetime=20.0) as opened:
        yield opened


def draws_of(device):
    """What the device says in the periods that it had reported: nonce and body of each report."""
    survey = device.take(FILE)
    reports = [device.report(survey, VALUES, period=one["period"]) for one in KEPT["reports"]]
    return [
        {
            "period": period,
            "nonce": report[HEAD_BYTES - NONCE_BYTES : HEAD_BYTES].hex(),
            "body": report[HEAD_BYTES:-TAG_BYTES].hex(),
        }
        for period, report in enumerate(reports)
    ]


def test_the_same_reports_are_sent_again_at_no_cost(device):
    """They were drawn and paid for again: its keys named no enrolment."""
    assert draws_of(device) == KEPT["reports"]
    assert device.spent == KEPT["spent"]
    survey = device.take(FILE)
    assert [device.has_reported(survey, period=period) for period in range(3)] == [True, True, False]


def test_control_a_memory_that_knows_the_new_keys_alone_draws_another(device, monkeypatch):
    """Planted: the earlier key is not looked at."""
    monkeypatch.setattr(memory.ByNumber, "_key", lambda self, number: f"{self._head}/{number}")
    assert draws_of(device) != KEPT["reports"]
    assert device.spent == 2 * KEPT["spent"]


def test_the_next_period_is_paid_for_under_its_own_key(device):
    survey = device.take(FILE)
    first = device.report(survey, VALUES, period=2)
    assert device.spent == KEPT["spent"] + 1.0
    assert device.report(survey, VALUES, period=2) == first
    key = f"{survey.series}/{ENROLMENT.id.hex()}/2"
    assert device.ledger.reading(ACCOUNT, key).information == 10**12


def test_what_was_paid_for_and_not_drawn_is_drawn_under_the_earlier_key(device):
    """A crash of the first release between its charge and its draw."""
    survey = device.take(FILE)
    units = Amount(survey.units, Unit.EPSILON, Neighbours.ANY_TWO_VALUES)
    device.ledger.request(ACCOUNT, f"{survey.series}/2", units)
    spent = device.spent
    assert device.has_reported(survey, period=2)
    report = device.report(survey, VALUES, period=2)
    assert device.spent == spent
    assert device.report(survey, VALUES, period=2) == report


def test_what_the_collector_counted_is_known(device):
    survey = device.take(FILE)
    word = Counted(f"{survey.study}:{survey.series}", ENROLMENT.id, (0, 1))
    assert device.heed(survey, word) == []
    assert device.spent == KEPT["spent"]
