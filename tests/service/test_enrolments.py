"""Taking enrolments back, by an owner over HTTP and by the operator's command."""

import sys

import pytest

from reticent.apps import main
from reticent.collect.wire import batch
from reticent.fleet.enrolment import enrolled
from reticent.fleet.revocation import Revocations

from .test_collecting import BATCH, Operator
from .test_places import Crowd


@pytest.fixture
def operator(service):
    found = Operator(service)
    found.collect()
    return found


REVOKED = "/api/v1/enrolments/revoked"


def test_an_owner_takes_an_enrolment_back_over_http(operator):
    """For surveys and campaigns of this service at once, and in another process of it."""
    service, crowd = operator.service, Crowd(operator.service)
    gone, stays = operator.fleet.devices[0].id.hex(), crowd.people[0].id.hex()
    assert service.get("olga", REVOKED).json() == {"revoked": []}
    for _ in range(2):
        assert service.call("otto", "PUT", f"{REVOKED}/{gone}").status_code == 204
    assert service.get("olga", REVOKED).json() == {"revoked": [gone]}
    reports = operator.fleet.reports()
    assert operator.send(batch(reports[:2]), BATCH).json()["outcomes"] == ["revoked", "counted"]
    service.call("olga", "PUT", f"{REVOKED}/{stays}")
    assert crowd.send(crowd.reports()[:2]).json()["outcomes"] == ["revoked", "counted"]
    for wrong in ("", "0" * 15, "0" * 17, "G" * 16, "0" * 8 + "%2f" + "0" * 7):
        assert service.call("olga", "PUT", f"{REVOKED}/{wrong}").status_code in (404, 405, 422)
    assert service.get("olga", REVOKED).json() == {"revoked": [gone, stays]}


def test_a_device_that_was_taken_back_is_a_stranger_to_the_rate(serving):
    """It may not send on at the rate of enrolled devices."""
    operator = Operator(serving(rate=0.01, burst=2))
    operator.collect()
    report = operator.fleet.reports()[0]
    operator.service.call("olga", "PUT", f"{REVOKED}/{operator.fleet.devices[0].id.hex()}")
    told = [operator.send(report).status_code for _ in range(4)]
    assert told[-1] == 429


# The command


@pytest.fixture
def run(monkeypatch, capsys):
    """Run `reticent enrolment ARGS`: exit code, lines, standard error."""

    def done(*arguments):
        monkeypatch.setattr(sys, "argv", ["reticent", "enrolment", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        return ended.value.code or 0, told.out.splitlines(), told.err

    return done


def test_the_command_binds_a_service_that_runs(operator, run):
    gone = [one.id.hex() for one in operator.fleet.devices[:2]]
    folder = operator.service.folder
    assert run("list", folder) == (0, [], "")
    code, told, _ = run("revoke", folder, *gone)
    assert (code, told) == (0, [f"{one} is taken back" for one in gone])
    assert run("revoke", folder, gone[0])[1] == [f"{gone[0]} was taken back before"]
    assert run("list", folder)[1] == gone
    told = operator.send(batch(operator.fleet.reports()[:3]), BATCH).json()["outcomes"]
    assert told == ["revoked", "revoked", "counted"]
    assert operator.service.get("olga", REVOKED).json() == {"revoked": gone}


def test_the_command_takes_a_master_key_of_a_training(tmp_path, run):
    master, who = tmp_path / "training.key", enrolled(bytes(32)).id.hex()
    assert run("list", master)[0] == 2, "a list of no key would bind nobody"
    master.write_text("00" * 32)
    assert run("revoke", master, who)[0] == 0
    assert [one.hex() for one in Revocations.beside(master).look()] == [who]


@pytest.mark.parametrize("wrong", ["", "0" * 15, "0" * 18, "x" * 16, "../enrolment"])
def test_an_id_that_is_none_takes_nothing_back(operator, run, wrong):
    """Not even the good ones beside it."""
    good = operator.fleet.devices[0].id.hex()
    code, _, said = run("revoke", operator.service.folder, good, wrong)
    assert code == 2
    assert "id must be" in said
    assert run("list", operator.service.folder)[1] == []
