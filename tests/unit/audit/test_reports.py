"""`reticent audit ... --report --ledger`: one page that stands alone, and an entry that commits to it."""

import re
import stat
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from reticent.ledger import SqlLedger, audits

MINE = """
import numpy as np
from flwr.app import Message, MetricRecord, ArrayRecord, Array, RecordDict
from flwr.clientapp import ClientApp
from reticent.audit.flower import Node
from reticent.federated import Logistic

MODEL, THETA, HELD = Logistic(3), np.array([0.2, -0.1, 0.4, 0.05]), {}
app, quiet, broken, fixed = ClientApp(), ClientApp(), ClientApp(), ClientApp()

def make():
    return MODEL, THETA

def data_set(record):
    def put():
        HELD["x"] = np.array([record])
        return Node(records=[record])
    return put

def neighbours():
    return [data_set([0.3, 0.125, -0.75]), data_set([-0.5, 0.25, 0.875])]

def three():
    return 3

@app.train()
def train(message, context):
    theta = message.content["arrays"]["theta"].numpy()
    moved = theta - 0.1 * MODEL.mean_gradient(theta, HELD["x"], np.array([1.0]))
    return Message(RecordDict({"arrays": ArrayRecord({"theta": Array(moved)})}), reply_to=message)

@fixed.train()
def sent(message, context):
    return Message(RecordDict({"arrays": ArrayRecord({"x": Array(HELD["x"])})}), reply_to=message)

@quiet.train()
def told(message, context):
    return Message(RecordDict({"metrics": MetricRecord({"rounds": 1})}), reply_to=message)
"""


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")


