"""`reticent.open("http://...")`: the same answers, prices and errors as a session beside the data."""

import http.client
import json
import shutil
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import reticent
from reticent.apps.query.desk import Desk
from reticent.errors import (
    BudgetExceeded,
    IdempotencyConflict,
    NotMeasured,
    ParameterError,
    ParameterTypeError,
    QuestionRefused,
    ReticentError,
    SourceError,
)
from reticent.query import Answer, Case, remote
from reticent.query.language import tree

from .running import make_keys

ACCURACY = {"information": 1e-3}


@pytest.fixture(scope="module")
def both(made_census, tmp_path_factory):
    """A service on a port, and a session on the same rows with a ledger of its own."""
    place = tmp_path_factory.mktemp("remote") / "desk"
    shutil.copytree(made_census, place)
    keys = make_keys(place)
    yield from _both(place, keys, made_census, tmp_path_factory)


def _both(place, keys, made_census, tmp_path_factory):
    import uvicorn

    from reticent.apps.service.serving import create_app
    from reticent.service.settings import Settings

    from .running import OPEN, running

    app = create_app(Settings(place, **OPEN))
    near_place = tmp_path_factory.mktemp("near") / "desk"
    shutil.copytree(made_census, near_place)
    with (
        running(uvicorn.Config(app, log_config=None, ws="none", timeout_keep_alive=600)) as (_, url),
        reticent.open(f"{url}/census", key=keys["alice"]) as far,
        reticent.open(near_place / "census.yaml") as near,
    ):
        far.url, far.keys, far.app = url, keys, app
        yield far, near


def same(far: Answer, near: Answer) -> None:
    """Everything but the noise."""
    hidden = {"cells", "receipt", "spent", "remaining", "spent_epsilon", "combined"}
    told = [
        {name: one for name, one in answer.to_json().items() if name not in hidden} for answer in (far, near)
    ]
    assert told[0] == told[1]
    assert (far.combined is None) == (near.combined is None)
    assert [cell.labels for cell in far.cells] == [cell.labels for cell in near.cells]
    for one, other in zip(far.cells, near.cells, strict=True):
        assert type(one.estimate.value) is type(other.estimate.value) is float
    assert far.receipt.key == near.receipt.key


@pytest.mark.parametrize(
    "ask",
    [
        lambda s, **a: s.count(where="age > 40", **a),
        lambda s, **a: s.count(**a),
        lambda s, **a: s.count(by="sex", **a),
        lambda s, **a: s.sum("hours", **a),
        lambda s, **a: s.mean("income", where={"column": "age", "op": ">", "value": 30}, **a),
        lambda s, **a: s.proportion("sex = 'male'", by="race", **a),
        lambda s, **a: s.variance("age", **a),
        lambda s, **a: s.histogram({"column": "age", "bins": 4}, **a),
        lambda s, **a: s.quantile("age", [0.25, 0.75], **a),
        lambda s, **a: s.median("age", **a),
        lambda s, **a: s.ask("SELECT AVG(age) FROM census", **a),
        lambda s, **a: s.ask({"kind": "mean", "column": "age"}, **a),
        lambda s, **a: s.ask(tree.mean("age"), confidence=0.9, **a),
        lambda s, **a: s.rehearse("SELECT SUM(age) FROM census", seed=3, **a),
    ],
)
def test_the_same_answers(both, ask):
    far, near = both
    same(ask(far, **ACCURACY), ask(near, **ACCURACY))


def test_a_rehearsal_is_the_same_to_the_last_digit(both):
    far, near = both
    query = "SELECT race, AVG(income) FROM census GROUP BY race"
    assert far.rehearse(query, epsilon=1.0).cells == near.rehearse(query, epsilon=1.0).cells


def test_the_same_plans(both):
    far, near = both
    questions = [f"SELECT COUNT(*) FROM census WHERE age >= {age} AND sex = 'male'" for age in (30, 50, 70)]
    workload = [*questions, "SELECT sex, COUNT(*) FROM census GROUP BY sex"]
    one, other = far.plan(workload, error=200.0), near.plan(workload, error=200.0)
    assert (one.first, one.wishes, one.cost) == (other.first, other.wishes, other.cost)
    with pytest.raises(ParameterError, match="accuracy must be given"):
        far.plan(workload)


