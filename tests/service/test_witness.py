"""A service whose ledger has a witness does not serve an old copy of it; without one it would."""

import contextlib
import json
import shutil
import signal
import sys
import threading

import httpx
import pytest

import reticent
from reticent.apps import main
from reticent.apps.query.desk import Desk
from reticent.errors import LedgerError, ParameterError, RolledBack, WitnessRefused, WitnessUnavailable
from reticent.ledger import SqlLedger, Terms, Unit
from reticent.ledger.checkpoint import load_key
from reticent.ledger.witness import opening
from reticent.ledger.witness.client import WitnessedLedger
from reticent.ledger.witness.server import WitnessServer, WitnessState
from reticent.privacy import Neighbours
from reticent.processes import free_port
from reticent.service.settings import Settings

from .running import BASE, MEAN, refused

FINER = {**MEAN, "error": 2500.0}
FILES = ("ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm")


@pytest.fixture
def witness(tmp_path):
    """A witness in threads of this process; `stop` and `start` break and mend it."""
    with contextlib.ExitStack() as held:

        class Witness:
            def __init__(self):
                self.port = free_port()
                self.state = WitnessState(tmp_path / "elsewhere")
                held.callback(self.state.close)
                self.key = str(self.state.key)
                self.start()

            def start(self):
                self.server = WitnessServer(self.state, port=self.port)
                self.url = self.server.url
                threading.Thread(target=self.server.serve_forever, args=(0.01,)).start()

            def stop(self):
                if self.server is not None:
                    self.server.shutdown()
                    self.server.server_close()
                    self.server = None

            @property
            def settings(self):
                return {"witness": self.url, "witness_key": self.key}

        found = Witness()
        held.callback(found.stop)
        yield found


def kept(folder):
    """A copy of the ledger's file, as a backup has it, while nobody has it open."""
    copy = folder.with_name("backup")
    copy.mkdir()
    for name in FILES:
        if (folder / ".service" / name).exists():
            shutil.copy(folder / ".service" / name, copy)
    return copy


def put_back(folder, copy):
    for name in FILES:
        (folder / ".service" / name).unlink(missing_ok=True)
        if (copy / name).exists():
            shutil.copy(copy / name, folder / ".service" / name)


def spend(folder, body, who="alice", **settings):
    """Ask at the desk of a service that starts for it; what it cost."""
    with contextlib.closing(Desk(Settings(folder, grid_s=0.0, **settings))) as desk:
        return desk.ask(desk.state.named(who), "census", body["query"], error=body["error"]).cost


def spend_then_restore(folder, **settings):
    """Serve and spend, keep a copy, spend more, put the copy back."""
    spend(folder, MEAN, **settings)
    copy = kept(folder)
    spend(folder, FINER, **settings)
    put_back(folder, copy)


def test_a_restored_old_copy_is_refused_by_name(process, folder, keys, witness, command_line):
    spend(folder, MEAN, **witness.settings)
    copy = kept(folder)
    real = process()  # the note says which witness
    found = httpx.post(
        f"{real.url}{BASE}/ask", json=FINER, headers={"Authorization": f"Bearer {keys['alice']}"}, timeout=120
    )
    assert found.status_code == 200, found.text
    real.end(signal.SIGTERM)
    put_back(folder, copy)
    found = command_line("serve", str(folder), "--port", "0")
    assert found.returncode == 2
    assert "it was rolled back" in found.stderr
    assert "reticent ledger recover" in found.stderr
    assert "serves" not in found.stdout


def test_planted_a_service_without_its_witness_sells_the_budget_again(folder, keys, witness):
    spend_then_restore(folder, **witness.settings)
    (folder / ".service" / "ledger.sqlite.witness").unlink()
    assert spend(folder, FINER, "bob") > 0  # sold a second time
    # who names the witness at every start needs no note
    with pytest.raises(RolledBack, match=r"forked|rolled back"):
        Desk(Settings(folder, **witness.settings))


def test_command_and_python_ask_the_same_witness(folder, keys, witness, capsys, monkeypatch):
    spend_then_restore(folder, **witness.settings)
    with pytest.raises(RolledBack, match="the witness saw"):
        reticent.open(folder / "census.yaml")
    question = "SELECT COUNT(*) FROM census WHERE age > 30"
    monkeypatch.setattr(sys, "argv", ["reticent", "ask", str(folder / "census.yaml"), question])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "it was rolled back" in capsys.readouterr().err
    with (
        SqlLedger(folder / ".service" / "ledger.sqlite") as plain,
        pytest.raises(LedgerError, match="has a witness"),
    ):
        reticent.open(folder / "census.yaml", ledger=plain)


