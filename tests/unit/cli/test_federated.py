"""`reticent federated` and its demo, as somebody types them."""

import contextlib
import json
import re
import shutil
import stat
from collections import namedtuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from reticent.apps.federated import work as federated
from reticent.errors import LedgerError
from reticent.federated import Client, Round, Training, saved, tables, task_file
from reticent.federated.saved import How
from reticent.fleet.enrolment import Enrolment
from reticent.fleet.operator import Operator
from reticent.ledger import SqlLedger

Done = namedtuple("Done", "code out err")
TASK = """
name: braking
version: 1
purpose: To warn drivers.
model: logistic
features: {speed: {low: 0, high: 130}, kind: {values: [car, bus]}}
target: {column: braked, values: [soft, hard]}
epsilon: 2
rounds: 6
group: 200
rate: 4
simulation: {table: rows.csv, holdout: public.csv}
"""


@pytest.fixture
def run(command):
    """Run `reticent ARGS`, whatever the arguments are."""

    def done(*args):
        found = Done(*command(*map(str, args)))
        return found._replace(out=" ".join(found.out.split()))

    return done


@pytest.fixture
def task(tmp_path):
    """A task and its tables."""
    rng = np.random.default_rng(1)
    for name, rows in (("rows", 1200), ("public", 200)):
        speed = rng.uniform(0.0, 130.0, rows)
        kind, braked = np.where(speed % 2 > 1, "car", "bus"), np.where(speed > 65.0, "hard", "soft")
        table = pa.table({"speed": speed, "kind": kind, "braked": braked, "driver": np.arange(rows) // 2})
        pa.csv.write_csv(table, tmp_path / f"{name}.csv")
    path = tmp_path / "t.yaml"
    path.write_text(TASK)
    return path


def lines(folder):
    return [json.loads(line) for line in (folder / federated.ROUNDS).read_text().splitlines()]


def test_from_a_blank_to_a_report(run, tmp_path):
    plain, signed = tmp_path / "t.yaml", tmp_path / "t.json"
    assert run("federated", "new", plain).code == 0
    assert plain.read_text() == task_file.TEMPLATE
    made = run("federated", "sign", plain, "--out", signed, "--key", tmp_path / "key")
    assert made.code == 0, made.err
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    for file in (plain, signed):
        told = run("federated", "check", file)
        assert told.code == 0
        assert "spends epsilon 2 in all" in told.out
    assert run("federated", "enrol", "--out", tmp_path / "c", "--master", tmp_path / "master").code == 0
    (path,) = (tmp_path / "c").iterdir()
    content = signed.read_bytes()
    signer = bytes.fromhex(json.loads(content)["signer"])
    assert signer.hex() in made.out
    with Client(tmp_path / "ledger", Enrolment.from_json(path.read_text()), signer, lifetime=2.0) as client:
        task = client.take(content)
        report = client.train(task, 0, Training.begun(task).theta, [[0.1, 1.0, -1.0, -1.0]], [1.0])
    reports = Round(task, 0, Operator.at(tmp_path / "master"))
    reports.add([report])
    assert reports.clients == 1


def test_a_simulation_and_what_it_leaves(run, task, tmp_path):
    out = tmp_path / "out"
    done = run("federated", "run", task, "--out", out)
    assert done.code == 0, done.err
    assert "A simulation: this process holds all 1,200 rows" in done.out
    assert "Curves: public hold-out" in done.out
    assert "No client spent more than epsilon 2" in done.out
    assert [line["number"] for line in lines(out)] == [1, 2, 3, 4, 5, 6]
    assert {line["origin"] for line in lines(out)} == {"public hold-out"}
    assert (out / federated.PLOT).read_bytes().startswith(b"\x89PNG")
    found = saved.load(out / federated.MODEL)
    assert found.statement.how is How.SIMULATION
    assert [one["name"] for one in found.statement.inputs["features"]] == ["speed", "kind"]
    told = run("federated", "show", out / federated.MODEL)
    assert told.code == 0
    for part in ("epsilon in all: 2", "neighbours: any two values", "not protected:", "rounds: 6 of 6"):
        assert part in told.out
    again = run("federated", "run", task, "--out", out)
    assert again.code == 2
    assert "out must hold no other run" in again.err


def test_a_page_stays_until_it_is_interrupted(run, task, tmp_path, monkeypatch):
    pytest.importorskip("fastapi")

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(federated, "_wait", interrupted)
    done = run("federated", "run", task, "--out", tmp_path / "out", "--page")
    assert done.code == 0, done.err
    assert re.search(r"Watch it at http://127\.0\.0\.1:\d+/[\w-]{20,}", done.out)
    assert done.out.endswith("until Ctrl-C. Ended.")


def test_curves_without_a_hold_out_are_marked(run, task, tmp_path):
    """Planted: with the hold-out of `test_a_simulation_and_what_it_leaves` they are not."""
    task.write_text(TASK.replace(", holdout: public.csv", ""))
    done = run("federated", "run", task, "--out", tmp_path / "out")
    assert done.code == 0, done.err
    assert "(simulation only, not for release)" in done.out
    assert {line["origin"] for line in lines(apart(tmp_path))} == {"simulation only, not for release"}


def apart(folder):
    return folder / "out-simulation-only-not-for-release"


def readable(folder):
    """Files that somebody else on this machine can open."""
    found = []
    for path in folder.rglob("*"):
        between = [one for one in path.parents if folder in one.parents]
        is_barred = any(not one.stat().st_mode & stat.S_IXOTH for one in between)
        if path.is_file() and not is_barred and path.stat().st_mode & stat.S_IROTH:
            found.append(path)
    return found


def recovered(folder, made):
    """The speed of the last row, by somebody who knows all others and reads what others may read."""
    told = [path for path in readable(folder) if path.name == federated.ROUNDS and path.stat().st_size]
    if not told:
        return []
    given = task_file.read(made)
    rows = tables.read(given.table, given.encoding)
    saved_model = saved.load(folder / "out" / federated.MODEL)
    theta, model, n = saved_model.theta, saved_model.statement.task.model, len(rows.targets)
    mean = json.loads(told[0].read_text().splitlines()[-1])["loss"]
    last = n * mean - model.losses(theta, rows.features[:-1], rows.targets[:-1]).sum()
    score = -np.log(np.expm1(last))  # of a logistic loss, times the target
    return [
        65.0 * (1.0 + (target * score - theta[-1] - kind * theta[1]) / theta[0])
        for target in (-1.0, 1.0)
        for kind in (-1.0, 1.0)
    ]


def test_nobody_works_out_a_row_from_what_a_run_leaves(run, task, tmp_path, monkeypatch):
    """It failed: exact losses lay beside the model for everybody. Planted: they still do."""
    task.write_text(TASK.replace(", holdout: public.csv", ""))
    speed = float(task.with_name("rows.csv").read_text().splitlines()[-1].split(",")[0])
    assert run("federated", "run", task, "--out", tmp_path / "out").code == 0
    assert recovered(tmp_path, task) == []
    assert stat.S_IMODE(apart(tmp_path).stat().st_mode) == 0o700
    modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in apart(tmp_path).iterdir()}
    assert modes == {federated.ROUNDS: 0o600, federated.PLOT: 0o600}
    assert [one.name for one in readable(tmp_path / "out")] == [federated.MODEL]
    shutil.rmtree(tmp_path / "out")
    monkeypatch.setattr(federated, "not_for_release", lambda out: out)
    monkeypatch.setattr(federated, "private", lambda path: path)
    monkeypatch.setattr(federated, "tightened", lambda path: path)
    assert run("federated", "run", task, "--out", tmp_path / "out").code == 0
    assert min(abs(one - speed) for one in recovered(tmp_path, task)) < 1e-6


def test_what_an_earlier_release_left_beside_the_model_is_taken_away(run, task, tmp_path):
    """When the run goes on, with or without a hold-out."""
    task.write_text(TASK.replace(", holdout: public.csv", ""))
    out = tmp_path / "out"
    assert run("federated", "run", task, "--out", out).code == 0
    old = (apart(tmp_path) / federated.ROUNDS).read_text().replace(", not for release", "")
    shutil.rmtree(apart(tmp_path))
    (out / federated.ROUNDS).write_text(old)
    (out / federated.PLOT).write_bytes(b"\x89PNG")
    task.write_text(TASK)
    assert run("federated", "run", task, "--out", out, "--resume").code == 0
    assert (apart(tmp_path) / federated.ROUNDS).read_text() == old
    assert "simulation" not in (out / federated.ROUNDS).read_text()
    assert recovered(tmp_path, task) == []


def spent(folder):
    with SqlLedger(folder / "t.reticent" / "ledger.sqlite") as ledger:
        return {one.terms.name: one.spent for one in ledger.accounts()}


def test_each_round_of_a_run_is_in_the_ledger_first(run, task, tmp_path, monkeypatch):
    """It failed: a run was a release that no ledger knew of. Planted: a run that pays nothing."""
    assert run("federated", "run", task, "--out", tmp_path / "a").code == 0
    first = spent(tmp_path)
    assert list(first.values()) == [6 * 2 * 10**12], "six rounds of epsilon 2"
    assert run("federated", "run", task, "--out", tmp_path / "b").code == 0
    assert len(spent(tmp_path)) == 2, "another run of the same file is another release, in the same ledger"
    assert run("federated", "run", task, "--out", tmp_path / "c", "--seed", 5).code == 0
    assert len(spent(tmp_path)) == 2, "with a seed nothing is promised"
    shown = []

    def fails(*_):
        raise LedgerError("disk full")

    monkeypatch.setattr(federated.Curves, "add", lambda *given: shown.append(given))
    with monkeypatch.context() as full:
        full.setattr(SqlLedger, "_request", fails)
        refused = run("federated", "run", task, "--out", tmp_path / "d")
    assert refused.code == 2
    assert "disk full" in refused.err
    assert shown == []
    assert not {one.name for one in (tmp_path / "d").iterdir()} & {federated.MODEL, "checkpoint.npz"}
    monkeypatch.setattr(federated, "_paid", lambda *_: contextlib.nullcontext())
    run("federated", "run", task, "--out", tmp_path / "e")
    assert sorted(spent(tmp_path).values()) == [0, *first.values(), *first.values()]
    assert shown, "a run that pays nothing shows something"


def test_a_seed_repeats_a_run_and_promises_nothing(run, task, tmp_path):
    thetas = []
    for name in ("a", "b"):
        assert run("federated", "run", task, "--out", tmp_path / name, "--seed", 5).code == 0
        thetas.append(saved.load(tmp_path / name / federated.MODEL).theta)
    assert np.array_equal(*thetas)
    assert "guarantee: none" in run("federated", "show", tmp_path / "a" / federated.MODEL).out


def test_a_run_goes_on_after_a_break(run, task, tmp_path, monkeypatch):
    """With a seed the model is that of a run without a break."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert run("federated", "run", task, "--out", whole, "--seed", 5).code == 0
    text = json.loads((whole / "run.json").read_text())["task"]
    add = federated.Curves.add

    def stop(self, step, theta):
        if step.number == 3:
            raise KeyboardInterrupt
        return add(self, step, theta)

    with monkeypatch.context() as broke:
        broke.setattr(federated.Curves, "add", stop)
        assert run("federated", "run", task, "--out", broken, "--seed", 5).code == 130
    assert not (broken / federated.MODEL).exists()
    for arguments, message in (
        (["--resume"], "has another task or seed"),
        (["--resume", "--seed", 6], "has another task or seed"),
        (["--seed", 5], "must hold no other run"),
    ):
        refused = run("federated", "run", task, "--out", broken, *arguments)
        assert refused.code == 2
        assert message in refused.err
    done = run("federated", "run", task, "--out", broken, "--seed", 5, "--resume")
    assert done.code == 0, done.err
    assert [line["number"] for line in lines(broken)] == [1, 2, 3, 5, 6]
    first, second = (saved.load(folder / federated.MODEL) for folder in (whole, broken))
    assert first.statement.task.text.decode() == text
    assert np.array_equal(first.theta, second.theta)
    task.write_text(TASK.replace("epsilon: 2", "epsilon: 1"))
    refused = run("federated", "run", task, "--out", broken, "--seed", 5, "--resume")
    assert refused.code == 2
    assert "has another task or seed" in refused.err


def test_old_curves_keep_their_origin(run, task, tmp_path):
    """Rounds that were computed on private records do not come back as those of a hold-out."""
    out = tmp_path / "out"
    task.write_text(TASK.replace(", holdout: public.csv", ""))
    assert run("federated", "run", task, "--out", out).code == 0
    with (apart(tmp_path) / federated.ROUNDS).open("a") as file:
        file.write('{"number": 7, "cl')  # torn
    assert len(federated._points(apart(tmp_path) / federated.ROUNDS, federated.Origin.SIMULATION)) == 6
    assert federated._points(apart(tmp_path) / federated.ROUNDS, federated.Origin.HOLD_OUT) == []
    task.write_text(TASK)
    done = run("federated", "run", task, "--out", out, "--resume")
    assert done.code == 0, done.err
    assert "% right" not in done.out


def test_rows_of_one_owner_are_one_client(run, task, tmp_path):
    task.write_text(TASK.replace("table: rows.csv", "table: rows.csv, owner: driver"))
    refused = run("federated", "run", task, "--out", tmp_path / "out")
    assert refused.code == 2
    assert "must hold at least 1,200 clients, got 600" in refused.err
    assert not (tmp_path / "out").exists()
    task.write_text(task.read_text().replace("group: 200", "group: 100"))
    assert run("federated", "run", task, "--out", tmp_path / "out").code == 0


def test_how_many_clients_it_takes(run, task, tmp_path):
    plot = tmp_path / "plan.png"
    done = run(
        *("federated", "plan", task, "--target", 0.9, "--clients", "100,400", "--repetitions", 2),
        *("--plot", plot),
    )
    assert done.code == 0, done.err
    assert "clients reach 90.00 % wrong" in done.out
    assert "Simulated on 200 public rows" in done.out
    assert "the majority class for everybody:" in done.out
    assert "* As written, 6 rounds of 200 (1,200 clients):" in done.out
    assert "│ *1,200 │ 6 x 200 │" in done.out
    assert "Noise over signal of a round, at its best: by coordinates" in done.out
    assert "by Codebook" in done.out
    assert plot.read_bytes().startswith(b"\x89PNG")
    never = run("federated", "plan", task, "--target", 0, "--clients", "100", "--repetitions", 2)
    assert "None of these numbers of clients reaches 0.00 % wrong" in never.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "none.yaml"], "there is no none.yaml"),
        (["check", "none.json"], "there is no task at none.json"),
        (["run", "none.yaml"], "there is no none.yaml"),
        (["plan", "none.yaml"], "there is no none.yaml"),
        (["show", "none.safetensors"], "there is no model at none.safetensors"),
        (["run", "BLANK"], "field simulation.table is missing"),
        (["plan", "BLANK"], "field simulation.holdout is missing"),
        (["plan", "TASK", "--clients", "few"], "clients must read like 1000,10000"),
        (["run", "TASK", "--out", "OUT", "--resume"], "there is no run in"),
    ],
)
def test_what_is_missing_is_named(run, task, tmp_path, is_one_error_line, arguments, message):
    blank = tmp_path / "blank.yaml"
    blank.write_text(task_file.TEMPLATE)
    places = {"BLANK": blank, "TASK": task, "OUT": tmp_path / "out"}
    done = run("federated", *(places.get(one, one) for one in arguments))
    assert done.code == 2
    assert message in done.err
    assert is_one_error_line(done.err)


def test_nothing_is_overwritten(run, task, tmp_path):
    for arguments in (
        ["new", task],
        ["sign", task, "--out", task, "--key", tmp_path / "key"],
    ):
        done = run("federated", *arguments)
        assert done.code == 2
        assert "exist" in done.err
    assert task.read_text() == TASK


def test_vehicles_learn(run, tmp_path):
    pytest.importorskip("fastapi")
    done = run("demo", "federated", "--once", "--port", 0, "--vehicles", 5000, "--folder", tmp_path)
    assert done.code == 0, done.err
    assert "Without any privacy the same training would get" in done.out
    assert "Watch it at http://127.0.0.1:" in done.out
    assert saved.load(tmp_path / "run" / federated.MODEL).statement.rounds == 50
    refused = run("demo", "federated", "--once", "--vehicles", 10)
    assert refused.code == 2
    assert "vehicles must be >= 1000" in refused.err