def test_the_same_prices_and_books(both):
    far, near = both
    query = "SELECT AVG(family_income) FROM census"
    for accuracy in (
        {"error": 90000.0},
        {"epsilon": 0.5},
        {"epsilon": 0.5, "delta": 1e-6},
        {"information": 1e-3},
    ):
        a, b = far.price(query, **accuracy), near.price(query, **accuracy)
        assert (a.cost, a.information, a.error, a.case) == (b.cost, b.information, b.error, b.case)
    assert far.known(query) is None
    assert near.known(query) is None
    before = far.balance()
    answer = far.ask(query, error=90000.0)
    assert answer.case is Case.FRESH
    assert far.known(query).cells == answer.cells
    after = far.balance()
    theirs = replace(near.balance().terms, subject=after.terms.subject)  # other people
    assert after.terms == theirs
    assert after.spent - before.spent == answer.cost
    assert far.budget()["spent"] == str(after.spent)
    assert far.questions()[answer.receipt.key] == tree.mean("family_income")
    assert far.described["rows"] == near.data.rows


@pytest.mark.parametrize(
    ("query", "accuracy"),
    [
        ("SELECT AVG(income) FROM census", {"error": 10.0}),
        ("SELECT AVG(income) FROM census", {}),
        ("SELECT AVG(income) FROM census", {"error": -1.0}),
        ("SELECT AVG(nothing) FROM census", {"error": 1.0}),
        ("DROP TABLE census", {"error": 1.0}),
        ({"kind": "strange"}, {"error": 1.0}),
        (tree.mean("age", where="income > 3"), {"information": 50.0}),
    ],
)
def test_the_same_errors(both, query, accuracy):
    far, near = both
    with pytest.raises(ReticentError) as there:
        far.ask(query, **accuracy)
    with pytest.raises(ReticentError) as here:
        near.ask(query, **accuracy)
    assert type(there.value) is type(here.value)
    if not isinstance(here.value, QuestionRefused):
        assert str(there.value) == str(here.value)


def test_a_refusal_carries_the_best_answer(both):
    far, _ = both
    bought = far.mean("hours", error=50.0)
    with pytest.raises(QuestionRefused) as refused:
        far.mean("hours", error=0.01)
    assert refused.value.best.cells == bought.cells
    assert refused.value.best_error == bought.error
    assert refused.value.asked > refused.value.left == far.balance().remaining
    assert f"free now: within {bought.error:.6g}" in str(refused.value)


def test_idempotency(both):
    far, _ = both
    first = far.mean("age", where="hours > 10", information=1e-3, idempotency="mine")
    assert far.mean("age", where="hours > 10", information=1e-3, idempotency="mine") == first
    with pytest.raises(IdempotencyConflict):
        far.mean("age", where="hours > 10", information=2e-3, idempotency="mine")


def test_a_quota_is_a_budget(both):
    far, _ = both
    desk = far.app.state.desk
    bob = desk.state.named("bob")
    desk.state.set_quota("census", bob, 10)
    with reticent.open(far.url, key=far.keys["bob"]) as session:
        assert session.name == "census"
        with pytest.raises(BudgetExceeded) as refused:
            session.mean("age", where="hours > 20", information=1e-3)
    assert not isinstance(refused.value, QuestionRefused)
    assert (refused.value.asked, refused.value.left) == (10**9, 10)


