"""`reticent survey share`: services on several machines that count in one database."""

import contextlib
import shutil
from collections import Counter, namedtuple

import pytest

from reticent.apps.collect.collecting import Collecting
from reticent.collect.wire import Outcome
from reticent.fleet.enrolment import enrolled
from reticent.fleet.revocation import Revocations
from reticent.service.settings import Settings

from ..collect.many_devices import Fleet
from ..ledger.conftest import postgres  # noqa: F401

Done = namedtuple("Done", "code out err")


@pytest.fixture
def run(command):
    """Run `reticent ARGS`, whatever the arguments are."""
    return lambda *args: Done(*command(*map(str, args)))


@pytest.fixture
def machines(run, tmp_path):
    """The folders of two services."""
    folders = tmp_path / "one", tmp_path / "two"
    for folder in folders:
        folder.mkdir()
        assert run("key", "make", folder, "olga", "--role", "owner").code == 0
    return folders


@contextlib.contextmanager
def collecting(folder):
    with contextlib.closing(Collecting(Settings(folder))) as found:
        yield found


def test_two_machines_count_together(run, machines, postgres, tmp_path):  # noqa: F811
    one, two = machines
    address, plain = postgres(), tmp_path / "s.yaml"
    keys = [one / ".service" / name for name in ("enrolment.key", "survey.key")]
    revoked, enrolments = enrolled(bytes(32)).id.hex(), one / ".service" / "enrolment.key"
    with contextlib.closing(Revocations.beside(enrolments)) as before:
        before.revoke(bytes.fromhex(revoked))
    assert run("survey", "share", one, address).code == 0
    assert run("survey", "new", plain, "--purpose", "To plan roads.").code == 0
    assert run("survey", "publish", one, plain).code == 0
    refused = run("survey", "share", two, address)  # without the keys
    assert "for devices of another master key" in refused.err
    assert not (two / ".service" / "enrolment.key").exists()
    for key in keys:
        shutil.copy(key, two / ".service")
    assert run("survey", "share", two, address).code == 0
    assert run("enrolment", "list", two).out.split() == [revoked]
    with collecting(one) as first, collecting(two) as second:
        assert second.survey("s").id == first.survey("s").id
        fleet = Fleet(20, key=first.signing_key, master=first.master)
        first.collector.collect(fleet.file, first.signer)
        reports = fleet.reports()
        assert Counter(first.collector.receive(reports[:15])) == {Outcome.COUNTED: 15}
        assert Counter(second.collector.receive(reports)) == {Outcome.COUNTED: 5, Outcome.DUPLICATE: 15}
        assert fleet.faults(second.collector) == []
        first.revocations.revoke(fleet.devices[0].id)
        assert second.collector.receive(reports[:1])[0].value == "revoked"
    assert not (one / ".service" / "collected.sqlite").exists()


def test_what_cannot_be_shared(run, machines, tmp_path):
    one, two = machines
    plain = tmp_path / "s.yaml"
    assert "folder must be that of a service" in run("survey", "share", tmp_path, "postgresql://x").err
    assert "must be a postgresql:// address" in run("survey", "share", one, "sqlite.db").err
    assert run("survey", "new", plain, "--purpose", "To plan roads.").code == 0
    assert run("survey", "publish", two, plain).code == 0
    assert "has collected nothing by itself" in run("survey", "share", two, "postgresql://127.0.0.1:1/x").err
    assert "connection refused" in run("survey", "share", one, "postgresql://127.0.0.1:1/x").err
    assert not (one / ".service" / "enrolment.key").exists()
    assert "name must be given in a group" in run("bridge", one, "--broker", "h:1", "--group", "g").err
