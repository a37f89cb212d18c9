"""Enrolments that were taken back: one list for all that a master key is used for."""

import sqlite3
import stat

import numpy as np
import pytest

from reticent.collect.collector import Collector
from reticent.errors import LedgerError, ParameterError
from reticent.federated import Round
from reticent.federated.personalised import PersonalRound, PersonalTask, Sanitiser
from reticent.federated.personalised import wire as personal_wire
from reticent.fleet.enrolment import enrolled
from reticent.fleet.operator import Operator
from reticent.fleet.revocation import Revocations
from reticent.location import payload as place_payload
from reticent.location.store import ReportStore
from reticent.randomness import SimulationStream

from ..federated import people
from ..federated.personalised.parts import FIELDS, HYPOTHESES
from ..location import campaign
from .many_devices import SIGNER, Fleet

KINDS = ["survey", "campaign", "training", "personal"]


@pytest.fixture
def operator(tmp_path):
    with Operator.at(tmp_path / "enrolment.key") as found:
        yield found


class Counting:
    """Three enrolled devices, and what becomes of their reports in each of the rooms that count."""

    def __init__(self, operator, folder, kind):
        self.operator, self.folder, self.kind = operator, folder, kind
        self.fleet = Fleet(3, master=operator.master)
        self.devices = self.fleet.devices

    def outcomes(self):
        return [one.value for one in getattr(self, self.kind)()]

    def survey(self):
        path, held = self.folder / "c", self.operator
        with Collector(path, held.master, revocations=held.revocations) as collector:
            collector.collect(self.fleet.file, SIGNER)
            return collector.receive(self.fleet.reports())

    def campaign(self):
        asked = campaign.asked()
        with ReportStore(self.folder / "r", self.operator) as store:
            store.publish(campaign.file_of(asked))
            return store.add([place_payload.written(asked, one, 3) for one in self.devices])

    def training(self):
        task, stream = people.task(), SimulationStream(1)
        gradient = np.zeros(task.dimensions)
        reports = [people.report(task, one, 0, gradient, stream) for one in self.devices]
        return Round(task, 0, self.operator).add(reports)

    def personal(self):
        task = PersonalTask(**FIELDS)
        made = Sanitiser(task, HYPOTHESES)
        reports = [personal_wire.written(made, one, 0, [0] * task.numbers) for one in self.devices]
        return PersonalRound(task, 0, HYPOTHESES, self.operator).add(reports)


@pytest.mark.parametrize("kind", KINDS)
def test_a_device_that_was_taken_back_counts_nowhere(operator, tmp_path, kind):
    """It failed: campaigns and trainings counted it."""
    counting = Counting(operator, tmp_path, kind)
    operator.revocations.revoke(counting.devices[1].id)
    assert counting.outcomes() == ["counted", "revoked", "counted"]


@pytest.mark.parametrize("kind", KINDS)
def test_planted_a_room_that_does_not_look_is_caught(operator, tmp_path, kind, monkeypatch):
    counting = Counting(operator, tmp_path, kind)
    operator.revocations.revoke(counting.devices[1].id)
    monkeypatch.setattr(Revocations, "look", lambda self: frozenset())
    assert counting.outcomes() == ["counted"] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_list_that_cannot_be_read_counts_nothing(operator, tmp_path, kind):
    """Planted: the same list, whole, counts."""
    counting = Counting(operator, tmp_path, kind)
    operator.revocations._list._base.execute("DROP TABLE revoked")
    with pytest.raises(LedgerError, match="the list of enrolments that were taken back cannot be used now"):
        counting.outcomes()
    operator.revocations._list._base.execute(
        "CREATE TABLE revoked (number INTEGER PRIMARY KEY, reporter BLOB)"
    )
    assert counting.outcomes() == ["counted"] * 3


def test_other_processes_see_it_at_once(tmp_path):
    master, who = tmp_path / "enrolment.key", enrolled(bytes(32)).id
    one, other = Revocations.beside(master), Revocations.beside(master)
    assert not one.look()
    assert other.revoke(who)
    assert not one.revoke(who), "it was before"
    assert who in one.look()
    assert one.listed() == other.listed() == [who]
    for held in (one, other):
        held.close()
    path = tmp_path / "enrolment.revoked"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def counted_by_a_link(tmp_path):
    """Take a device back where the key lies; what it comes to where only a link to the key lies."""
    (tmp_path / "keys").mkdir()
    (tmp_path / "elsewhere").mkdir()
    key, link = tmp_path / "keys" / "enrolment.key", tmp_path / "elsewhere" / "devices.key"
    with Operator.at(key) as operator:
        link.symlink_to(key)
        counting = Counting(operator, tmp_path, "survey")
        operator.revocations.revoke(counting.devices[0].id)
    with Operator.at(link) as counting.operator:
        return counting.outcomes()


def test_a_link_to_the_key_finds_its_list(tmp_path):
    """It failed: the list was looked for beside the link, and a device that was taken back counted there."""
    assert counted_by_a_link(tmp_path) == ["revoked", "counted", "counted"]


def test_planted_a_list_beside_the_link_is_caught(tmp_path, monkeypatch):
    monkeypatch.setattr(
        Revocations, "beside", classmethod(lambda kind, master: kind(master.with_suffix(".revoked")))
    )
    assert counted_by_a_link(tmp_path) == ["counted"] * 3


def test_what_an_earlier_release_took_back_stays_so(operator, tmp_path):
    """0.1.0 kept the list in the collector's own file. Planted: a collector that does not look there."""
    fleet = Fleet(3, master=operator.master)
    Collector(tmp_path / "c", operator.master).close()
    with sqlite3.connect(tmp_path / "c") as old:
        old.execute("INSERT INTO revoked (reporter) VALUES (?)", (fleet.devices[2].id,))
    old.close()
    with Collector(tmp_path / "c", operator.master, revocations=operator.revocations) as collector:
        collector.collect(fleet.file, SIGNER)
        assert [one.value for one in collector.receive(fleet.reports())] == ["counted", "counted", "revoked"]
    assert operator.revocations.listed() == [fleet.devices[2].id], "and so for campaigns and trainings"


def test_planted_a_list_that_is_not_taken_over_is_caught(operator, tmp_path, monkeypatch):
    monkeypatch.setattr(Collector, "_adopt_revoked", lambda self: None)
    with pytest.raises(AssertionError):
        test_what_an_earlier_release_took_back_stays_so(operator, tmp_path)


def test_an_id_has_eight_bytes(operator):
    for given in (b"", bytes(7), bytes(9), "0" * 8):
        with pytest.raises(ParameterError, match="an enrolment's id must be 8 bytes"):
            operator.revocations.revoke(given)


def test_an_operator_does_not_print_its_secret(operator):
    assert operator.master.hex() not in repr(operator)
    assert repr(operator.master) not in repr(operator)