def test_threads_share_a_session(both):
    far, _ = both
    found = []
    threads = [threading.Thread(target=lambda: found.append(far.balance().spent)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert 1 <= len(far._idle) <= 8


def test_what_takes_long_is_waited_for(both, monkeypatch):
    far, _ = both
    true, held = Desk.ask, threading.Event()

    def slow(self, *args, **options):
        held.wait(60)
        return true(self, *args, **options)

    monkeypatch.setattr(Desk, "ask", slow)
    settings = far.app.state.desk.settings
    before = settings.longest_s
    object.__setattr__(settings, "longest_s", 0.01)
    try:
        timer = threading.Timer(0.2, held.set)
        timer.start()
        answer = far.mean("age", where="hours > 30", information=1e-3)
        assert answer.cost == 10**9
        timer.join()
        held.clear()
        monkeypatch.setattr(far, "_wait_s", 0.0)
        with pytest.raises(NotMeasured, match="charged once"):
            far.mean("age", where="hours > 31", information=1e-3)
    finally:
        held.set()
        object.__setattr__(settings, "longest_s", before)
    assert far.mean("age", where="hours > 31", information=1e-3).information == 10**9


# The way


def test_a_lost_reply_is_asked_for_again(both, monkeypatch):
    """The connection breaks after the question was sent: the retry has the same key, and is charged once."""
    far, _ = both
    true, broken = http.client.HTTPConnection.getresponse, []

    def lost(self):
        reply = true(self)
        if len(broken) < 2:
            reply.read()
            broken.append(reply.status)
            raise ConnectionResetError
        return reply

    before = far.balance().spent
    monkeypatch.setattr(http.client.HTTPConnection, "getresponse", lost)
    answer = far.mean("hours", where="age > 50", information=1e-3)
    assert broken == [200, 200]
    assert answer.case is Case.FRESH
    assert answer.cost == 10**9 == far.balance().spent - before


def test_planted_a_fresh_key_for_each_try_is_caught(both, monkeypatch):
    """Then the second try is another question, which says that it cost nothing."""
    far, _ = both
    true, broken = http.client.HTTPConnection.getresponse, []

    def lost(self):
        reply = true(self)
        if not broken:
            reply.read()
            broken.append(reply.status)
            raise ConnectionResetError
        return reply

    exchange, numbers = far._exchange, iter(range(9))

    def forgetful(method, path, sent, headers):
        headers = {**headers, "Idempotency-Key": f"try {next(numbers)}"} if "/ask" in path else headers
        return exchange(method, path, sent, headers)

    monkeypatch.setattr(http.client.HTTPConnection, "getresponse", lost)
    monkeypatch.setattr(far, "_exchange", forgetful)
    assert far.mean("hours", where="age > 51", information=1e-3).cost == 0


def test_nobody_is_there(monkeypatch):
    monkeypatch.setattr(remote, "_PAUSES_S", (0.0, 0.0))
    with pytest.raises(SourceError, match=r"127\.0\.0\.1 cannot be reached"):
        reticent.open("http://127.0.0.1:1/census", key="rk_x")


@pytest.mark.parametrize("reply", [b"<html>", b"[]", b"{}", b"\xff", b"[" * 100_000])
def test_somebody_else_is_there(monkeypatch, reply):
    monkeypatch.setattr(remote, "_PAUSES_S", (0.0, 0.0))

    class Stranger(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(404)
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with pytest.raises(SourceError):
                reticent.open(f"http://127.0.0.1:{server.server_port}/census", key="rk_x")
        finally:
            server.shutdown()
            thread.join()


def test_told_to_come_again(both, monkeypatch):
    """A service that is busy is asked again, and in the end it is said."""
    far, _ = both
    monkeypatch.setattr(remote, "_PAUSES_S", (0.0, 0.0))
    error = {"error": {"type": "busy", "message": "the service is busy"}}
    replies = [(503, 1.0, error), (429, 1.0, error), (200, None, {"spent": "1"})]
    monkeypatch.setattr(far, "_exchange", lambda *_: replies.pop(0))
    assert far.budget() == {"spent": "1"}
    monkeypatch.setattr(far, "_exchange", lambda *_: (503, 1.0, error))
    with pytest.raises(SourceError, match="busy"):
        far.budget()


@pytest.mark.parametrize(
    "url",
    ["http://", "http://user:secret@host", "http://host/a/b", "http://host/a?b", "http://host:0",
     "http://host:99999", "http://host/#a"],
)  # fmt: skip
def test_what_is_no_address(url):
    with pytest.raises(ParameterError, match="url"):
        reticent.open(url, key="rk_x")


def test_wrong_arguments(both, tmp_path):
    far, _ = both
    with pytest.raises(ParameterError, match="key"):
        reticent.open(far.url)
    with pytest.raises(ParameterError, match="key"):
        reticent.open(far.url, key="a\nb")
    with pytest.raises(ParameterError, match="ledger"):
        reticent.open(far.url, key="rk_x", ledger="x")
    with pytest.raises(ParameterError, match="key, dataset and insecure"):
        reticent.open(tmp_path / "x.yaml", key="rk_x")
    with pytest.raises(ParameterError, match="dataset"):
        reticent.open(f"{far.url}/census", key="rk_x", dataset="other")
    with pytest.raises(ParameterError, match="valid API key"):
        reticent.open(far.url, key="rk_x")
    with pytest.raises(ParameterError, match="no such data set"):
        reticent.open(far.url, key=far.keys["alice"], dataset="nothing")
    with pytest.raises(ParameterTypeError, match="query"):
        far.ask(3, information=1.0)
    with pytest.raises(ParameterTypeError, match="url"):
        remote.RemoteSession(3, "rk_x")


def test_json_undoes_itself(both):
    _, near = both
    answer = near.histogram("race", **ACCURACY)
    assert Answer.from_json(json.loads(json.dumps(answer.to_json()))) == answer
    price = near.price("SELECT AVG(age) FROM census", epsilon=0.1)
    assert type(price).from_json(json.loads(json.dumps(price.to_json()))) == price
