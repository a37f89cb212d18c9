"""`reticent ledger`: readable, offline where it says so, one line and the right exit code when it fails."""

import errno
import hashlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from reticent.apps import main
from reticent.errors import LedgerError, StorageUnavailable
from reticent.ledger import Amount, SqlLedger, Terms, Unit
from reticent.ledger.checkpoint import PublicKey, load_key
from reticent.ledger.sql import sqlite_store
from reticent.ledger.witness.client import WitnessClient, WitnessedLedger
from reticent.privacy import Neighbours, spent_epsilon

MU2 = (Unit.MU2, Neighbours.REPLACE_ONE)
CENSUS = Terms("census", *MU2, "one person of census-2026", 71_851_404_654)
PHONES = Terms("phones", Unit.EPSILON, Neighbours.ANY_TWO_VALUES, "one phone", 2 * 10**12)


@pytest.fixture
def command(monkeypatch, capsys):
    """Run `reticent ledger ARGS` in this process; return exit code, standard output and standard error."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["reticent", "ledger", *map(str, args)])
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = capsys.readouterr()
        return stopped.value.code, out, err

    return run


@pytest.fixture
def key(tmp_path):
    load_key(tmp_path / "key")
    return tmp_path / "key"


@pytest.fixture
def ledger(database, key):
    """The path of a ledger with two accounts and eight entries."""
    with closing(SqlLedger(database, key=load_key(key))) as made:
        made.open(CENSUS)
        made.open(PHONES)
        for name in ("income", "age"):
            grant = made.request("census", name, Amount(10**9, *MU2))
            made.fulfil(grant.pending[0].number, (17, -4))
        made.request("phones", "speed", Amount(10**12, Unit.EPSILON, Neighbours.ANY_TWO_VALUES))
    return database


def public_of(key):
    return str(PublicKey("reticent/ledger", load_key(key).public_key()))


def failed(result, code, part):
    got, out, err = result
    assert (got, out) == (code, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert part in err


def test_help(command):
    code, out, err = command("--help")
    assert (code, err) == (0, "")
    assert all(f"\n  {name} " in out for name in ("show", "verify", "prove", "witness", "recover", "export"))
    assert command() == command("--help")
    for name in ("show", "verify", "prove", "recover", "export", "witness", "key"):
        code, out, err = command(name, "--help")
        assert (code, err) == (0, "")
        assert out.startswith(f"Usage: reticent ledger {name}")
    for name in ("serve", "status", "allow"):
        assert command("witness", name, "--help")[0] == 0


def test_show(command, ledger, key):
    code, out, err = command("show", ledger, "--delta", "1e-5", "--key", key)
    assert (code, err) == (0, "")
    cells = [
        [cell.strip() for cell in line.split("\u2502")[1:-1]] for line in out.splitlines() if "\u2502" in line
    ]
    assert cells[0] == ["census", "mu2", "cap", "0.071851404654"]
    assert cells[1] == ["one person of", "replace one", "spent", "0.002"]
    assert cells[2] == ["census-2026", "", "remaining", "0.069851404654"]
    assert cells[3][2:] == ["of the cap", "2.784 %"]
    assert cells[4][2] == "epsilon at 1e-05"
    assert 0 <= float(cells[4][3]) - spent_epsilon(2 * 10**9, 1e-5) < 1e-5, "rounded up"
    assert [cell[3] for cell in cells[5:]] == ["2", "1", "1", "50 %"]
    assert cells[5][:2] == ["phones", "epsilon"]
    assert "reticent/ledger\n8\n" in out
    assert "\u2014 reticent/ledger " in out


def test_looking_never_makes_a_ledger(command, tmp_path):
    for args in (["show"], ["verify"], ["prove", "1"]):
        path = tmp_path / "none.db"
        result = command(args[0], path, *args[1:])
        failed(result, 2, "there is no ledger at")
        assert list(tmp_path.iterdir()) == []


LOOKING = [["show"], ["verify"], ["prove", "1"], ["export", "out"]]


@pytest.mark.parametrize("args", LOOKING, ids=lambda args: args[0])
def test_looking_makes_no_ledger_of_an_empty_place(command, place, tmp_path, monkeypatch, args):
    monkeypatch.chdir(tmp_path)
    if not isinstance(place, str):
        place.touch()
    before = [(one.name, one.stat().st_size) for one in tmp_path.iterdir()]
    failed(command(args[0], place, *args[1:]), 2, "there is no ledger")
    assert [(one.name, one.stat().st_size) for one in tmp_path.iterdir()] == before
    with pytest.raises(LedgerError, match="there is no ledger"):
        SqlLedger(place, create=False)


@pytest.mark.parametrize("args", LOOKING, ids=lambda args: args[0])
def test_looking_does_not_migrate(command, ledger, tmp_path, monkeypatch, args):
    monkeypatch.chdir(tmp_path)
    with closing(sqlite3.connect(ledger)) as db:
        db.execute("UPDATE meta SET setting = '1' WHERE name = 'version'")
        db.commit()
    before = ledger.read_bytes()
    failed(command(args[0], ledger, *args[1:]), 2, "open it once with SqlLedger of this release")
    assert ledger.read_bytes() == before
    assert not (tmp_path / "out").exists()


def test_the_check_finds_a_look_that_makes_a_ledger(command, database, monkeypatch):
    """Planted: the ledger is opened as for use."""
    made = SqlLedger.__init__

    def planted(self, where, **options):
        made(self, where, key=options["key"])

    monkeypatch.setattr(SqlLedger, "__init__", planted)
    database.touch()
    assert command("verify", database)[0] == 0
    assert database.stat().st_size > 0


def test_a_recovery_makes_no_ledger(command, database, key):
    database.touch()
    witness = ("--witness", "http://localhost:1", "--key", key)
    failed(command("recover", database, *witness), 2, "there is no ledger")
    assert database.stat().st_size == 0


def test_verify(command, ledger, key, tmp_path):
    code, out, err = command("verify", ledger)
    assert (code, err) == (0, "")
    assert "verified" in out
    checkpoint = tmp_path / "checkpoint"
    with closing(SqlLedger(ledger, key=load_key(key))) as opened:
        checkpoint.write_text(opened.checkpoint())
    args = ("verify", ledger, "--checkpoint", checkpoint, "--public-key", public_of(key))
    assert command(*args)[0] == 0
    with closing(sqlite3.connect(ledger)) as db:
        db.execute("UPDATE measurement SET recorded = '18,-4' WHERE number = 0")
        db.commit()
    failed(command(*args), 1, "does not verify: measurement 0")
    failed(command("verify"), 2, "give a ledger")
    failed(command("verify", ledger, "--export", checkpoint), 2, "give a ledger")
    failed(command("verify", ledger, "--public-key", "x"), 2, "public key")
    (tmp_path / "noise.db").write_bytes(b"noise" * 1000)
    failed(command("verify", tmp_path / "noise.db"), 1, "does not verify")


def test_prove_and_check_offline(command, ledger, key, tmp_path):
    code, out, err = command("prove", ledger, "3")
    assert (code, err) == (0, "")
    assert json.loads(out)["entry"] == 3
    proof = tmp_path / "proof.json"
    assert command("prove", ledger, "3", "--key", key, "--out", proof)[0] == 0
    ledger.unlink()
    code, out, err = command("prove", "--verify", proof, "--public-key", public_of(key))
    assert (code, err) == (0, "")
    assert "entry 3 is in the log reticent/ledger of 8 entries" in out
    assert "signed by reticent/ledger" in out
    told = json.loads(proof.read_text())
    for change in (
        {"entry": 4},
        {"leaf": told["leaf"].replace('"charged":"1', '"charged":"2')},
        {"proof": told["proof"][:-1]},
        {"root": "00" * 32},
        {"size": 9},
        {"checkpoint": told["checkpoint"].replace("\n8\n", "\n9\n")},
        {"checkpoint": None},
    ):
        proof.write_text(json.dumps({**told, **change}))
        result = command("prove", "--verify", proof, "--public-key", public_of(key))
        assert result[0] == 1, change
        assert result[2].startswith("error: ")
    for noise in ("", "{}", "[]", "nul", '{"type":"inclusion","proof":[],"root":"x"}'):
        proof.write_text(noise)
        failed(command("prove", "--verify", proof), 2, "is no proof")


def test_prove_consistency(command, ledger, tmp_path):
    proof = tmp_path / "proof.json"
    code, out, _ = command("prove", ledger, "--consistency", "3", "8", "--out", proof)
    assert code == 0
    code, out, _ = command("prove", "--verify", proof)
    assert code == 0
    assert "of 3 entries is the beginning of that of 8" in out
    proof.write_text(proof.read_text().replace('"old_size": 3', '"old_size": 4'))
    failed(command("prove", "--verify", proof), 1, "does not hold")


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (["8"], "the log has 8 entries, got 8"),
        (["x"], "'x'"),
        ([], "give a ledger and an entry"),
        (["--consistency", "5", "9"], "the log has 8 entries"),
        (["--consistency", "5", "3"], "asked for 5 in 3"),
        (["1", "--verify", "x"], "without the ledger"),
    ],
)
def test_bad_proofs_are_refused(command, ledger, args, part):
    failed(command("prove", ledger, *args), 2, part)


@pytest.mark.parametrize("openings", [False, True])
def test_export_and_verify_it(command, ledger, key, tmp_path, openings):
    file = tmp_path / "export.jsonl"
    more = ["--with-openings"] if openings else []
    code, out, err = command("export", ledger, file, "--key", key, *more)
    assert (code, err) == (0, "")
    assert ("auditor alone" in out) == openings
    assert ("income" in file.read_text()) == openings
    assert file.stat().st_mode & 0o077 == (0 if openings else 0o044)
    failed(command("export", ledger, file), 2, "File exists")
    ledger.unlink()
    code, out, err = command("verify", "--export", file, "--public-key", public_of(key))
    assert (code, err) == (0, "")
    assert "verified" in out
    failed(command("verify", "--export", file, "--witness", "http://localhost:1"), 2, "--checkpoint")
    file.write_text(file.read_text().replace('"charged":"1000000000"', '"charged":"1000000001"', 1))
    failed(command("verify", "--export", file), 1, "does not verify")
    file.write_bytes(b"\xff\xff")
    failed(command("verify", "--export", file), 1, "not text")


def test_the_public_key(command, key, tmp_path):
    assert command("key", key) == (0, public_of(key) + "\n", "")
    code, out, _ = command("key", tmp_path / "new", "--origin", "other")
    assert code == 0
    assert PublicKey.parse(out).name == "other"
    assert command("key", tmp_path / "new", "--origin", "other")[1] == out
    failed(command("key", tmp_path / "none", "--origin", "a b"), 2, "origin must be")
    assert not (tmp_path / "none").exists()


def test_a_witness_for_others_serves_chosen_logs(command, tmp_path):
    serve = ("witness", "serve", "--dir", tmp_path / "w", "--host", "0.0.0.0")
    failed(command(*serve), 2, "give --log-key, or --open")
    assert not (tmp_path / "w").exists()


class Serving:
    """`reticent ledger witness serve` in a process of its own."""

    def __init__(self, directory):
        program = "import sys; from reticent.apps import main; sys.argv[0] = 'reticent'; main()"
        args = ["ledger", "witness", "serve", "--dir", str(directory)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        _, self.url, self.key = self.process.stdout.readline().split()

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)
        _, err = self.process.communicate(timeout=120)
        return self.process.returncode, err


def test_the_recovery_drill(command, ledger, key, tmp_path):
    """As the how-to page tells it, with a real witness."""
    serving = Serving(tmp_path / "witness")
    try:
        client = WitnessClient(serving.url, key=serving.key)
        shutil.copyfile(ledger, tmp_path / "backup.db")
        with closing(WitnessedLedger(ledger, client=client, key=load_key(key))) as on:
            on.request("census", "late", Amount(3 * 10**9, *MU2))
            on.open(Terms("late", *MU2, "one", 10**6))
            on.request("late", "x", Amount(500, *MU2))
        witness = ("--witness", serving.url, "--witness-key", serving.key)
        code, out, _ = command("verify", ledger, *witness)
        assert code == 0
        code, out, _ = command("witness", "status", "--url", serving.url, "--witness-key", serving.key)
        assert code == 0
        assert "reticent/ledger" in out
        for suffix in ("", "-wal", "-shm"):
            ledger.with_name(ledger.name + suffix).unlink(missing_ok=True)
        shutil.copyfile(tmp_path / "backup.db", ledger)
        assert command("verify", ledger)[0] == 0, "the control: alone, the backup is a perfect ledger"
        failed(command("verify", ledger, *witness), 1, "rolled back")
        recover = ("recover", ledger, *witness, "--key", key)
        failed(command(*recover), 2, "has not allowed")
        directory = tmp_path / "witness"
        failed(command("witness", "allow", "--dir", directory, "--origin", "nobody"), 2, "never saw")
        failed(command("witness", "allow", "--dir", tmp_path / "x", "--origin", "nobody"), 2, "no witness in")
        assert command("witness", "allow", "--dir", directory, "--origin", "reticent/ledger")[0] == 0
        failed(command(*recover), 2, "accounts 2: give their terms")
        lost = tmp_path / "lost.json"
        lost.write_text("[]")
        failed(command(*recover, "--lost", lost), 2, "must map account numbers")
        terms = {
            "name": "late",
            "unit": "mu2",
            "neighbours": "REPLACE_ONE",
            "subject": "one",
            "cap": 10**6,
        }
        lost.write_text(json.dumps({"2": terms}))
        code, out, err = command(*recover, "--lost", lost)
        assert (code, err) == (0, "")
        assert "reopened" in out
        assert "the first 8 are the same" in out
        assert "are closed: 1. Ask for them again." in out
        assert command("verify", ledger, *witness)[0] == 0
        code, out, _ = command("witness", "status", "--url", serving.url)
        assert "abandoned: reticent/ledger, 11 entries" in out
        wrong = public_of(key).replace("reticent/ledger", "x")
        failed(command("witness", "status", "--url", serving.url, "--witness-key", wrong), 2, "public key")
        client.close()
    finally:
        code, err = serving.interrupt()
    assert code == 130
    assert err == "error: interrupted\n"
    failed(command("witness", "status", "--url", serving.url), 2, "cannot be reached")


def test_verify_tells_of_texts_that_are_gone(command, database):
    """A key that is named after the text of a question, and no text."""
    text = '{"measured":"count"}'
    name = f"count/{hashlib.sha256(text.encode()).hexdigest()}"
    with closing(SqlLedger(database)) as made:
        made.open(CENSUS)
        made.declare("census", name, question=text, grid=0, dimension=1)
        made.request("census", name, Amount(10**9, *MU2))
    code, out, _ = command("verify", database)
    assert (code, "no text" in out) == (0, False)
    assert "1 of 1" in out
    with closing(sqlite3.connect(database)) as tables:
        tables.execute("DELETE FROM question")
        tables.commit()
    code, out, _ = command("verify", database)
    assert code == 0
    assert "0 of 1" in out
    assert (
        "1 question has no text: bought by an earlier release or without one, or the text was deleted" in out
    )


@pytest.fixture
def frozen(monkeypatch):
    """Let the disk be read-only: nothing is writable, and whoever tries to make a file is refused."""
    real = os.open

    def refuse(path, flags, *args, **options):
        if flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR) and str(path).endswith(".lock"):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return real(path, flags, *args, **options)

    def freeze():
        monkeypatch.setattr(os, "open", refuse)
        monkeypatch.setattr(sqlite_store, "is_writable", lambda path: False)

    return freeze


def test_a_read_only_copy_is_verified_shown_and_exported(command, ledger, frozen, tmp_path):
    """It was `Read-only file system: ledger.db.lock`, or `the file cannot be opened`."""
    before = sorted(path.name for path in ledger.parent.iterdir())
    frozen()
    for arguments in (("verify", ledger), ("show", ledger), ("prove", ledger, 1)):
        code, _, err = command(*arguments)
        assert (code, err) == (0, "")
    assert sorted(path.name for path in ledger.parent.iterdir()) == before, "looking makes no file"


def test_control_a_look_that_needs_a_lock_file_is_refused(command, ledger, frozen, monkeypatch):
    """Planted: as before, nothing is asked about the disk."""
    frozen()
    monkeypatch.setattr(sqlite_store, "is_writable", lambda path: True)
    code, _, err = command("verify", ledger)
    assert (code, "Read-only file system" in err) == (2, True)


def test_a_read_only_copy_with_a_log_of_its_own_is_not_half_read(command, ledger, frozen):
    """Entries in the write-ahead log would be left out: an older ledger would verify in its place."""
    Path(f"{ledger}-wal").write_bytes(b"entries")
    frozen()
    code, _, err = command("verify", ledger)
    assert code == 2
    assert "is read-only and has entries in ledger.db-wal" in err
    Path(f"{ledger}-wal").write_bytes(b"")
    assert command("verify", ledger)[0] == 0, "an empty log leaves nothing out"


def test_a_read_only_ledger_in_use_is_read_with_its_log(command, ledger, frozen):
    with closing(SqlLedger(ledger)) as used:
        used.request("census", "newer", Amount(10**9, *MU2))
        frozen()
        code, out, _ = command("verify", ledger)
    assert code == 0
    assert "9" in next(line for line in out.splitlines() if "entries " in line)


def test_a_read_only_ledger_takes_no_charge(ledger, frozen):
    frozen()
    with closing(SqlLedger(ledger, create=False, migrate=False)) as looked_at:
        with pytest.raises(StorageUnavailable, match="it is read-only"):
            looked_at.request("census", "x", Amount(10**9, *MU2))
        assert looked_at.balance("census").spent == 2 * 10**9
