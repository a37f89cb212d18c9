"""`reticent survey`, `perturb`, `aggregate`, as somebody types them."""

import json
import stat
import time
from collections import namedtuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from reticent.collect.device import Device
from reticent.collect.signing import signer_of
from reticent.fleet.counted import Counted
from reticent.fleet.enrolment import Enrolment, enrolled
from reticent.fleet.record import Record
from reticent.ledger import SqlLedger

Done = namedtuple("Done", "code out err")


@pytest.fixture
def run(command):
    """Run `reticent ARGS`, whatever the arguments are."""
    return lambda *args: Done(*command(*map(str, args)))


@pytest.fixture
def survey(run, tmp_path):
    """A signed survey, made by the commands."""
    plain, signed = tmp_path / "s.yaml", tmp_path / "s.json"
    assert run("survey", "new", plain, "--purpose", "To plan roads.").code == 0
    made = run("survey", "sign", plain, "--out", signed, "--key", tmp_path / "key")
    assert made.code == 0, made.err
    return signed


def test_from_a_blank_to_a_report(run, survey, tmp_path):
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    told = run("survey", "check", survey)
    assert told.code == 0
    assert "spends epsilon 30 in all" in " ".join(told.out.split())
    made = run(
        "survey", "enrol", "--out", tmp_path / "devices", "--master", tmp_path / "master", "--count", 2
    )
    assert made.code == 0
    first, second = sorted((tmp_path / "devices").iterdir())
    assert stat.S_IMODE(first.stat().st_mode) == 0o600
    content = survey.read_bytes()
    enrolment = Enrolment.from_json(first.read_text())
    with Device(tmp_path / "ledger", enrolment, signer_of(content), lifetime=2.0) as device:
        report = device.report(device.take(content), {"speed": 50.0}, period=0)
    assert len(report) == 47
    assert first.name != second.name


def test_a_plot_of_the_errors(run, survey, tmp_path):
    told = run("survey", "show", survey, "--plot", tmp_path / "p.png")
    assert told.code == 0
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_perturb_and_aggregate(run, survey, tmp_path, form):
    rows = 5000
    pa.parquet.write_table(
        pa.table({"speed": np.full(rows, 50.0), "kind": ["bus"] * rows}), tmp_path / "rows.parquet"
    )
    done = run("perturb", tmp_path / "rows.parquet", tmp_path / "reports.csv", "--survey", survey)
    assert done.code == 0, done.err
    assert "5,000 reports at epsilon 1 each" in " ".join(done.out.split())
    out = tmp_path / f"estimates.{form}"
    done = run("aggregate", tmp_path / "reports.csv", "--survey", survey, "--out", out)
    assert done.code == 0, done.err
    assert "speed" in done.out
    if form == "json":
        told = json.loads(out.read_text())
        assert [one["attribute"] for one in told["estimates"]] == ["speed", *["kind"] * 4]
        assert sum(one["reports"] for one in told["estimates"][:2]) == rows
    else:
        assert out.stat().st_size > 100


def spent(folder):
    with SqlLedger(folder / "rows.csv.reticent" / "ledger.sqlite") as ledger:
        return [(one.terms.name.partition(":")[0], one.spent, one.terms.cap) for one in ledger.accounts()]


