"""What is free never waits behind what is paid for, nor small behind large; and work has a rate."""

import json
import random
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from reticent.apps.query import lanes, weights
from reticent.apps.query.desk import Desk
from reticent.apps.query.jobs import Jobs
from reticent.apps.query.weights import MANY, cells_asked
from reticent.query import By
from reticent.query.language import tree
from reticent.query.language.questions import resolve
from reticent.query.rows import source
from reticent.service import limits
from reticent.service.limits import Rate
from reticent.service.replies import written

from .running import BASE, MEAN, refused, until

PATIENCE_S = 120.0  # of a test that would otherwise hang
LARGEST = {"query": {"kind": "histogram", "by": [{"column": "income", "bins": 1 << 16}]}, "information": 1e-4}
HEAVY = {"query": {"kind": "histogram", "by": [{"column": "income", "bins": 1 << 12}]}, "information": 1e-4}
BINS = {"query": {"kind": "histogram", "by": [{"column": "income", "bins": 100}]}, "information": 1e-4}


def paid(number):
    return {"query": f"SELECT COUNT(*) FROM census WHERE age > {number}", "information": 1e-4}


class Holding:
    """A door in the way of a call, which counts who stands before it."""

    def __init__(self, patch, owner, name):
        self.came, self._open = threading.Semaphore(0), threading.Event()
        true = getattr(owner, name)

        def held(*given, **named):
            self.came.release()
            assert self._open.wait(PATIENCE_S)
            return true(*given, **named)

        patch.setattr(owner, name, held)

    def until(self, count):
        for _ in range(count):
            assert self.came.acquire(timeout=PATIENCE_S)

    def release(self):
        self._open.set()


@pytest.fixture
def crew():
    with ThreadPoolExecutor(80) as threads:
        yield threads


def prompt(crew, call):
    """What the call gives; a failure if it waits for somebody who is held."""
    return crew.submit(call).result(PATIENCE_S)


# Free beside paid


FREE = {
    "price": lambda service: service.ask("bob", paid(77), path=f"{BASE}/price"),
    "price of what is being bought": lambda service: service.ask("bob", paid(0), path=f"{BASE}/price"),
    "repeat": lambda service: service.ask("bob"),
    "repeat in other words": lambda service: service.ask("bob", MEAN | {"error": 4321.0}),
    "repeat with a key": lambda service: service.ask("bob", key="again"),
    "repeat of many cells": lambda service: service.ask("bob", BINS),
    "known": lambda service: service.ask("bob", {"query": MEAN["query"]}, path=f"{BASE}/known"),
    "rehearsal": lambda service: service.ask("bob", BINS, path=f"{BASE}/rehearse"),
    "answers": lambda service: service.get("bob", f"{BASE}/answers"),
    "job of another": lambda service: service.ask("bob", paid(78), path=f"{BASE}/jobs"),
}


def bought(service):
    for body in (MEAN, BINS):
        assert service.ask("alice", body).status_code == 200


@pytest.fixture
def held(serving, monkeypatch, crew):
    """A service with all threads for paid questions inside of the engine, and more of them waiting."""
    service = serving(threads=2)
    bought(service)
    door = Holding(monkeypatch, source.Table, "tally")
    asking = [crew.submit(service.ask, "alice", paid(number)) for number in range(4)]
    try:
        door.until(2)
        yield service
    finally:
        door.release()
        assert {one.result(PATIENCE_S).status_code for one in asking} == {200}


def test_what_is_free_comes_while_paid_questions_are_held(held, crew):
    for what, call in FREE.items():
        reply = prompt(crew, lambda call=call: call(held))
        assert reply.status_code in (200, 202), (what, reply.text)


