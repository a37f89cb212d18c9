"""Retries are answered as the first was, charged once and counted once; quotas hold whoever races."""

import contextlib
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from reticent.apps.query.desk import Desk
from reticent.errors import CommitUnknown, IdempotencyConflict, SourceError
from reticent.ledger import SqlLedger
from reticent.query import Session
from reticent.query import session as session_module
from reticent.query.accuracy import Accuracy
from reticent.query.notebook import Notebook
from reticent.service.refusals import Refused
from reticent.service.settings import Settings
from reticent.service.state import State

from .running import BASE, MEAN, refused

QUESTION, ERROR = MEAN["query"], MEAN["error"]


def test_a_retry_is_answered_as_the_first_was(service):
    first = service.ask("alice", key="one").json()
    assert int(first["cost"]) > 0
    for _ in range(3):
        assert service.ask("alice", key="one").json() == first
    assert service.spent() == service.used("alice") == int(first["cost"])
    service.ask("bob", {**MEAN, "error": 3000.0})
    assert service.ask("alice", key="one").json() == first, "what others buy does not change it"


def test_another_body_is_a_conflict(service):
    service.ask("alice", key="one")
    before = service.spent()
    for body in ({**MEAN, "error": 3000.0}, {**MEAN, "confidence": 0.9}):
        refused(service.ask("alice", body, key="one"), 409, "idempotency_conflict")
        refused(service.ask("alice", body, key="one", path=f"{BASE}/jobs"), 409, "idempotency_conflict")
    assert service.spent() == before


def test_a_key_is_an_analysts_own(service):
    first = service.ask("alice", key="one").json()
    other = service.ask("bob", {**MEAN, "query": "SELECT AVG(age) FROM census"}, key="one").json()
    assert other["query"] != first["query"]


@pytest.mark.parametrize("key", ["", "x" * 201, "a\tb"])
def test_what_is_no_key(shared, key):
    assert shared.ask("alice", key=key).status_code in (400, 422)
    assert shared.spent() == 0


def test_many_at_once_with_one_key(service):
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: service.ask("alice", key="one").json(), range(16)))
    assert all(reply == replies[0] for reply in replies)
    assert service.spent() == service.used("alice") == int(replies[0]["cost"])


GROUP = {"query": "SELECT AVG(income) FROM census WHERE age >= 100", "error": 4000.0, "rows": 1500}


@pytest.mark.parametrize("key", [None, "one"])
def test_the_same_error_is_free_for_everybody(service, key):
    """Hardly anybody is that old, so that the interval is far wider than asked; nobody pays for it twice."""
    first = service.ask("alice", GROUP, key=key).json()
    assert 0 < int(first["cost"]) == service.spent()
    for who in ("bob", "alice", "bob"):
        assert service.call(who, "POST", f"{BASE}/price", json=GROUP).json()["cost"] == "0"
        again = service.ask(who, GROUP, key=None if key is None else f"{key}-{who}").json()
        assert (again["cost"], again["cells"]) == ("0", first["cells"])
    assert service.spent() == int(first["cost"])


# Crashes between the charge and the reply


class _CrashError(Exception):
    pass


@pytest.fixture
def alice(desk):
    return desk.state.named("alice")


def crash_and_retry(desk, person, monkeypatch, place, verb):
    """Ask, be cut off after `verb` has done its work, ask again; what was spent and what was counted."""
    true = getattr(place, verb)

    def cut_off(self, *args, **options):
        true(self, *args, **options)
        raise _CrashError

    with monkeypatch.context() as patch:
        patch.setattr(place, verb, cut_off)
        with pytest.raises(_CrashError):
            desk.ask(person, "census", QUESTION, error=ERROR, idempotency="one")
    answer = desk.ask(person, "census", QUESTION, error=ERROR, idempotency="one")
    assert desk.ask(person, "census", QUESTION, error=ERROR, idempotency="one") == answer
    return desk.balance("census").spent, desk.state.quota("census", person)[1]


