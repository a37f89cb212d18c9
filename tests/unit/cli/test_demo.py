"""`reticent demo`: a service with keys, and a story that is the one in the ledger."""

import contextlib
import csv
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest

import reticent
from reticent.apps.query import demo
from reticent.ledger import SqlLedger
from reticent.processes import free_port
from reticent.query import Case, census

ROW = re.compile(r"^(\S.*?)  +(1|2A|2B|2C|3) +(\S.*?)  +([\d.,]+)? +([\d.]+) +([\d.]+) +([\d.]+)$", re.M)
ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)")
KEY = re.compile(r"^  (analyst|owner|auditor) +(rk_[\w-]{43})  \S", re.M)


@pytest.fixture
def at_80(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def is_served(port):
    """Whether somebody listens there."""
    with socket.socket() as place:
        return place.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.usefixtures("at_80")
def test_the_demo_asks_repeats_refines_and_is_refused(command, tmp_path):
    folder = tmp_path / "demo"
    folder.mkdir()
    (folder / "mine.txt").write_text("stays")
    port = free_port()  # not one of the system's: it would give it to somebody else once it is free again
    code, out, err = command("demo", "--once", "--port", str(port), "--folder", str(folder))
    assert (code, err) == (0, "")
    assert [role for role, _ in KEY.findall(out)] == ["analyst", "owner", "auditor"]
    assert out.index("rk_") < out.index("1. The documents' five questions")
    rows = ROW.findall(out)
    five = list(census.FIVE)
    assert [row[0] for row in rows[:15]] == 3 * five
    assert [row[1] for row in rows[:16]] == 5 * ["1"] + 5 * ["2A"] + 5 * ["2B"] + ["2C"]
    assert [row[0] for row in rows[16:]] == 2 * ["income of 40 and older"] + [
        "histogram of age",
        "median age",
    ]
    free = [row[4] == "0" for row in rows]
    assert free == [row[1] in ("2A", "2C") for row in rows]
    assert [row[2] for row in rows[5:10]] == [row[2] for row in rows[:5]], "a repeated answer is the same"
    paid, fresh = float(rows[-1][5]), float(rows[-1][6])
    with closing(SqlLedger(folder / ".service" / "ledger.sqlite")) as ledger:
        balance = ledger.balance("census")
    assert paid == pytest.approx(100 * balance.spent / balance.terms.cap, abs=0.1)
    assert fresh > 100
    assert "refused: census: asked for " in out
    assert "mu2" not in out, "costs are shares of the budget"
    assert "free now: " in out.replace("\n", " ")
    assert f"Saved: {100 * (1 - paid / fresh):.0f} % of that." in out.replace("\n", " ")
    assert "Without reuse the budget would have ended at answer 15." in out
    assert "Ledger verified: 38 entries, 7 questions, 12 measurements" in out
    assert "invented persons" in out
    assert (folder / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "mine.txt").read_text() == "stays"
    assert int(ADDRESS.search(out)[1]) == port
    assert not is_served(port)
    exempt = ("Ledger verified", "Plot: ")
    assert max(len(line) for line in out.splitlines() if not line.startswith(exempt)) <= 80


def test_it_stays_up_until_interrupted(tmp_path):
    """The service answers whoever has a printed key; Ctrl-C is its proper end, and leaves nothing behind."""
    program = (
        "from reticent.apps.query import demo\nfrom reticent.apps import main\n"
        "demo._script = lambda *given: None; main()"
    )
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-c", program, "demo", "--folder", str(tmp_path / "demo"), "--port", str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "ONCE"},
        start_new_session=True,
    )
    try:
        told = ""
        for line in process.stdout:
            told += line
            if line.startswith("The service stays up at "):
                break
        assert int(ADDRESS.search(told)[1]) == port
        keys = dict(KEY.findall(told))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60) as reply:
            assert reply.status == 200
        with reticent.open(f"http://127.0.0.1:{port}", key=keys["owner"]) as session:
            assert session.mean("hours", error=5).cost > 0
            assert session.mean("hours", error=5).cost == 0
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
        assert (process.returncode, err) == (0, "")
        assert out.endswith("Ended.\n")
        assert not is_served(port)
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_an_interrupt_in_the_middle_ends_everything(command, tmp_path, monkeypatch, is_one_error_line):
    began, ports = threading.Event(), []

    def pause(show):
        ports.append(int(ADDRESS.search(show.url)[1]))
        began.set()
        while True:  # in pieces: a signal that comes just before a sleep does not wake it
            time.sleep(0.05)

    def interrupt():
        began.wait()
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(demo._Show, "pause", pause)
    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    code, out, err = command("demo", "--folder", str(tmp_path / "demo"), "--port", str(free_port()))
    thread.join(60.0)
    assert code == 130
    assert is_one_error_line(err)
    assert "interrupted" in err
    assert "rk_" in out
    assert not is_served(ports[0])


