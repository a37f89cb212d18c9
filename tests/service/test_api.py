"""What each call answers, and every shape of error."""

import contextlib
import json
import sqlite3
import tempfile

import pytest
from fastapi.routing import APIRoute

from reticent.apps.query import ask_route as asking
from reticent.apps.query import desk as desk_module
from reticent.apps.query.desk import Desk
from reticent.ledger import SqlLedger, merkle
from reticent.ledger.checkpoint import load_key, parse
from reticent.query import Answer, Price, Session
from reticent.query.declarations import dataset_file
from reticent.query.proposals import Proposal
from reticent.service.settings import Settings

from ..support.postgres_server import start_server, stop_server
from .running import BASE, MEAN, ROWS, make_keys, refused


def test_what_is_there(shared):
    (one,) = shared.get("alice", "/api/v1/datasets").json()["datasets"]
    assert (one["name"], one["rows"], one["policy"]) == ("census", ROWS, "share")
    assert one["budget"]["spent"] == "0"
    told = shared.get("alice", BASE).json()
    assert {column["name"] for column in told["columns"]} >= {"income", "age", "race"}
    assert any("budget" in line.lower() or "epsilon" in line.lower() for line in told["explanation"])


def test_listing_opens_nothing(desk):
    """The list is made of declarations and one look at the ledger."""
    assert desk.names() == ["census"]
    assert desk.data("census").rows == ROWS
    assert desk.balance("census").spent == 0
    assert desk.balances() == {}
    assert not desk.is_open("census")


def test_price_then_ask_then_ask_again(service):
    price = Price.from_json(service.call("alice", "POST", f"{BASE}/price", json=MEAN).json())
    assert price.cost > 0
    assert service.spent() == 0
    first = Answer.from_json(service.ask("alice").json())
    assert (first.cost, first.spent) == (price.cost, price.cost)
    again = Answer.from_json(service.ask("bob").json())
    assert (again.cost, again.value) == (0, first.value)
    finer = Answer.from_json(service.ask("bob", {**MEAN, "error": 3000.0}).json())
    assert 0 < finer.cost < finer.without_reuse
    assert service.spent() == first.cost + finer.cost
    (known,) = service.get("bob", f"{BASE}/answers").json()["answers"]
    assert Answer.from_json(known["answer"]).value == finer.value
    free = service.call("bob", "POST", f"{BASE}/known", json={"query": MEAN["query"]}).json()["answer"]
    assert free == known["answer"]
    rehearsed = service.call("bob", "POST", f"{BASE}/rehearse", json=MEAN).json()
    assert rehearsed["spent"] != str(service.spent())


def test_a_workload_is_planned_and_charges_nothing(service):
    asked = {"query": "SELECT race, COUNT(*) FROM census GROUP BY race", "error": 50.0}
    told = service.call("alice", "POST", f"{BASE}/plan", json={"questions": [asked] * 3}).json()
    found = Proposal.from_json(told)
    assert (len(found.wishes), found.cost, found.wishes[1].after) == (3, found.as_they_come, 0)
    assert service.spent() == 0
    for body, rule in (
        ({"questions": []}, "questions"),
        ({"questions": [asked] * 201}, "questions"),
        ({"questions": [{"query": "SELECT nothing", "error": 1.0}]}, ""),
    ):
        refused = service.call("alice", "POST", f"{BASE}/plan", json=body)
        assert refused.status_code in (400, 422)
        assert rule in refused.text


def test_answers_come_in_pages(service):
    for low in (20, 40, 60):
        query = {"query": f"SELECT COUNT(*) FROM census WHERE age > {low}", "information": 1e-3}
        assert service.ask("alice", query).status_code == 200
    everything = service.get("alice", f"{BASE}/answers").json()
    assert (everything["size"], len(everything["answers"])) == (3, 3)
    parts = [
        service.get("alice", f"{BASE}/answers", params={"first": first, "count": 2}).json()["answers"]
        for first in (0, 2)
    ]
    assert parts[0] + parts[1] == everything["answers"]


def test_what_is_refused_says_what_is_free(service):
    service.ask("alice")
    error = refused(service.ask("alice", {**MEAN, "error": 100.0}), 409, "budget_exceeded")
    assert int(error["asked"]) > int(error["left"]) > 0
    assert Answer.from_json(error["best"]).error <= 40001
    assert error["reachable_error"] < 40000