def test_reports_of_the_same_rows_are_paid_each_time(run, tmp_path, monkeypatch):
    """It failed: 30 runs gave 30 reports of each row, and no ledger knew. Planted: a run that pays not."""
    plain, signed = tmp_path / "s.yaml", tmp_path / "s.json"
    run("survey", "new", plain, "--purpose", "To plan roads.")
    plain.write_text(plain.read_text().replace("periods: 30", "periods: 2"))
    assert run("survey", "sign", plain, "--out", signed, "--key", tmp_path / "key").code == 0
    (tmp_path / "rows.csv").write_text("speed,kind\n50,bus\n60,car\n")
    perturb = ["perturb", tmp_path / "rows.csv"]
    (tmp_path / "there.csv").write_text("")
    assert run(*perturb, tmp_path / "there.csv", "--survey", signed).code == 2
    assert run("perturb", signed, tmp_path / "no.csv", "--survey", signed).code == 2
    assert not list(tmp_path.glob("*.reticent")), "nothing is paid for what cannot be"
    for number in (1, 2):
        done = run(*perturb, tmp_path / f"{number}.csv", "--survey", signed)
        assert f"as period {number} of 2 in the ledger of rows.csv" in " ".join(done.out.split())
        assert spent(tmp_path) == [("survey", number * 10**12, 2 * 10**12)]
    refused = run(*perturb, tmp_path / "3.csv", "--survey", signed)
    assert refused.code == 2
    assert "only 0 left" in refused.err
    assert not (tmp_path / "3.csv").exists()
    assert stat.S_IMODE((tmp_path / "rows.csv.reticent").stat().st_mode) == 0o700
    (tmp_path / "soft.csv").symlink_to(tmp_path / "rows.csv")
    (tmp_path / "hard.csv").hardlink_to(tmp_path / "rows.csv")
    for name in ("soft.csv", "hard.csv"):  # they had fresh ledgers
        refused = run("perturb", tmp_path / name, tmp_path / "3.csv", "--survey", signed)
        assert (refused.code, "only 0 left" in refused.err) == (2, True)
    assert [path.name for path in tmp_path.glob("*.reticent") if path.is_dir()] == ["rows.csv.reticent"]
    monkeypatch.setattr(Record, "next_part", lambda *_: 0)
    assert run(*perturb, tmp_path / "3.csv", "--survey", signed).code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["survey", "check", "none.yaml"], "there is no none.yaml"),
        (["survey", "check", "none.json"], "there is no survey at none.json"),
        (["perturb", "a.csv", "b.csv", "--survey", "none.json"], "there is no survey"),
        (["aggregate", "a.csv", "--survey", "none.json"], "there is no survey"),
    ],
)
def test_what_is_missing_is_named(run, arguments, message):
    done = run(*arguments)
    assert done.code == 2
    assert message in done.err
    assert len(done.err.splitlines()) == 1


def test_nothing_is_overwritten(run, survey, tmp_path):
    for arguments in (
        ["survey", "new", survey, "--purpose", "To plan roads."],
        ["survey", "sign", tmp_path / "s.yaml", "--out", survey, "--key", tmp_path / "key"],
    ):
        done = run(*arguments)
        assert done.code == 2
        assert "exist" in done.err
    (tmp_path / "bad").write_text("not a key")
    done = run("survey", "enrol", "--out", tmp_path / "d", "--master", tmp_path / "bad")
    assert done.code == 2
    assert "must hold 64 hexadecimal digits" in done.err


def test_a_cluster_that_does_not_answer(run, survey, tmp_path):
    done = run("aggregate", "a.csv", "--survey", survey, "--cluster", "nonsense")
    assert done.code == 2
    assert "cluster must be a Dask scheduler that answers" in done.err


def test_a_service_collects_and_tells(run, tmp_path):
    """Publish, enrol, report into the collector, read the estimates."""
    from reticent.apps.collect.collecting import Collecting
    from reticent.service.settings import Settings

    folder, plain = tmp_path / "desk", tmp_path / "s.yaml"
    folder.mkdir()
    assert run("survey", "new", plain, "--purpose", "To plan roads.").code == 0
    refused = run("survey", "publish", folder, plain)
    assert refused.code == 2
    assert "folder must be that of a service" in refused.err
    assert run("key", "make", folder, "olga", "--role", "owner").code == 0
    assert run("survey", "publish", folder, plain).code == 0
    master = folder / ".service" / "enrolment.key"
    assert run("survey", "enrol", "--out", tmp_path / "d", "--master", master, "--count", 30).code == 0
    collecting = Collecting(Settings(folder))
    content = collecting.collector.file(collecting.survey("s"))
    for path in (tmp_path / "d").iterdir():
        enrolment = Enrolment.from_json(path.read_text())
        with Device(tmp_path / f"{path.stem}.ledger", enrolment, collecting.signer, lifetime=2.0) as device:
            (outcome,) = collecting.collector.receive([device.report(device.take(content), {"speed": 50.0})])
        assert outcome.is_acknowledged
    collecting.close()
    said = run("enrolment", "counted", folder, "s", enrolment.id.hex())
    assert (said.code, Counted.from_json(said.out).enrolment) == (0, enrolment.id)
    with Device(tmp_path / f"{path.stem}.ledger", enrolment, collecting.signer, lifetime=2.0) as device:
        assert device.heed(device.take(content), Counted.from_json(said.out)) == []  # it remembers
    assert len(Counted.from_json(said.out).periods) == 1
    for place, who in (("nothing", enrolment.id.hex()), ("s", "zz")):
        assert run("enrolment", "counted", folder, place, who).code == 2
    out = tmp_path / "e.json"
    told = run("survey", "estimates", folder, "s", "--out", out)
    assert told.code == 0, told.err
    assert sum(one["reports"] for one in json.loads(out.read_text())["estimates"][:2]) == 30
    again = run("survey", "estimates", folder, "nothing")
    assert again.code == 2
    assert "survey" in again.err