@pytest.mark.parametrize("name", ["census.yaml", "census.csv", "people.yaml", ".service"])
def test_a_folder_with_data_is_left_alone(command, tmp_path, is_one_error_line, name):
    """Another data set in it would be served with the demo's keys, and out of a new budget."""
    (tmp_path / name).write_text("mine")
    code, out, err = command("demo", "--once", "--folder", str(tmp_path), "--port", "0")
    assert (code, out) == (2, "")
    assert is_one_error_line(err)
    assert "folder must" in err
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def test_its_own_folder_is_started_over(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    place = demo.FOLDER
    kept = [place / "census.reticent" / "notebook.sqlite", place / ".service" / "ledger.sqlite"]
    for path in (*(place / name for name in demo.FILES), *kept, place / "mine.txt"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("old")
    with demo._folder(None):
        assert {path.name for path in place.iterdir()} == {"mine.txt", ".lock"}
    with demo._folder(None):
        pass


def test_a_ledger_of_other_data_is_not_removed(monkeypatch, tmp_path, command):
    """Somebody registered a data set of theirs in the demo: its ledger outlives the demo."""
    monkeypatch.chdir(tmp_path)
    ledger = demo.FOLDER / ".service" / "ledger.sqlite"
    ledger.parent.mkdir(parents=True)
    for path in (ledger, demo.FOLDER / "census.yaml", demo.FOLDER / "people.yaml"):
        path.write_text("mine")
    code, _, err = command("demo", "--once", "--port", "0")
    assert code == 2
    assert "folder must hold no other declaration" in err
    assert ledger.read_text() == "mine"
    demo._start_over(demo.FOLDER)
    assert not ledger.exists(), "starting over first would have removed it"


def test_its_own_folder_has_one_demo_at_a_time(monkeypatch, tmp_path, command, is_one_error_line):
    monkeypatch.chdir(tmp_path)
    with demo._folder(None) as place:
        (place / "demo.png").write_text("of the first")
        code, _, err = command("demo", "--once", "--port", "0")
        assert code == 2
        assert is_one_error_line(err)
        assert "another demo runs in" in err
        assert (place / "demo.png").exists()
    with demo._folder(None):
        assert not Path(place / "demo.png").exists()


def test_the_port(monkeypatch, command, is_one_error_line):
    port = free_port()
    with demo.demo_listener(port):
        code, out, err = command("demo", "--once", "--port", str(port))
        assert (code, out) == (2, "")
        assert is_one_error_line(err)
        assert f"127.0.0.1:{port} (Address already in use)" in err
        monkeypatch.setattr(demo, "PORT", port)
        with demo.demo_listener(None) as other:
            assert other.getsockname()[1] not in (0, port)
    with demo.demo_listener(None) as free:
        assert free.getsockname()[1] == port


def test_the_truth_is_that_of_the_file(tmp_path):
    path = census.write(tmp_path)
    with path.with_name("census.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    exact = [
        sum(float(row["income"] or 0) for row in rows),
        sum(float(row["family_income"]) for row in rows),
        sum(row["citizenship"] in ("born", "naturalised") for row in rows),
        sum(row["race"] == "white" for row in rows),
        sum(int(row["age"]) > 60 for row in rows),
    ]
    truths = demo.five_truths(census.persons())
    assert list(truths) == list(census.FIVE)
    assert list(truths.values()) == pytest.approx([total / len(rows) for total in exact])


def test_other_words_are_the_same_questions(tmp_path):
    from reticent.query.declarations import dataset_file
    from reticent.query.language import sql
    from reticent.query.language.questions import resolve

    data = dataset_file.read(census.write(tmp_path, rows=10))
    for name, text in census.FIVE.items():
        keys = {resolve(sql.read(one, "census"), data).key for one in (text, demo._OTHER_WORDS[name])}
        assert len(keys) == 1


@pytest.mark.parametrize("case", Case)
def test_every_case_has_words(case):
    from reticent.apps.query.views import CASES

    assert CASES[case]