@pytest.mark.parametrize("what", ["repeat with a key", "repeat of many cells"])
def test_planted_one_pool_makes_free_answers_wait(serving, monkeypatch, crew, what):
    """As it was: whoever asks goes to the threads of those who pay."""
    monkeypatch.setattr(Desk, "free", lambda *_, **__: None)
    service = serving(threads=2)
    bought(service)
    door = Holding(monkeypatch, source.Table, "tally")
    asking = [crew.submit(service.ask, "alice", paid(number)) for number in range(2)]
    door.until(2)
    waiting = crew.submit(FREE[what], service)
    pool = service.app.state.jobs.lanes._paid
    until(lambda: pool._work_queue.qsize() == 1)  # no thread is left that could take it
    assert not waiting.done()
    door.release()
    assert {one.result(PATIENCE_S).status_code for one in (*asking, waiting)} == {200}


def test_two_who_ask_the_same_at_once_pay_once(serving, monkeypatch, crew):
    service = serving()
    cost = int(service.ask("bob", paid(5), path=f"{BASE}/price").json()["cost"])
    door = Holding(monkeypatch, source.Table, "tally")
    both = [crew.submit(service.ask, who, paid(5)) for who in ("alice", "bob")]
    door.until(2)
    door.release()
    replies = [one.result(PATIENCE_S).json() for one in both]
    assert replies[0]["cells"] == replies[1]["cells"]
    assert sorted(int(one["cost"]) for one in replies) == [0, cost]
    assert service.spent() == cost
    assert service.desk.ledger.rows("SELECT count(*) FROM measurement") == [(1,)]


# Large beside small, and rehearsals


def test_a_large_free_answer_keeps_no_small_one_waiting(serving, monkeypatch, crew):
    service = serving(threads=1)
    bought(service)
    door = Holding(monkeypatch, Desk, "known")
    large = [
        crew.submit(service.ask, "alice", {"query": LARGEST["query"]}, path=f"{BASE}/known") for _ in range(3)
    ]
    door.until(1)
    for what in ("price", "repeat with a key", "repeat of many cells"):
        assert prompt(crew, lambda what=what: FREE[what](service)).status_code == 200
    door.release()
    assert {one.result(PATIENCE_S).status_code for one in large} == {200}


def rehearsing(service, crew, count):
    return [crew.submit(service.ask, "alice", BINS, path=f"{BASE}/rehearse") for _ in range(count)]


def test_rehearsals_take_no_thread_of_answers(serving, monkeypatch, crew):
    service = serving(threads=1)
    bought(service)
    door = Holding(monkeypatch, Desk, "rehearse")
    many = rehearsing(service, crew, lanes._MOST_WAITING)
    door.until(lanes._REHEARSALS)
    assert prompt(crew, lambda: service.ask("bob", paid(3))).status_code == 200
    for what in ("price", "repeat with a key", "known"):
        assert prompt(crew, lambda what=what: FREE[what](service)).status_code == 200
    until(lambda: sum(service.app.state.jobs.lanes._waiting.values()) == lanes._MOST_WAITING)
    refused(service.ask("bob", BINS, path=f"{BASE}/rehearse"), 503, "busy")
    door.release()
    assert {one.result(PATIENCE_S).status_code for one in many} == {200}


def test_planted_rehearsals_in_the_common_pool_stop_prices(serving, monkeypatch, crew):
    """As it was."""

    async def common(self, cells, call):
        return await lanes.run_in_threadpool(call)

    monkeypatch.setattr(lanes.Lanes, "rehearse", common)
    service = serving(threads=1)
    bought(service)
    door = Holding(monkeypatch, Desk, "rehearse")
    held = rehearsing(service, crew, 1)
    door.until(1)
    limiter = service.client.portal.call(lanes_limiter)
    waiting = crew.submit(FREE["price"], service)
    until(lambda: limiter.statistics().tasks_waiting == 1)
    assert not waiting.done()
    door.release()
    assert {one.result(PATIENCE_S).status_code for one in (*held, waiting)} == {200}


async def lanes_limiter():
    import anyio.to_thread

    return anyio.to_thread.current_default_thread_limiter()


# The rate of work


VERBS = ("price", "rehearse", "ask", "jobs", "known")


def sent(service, verb, who="alice", body=HEAVY):
    given = {"query": body["query"]} if verb == "known" else body
    return service.ask(who, given, path=f"{BASE}/{verb}")


