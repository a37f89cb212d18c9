"""What is free never waits behind what is paid for, nor small behind large; and work has a rate."""

import contextlib
import json
import random
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from reticent.query import By, source, tree
from reticent.query.questions import resolve
from reticent.service import lanes, limits, pages, weights
from reticent.service.desk import Desk
from reticent.service.limits import Rate
from reticent.service.replies import written
from reticent.service.state import State
from reticent.service.weights import MANY, cells_asked

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
    monkeypatch.setattr("reticent.service.jobs.Jobs._free", lambda *_: _nothing())
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


async def _nothing():
    return 1, None


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
    assert service.spent() == spent, "what is refused is not charged"
    assert sent(service, "price", body=MEAN).status_code == 200, "ordinary questions have room"
    assert sent(service, "price", who="bob").status_code == 200, "others have their own"


def test_planted_rates_by_requests_alone_let_the_largest_through(serving, monkeypatch):
    """As it was."""
    monkeypatch.setattr("reticent.service.desk.cells_asked", lambda query, data: 1)
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


LONG = "SELECT COUNT(*) FROM census WHERE " + " OR ".join(["age = 1"] * 400)
REFUSED = {"query": f"{LONG} OR", "information": 1e-4}


def test_what_cannot_be_read_was_work_too(serving):
    """9,000 letters that end in a word too many took 90 ms, 50 times a second, and counted for nothing."""
    service = serving(work_rate=0.01, work_burst=5000)
    refused(sent(service, "price", body=REFUSED), 400, "bad_request")
    refused(sent(service, "price", body=REFUSED), 400, "bad_request")
    for verb in VERBS:
        refused(sent(service, verb, body=REFUSED), 429, "too_much_work")


def test_planted_what_is_refused_counts_for_nothing(serving, monkeypatch):
    """As it was."""
    monkeypatch.setattr(Rate, "take", lambda *_: None)
    service = serving(work_rate=0.01, work_burst=5000)
    assert [sent(service, "price", body=REFUSED).status_code for _ in range(9)] == [400] * 9


def conditions(count):
    ors = [{"not": {"column": "age", "op": "=", "value": n % 90}} for n in range(count)]
    return {"query": {"kind": "count", "where": {"or": ors}}, "information": 1e-4}


def test_conditions_in_json_are_work_too(serving):
    """A question of one cell with 960 parts took 185 ms: as much as one of 9,000 cells."""
    service = serving(work_rate=0.01, work_burst=10_000)
    assert sent(service, "price", body=conditions(300)).status_code == 200
    for verb in VERBS:
        refused(sent(service, verb, body=conditions(300)), 429, "too_much_work")
    assert sent(service, "price", body=conditions(3)).status_code == 200


def test_planted_conditions_of_one_cell_are_free(serving, monkeypatch):
    """As it was."""
    monkeypatch.setattr("reticent.service.weights._parts", lambda *_: 0)
    service = serving(work_rate=0.01, work_burst=10_000)
    assert [sent(service, "price", body=conditions(300)).status_code for _ in range(9)] == [200] * 9


@pytest.mark.parametrize("odd", [None, 3, "age > 3", [], {}, [[[[]]]], {"and": {"or": {"not": None}}}])
def test_parts_of_anything_are_counted(odd):
    assert 0 <= weights.letters_asked({"where": odd, "of": odd}) < 100


def test_parts_are_counted_no_further_than_the_most_cells():
    assert weights.letters_asked({"where": [1] * 10**6}) == 1 << 16


def test_parts_of_a_query_are_those_of_its_json(desk):
    given = conditions(40)["query"]
    assert weights.letters_asked(tree.from_json(given)) == weights.letters_asked(given) > 1000


def a_job(service, body):
    job = service.ask("alice", body, path=f"{BASE}/jobs").json()["job"]
    place = f"/api/v1/jobs/{job}"
    until(lambda: service.get("bob", "/health") and service.desk.state.job(job, alice(service)).result)
    return job, place


def alice(service):
    return service.desk.state.named("alice")