def test_degrade_shows_nothing_that_was_not_asked_for(folder, serving):
    path = folder / "census.yaml"
    path.write_text(path.read_text().replace("policy: share", "policy: degrade"))
    service = serving()
    fine = service.ask("alice", {**MEAN, "error": 2000.0}).json()
    (bought,) = service.get("bob", f"{BASE}/answers").json()["answers"]
    assert bought["answer"] is None
    body = {"query": MEAN["query"]}
    assert service.call("bob", "POST", f"{BASE}/known", json=body).json() == {"answer": None}
    coarse = service.ask("bob", {**MEAN, "error": 8000.0}).json()
    assert coarse["cost"] == "0"
    assert coarse["cells"][0]["standard_error"] > 2 * fine["cells"][0]["standard_error"]
    error = refused(service.ask("bob", {**MEAN, "error": 100.0}), 409, "budget_exceeded")
    assert error["best"] is None
    said = json.dumps([bought, coarse, error, service.get("bob", f"{BASE}/budget").json()])
    assert str(fine["cells"][0]["value"]) not in said


@pytest.mark.parametrize(
    ("body", "status", "kind", "part"),
    [
        ({}, 422, "invalid", "query"),
        ([], 422, "invalid", "body"),
        ({**MEAN, "more": 1}, 422, "invalid", "more"),
        ({**MEAN, "error": "1"}, 422, "invalid", "error"),
        ({**MEAN, "error": True}, 422, "invalid", "error"),
        ({**MEAN, "error": -1.0}, 400, "bad_request", "error"),
        ({**MEAN, "epsilon": 1.0}, 400, "bad_request", "accuracy"),
        ({"query": MEAN["query"]}, 400, "bad_request", "accuracy"),
        ({**MEAN, "confidence": 2.0}, 400, "bad_request", "confidence"),
        ({**MEAN, "query": "DROP TABLE census"}, 400, "bad_request", ""),
        ({**MEAN, "query": "SELECT AVG(nothing) FROM census"}, 400, "bad_request", "nothing"),
        ({**MEAN, "query": {"kind": "mean"}}, 400, "bad_request", "column"),
        ({**MEAN, "query": {"kind": "mean", "column": "\ud800"}}, 400, "bad_request", ""),
        ({**MEAN, "query": 3}, 422, "invalid", "query"),
        ({**MEAN, "query": "x" * 20_001}, 422, "invalid", "query"),
    ],
)
@pytest.mark.parametrize("verb", ["ask", "price", "jobs"])
def test_what_cannot_be_asked(shared, verb, body, status, kind, part):
    sent = json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    reply = shared.call("alice", "POST", f"{BASE}/{verb}", content=sent, headers=headers)
    assert part in refused(reply, status, kind)["message"]
    assert shared.spent() == 0


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", 422),
        (b"{", 422),
        (b"\xff", 400),
        (b'{"query": "SELECT AVG(age) FROM census", "error": NaN}', 422),
        (b'{"query": "SELECT AVG(age) FROM census", "error": 1e999}', 422),
        (b'{"query": {"kind": "mean", "column": "age", "where": {"column": "age", "op": "<", "value": NaN}},'
         b' "error": 1.0}', 400),
        (b'{"query": "x", "error": ' + b"9" * 5000 + b"}", 400),
        (b'{"query": "' + b"(" * 19_000 + b'", "error": 1.0}', 400),
    ],
)  # fmt: skip
def test_what_is_no_body(shared, sent, status):
    reply = shared.call("alice", "POST", f"{BASE}/ask", content=sent,
                         headers={"Content-Type": "application/json"})  # fmt: skip
    assert reply.status_code == status
    assert set(reply.json()) == {"error"}


@pytest.mark.parametrize("path", ["/api/v1/datasets/nothing", "/api/v1/nothing", "/api/v1/datasets/..%2fx"])
def test_what_is_not_there(shared, path):
    refused(shared.get("alice", path), 404, "not_found")


def test_a_wrong_method(shared):
    refused(shared.call("alice", "PATCH", BASE), 405, "method_not_allowed")


def test_a_fault_says_nothing_of_the_data(shared, monkeypatch, caplog):
    def broken(*_, **__):
        raise RuntimeError("holds a private 0.73")

    monkeypatch.setattr(Desk, "price", broken)
    monkeypatch.setattr(Desk, "ask", broken)
    for verb in ("price", "ask"):
        refused(shared.ask("alice", path=f"{BASE}/{verb}"), 500, "fault")
    assert "0.73" not in caplog.text
    assert "RuntimeError" in caplog.text