@pytest.mark.parametrize("first", ["price", "rehearse", "ask"])
def test_work_has_a_rate_whatever_is_asked(serving, first):
    service = serving(work_rate=0.01, work_burst=5000)
    assert sent(service, first).status_code == 200
    spent = service.spent()
    for verb in VERBS:
        reply = sent(service, verb)
        refused(reply, 429, "too_much_work")
        assert int(reply.headers["retry-after"]) > 300_000
    planned = service.ask("alice", {"questions": [MEAN] * 4}, path=f"{BASE}/plan")
    refused(planned, 429, "too_much_work")
    assert service.spent() == spent, "what is refused is not charged"
    assert sent(service, "price", body=MEAN).status_code == 200, "ordinary questions have room"
    assert sent(service, "price", who="bob").status_code == 200, "others have their own"


@pytest.fixture
def crowded(serving, monkeypatch, crew):
    """Alice has used up her rate, and others hold the only thread of what is quick."""
    service = serving(threads=1, work_rate=0.01, work_burst=5000)
    bought(service)
    assert sent(service, "price").status_code == 200
    door = Holding(monkeypatch, Desk, "price")
    asking = crew.submit(FREE["price"], service)
    door.until(1)
    yield service
    door.release()
    assert asking.result(PATIENCE_S).status_code == 200


@pytest.mark.parametrize("verb", VERBS)
def test_a_refusal_takes_no_thread(crowded, crew, verb):
    refused(prompt(crew, lambda: sent(crowded, verb)), 429, "too_much_work")


def test_planted_weighing_in_a_thread_makes_refusals_wait(crowded, monkeypatch, crew):
    """As it was."""
    monkeypatch.setattr(Jobs, "hopeless", lambda *_, **__: None)
    limiter = crowded.client.portal.call(lanes_limiter)
    waiting = crew.submit(sent, crowded, "price")
    until(lambda: limiter.statistics().tasks_waiting == 1)
    assert not waiting.done()


def usual(service, patch, call):
    """What would be replied if nothing were spared."""
    with patch.context() as here:
        here.setattr(Jobs, "hopeless", lambda *_, **__: None)
        return call(service)


@pytest.mark.parametrize("verb", VERBS)
def test_refusals_are_those_of_the_usual_way(serving, monkeypatch, verb):
    service = serving(work_rate=0.01, work_burst=5000)
    assert sent(service, "price").status_code == 200
    before = service.get("vera", "/metrics").text
    short, long = sent(service, verb), usual(service, monkeypatch, lambda one: sent(one, verb))
    after = service.get("vera", "/metrics").text
    refused(long, 429, "too_much_work")
    assert short.status_code == 429
    assert without_clock(short.text) == without_clock(long.text)
    assert sorted(short.headers) == sorted(long.headers)
    route = f'/api/v1/datasets/{{name}}/{verb}",status="429"'
    assert counted(after, route) - counted(before, route) == 2


def without_clock(text):
    found, count = re.subn(r"[0-9.]+ s\"", 'some s"', text)
    assert count == 1
    return found


def counted(metrics, route):
    return sum(float(line.rpartition(" ")[2]) for line in metrics.splitlines() if route in line)


OTHERS = {
    "nobody": lambda service: service.call(None, "POST", f"{BASE}/price", json=HEAVY),
    "a role that may not ask": lambda service: service.ask("vera", HEAVY, path=f"{BASE}/price"),
    "no JSON": lambda service: service.call("alice", "POST", f"{BASE}/price", content=b"{"),
    "no question": lambda service: service.call("alice", "POST", f"{BASE}/price", json=[HEAVY]),
    "no such data set": lambda service: service.ask("alice", HEAVY, path="/api/v1/datasets/no/price"),
    "SQL": lambda service: service.ask("alice", MEAN, path=f"{BASE}/price"),
    "few cells": lambda service: service.ask("alice", BINS, path=f"{BASE}/price"),
    "another method": lambda service: service.get("alice", f"{BASE}/price"),
}