def test_looking_at_a_large_job_again_and_again_is_work(serving):
    """The answer of 65,536 cells took 430 ms of everybody's threads at each look, 50 times a second."""
    service = serving(work_rate=0.01, work_burst=6500)
    job, place = a_job(service, HEAVY)  # 4,096 cells, and 450 at each look
    looks = [service.get("alice", place) for _ in range(9)]
    assert [one.status_code for one in looks] == sorted(one.status_code for one in looks)
    assert {one.status_code for one in looks} == {200, 429}
    refused(looks[-1], 429, "too_much_work")
    held = service.desk.state.job(job, alice(service))
    assert looks[0].json() == service.app.state.jobs.told(held)
    assert len(looks[0].json()["result"]["cells"]) == 4096


def test_planted_looking_at_jobs_is_free(serving, monkeypatch):
    """As it was."""
    monkeypatch.setattr("reticent.service.jobs.letters_told", lambda _: 0)
    service = serving(work_rate=0.01, work_burst=6500)
    _, place = a_job(service, HEAVY)
    assert [service.get("alice", place).status_code for _ in range(9)] == [200] * 9


def test_a_job_that_waits_or_is_refused_is_told_as_it_is(serving):
    service = serving()
    jobs = service.app.state.jobs
    held = service.desk.state.job(a_job(service, BINS)[0], alice(service))
    for one in (held, replace(held, result=None, state="queued"), replace(held, shown=2e12)):
        assert json.loads(jobs.reply(one)) == jobs.told(one)


def test_many_cells_of_answers_come_in_several_replies(serving, monkeypatch):
    service = serving()
    for number in range(3):
        assert service.ask("alice", {**HEAVY, "query": {"kind": "histogram", "by": [
            {"column": "income", "bins": 1000 + number}]}}).status_code == 200  # fmt: skip
    whole = service.get("alice", f"{BASE}/answers").json()
    monkeypatch.setattr("reticent.service.api.MOST_VALUES", 2002)
    parts, first = [], 0
    while first < whole["size"]:
        found = service.get("alice", f"{BASE}/answers?first={first}&count=1000").json()
        assert 0 < len(found["answers"]) <= 2
        parts += found["answers"]
        first = len(parts)
    assert parts == whole["answers"]
    assert len(parts) == whole["size"] == 3


def plans_of_a_page(service, monkeypatch):
    """How many questions are read for a page with an answer, after others bought one, and then four more."""
    bought(service)
    planned, costs = [], []
    monkeypatch.setattr(
        tree, "from_json", lambda given, true=tree.from_json: planned.append(1) or true(given)
    )
    for number in (1, 4):
        for one in range(number):
            assert service.ask("bob", conditions(5 * number + one)).status_code == 200
        answer = service.desk.session("census").known(MEAN["query"])
        planned.clear()
        shown = pages._answer(service.desk, answer, service.desk.data("census"))
        costs.append(len(planned))
        assert len(shown["purchases"]) == 1
    return costs


def test_pages_do_not_plan_what_others_bought(serving, monkeypatch):
    """A page with an answer resolved the last 1,000 purchases: a minute, where somebody bought long ones."""
    assert plans_of_a_page(serving(), monkeypatch) == [0, 0]


def test_planted_pages_plan_what_others_bought(serving, monkeypatch):
    """As it was."""

    def paid(state, dataset, key, most):
        data = service.desk.data(dataset)
        known = [
            (one, resolve(tree.from_json(json.loads(one.query)), data)) for one in state.history(dataset)
        ]
        return [one for one, question in reversed(known) if one.cost and question.key == key]

    monkeypatch.setattr(State, "paid", paid)
    service = serving()
    first, second = plans_of_a_page(service, monkeypatch)
    assert 0 < first < second


def test_a_state_of_before_knows_no_keys_of_what_was_asked(serving, folder):
    service = serving()
    bought(service)
    service.desk.state.flush()
    base = sqlite3.connect(folder / ".service" / "state.sqlite")
    base.executescript("DROP INDEX asked_paid; ALTER TABLE asked DROP COLUMN key")
    base.close()
    with contextlib.closing(State.of(folder)) as state:
        assert [one.key for one in state.history("census")] == ["", ""]
        assert state.paid("census", "", 9)[0].cost > 0
        assert state.paid("census", "another", 9) == []


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
    assert weights.letters_asked("x" * 20_000) == 10_000
    assert weights.letters_asked(b"x" * 20_000) == 1250
    assert weights.letters_told(None) == 0
    assert weights.letters_told("x" * 4096) == 4


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
