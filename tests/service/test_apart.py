"""T21b, by structure: answers of many cells are made in another process, which nobody here waits for.

The other process is held by SIGSTOP, so that what waits for it waits, and nothing rests on how long a thing
takes. How long others notice it is measured by benchmarks/stalls.py.
"""

import os
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from reticent.apps.query import apart, lanes
from reticent.errors import SourceError
from reticent.ledger import SqlLedger
from reticent.query.measure import Plan

from .running import BASE, MEAN, Service, make_keys, refused, until

PATIENCE_S = 120.0  # of a test that would otherwise hang
MANY = {"query": {"kind": "histogram", "by": [{"column": "income", "bins": 2000}]}, "information": 1e-4}


def many(bins, information=1e-4):
    query = {"kind": "histogram", "by": [{"column": "income", "bins": bins}]}
    return {"query": query, "information": information}


def known(body):
    return {"query": body["query"]}


@pytest.fixture
def crew():
    with ThreadPoolExecutor(40) as threads:
        yield threads


@contextmanager
def split(place, **settings):
    """A service whose other process runs."""
    service = Service(place, make_keys(place), apart=True, **settings)
    with service.client:
        other = service.app.state.jobs._apart
        assert other.call(_pid) in other.process_ids()
        yield service, other


def _pid(desk):
    return os.getpid()


def _niceness(desk):
    return os.getpriority(os.PRIO_PROCESS, 0)


@pytest.fixture(scope="module")
def pair(made_census, tmp_path_factory):
    """One for all tests that only need it to run; it does not outlive them."""
    place = tmp_path_factory.mktemp("apart") / "desk"
    shutil.copytree(made_census, place)
    with split(place) as found:
        assert found[0].ask("alice").status_code == 200
        yield found


@contextmanager
def held(other):
    """The other process does nothing meanwhile."""
    (number,) = other.process_ids()
    os.kill(number, signal.SIGSTOP)
    until(lambda: Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    try:
        yield number
    finally:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGCONT)


def is_asked(other):
    """Whether the other process was asked for something that it has not given."""
    return bool(other._pool._pending_work_items)


FREE = {
    "price": lambda service: service.ask("bob", many(64), path=f"{BASE}/price"),
    "repeat": lambda service: service.ask("bob"),
    "repeat in other words": lambda service: service.ask("bob", MEAN | {"error": 4321.0}),
    "repeat with a key": lambda service: service.ask("bob", key="again"),
    "known": lambda service: service.ask("bob", known(MEAN), path=f"{BASE}/known"),
    "ledger": lambda service: service.get("bob", "/api/v1/ledger"),
    "one that pays": lambda service: service.ask("bob", many(10)),
}
LARGE = {
    "price": lambda service: service.ask("alice", MANY, path=f"{BASE}/price"),
    "known": lambda service: service.ask("alice", known(MANY), path=f"{BASE}/known"),
    "rehearse": lambda service: service.ask("alice", MANY, path=f"{BASE}/rehearse"),
    "ask": lambda service: service.ask("alice", many(1999)),
}


def test_free_answers_and_prices_come_while_costly_ones_are_held(pair, crew):
    service, other = pair
    with held(other):
        waiting = [crew.submit(call, service) for call in LARGE.values() for _ in range(2)]
        until(partial(is_asked, other))
        for what, call in FREE.items():
            reply = crew.submit(call, service).result(PATIENCE_S)
            assert reply.status_code == 200, (what, reply.text)
        assert not any(one.done() for one in waiting)
    assert {one.result(PATIENCE_S).status_code for one in waiting} == {200}


def test_planted_waiting_in_the_common_threads_stops_prices(made_census, tmp_path, monkeypatch, crew):
    async def common(self, cells, call):
        return await lanes.run_in_threadpool(call)

    monkeypatch.setattr(lanes.Lanes, "free", common)
    shutil.copytree(made_census, tmp_path / "desk")
    with split(tmp_path / "desk", threads=1) as (service, other):
        limiter = service.client.portal.call(_limiter)
        with held(other):
            large = crew.submit(LARGE["price"], service)
            until(partial(is_asked, other))
            small = crew.submit(FREE["price"], service)
            until(lambda: limiter.statistics().tasks_waiting == 1)
            assert not small.done()
        assert {one.result(PATIENCE_S).status_code for one in (large, small)} == {200}


async def _limiter():
    import anyio.to_thread

    return anyio.to_thread.current_default_thread_limiter()


# Where it is done


def without_hands(monkeypatch):
    """A desk here that can neither estimate nor write an answer."""
    for place in ("reticent.query.session.estimates", "reticent.apps.query.desk.written"):
        monkeypatch.setattr(place, None)


@pytest.mark.parametrize("what", sorted(LARGE))
def test_costly_answers_are_not_made_by_the_interpreter_that_serves(pair, monkeypatch, what):
    without_hands(monkeypatch)
    assert LARGE[what](pair[0]).status_code == 200


def test_planted_making_them_here_is_caught(serving, monkeypatch):
    service = serving()
    without_hands(monkeypatch)
    for what in ("rehearse", "ask"):
        refused(LARGE[what](service), 500, "fault")


def test_the_other_process_has_a_lower_priority(pair):
    assert pair[1].call(_niceness) > os.getpriority(os.PRIO_PROCESS, 0)