@pytest.mark.parametrize("what", sorted(OTHERS))
def test_whatever_is_not_hopeless_goes_its_usual_way(serving, monkeypatch, what):
    service = serving(work_rate=0.01, work_burst=5000)
    bought(service)
    assert sent(service, "price").status_code == 200
    here, there = OTHERS[what](service), usual(service, monkeypatch, OTHERS[what])
    assert (here.status_code, here.content) == (there.status_code, there.content)
    assert here.status_code != 429


def test_refusals_count_as_requests(serving):
    service = serving(work_rate=0.01, work_burst=5000, rate=0.01, burst=10)
    assert sent(service, "price").status_code == 200
    kinds = [sent(service, "price").json()["error"]["type"] for _ in range(12)]
    assert kinds == ["too_much_work"] * 9 + ["too_many_requests"] * 3


def test_planted_refusals_for_nothing_are_caught(serving, monkeypatch):
    service = serving(work_rate=0.01, work_burst=5000, rate=0.01, burst=10)
    assert sent(service, "price").status_code == 200
    monkeypatch.setattr(service.app.state.rate, "wait_s", lambda *_: 0.0)
    assert [sent(service, "price").json()["error"]["type"] for _ in range(12)] == ["too_much_work"] * 12


def test_planted_rates_by_requests_alone_let_the_largest_through(serving, monkeypatch):
    """As it was."""
    monkeypatch.setattr("reticent.apps.query.desk.cells_asked", lambda query, data: 1)
    service = serving(work_rate=0.01, work_burst=5000)
    assert [sent(service, "price").status_code for _ in range(3)] == [200, 200, 200]


def test_public_rows_count_and_private_ones_do_not(serving, folder):
    service = serving(work_rate=0.01, work_burst=1000, rows_per_step=500)
    assert service.desk.data("census").rows == 2000
    assert sent(service, "price", body=BINS).status_code == 200  # 100 cells, 5 steps
    assert sent(service, "price", body=BINS).status_code == 200
    refused(sent(service, "price", body=BINS), 429, "too_much_work")
    assert service.settings.steps(None) == 1


def test_long_texts_are_work_too(serving):
    service = serving(work_rate=0.01, work_burst=1000)
    text = "SELECT COUNT(*) FROM census WHERE " + " OR ".join(f"age = {n % 90}" for n in range(900))
    body = {"query": text, "information": 1e-3}
    assert sent(service, "price", body=body).status_code == 200
    refused(sent(service, "price", body=body), 429, "too_much_work")


def test_long_requests_are_refused_before_they_are_read(serving):
    service = serving(work_rate=0.01, work_burst=1000)
    edges = list(range(1, 3000))
    body = {"query": {"kind": "histogram", "by": [{"column": "income", "edges": edges}]}, "information": 1e-4}
    assert service.ask("alice", body, path=f"{BASE}/price").status_code == 200
    reply = service.call("alice", "POST", f"{BASE}/ask", content=b"[" + b" " * 10_000)
    refused(reply, 429, "too_much_work")
    refused(service.call("bob", "POST", f"{BASE}/ask", content=b"[" + b" " * 10_000), 422, "invalid")


def test_a_long_request_of_a_stranger_is_not_read(service):
    text = b"[" + b" " * 10_000
    for verb in ("price", "rehearse", "known", "jobs"):
        refused(service.call(None, "POST", f"{BASE}/{verb}", content=text), 401, "not_signed_in")


def test_long_requests_that_are_refused_count_by_their_letters(serving):
    service = serving(work_rate=0.01, work_burst=3000)
    head = {"content-type": "application/json"}
    text = b"[" + b" " * 16_000  # no JSON, and as much as 1,000 cells
    for verb in ("price", "ask", "known"):
        refused(service.call("bob", "POST", f"{BASE}/{verb}", content=text, headers=head), 422, "invalid")
    for verb in ("price", "ask", "known"):
        reply = service.call("bob", "POST", f"{BASE}/{verb}", content=text, headers=head)
        refused(reply, 429, "too_much_work")


