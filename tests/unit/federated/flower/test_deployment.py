"""Flower in earnest: SuperLink and SuperNodes over TLS, one killed, one misbehaving; and `flwr run` on Ray.

Slow: a process for every message, each of which imports Flower.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from reticent.federated import Client, Round, Training, saved, tasks
from reticent.fleet.enrolment import Enrolment
from reticent.fleet.secret_file import kept_secret
from reticent.ledger.device.marks import Marks

from ...operating import operator as in_memory
from . import processes

SLY = '''
def sly(message, context, call_next):
    """A node that sends garbage, two reports at once, a forged one, and a gradient of its own."""
    from flwr.app import ConfigRecord

    reply = call_next(message, context)
    if "sly" not in context.node_config:
        return reply
    sent = reply.content["report"]["payload"]
    bad = [b"garbage", [sent, sent], bytes([sent[-1] ^ 1]) + sent[1:]]
    record = ConfigRecord({"payload": bad[message.content["config"]["reticent-round"]]})
    arrays = message.content["arrays"]
    return Message(RecordDict({"report": record, "arrays": arrays}), reply_to=message)


app = ClientApp(mods=[sly, '''


def prepared(folder, clients):
    """The operator's folder, the clients' files, and a copy of the example whose node `sly` misbehaves."""
    app = folder / "app"
    shutil.copytree(processes.EXAMPLE, app, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(
        [sys.executable, "prepare.py", str(folder / "op"), str(clients)], cwd=app, check=True, timeout=120
    )
    source = app / "private_example" / "client_app.py"
    source.write_text(source.read_text().replace("app = ClientApp(mods=[", SLY))
    return app, folder / "op"


def client_of(operator, number, ledger):
    enrolment = Enrolment.from_json((operator / "clients" / f"{number}.json").read_text())
    signer, marks = bytes.fromhex((operator / "signer").read_text()), Marks(f"{ledger}-marks", moved=True)
    return Client(ledger, enrolment, signer, lifetime=12.0, marks=marks)


def reports_of(operator, number, file, scratch):
    """The reports that a client's ledger holds, by round; asked of a copy, which may be charged for more."""
    copy = scratch / f"copy-{number}"
    shutil.copy(operator / "clients" / f"{number}.ledger", copy)
    with client_of(operator, number, copy) as client:
        task, found = client.take(file), {}
        spent = client.ledger.balance("training").spent
        for place in range(task.rounds):
            before = client.ledger.balance("training").spent
            report = client.report(task, place, np.zeros(task.dimensions))
            if client.ledger.balance("training").spent == before:
                found[place] = report
    assert spent == task.units * len(found), "spent is not participations times epsilon"
    return found


def ended(deployment, run, limit_s):
    try:
        run.wait(timeout=limit_s)
    except subprocess.TimeoutExpired:
        pytest.fail(f"the run did not end: {deployment.log('run')[-3000:]}")


def check_model(operator, by_client, *, may_be_lost=()):
    """The model is that of the reports in the clients' ledgers, each counted once."""
    file = (operator / "task.json").read_bytes()
    task, master = tasks.task_of(file), kept_secret(operator / "enrolment.key")
    summaries = [json.loads(line) for line in (operator / "rounds.jsonl").read_text().splitlines()]
    by_hand = Training.begun(task)
    for number, summary in enumerate(summaries):
        given = {who: reports[number] for who, reports in by_client.items() if number in reports}
        for who in may_be_lost:  # paid, and never arrived
            if len(given) > summary["counted"]:
                given.pop(who, None)
        one = Round(task, number, in_memory(master))
        one.add(list(given.values()))
        assert one.clients == summary["counted"]
        by_hand.step(one.gradient())
    model = saved.load(operator / "model.safetensors")
    assert model.statement.rounds == task.rounds == len(summaries)
    assert np.allclose(model.theta, by_hand.theta, rtol=0, atol=1e-12)
    return summaries


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_three_supernodes_over_tls_one_killed_one_misbehaving(tmp_path):
    app, operator = prepared(tmp_path, 3)
    signer = (operator / "signer").read_text()
    with processes.Deployment(tmp_path) as deployment:
        nodes = [
            deployment.node(
                f"node-{number}",
                {
                    "partition-id": number,
                    "reticent-ledger": str(operator / "clients" / f"{number}.ledger"),
                    "reticent-enrolment": str(operator / "clients" / f"{number}.json"),
                    "reticent-signer": signer,
                    "reticent-lifetime": 12.0,
                }
                | ({"sly": 1} if number == 2 else {}),
            )
            for number in range(3)
        ]
        config = {"folder": str(operator), "timeout-s": 90.0, "patience-s": 20.0}
        run = deployment.run(app, config)
        end = time.monotonic() + 300
        while not (operator / "rounds.jsonl").exists():
            is_running = run.poll() is None and time.monotonic() < end
            assert is_running, deployment.log("run")[-3000:]
            time.sleep(0.2)
        os.kill(nodes[1].pid, signal.SIGKILL)
        ended(deployment, run, 600)
    file = (operator / "task.json").read_bytes()
    honest = {number: reports_of(operator, number, file, tmp_path) for number in (0, 1)}
    sly = reports_of(operator, 2, file, tmp_path)
    summaries = check_model(operator, honest, may_be_lost=(1,))
    with pytest.raises(
        AssertionError
    ):  # the check sees a report that is missing, and one that is not a node's own
        check_model(operator, {0: honest[0]})
    with pytest.raises(AssertionError):
        check_model(operator, {0: honest[0], 1: sly})
    assert sum(summary["counted"] for summary in summaries) >= 3
    assert sum(summary["bad"] for summary in summaries) == len(sly) > 0
    assert len(honest[1]) < len(summaries)
    assert summaries[-1]["counted"] == 1
    for number, summary in enumerate(summaries):
        told = (summary["counted"], summary["bad"], summary["missing"], summary["refused"])
        assert sum(told) == summary["asked"]
        assert summary["bad"] == (number in sly)
    told = deployment.log("run")
    assert "loss" not in told


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_flwr_run_on_ray(tmp_path):
    app, operator = prepared(tmp_path, 4)
    config = {
        "folder": str(operator),
        "timeout-s": 300.0,
        "reticent-clients": str(operator / "clients"),
        "reticent-signer": (operator / "signer").read_text(),
    }
    with processes.Deployment(tmp_path, simulation=True) as deployment:
        run = deployment.run(app, config, "--federation-config", "num-supernodes=4")
        ended(deployment, run, 800)
    file = (operator / "task.json").read_bytes()
    reports = {number: reports_of(operator, number, file, tmp_path) for number in range(4)}
    summaries = check_model(operator, reports)
    assert [summary["counted"] for summary in summaries] == [4, 4, 4]