def test_every_reply_is_guarded(shared):
    for path in ("/health", "/api/v1/me", "/api/v1/nothing"):
        headers = shared.get(None, path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'self'" in headers["content-security-policy"]
        assert headers["cache-control"] == "no-store"
    assert shared.get(None, "/api/v1/me").headers["www-authenticate"] == "Bearer"


# Registering


def town(**changes):
    fields = {"name": "town", "source": "town.csv", "epsilon": 1} | changes
    return (
        "name: {name}\nversion: 1\nsource: {source}\nunit: row\nrelation: replace one\n"
        "rows: 200\nbudget: {{epsilon: {epsilon}, delta: 1e-4}}\n"
        "columns:\n  age: {{type: integer, low: 0, high: 120}}\n"
    ).format(**fields)


def test_a_data_set_is_registered_once(service, folder):
    body = {"declaration": town()}
    made = service.call("olga", "POST", "/api/v1/datasets", json=body)
    assert (made.status_code, made.json()["name"]) == (201, "town")
    assert dataset_file.read(folder / "town.yaml").name == "town"
    refused(service.call("olga", "POST", "/api/v1/datasets", json=body), 409, "account_conflict")
    refused(service.call("otto", "POST", "/api/v1/datasets", json=body), 400, "bad_request")
    query = {"query": "SELECT AVG(age) FROM town", "information": 1e-4}
    assert service.ask("alice", query, path="/api/v1/datasets/town/ask").status_code == 200
    assert [one.name for one in folder.glob(".town*")] == [".town.csv.reticent"]  # whose the rows are


def test_two_workers_register_one(service, folder, monkeypatch):
    """Another worker puts the file there between the look and the writing."""
    found = Desk._found

    def late(self):
        before = found(self)
        (folder / "town.yaml").write_text(town(epsilon=2))
        return before

    monkeypatch.setattr("pathlib.Path.exists", lambda self: False)
    monkeypatch.setattr(Desk, "_found", late)
    reply = service.call("olga", "POST", "/api/v1/datasets", json={"declaration": town()})
    refused(reply, 409, "account_conflict")
    assert dataset_file.read(folder / "town.yaml").budget.epsilon == 2
    assert service.desk.state.owner("town") is None


@pytest.mark.parametrize(
    "source",
    ["../census.csv", "/etc/passwd", "nothing.csv", "*.csv", ".service/state.sqlite",
     "{url: 'postgresql://elsewhere/x', table: t}", "{duckdb: ../x.db, table: t}", "x" * 5000 + ".csv"],
    ids=lambda source: source[:20],
)  # fmt: skip
def test_no_other_place_is_read(shared, source):
    reply = shared.call("olga", "POST", "/api/v1/datasets", json={"declaration": town(source=source)})
    refused(reply, 400, "bad_request")
    assert shared.desk.names() == ["census"]


@pytest.mark.parametrize(
    "text",
    ["", "[" * 60_000, "- " * 30_000, "name: x", "x" * 70_000, "a: \u0007", "a: &a [*a]"],
    ids=["empty", "brackets", "dashes", "too little", "too long", "a bell", "itself"],
)
def test_no_declaration(shared, text):
    reply = shared.call("olga", "POST", "/api/v1/datasets", json={"declaration": text})
    assert reply.status_code in (400, 422)
    assert set(reply.json()) == {"error"}


# The ledger


def test_proofs_check(service, folder):
    service.ask("alice")
    ledger = service.get("vera", "/api/v1/ledger").json()
    head, _ = parse(ledger["checkpoint"])
    entries = service.get("vera", "/api/v1/ledger/entries", params={"count": 1000}).json()
    assert (entries["size"], len(entries["entries"])) == (head.size, head.size)
    assert load_key(folder / ".service" / "ledger.key")
    for number, leaf in enumerate(entries["entries"]):
        told = service.get("vera", f"/api/v1/ledger/entries/{number}/proof").json()
        assert told["leaf"] == leaf
        assert told["root"] == head.root.hex()
        proof = [bytes.fromhex(node) for node in told["proof"]]
        merkle.verify_inclusion(merkle.leaf_hash(leaf.encode()), number, head.size, proof, head.root)
    told = service.get("vera", "/api/v1/ledger/consistency", params={"old": 1, "new": head.size}).json()
    assert told["new_root"] == head.root.hex()
    refused(service.get("vera", f"/api/v1/ledger/entries/{head.size}/proof"), 404, "not_found")
    refused(
        service.get("vera", "/api/v1/ledger/consistency", params={"old": 5, "new": 2}), 400, "bad_request"
    )


# Whoever runs it


def test_health_tells_what_cannot_be_read(service):
    assert service.get(None, "/health").json() == {"status": "ok"}
    for path in ("/health", "/health/live", "/health/ready"):
        head = service.call(None, "HEAD", path)
        assert (head.status_code, head.content) == (200, b"")
    service.desk.ledger.close()
    assert "ledger" in refused(service.get(None, "/health"), 503, "unhealthy")["message"]


def test_metrics_count_replies(service):
    for _ in range(3):
        service.get("alice", BASE)
    service.get(None, "/api/v1/me")
    service.call("alice", "STRANGE", "/nowhere/census")
    text = service.get("vera", "/metrics").text
    assert 'method="GET",route="/api/v1/datasets/{name}",status="200"} 3\n' in text
    assert 'route="/api/v1/me",status="401"} 1\n' in text
    assert "STRANGE" not in text
    assert "census" not in text
    assert all(line.startswith(("#", "reticent_")) for line in text.splitlines())


def test_a_source_out_of_reach_stops_nothing(folder, serving, caplog):
    text = (folder / "census.yaml").read_text()
    (folder / "away.yaml").write_text(
        text.replace("name: census", "name: away").replace("census.csv", "no.csv")
    )
    (folder / "torn.yaml").write_text("name: [")
    service = serving()
    names = [one["name"] for one in service.get("alice", "/api/v1/datasets").json()["datasets"]]
    assert names == ["away", "census"]
    query = {**MEAN, "query": "SELECT AVG(income) FROM away"}
    refused(service.ask("alice", query, path="/api/v1/datasets/away/ask"), 503, "source_unavailable")
    assert service.get("alice", "/api/v1/datasets/away/budget").json()["spent"] == "0"
    assert service.ask("alice").status_code == 200


def test_warming_opens_the_rows(desk):
    assert desk.warm() == []
    assert not callable(desk.session("census")._rows)


@pytest.fixture(scope="module")
def postgres():
    with tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True) as folder:
        server = start_server(folder)
        yield server.get_uri()
        stop_server(server)