def test_what_others_spent_is_known_to_the_witness_before_it_leaves(folder, keys, witness):
    with contextlib.closing(Desk(Settings(folder, **witness.settings))) as desk:
        desk.session("census")
    with reticent.open(folder / "census.yaml") as session:
        session.count(where="age > 30", error=50)
        ledger = session._ledger
        assert isinstance(ledger, WitnessedLedger)
        assert sum(ledger._client.totals(ledger).values()) == ledger.balance("census").spent > 0


def test_no_answer_leaves_while_the_witness_is_away(serving, witness):
    service = serving(**witness.settings)
    assert service.ask("alice").status_code == 200
    witness.stop()
    service.desk.ledger._client.close()  # whose line a thread of the witness would still serve
    refused(service.ask("alice", FINER, key="again"), 503, "witness_unavailable")
    spent = service.spent()
    witness.start()
    found = service.ask("alice", FINER, key="again")
    assert found.status_code == 200
    assert service.spent() == spent  # paid once


def test_a_service_does_not_start_while_its_witness_is_away(folder, keys, witness):
    Desk(Settings(folder, **witness.settings)).close()
    witness.stop()
    with pytest.raises(WitnessUnavailable, match="cannot be reached"):
        Desk(Settings(folder))


def test_a_lost_ledger_is_not_made_anew(folder, keys, witness):
    with contextlib.closing(Desk(Settings(folder, **witness.settings))) as desk:
        desk.session("census")
    for name in (*FILES, "ledger.sqlite.lock"):
        (folder / ".service" / name).unlink(missing_ok=True)
    with pytest.raises(RolledBack, match="the witness saw"):
        Desk(Settings(folder))


def test_the_environment_configures_it_too(folder, keys, witness, capsys, monkeypatch):
    spend_then_restore(folder, **witness.settings)
    (folder / ".service" / "ledger.sqlite.witness").unlink()
    monkeypatch.setenv("RETICENT_WITNESS", witness.url)
    monkeypatch.setenv("RETICENT_WITNESS_KEY", witness.key)
    monkeypatch.setattr(sys, "argv", ["reticent", "serve", str(folder), "--port", "0"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "it was rolled back" in capsys.readouterr().err


def test_two_services_have_two_names_with_one_witness(folder, keys, witness, tmp_path):
    Desk(Settings(folder, **witness.settings)).close()
    other = tmp_path / "other"
    other.mkdir()
    with (
        contextlib.closing(Desk(Settings(other, **witness.settings))) as desk,  # as empty as the first was
        pytest.raises(WitnessRefused),
    ):
        desk.ledger.open(Terms("phones", Unit.EPSILON, Neighbours.ANY_TWO_VALUES, "one phone", 10**12))
    shutil.rmtree(other / ".service")
    Desk(Settings(other, log_name="example.org/other", **witness.settings)).close()
    Desk(Settings(other)).close()
    with pytest.raises(LedgerError, match=r"of the log example.org/other, asked for x"):
        Desk(Settings(other, log_name="x"))


def test_a_note_pins_the_key_and_says_when_it_cannot_be_read(folder, keys, witness, tmp_path):
    Desk(Settings(folder, witness=witness.url)).close()
    place = folder / ".service" / "ledger.sqlite.witness"
    told = json.loads(place.read_text())
    assert (told["key"], told["signer"]) == (witness.key, "ledger.key")
    assert place.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ParameterError, match="witness_key must be given with another witness"):
        Desk(Settings(folder, witness="http://127.0.0.1:1"))
    place.write_text("{}")
    with pytest.raises(LedgerError, match="does not say which witness"):
        Desk(Settings(folder))


def test_any_ledger_is_given_a_witness_by_a_command(tmp_path, witness, command_line):
    where, key = tmp_path / "ledger.sqlite", tmp_path / "ledger.key"
    load_key(key)
    SqlLedger(where).close()
    found = command_line("ledger", "witness", "use", str(where), "--url", witness.url, "--key", str(key))
    assert found.returncode == 0, found.stderr
    with opening.opened(where) as ledger:
        assert isinstance(ledger, WitnessedLedger)