def test_charge_and_draw_stay_here(pair, monkeypatch):
    service, _ = pair
    counted = {}
    for place, verb in ((SqlLedger, "_request"), (SqlLedger, "_fulfil"), (Plan, "measure")):
        monkeypatch.setattr(place, verb, _counting(getattr(place, verb), counted, verb))
    before = service.spent()
    reply = service.ask("bob", many(1500))
    assert counted == {"_request": 1, "_fulfil": 1, "measure": 1}
    assert service.spent() - before == int(reply.json()["cost"]) > 0
    assert len(reply.json()["receipt"]["measurements"]) == 1


def _counting(true, counted, verb):
    def counting(*given, **named):
        counted[verb] = counted.get(verb, 0) + 1
        return true(*given, **named)

    return counting


def test_replies_are_those_of_one_process(pair):
    """Two services on one folder, of which one makes everything itself."""
    service, _ = pair
    first = service.ask("alice", many(1200), key="one").json()
    assert service.ask("alice", many(1200), key="one").json() == first
    with Service(service.folder, service.keys).client as client:
        alone = Service(service.folder, service.keys)
        alone.client, alone.app = client, client.app
        assert alone.ask("alice", many(1200), key="one").json() == first
        for call in (
            partial(Service.ask, who="bob", body=many(1200)),
            partial(Service.ask, who="bob", body=many(1200), path=f"{BASE}/price"),
            partial(Service.ask, who="bob", body=many(1200), path=f"{BASE}/rehearse"),
            partial(Service.ask, who="bob", body=known(many(1200)), path=f"{BASE}/known"),
            partial(Service.ask, who="bob", body=many(1200, 100.0)),  # not within the budget
            partial(Service.ask, who="bob", body=many(1200) | {"confidence": 2.0}),
            partial(Service.get, who="bob", path=f"{BASE}/answers"),
        ):
            here, there = call(alone), call(service)
            assert (here.status_code, here.content) == (there.status_code, there.content)
            assert here.headers.get("retry-after") == there.headers.get("retry-after")


def _absent(desk):
    raise SourceError


def _broken(desk):
    raise ZeroDivisionError("canary-7")


def test_errors_cross_over_without_their_texts(pair):
    _, other = pair
    with pytest.raises(apart.Refused) as caught:
        other.call(_absent)
    assert (caught.value.status, caught.value.kind) == (503, "source_unavailable")
    with pytest.raises(apart.Refused, match="internal fault") as caught:
        other.call(_broken)
    assert "canary" not in repr(caught.value)


def test_what_is_degraded_is_drawn_here(made_census, tmp_path):
    place = tmp_path / "desk"
    shutil.copytree(made_census, place)
    text = (place / "census.yaml").read_text()
    assert "policy: share" in text
    (place / "census.yaml").write_text(text.replace("policy: share", "policy: degrade"))
    service = Service(place, make_keys(place), apart=True)
    with service.client:
        assert service.desk.data("census").policy.value == "degrade"
        assert not service.app.state.jobs._is_apart("census")


# Who dies


@pytest.mark.parametrize(("after", "bins"), [("_fulfil", 1301), ("_request", 1302)])
def test_a_killed_process_loses_nothing(pair, monkeypatch, after, bins):
    """It is killed when somebody here has just charged, or recorded, before it is told of it."""
    service, other = pair
    other.call(_pid)
    kills, true, spent, used = [], getattr(SqlLedger, after), service.spent(), service.used("bob")

    def killing(*given, **named):
        found = true(*given, **named)
        (number,) = other.process_ids()
        os.kill(number, signal.SIGKILL)
        kills.append(number)
        return found

    monkeypatch.setattr(SqlLedger, after, killing)
    reply = service.ask("bob", many(bins))
    assert reply.status_code == 200, reply.text
    assert len(kills) == 1
    assert other.process_ids() != kills
    cost = int(reply.json()["cost"])
    assert service.spent() - spent == service.used("bob") - used == cost > 0
    assert len(reply.json()["receipt"]["measurements"]) == 1
    assert service.ask("alice", many(bins)).json()["cells"] == reply.json()["cells"]


def killed_at_work(service, other, crew):
    """The reply to what a process was asked that is killed before it gives it."""
    other.call(_pid)
    with held(other) as number:
        asking = crew.submit(LARGE["rehearse"], service)
        until(partial(is_asked, other))
        os.kill(number, signal.SIGKILL)
        return asking.result(PATIENCE_S)


def test_what_a_killed_process_was_asked_is_asked_again(pair, crew):
    assert killed_at_work(*pair, crew).status_code == 200


def test_planted_no_second_try_is_caught(pair, monkeypatch, crew):
    monkeypatch.setattr(apart, "_TRIES", 1)
    refused(killed_at_work(*pair, crew), 503, "busy")


def is_there(number):
    with suppress(OSError):
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_it_ends_with_the_service(made_census, tmp_path):
    shutil.copytree(made_census, tmp_path / "desk")
    with split(tmp_path / "desk") as (_, other):
        (number,) = other.process_ids()
        assert is_there(number)
        for sign in (signal.SIGINT, signal.SIGTERM):  # as a terminal sends them to all of a group
            os.kill(number, sign)
        assert other.call(_pid) == number
    assert not is_there(number)


def test_it_ends_when_the_service_is_killed(process):
    service = process()
    (number,) = until(service.workers)
    os.kill(service.process.pid, signal.SIGKILL)
    until(lambda: not is_there(number))