def test_a_ledger_in_postgresql(serving, postgres):
    service = serving(ledger=postgres)
    answer = service.ask("alice", key="k").json()
    assert service.ask("alice", key="k").json() == answer
    assert service.spent() == int(answer["cost"]) == service.used("alice")
    assert service.get(None, "/health").status_code == 200
    assert service.get("vera", "/api/v1/ledger").json()["accounts"][0]["name"] == "census"


def test_a_folder_that_is_none(tmp_path):
    from reticent.errors import ParameterError

    with pytest.raises(ParameterError, match="folder"):
        Desk(Settings(tmp_path / "nothing"))


def test_a_newer_state_is_refused(folder):
    from reticent.errors import LedgerError

    make_keys(folder)
    with sqlite3.connect(folder / ".service" / "state.sqlite") as connection:
        connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(LedgerError, match="newer"):
        Desk(Settings(folder))


def test_what_is_free_needs_no_thread(service, monkeypatch):
    """A question that was asked before is answered as `ask` would, noted, and waits for nobody."""
    first = service.ask("alice").json()
    slow = service.desk.ask(service.desk.state.named("alice"), "census", MEAN["query"], error=MEAN["error"])
    with monkeypatch.context() as patch:
        patch.setattr(Desk, "ask", None)
        for _ in range(2):
            quick = service.ask("bob").json()
            assert quick == slow.to_json()
            assert quick["cells"] == first["cells"]
    assert [line.person for line in service.desk.state.history("census")] == ["alice", "alice", "bob", "bob"]
    other = {"query": "SELECT AVG(age) FROM census", "information": 1e-3}
    spent = service.ask("alice", other).json()["spent"]
    assert service.ask("bob").json() == quick | {"spent": spent} | {
        name: service.ask("bob").json()[name] for name in ("remaining", "spent_epsilon")
    }
    finer = service.ask("alice", {**MEAN, "error": 3000.0}).json()
    assert service.ask("bob").json()["cells"] == finer["cells"]