@pytest.mark.parametrize(
    ("place", "verb"),
    [
        (State, "reserve"),
        (SqlLedger, "_request"),
        (SqlLedger, "_fulfil"),
        (Session, "pay"),
        (Session, "told"),
        (State, "settle"),
    ],
)
@pytest.mark.parametrize("has_quota", [False, True])
def test_a_crash_is_counted_once(desk, alice, monkeypatch, place, verb, has_quota):
    if has_quota:
        desk.state.set_quota("census", alice, desk.data("census").terms.cap // 2)
    spent, used = crash_and_retry(desk, alice, monkeypatch, place, verb)
    assert spent == used > 0


def test_planted_counting_each_try_is_caught(desk, alice, monkeypatch):
    def forgetful(self, attempt, person, dataset, units):
        return true(self, f"{attempt}{next(tries)}", person, dataset, units)

    true, tries = State.reserve, iter(range(9))
    monkeypatch.setattr(State, "reserve", forgetful)
    spent, used = crash_and_retry(desk, alice, monkeypatch, SqlLedger, "_request")
    assert spent != used


# A retry that settles first, at another server

POINTS = [
    (State, "reserve"),
    (Notebook, "note_request"),
    (SqlLedger, "_request"),
    (SqlLedger, "_fulfil"),
    (Session, "pay"),
    (Session, "told"),
    (State, "settle"),
]
PLAIN = (QUESTION, {"error": ERROR})
FRESH = (QUESTION, {"error": ERROR, "reuse": "none"})


def overtake(folder, monkeypatch, place, verb, asked):
    """Let another server answer the retry of a request between two steps of the first try.

    Returns:
        The answers that both were told, and what was spent and counted.
    """
    query, accuracy = asked
    true, retried = getattr(place, verb), []
    with contextlib.ExitStack() as held:
        first, second = (
            held.enter_context(contextlib.closing(Desk(Settings(folder, grid_s=0.0)))) for _ in range(2)
        )
        alice = first.state.named("alice")

        def ask(desk):
            found = desk.free(alice, "census", query, Accuracy(**accuracy), "one")  # as the service does
            return found or desk.ask(alice, "census", query, idempotency="one", **accuracy)

        def overtaken(self, *given, **named):
            made = true(self, *given, **named)
            if not retried:
                retried.append(None)  # the second server walks the same way, undisturbed
                retried[0] = ask(second)
            return made

        with monkeypatch.context() as patch:
            patch.setattr(place, verb, overtaken)
            answer = ask(first)
        return answer, retried[0], first.balance("census").spent, first.state.quota("census", alice)[1]


@pytest.mark.parametrize("asked", [PLAIN, FRESH], ids=["plain", "fresh"])
@pytest.mark.parametrize(("place", "verb"), POINTS, ids=[verb for _, verb in POINTS])
def test_a_retry_that_settles_first_shows_what_was_charged(folder, keys, monkeypatch, place, verb, asked):
    first, second, spent, used = overtake(folder, monkeypatch, place, verb, asked)
    assert first == second
    assert first.cost == spent == used > 0


def test_planted_a_retry_that_is_free_once_it_is_recorded_is_caught(folder, keys, monkeypatch):
    """The old fault: who came after the record and before the answer found nothing to pay, and settled."""
    monkeypatch.setattr(Session, "has_requested", lambda *given: False)
    first, second, spent, _ = overtake(folder, monkeypatch, Session, "pay", PLAIN)
    assert first.cost == second.cost == 0 < spent


def test_planted_a_retry_without_the_earlier_grant_is_caught(folder, keys, monkeypatch):
    monkeypatch.setattr(session_module, "find_earlier_grant", lambda *given: None)
    first, _, spent, _ = overtake(folder, monkeypatch, Session, "pay", PLAIN)
    assert first.cost == 0 < spent


# Quotas


def test_a_quota_holds(service):
    put = service.call("olga", "PUT", f"{BASE}/quotas/alice", json={"share": 0.01})
    limit = int(put.json()["quota"])
    budget = service.get("alice", f"{BASE}/budget").json()
    assert (budget["quota"], budget["used"]) == (str(limit), "0")
    error = refused(service.ask("alice"), 409, "quota_exceeded")
    assert int(error["asked"]) > int(error["left"]) == limit
    assert service.spent() == 0
    paid = int(service.ask("bob").json()["cost"])
    assert service.ask("alice").json()["cost"] == "0", "what is bought is free for everybody"
    assert (service.used("alice"), service.used("bob")) == (0, paid)
    service.call("olga", "PUT", f"{BASE}/quotas/alice", json={"share": None})
    assert service.ask("alice", {**MEAN, "error": 3000.0}).status_code == 200
    told = service.get("olga", f"{BASE}/quotas").json()["quotas"]
    assert {one["analyst"] for one in told} == {"alice", "bob"}


@pytest.mark.parametrize("share", [-0.1, 1.1, "1", True, float("1e400")])
def test_what_is_no_share(shared, share):
    reply = shared.call(
        "olga", "PUT", f"{BASE}/quotas/alice", content=f'{{"share": {share!r}}}'.replace("'", '"'),
        headers={"Content-Type": "application/json"},
    )  # fmt: skip
    refused(reply, 422, "invalid")


def race(folder, asks=16):
    """Two workers, many threads, different questions; what was charged and what the quota is."""
    desks = [Desk(Settings(folder, grid_s=0.0)) for _ in range(2)]
    alice = desks[0].state.named("alice")
    cap = desks[0].data("census").terms.cap
    limit = cap // 50
    desks[0].state.set_quota("census", alice, limit)
    together = threading.Barrier(asks)

    def ask(i):
        together.wait()
        try:
            query = f"SELECT COUNT(*) FROM census WHERE age > {i}"
            return desks[i % 2].ask(alice, "census", query, information=1e-12 * (limit // 5)).cost
        except Refused:  # the only one that the desk itself raises here
            return 0

    with ThreadPoolExecutor(asks) as pool:
        costs = list(pool.map(ask, range(asks)))
    spent = desks[0].balance("census").spent
    used = desks[0].state.quota("census", alice)[1]
    for desk in desks:
        desk.close()
    assert sum(costs) == spent
    return spent, used, limit


def test_racing_workers_stay_within_a_quota(folder, keys):
    spent, used, limit = race(folder)
    assert limit * 3 // 5 < spent == used <= limit


def test_planted_looking_before_counting_is_caught(folder, keys, monkeypatch):
    def late(self, attempt, person, dataset, units):
        limit, used = self.quota(dataset, person)
        if limit is not None and used + units > limit:
            return False, limit - used
        return True, None  # as if all had looked before the first was counted

    monkeypatch.setattr(State, "reserve", late)
    spent, _, limit = race(folder)
    assert spent > limit


def test_what_is_refused_is_given_back(desk, alice):
    cap = desk.data("census").terms.cap
    desk.state.set_quota("census", alice, 10 * cap)
    with pytest.raises(Exception, match="left"):
        desk.ask(alice, "census", QUESTION, information=2.0 * cap / 1e12)
    assert desk.state.quota("census", alice)[1] == 0


@pytest.mark.parametrize(
    ("error", "is_charged"),
    [(SourceError(), False), (SourceError(), True), (CommitUnknown("lost"), False)],
)
def test_what_may_have_been_charged_stays_counted(desk, alice, monkeypatch, error, is_charged):
    """After an error the price tells whether it was paid for; a commit that is not known of counts."""
    true = SqlLedger._request

    def failing(self, *args):
        if is_charged:
            true(self, *args)
        raise error

    price = desk.price("census", QUESTION, error=ERROR).cost
    monkeypatch.setattr(SqlLedger, "_request", failing)
    with pytest.raises(type(error)):
        desk.ask(alice, "census", QUESTION, error=ERROR)
    counted = desk.state.quota("census", alice)[1]
    assert counted == (price if is_charged or isinstance(error, CommitUnknown) else 0)


def test_an_old_attempt_is_forgotten(desk, alice, folder):
    desk.ask(alice, "census", QUESTION, error=ERROR, idempotency="one")
    with pytest.raises(IdempotencyConflict):
        desk.ask(alice, "census", QUESTION, error=2 * ERROR, idempotency="one")
    connection = sqlite3.connect(folder / ".service" / "state.sqlite")
    with connection:
        connection.execute("UPDATE attempt SET made = 0")
    connection.close()
    desk.state.forget()
    assert desk.ask(alice, "census", QUESTION, error=2 * ERROR, idempotency="one").cost == 0


def test_history_has_a_line_for_each_question(service):
    for _ in range(2):
        service.ask("alice", key="one")
        service.ask("bob")
    lines = service.desk.state.history("census")
    assert [(line.person, line.cost > 0) for line in lines] == [
        ("alice", True),
        ("bob", False),
        ("bob", False),
    ]