def test_planted_reading_for_nothing_is_caught(serving, monkeypatch):
    """As it was: who has a little of the rate left may send long ones for ever."""
    monkeypatch.setattr("reticent.apps.query.jobs.letters_asked", lambda text: 0)
    service = serving(work_rate=0.01, work_burst=3000)
    text = b"[" + b" " * 16_000
    for _ in range(6):
        refused(service.call("bob", "POST", f"{BASE}/price", content=text), 422, "invalid")


def test_a_list_of_answers_is_as_much_as_its_cells(serving):
    service = serving(work_rate=0.01, work_burst=350)
    bought(service)  # 101 cells
    assert service.get("alice", f"{BASE}/answers").status_code == 200
    assert service.get("alice", f"{BASE}/answers").status_code == 200
    refused(service.get("alice", f"{BASE}/answers"), 429, "too_much_work")


def test_ordinary_work_is_within_the_defaults(serving):
    service = serving(work_rate=2500.0, work_burst=1 << 17)
    for _ in range(50):
        assert sent(service, "price", body=BINS).status_code == 200


def test_more_than_a_bucket_comes_out_of_a_full_one(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(limits.time, "monotonic", lambda: now[0])
    rate = Rate(10.0, 100)
    assert rate.wait_s("a", 1000) == 0
    assert rate.wait_s("a", 1000) == 100.0
    assert rate.wait_s("a", 1) == pytest.approx(90.1)
    now[0] += 100
    assert rate.wait_s("a", 1000) == 0


# What work is


def a_grouping(rng, column):
    kind = rng.randrange(3)
    if column.values:
        return By(column.name)
    if kind == 0:
        return By(column.name, bins=rng.randint(2, 40))
    codes = sorted(rng.sample(range(column.first + 1, column.last + 1), rng.randint(1, 20)))
    return By(column.name, edges=tuple(column.meaning(code) for code in codes))


def test_cells_are_counted_before_a_query_is_checked(desk):
    data, rng = desk.data("census"), random.Random(5)
    for _ in range(300):
        by = [a_grouping(rng, one) for one in rng.sample(data.columns, rng.randint(1, 2))]
        query = tree.count(by=by)
        assert cells_asked(query, data) == resolve(query, data).cells
        assert cells_asked(tree.to_json(query), data) == resolve(query, data).cells


@pytest.mark.parametrize(
    "by", [None, 3, "", "nobody", [[]], {}, [{"column": 3}], [{"column": "age", "bins": "9"}], [None] * 99]
)
def test_what_is_no_query_counts_as_one_cell(desk, by):
    assert cells_asked({"kind": "count", "by": by}, desk.data("census")) == 1


@pytest.mark.parametrize("by", [{"bins": 10**30, "column": "age"}, {"edges": [1] * 10**6}])
def test_nothing_counts_for_more_than_the_most_cells(desk, by):
    assert cells_asked({"by": [by] * 8}, desk.data("census")) == 1 << 16


def test_large_is_what_takes_long():
    assert 64 < MANY < 1 << 16
    assert weights.letters_asked("x" * 20_000) == 1250


# Replies in parts


def anything(rng, depth=2):
    kind = rng.randrange(6 if depth else 4)
    if kind == 4:
        return {f"k{i}é\ud800": anything(rng, depth - 1) for i in range(rng.randrange(4))}
    if kind == 5:
        return [anything(rng, depth - 1) for _ in range(rng.choice([0, 1, 3, 255, 256, 257, 600]))]
    return rng.choice([None, True, 1.5, -3, 'a"b\ud800é', "", 10**20])


def test_replies_in_parts_are_those_in_one():
    rng = random.Random(6)
    for _ in range(40):
        content = {"cells": anything(rng), "other": anything(rng)}
        assert written(content) == json.dumps(content, separators=(",", ":")).encode()
    with pytest.raises(ValueError, match="JSON"):
        written({"a": {"b": [float("nan")]}})