def test_the_same_words_are_not_read_again(service, monkeypatch):
    """Nor is the ledger: whoever asks what was asked is told the same, noted, and needs a key."""
    service.ask("alice")
    told = service.ask("bob").json()
    with monkeypatch.context() as patch:
        patch.setattr(asking, "_read", None)
        patch.setattr(Session, "reused", None)
        assert [service.ask(who).json() for who in ("alice", "bob", "olga")] == [told] * 3
        refused(service.ask("vera"), 403, "not_allowed")
        refused(service.ask(None), 401, "not_signed_in")
        service.desk.state.revoke("bob")
        refused(service.ask("bob"), 401, "not_signed_in")
    people = [line.person for line in service.desk.state.history("census")]
    assert people == ["alice", "bob", "alice", "bob", "olga"]
    again = service.ask("alice", key="a retry").json()
    assert again["cells"] == told["cells"]


def test_questions_are_read_as_fastapi_reads_them(serving, monkeypatch):
    """Whatever the body: the same status, and the same type of refusal."""
    fine = json.dumps(MEAN)
    sent = [(text, "application/json") for text in (
        fine, "", "{", "[]", "null", "7", '"x"', fine[:-1] + ', "more": 1}', '{"query": 1, "error": 1.0}',
        '{"error": 1.0}', '{"query": "x", "error": "1"}', '{"query": "x", "error": true}',
        '{"query": "x", "error": 1.0, "rows": 0}', '{"query": "\\ud800", "error": 1.0}', "\ufeff" + fine,
    )]  # fmt: skip
    kinds = ("text/plain", "", "application/x+json", "Application/JSON; charset=utf-8", "x/json", "json")
    sent += [(fine, kind) for kind in kinds]

    def replies(service):
        service.ask("alice")
        for text, kind in sent:
            reply = service.call(
                "alice", "POST", f"{BASE}/ask", content=text.encode(), headers={"Content-Type": kind}
            )
            yield text, kind, reply.status_code, reply.json().get("error", {}).get("type")

    by_hand = list(replies(serving()))
    monkeypatch.setattr(asking._ByHand, "get_route_handler", APIRoute.get_route_handler)
    assert list(replies(serving())) == by_hand
    assert {status for _, _, status, _ in by_hand} == {200, 422}


def is_up_to_date(service, folder):
    """Whether a repeated question tells what another worker has charged since."""
    for _ in range(3):
        service.ask("alice")
    with contextlib.closing(Desk(Settings(folder, grid_s=0.0))) as other:
        asked = other.ask(other.state.named("bob"), "census", "SELECT AVG(age) FROM census", information=1e-3)
    return service.ask("alice").json()["spent"] == str(asked.spent)


def test_what_another_worker_charges_is_seen_at_once(service, folder):
    assert is_up_to_date(service, folder)


def test_planted_a_repeat_that_looks_at_no_ledger_is_caught(service, folder, monkeypatch):
    monkeypatch.setattr(SqlLedger, "mark", lambda self: 1)
    assert not is_up_to_date(service, folder)


def test_few_repeats_are_kept(service, monkeypatch):
    monkeypatch.setattr(desk_module, "_MOST_REPEATS", 2)
    service.ask("alice")
    for spaces in (0, 1, 2, 3, 5000):
        content = json.dumps(MEAN) + " " * spaces
        reply = service.call(
            "alice", "POST", f"{BASE}/ask", content=content, headers={"Content-Type": "application/json"}
        )
        assert reply.json()["cost"] == "0"
    assert [len(text) - len(json.dumps(MEAN)) for _, text in service.desk._repeats] == [2, 3]


@pytest.mark.parametrize(
    "body",
    [
        {**MEAN, "error": 100.0},
        {"query": "SELECT AVG(family_income) FROM census", "information": 1e-3},
        {"query": "SELECT COUNT(*) FROM census", "information": 1e-3},
    ],
)
def test_what_may_cost_is_not_answered_beside_the_ledger(desk, body):
    session = desk.session("census")
    session.ask(MEAN["query"], error=MEAN["error"])
    assert session.reused(**body) is None
    session.price(**body)
    assert session.reused(**body) is None
