"""What Reticent keeps is read by its owner alone, whatever the umask, and whatever an earlier release left.

Files that an owner made, rows and declarations, stay as they are.
"""

import contextlib
import os
import stat
import sys

import pytest

import reticent
from reticent import files
from reticent.apps import main
from reticent.chain.keys import make_key, read_key
from reticent.chain.outbox import Outbox
from reticent.errors import LedgerError
from reticent.fleet.operator import Operator
from reticent.ledger import SqlLedger
from reticent.ledger.device.ledger import DeviceLedger
from reticent.ledger.witness.state import WitnessState
from reticent.query.declarations import claims

from .running import BASE, Service
from .test_roles import declaration

QUESTION = "SELECT COUNT(*) FROM census WHERE age > 30"


@pytest.fixture
def no_mask():
    """Nothing is taken from the rights that a program asks for."""
    before = os.umask(0)
    yield
    os.umask(before)


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["reticent", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0


def use(folder, elsewhere, keys, monkeypatch):
    """Let Python, commands, a service, an operator, a device, a witness and an oracle keep what they keep."""
    elsewhere.mkdir(exist_ok=True)
    with reticent.open(folder / "census.yaml") as session:
        session.count(where="age > 30", information=1e-3)
    if not (folder / "census.reticent" / "snapshot-1.duckdb").exists():
        run(monkeypatch, "dataset", "snapshot", folder / "census.yaml")
    run(monkeypatch, "ask", folder / "census.yaml", QUESTION, "--information", "0.002")
    service = Service(folder, keys)
    with service.client:
        job = {"query": QUESTION, "information": 0.003}
        assert service.call("alice", "POST", f"{BASE}/jobs", json=job).status_code == 202
        if "second" not in service.desk.names():
            text = declaration("second")
            found = service.call("olga", "POST", "/api/v1/datasets", json={"declaration": text})
            assert found.status_code == 201, found.text
        service.desk.session("second")  # not only when the thread that warms everything gets there
    with Operator.at(elsewhere / "enrolment.key"):
        pass
    SqlLedger(elsewhere / "chosen.sqlite").close()
    DeviceLedger(elsewhere / "device").close()
    WitnessState(elsewhere / "far" / "witness").close()
    Outbox(elsewhere / "outbox.sqlite").close()
    if not (elsewhere / "chain.key").exists():
        make_key(elsewhere / "chain.key")
    read_key(elsewhere / "chain.key")


@pytest.fixture
def given(folder, keys):
    """What an owner made, with its rights."""
    return {one: stat.S_IMODE(one.stat().st_mode) for one in folder.rglob("*") if ".service" not in one.parts}


def kept(folder, elsewhere, given):
    """All that was made since: what belongs to others' eyes is the owner's."""
    found = [one for root in (folder, elsewhere) for one in root.rglob("*") if one not in given]
    assert len(found) > 30
    return found


def wide(found):
    return [str(one) for one in found if stat.S_IMODE(one.stat().st_mode) & 0o077]


@pytest.mark.usefixtures("no_mask")
def test_nothing_is_for_others(folder, keys, given, tmp_path, monkeypatch):
    use(folder, tmp_path / "elsewhere", keys, monkeypatch)
    assert wide(kept(folder, tmp_path / "elsewhere", given)) == []
    assert {one: stat.S_IMODE(one.stat().st_mode) for one in given} == given


def widened(folder, elsewhere, given):
    """As an earlier release, or a copy, may have left it."""
    for one in kept(folder, elsewhere, given):
        one.chmod(0o777 if one.is_dir() else 0o666)


def test_what_an_earlier_release_left_is_tightened(folder, keys, given, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    use(folder, elsewhere, keys, monkeypatch)
    widened(folder, elsewhere, given)
    use(folder, elsewhere, keys, monkeypatch)
    named = {str(elsewhere / "far"), str(elsewhere / "far" / "witness"), str(folder / "second.yaml")}
    assert set(wide(kept(folder, elsewhere, given))) <= named  # a person named these, or may edit them


def test_planted_rights_that_are_not_looked_at_stay(folder, keys, given, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    use(folder, elsewhere, keys, monkeypatch)
    widened(folder, elsewhere, given)
    monkeypatch.setattr(files, "tightened", lambda path: path)
    use(folder, elsewhere, keys, monkeypatch)
    assert len(wide(kept(folder, elsewhere, given))) > 10


def test_what_is_not_ours_to_change_is_refused_in_a_line(folder, keys, monkeypatch, capsys):
    (folder / ".service" / "state.sqlite").chmod(0o644)

    def forbidden(path, mode, **_):
        raise PermissionError(1, "Operation not permitted", str(path))

    monkeypatch.setattr(os, "chmod", forbidden)
    monkeypatch.setattr(sys, "argv", ["reticent", "key", "list", str(folder)])
    with pytest.raises(SystemExit, match="2"):
        main()
    said = capsys.readouterr().err
    assert "state.sqlite: others than its owner have rights to it, and it is not ours to change" in said
    assert len(said.splitlines()) == 1


def test_a_note_of_somebody_else_is_not_passed_over(folder, keys, monkeypatch):
    """Whoever cannot read whose the rows are must not get an account of their own."""
    reticent.open(folder / "census.yaml").close()

    def forbidden(path):
        raise PermissionError(1, "Operation not permitted", str(path))

    monkeypatch.setattr(claims.files, "tightened", forbidden)
    monkeypatch.setattr(reticent.query.declarations.home, "secluded", lambda place, whole: place)
    with pytest.raises(LedgerError, match=r"census\.csv\.reticent says whose these rows are"):
        reticent.open(folder / "census.yaml")


def test_links_lead_to_nothing_of_ours(tmp_path):
    outside = tmp_path / "rows.csv"
    outside.write_text("a\n")
    outside.chmod(0o644)
    own = tmp_path / "x.reticent"
    own.mkdir()
    (own / "link").symlink_to(outside)
    files.secluded(own, whole=True)
    assert stat.S_IMODE(outside.stat().st_mode) == 0o644


@pytest.mark.usefixtures("no_mask")
def test_folders_on_the_way_are_for_their_owner_too(tmp_path):
    files.made(tmp_path / "a" / "b" / "c")
    assert wide([tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "c"]) == []
    (tmp_path / "named").mkdir(0o755)
    files.made(tmp_path / "named")
    assert wide([tmp_path / "named"]) == [str(tmp_path / "named")]


def test_locks_are_kept_while_rights_are_looked_at(tmp_path):
    """Closing a file drops all locks of this process on it: one that is there is not opened."""
    import fcntl

    path = files.private(tmp_path / "held")
    with path.open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        files.private(path)
        child = os.fork()
        if child == 0:
            code = 1
            with contextlib.suppress(OSError), path.open("r+b") as again:
                try:
                    fcntl.lockf(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    code = 0
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