@pytest.mark.parametrize("given", ["nonsense", "host:", ":1883", "host:x", "host:0", "host:99999"])
def test_a_broker_is_a_host_and_a_port(run, tmp_path, given):
    done = run("bridge", tmp_path, "--broker", given)
    assert done.code == 2
    assert "broker must read HOST:PORT" in done.err


def test_words_of_the_template_are_not_signed(run, tmp_path):
    blank, out, key = (str(tmp_path / name) for name in ("blank.yaml", "out.json", "a.key"))
    assert run("survey", "new", blank).code == 0
    refused = run("survey", "sign", blank, "--out", out, "--key", key)
    assert refused.code == 2
    assert "purpose must be your own words" in refused.err
    assert not (tmp_path / "out.json").exists()


LEARNING = """
name: speeds
version: 1
purpose: To plan roads.
epsilon: 2
start: 2020-01-01
period: 52 weeks
periods: 30
wave: 0.5
attributes:
  speed: {low: 0, high: 130, tailor: first wave}
"""


def test_a_survey_learns(run, tmp_path):
    """Publish, half of the devices report, follow, the others report by that; each once."""
    from reticent.apps.collect.collecting import Collecting
    from reticent.service.settings import Settings

    folder, plain = tmp_path / "desk", tmp_path / "s.yaml"
    folder.mkdir()
    plain.write_text(LEARNING)
    assert "50 % of the devices, drawn by lot" in run("survey", "check", plain).out.replace("\n", " ")
    assert run("key", "make", folder, "olga", "--role", "owner").code == 0
    assert run("survey", "publish", folder, plain).code == 0
    early = run("survey", "follow", folder, "speeds")
    assert (early.code, "nobody reported yet" in early.err) == (2, True)
    collecting = Collecting(Settings(folder))
    survey = collecting.survey("speeds")
    file, outcomes, waiting = collecting.collector.file(survey), [], []
    for number in range(40):
        enrolment = enrolled(collecting.master)
        with Device(tmp_path / f"{number}.ledger", enrolment, collecting.signer, lifetime=2.0) as device:
            device.take(file)
            period = survey.period_at(time.time())
            if device.awaits(survey, period=period):
                waiting.append((number, enrolment))
            else:
                outcomes += collecting.collector.receive([device.report(survey, {"speed": 50.0})])
    done = run("survey", "follow", folder, "speeds")
    assert done.code == 0, done.err
    assert "without learning" in done.out.replace("\n", " ")
    assert run("survey", "follow", folder, "speeds").out == done.out, "a period has one"
    (follow,) = collecting.collector.follow_ups(survey).values()
    assert f"shaped by {len(outcomes)} reports" in done.out.replace("\n", " ")
    for number, enrolment in waiting:
        with Device(tmp_path / f"{number}.ledger", enrolment, collecting.signer, lifetime=2.0) as device:
            device.take(file)
            device.take(collecting.collector.file(follow))
            outcomes += collecting.collector.receive([device.report(survey, {"speed": 50.0})])
            assert device.spent == 2.0
    collecting.close()
    assert [one.value for one in outcomes] == ["counted"] * 40
    out = tmp_path / "e.json"
    assert run("survey", "estimates", folder, "speeds", "--out", out).code == 0
    (found,) = json.loads(out.read_text())["estimates"]
    assert found["reports"] == 40