@pytest.fixture
def mine(tmp_path, monkeypatch):
    pytest.importorskip("flwr", reason="Flower is not installed")
    (tmp_path / "mine_reported.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    yield "mine_reported"
    sys.modules.pop("mine_reported", None)


@pytest.fixture
def ledger(tmp_path):
    place = tmp_path / "ledger.db"
    SqlLedger(place).close()
    return str(place)


def stands_alone(text):
    assert not re.search(r"https?:|<script|<link|<img|@import|url\(", text)
    assert 'name="viewport"' in text
    return text


def test_an_app_that_leaks_its_report_and_its_entry(command, mine, ledger, tmp_path):
    page = tmp_path / "out" / "flower.html"
    code, out, err = command(
        "audit", "flower", f"{mine}:app", "--model", f"{mine}:make", "--rate", "0.1",
        "--report", str(page), "--ledger", ledger,
    )  # fmt: skip
    assert (code, err) == (1, "")
    assert "FAULT train: arrays.theta: the server learns arrays.theta, which depends on the data" in out
    assert "Data set 0: From this update the server learns everything" in out
    assert "entry 1 of" in out
    text = stands_alone(page.read_text())
    assert "From this update the server learns everything" in text
    assert "truth" in text
    other = tmp_path / "other.html"
    code, out, _ = command("audit", "flower", f"{mine}:fixed", "--report", str(other))
    assert code == 1
    assert "Arrays leave, and were not inverted: give the model." in other.read_text()
    assert text.count("<td>0.125</td>") == 2, "the truth and what was rebuilt"
    with closing(SqlLedger(ledger)) as log:
        (entry,) = audits.recorded(log)
    assert (entry.claim, entry.verdict.value) == (
        f"flower app {mine}:app: nothing that leaves depends on the data",
        "broken",
    )
    code, out, _ = command("audit", "ledger", ledger, "--check", str(page))
    assert code == 1, "the claim is broken"
    assert "entry 1 commits to it, broken" in out


def test_a_quiet_app_and_a_ledger_that_holds(command, mine, ledger, tmp_path):
    page, listed = tmp_path / "flower.html", tmp_path / "ledger.html"
    code, out, _ = command("audit", "flower", f"{mine}:quiet", "--report", str(page), "--ledger", ledger)
    assert code == 0
    assert "the server learns nothing that it should not learn" in out
    assert "Nothing was found that the server should not learn" in stands_alone(page.read_text())
    code, out, _ = command("audit", "ledger", ledger, "--check", str(page), "--report", str(listed))
    assert code == 0
    assert "1 audits of 1 claims: none broken by its last audit" in out
    assert f"flower app {mine}:quiet" in stands_alone(listed.read_text())
    page.write_text(page.read_text().replace("Nothing was", "Something was"))
    code, out, _ = command("audit", "ledger", ledger, "--check", str(page))
    assert code == 1
    assert "FAULT no audit in the log commits to it" in out


def test_mechanisms_and_the_last_word_on_a_claim(command, ledger, tmp_path):
    page = str(tmp_path / "duchi.html")
    given = ("--epsilon", "1", "--quick", "--report", page, "--ledger", ledger)
    assert command("audit", "duchi", *given)[0] == 0
    assert command("audit", "mechanism", "duchi", *given)[0] == 0
    with closing(SqlLedger(ledger)) as log:
        assert [one.claim for one in audits.recorded(log)] == ["mechanism Duchi: epsilon 1"] * 2
        broken = audits.mark()
        audits.record(log, claim="mechanism mine: epsilon 1", verdict=audits.Verdict.BROKEN, report=broken)
    code, out, _ = command("audit", "ledger", ledger)
    assert code == 1
    assert "3 audits of 2 claims: 1 broken by its last audit" in out
    with closing(SqlLedger(ledger)) as log:
        good = audits.Verdict.NOTHING_FOUND
        audits.record(log, claim="mechanism mine: epsilon 1", verdict=good, report=audits.mark())
    assert command("audit", "ledger", ledger)[0] == 0


def test_a_run_is_kept_too(command, ledger, tmp_path, monkeypatch):
    (tmp_path / "mine_run.py").write_text(
        "def train(included):\n    return [float(one) for one in included]\n"
    )
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "run.html"
    given = ("--epsilon", "1", "--canaries", "200", "--report", str(page), "--ledger", ledger)
    code, out, _ = command("audit", "run", "mine_run:train", *given)
    sys.modules.pop("mine_run", None)
    assert code == 1, out
    assert "Audit of the training mine_run:train" in stands_alone(page.read_text())
    code, out, _ = command("audit", "ledger", ledger, "--check", str(page))
    assert code == 1
    assert "entry 1 commits to it, broken: training mine_run:train: epsilon 1" in out


def test_a_ledger_that_was_changed_is_not_believed(command, ledger, tmp_path):
    import sqlite3

    with closing(SqlLedger(ledger)) as log:
        audits.record(log, claim="mine: epsilon 1", verdict=audits.Verdict.BROKEN, report=audits.mark())
    with closing(sqlite3.connect(ledger)) as db, db:
        db.execute("""UPDATE entry SET leaf = replace(leaf, '"broken"', '"nothing_found"')""")
    code, out, err = command("audit", "ledger", ledger)
    assert (code, out) == (1, "")
    assert err.startswith("error: does not verify: ")


def test_a_report_of_real_records_is_for_its_owner_and_in_no_ledger(command, tmp_path, monkeypatch):
    save_file = pytest.importorskip("safetensors.numpy").save_file
    (tmp_path / "mine_updated.py").write_text(
        "import numpy as np\nfrom reticent.federated import Linear\n"
        "def make():\n    return Linear(3, l2=0.0), np.array([0.1, -0.2, 0.3, 0.4])\n"
    )
    monkeypatch.chdir(tmp_path)
    save_file({"theta": np.array([0.3, 0.6, -0.9, 0.3])}, tmp_path / "theta.safetensors")
    save_file({"records": np.array([[1.0, 2.0, -3.0]])}, tmp_path / "truth.safetensors")
    page = tmp_path / "gradients.html"
    given = ("--model", "mine_updated:make", "--update", "theta.safetensors", "--report", str(page))
    code, out, err = command("audit", "gradients", *given, "--truth", "truth.safetensors")
    assert (code, err) == (1, "")
    assert "is the truth up to" in out
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    text = stands_alone(page.read_text())
    assert text.count("<td>-3</td>") == 2
    assert "theta (4): 0.3, 0.6, -0.9, 0.3" in text
    code, _, err = command("audit", "gradients", *given, "--ledger", "l.db")
    assert code == 2
    assert "No such option '--ledger'" in err
    sys.modules.pop("mine_updated", None)


def test_refusals_are_one_line(command, mine, ledger, tmp_path):
    (tmp_path / "binary.html").write_bytes(b"\xff\xfe")
    for args, part in (
        (("flower", f"{mine}:app", "--ledger", ledger), "--ledger needs --report"),
        (("flower", f"{mine}:app", "--report", "r.html", "--ledger", "absent.db"), "there is no ledger at"),
        (("flower", f"{mine}:THETA"), "THETA cannot be called"),
        (("flower", f"{mine}:absent"), "has no 'absent'"),
        (("flower", f"{mine}:app", "--data", f"{mine}:three"), "must return at least two functions"),
        (("flower", f"{mine}:broken"), "the app answers nothing but errors"),
        (("flower", f"{mine}:app"), "needs the parameters of a model? give that"),
        (("flower", f"{mine}:app", "--model", f"{mine}:three"), "model must be as for `audit gradients`"),
        (("flower", f"{mine}:app", "--rate", "0", "--model", f"{mine}:make"), "rate must be > 0"),
        (("flower", f"{mine}:app", "--runs", "3"), "runs must be >= 100"),
        (("duchi", "--epsilon", "1", "--ledger", ledger), "--ledger needs --report"),
        (("ledger", "absent.db"), "there is no ledger at absent.db"),
        (("ledger", ledger, "--check", "absent.html"), "absent.html cannot be read as a report"),
        (("ledger", ledger, "--check", "binary.html"), "binary.html cannot be read as a report"),
    ):
        code, out, err = command("audit", *args)
        assert (code, out) == (2, ""), (args, out, err)
        assert part in err
        assert err.count("\n") == 1, err


def test_a_report_is_not_written_over_what_the_audit_needs(command, ledger):
    before = Path(ledger).read_bytes()
    for args in (
        ("duchi", "--epsilon", "1", "--quick", "--report", ledger, "--ledger", ledger),
        ("ledger", ledger, "--report", ledger),
    ):
        code, out, err = command("audit", *args)
        assert (code, out) == (2, "")
        assert "would be written over" in err
    assert Path(ledger).read_bytes()[:16] == before[:16] == b"SQLite format 3\0"
