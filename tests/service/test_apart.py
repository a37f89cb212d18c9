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

from reticent.apps.query import apart, jobs, lanes, weights
from reticent.errors import SourceError
from reticent.ledger import Amount, Grant, SqlLedger, Unit
from reticent.query import Session
from reticent.query.measure import Plan
from reticent.service.state import State

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
    """A desk here that can neither plan, draw or estimate an answer, nor write it."""
    for place in (
        "query.plans.plan",
        "query.session.record",
        "query.telling.estimates",
        "apps.query.desk.written",
        "apps.query.attempts.written",
    ):
        monkeypatch.setattr(f"reticent.{place}", None)


@pytest.mark.parametrize("what", sorted(LARGE))
def test_costly_answers_are_not_made_by_the_interpreter_that_serves(pair, monkeypatch, what):
    without_hands(monkeypatch)
    assert LARGE[what](pair[0]).status_code == 200


def test_planted_making_them_here_is_caught(serving, monkeypatch):
    service = serving()
    without_hands(monkeypatch)
    for what in ("rehearse", "ask"):
        refused(LARGE[what](service), 500, "fault")


def test_long_estimates_are_made_by_a_process_of_their_own(pair, monkeypatch, crew):
    service, other = pair
    monkeypatch.setattr("reticent.apps.query.desk.reuse_cells", lambda cells, values: 2 * weights.MANY)
    without_hands(monkeypatch)
    with held(other):  # nor do they wait for answers of many cells
        reply = crew.submit(FREE["price"], service).result(PATIENCE_S)
    assert reply.status_code == 200
    (number,) = service.app.state.jobs._estimator.process_ids()
    assert number not in (os.getpid(), *other.process_ids())


def test_planted_long_estimates_made_here_are_caught(pair, monkeypatch):
    service, _ = pair
    monkeypatch.setattr("reticent.apps.query.desk.reuse_cells", lambda cells, values: 2 * weights.MANY)
    monkeypatch.setattr(service.app.state.jobs, "_estimator", None)
    without_hands(monkeypatch)
    refused(FREE["price"](service), 500, "fault")


def _levels(desk):
    found = {}
    for task in Path("/proc/self/task").iterdir():
        with suppress(ProcessLookupError):  # it ended
            found[int(task.name)] = os.getpriority(os.PRIO_PROCESS, int(task.name))
    return found


def _level_when_recording(desk):
    """From now on, `_levels_seen` tells the priority of whoever records there."""
    true = SqlLedger._fulfil

    def seeing(*given):
        _seen.append(os.getpriority(os.PRIO_PROCESS, 0))
        return true(*given)

    SqlLedger._fulfil = seeing


def _levels_seen(desk):
    return _seen


def _patient(desk):
    """Planted: what is recorded waits for whoever is first."""
    apart._promptly = lambda call: call()


_seen: list[int] = []


def test_the_other_process_has_a_lower_priority_but_where_others_wait_for_it(made_census, tmp_path):
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    shutil.copytree(made_census, tmp_path / "desk")
    with split(tmp_path / "desk") as (service, other):
        (number,) = other.process_ids()
        assert os.getsid(number) == number != os.getsid(0)
        levels = other.call(_levels)
        assert levels[number] > ours
        assert sorted(set(levels.values())) == [ours, levels[number]]
        assert list(levels.values()).count(ours) == 1  # the thread that writes
        other.call(_level_when_recording)
        assert service.ask("bob", many(1400)).status_code == 200
        other.call(_patient)
        assert service.ask("bob", many(1401)).status_code == 200
        assert other.call(_levels_seen) == [ours, levels[number]]


# Who does what, and in which order


def followed(service, monkeypatch, body):
    """What is done in this process for a question, in order; and the reply."""
    done = []
    for place, verb in (
        (apart.OtherHand, "due"),
        (State, "reserve"),
        (SqlLedger, "_request"),
        (apart.OtherHand, "record"),
        (Plan, "vector"),
        (Plan, "measure"),
        (SqlLedger, "_fulfil"),
    ):
        monkeypatch.setattr(place, verb, _following(getattr(place, verb), done, verb))
    return done, service.ask("bob", body)


def _following(true, done, verb):
    def following(*given, **named):
        done.append(verb)
        return true(*given, **named)

    return following


PROPER = ["due", "reserve", "_request", "record"]  # the other process reads, draws and records


def test_it_is_paid_here_before_it_is_drawn_there(pair, monkeypatch):
    service, _ = pair
    before = service.spent()
    done, reply = followed(service, monkeypatch, many(1500))
    assert done == PROPER
    assert service.spent() - before == int(reply.json()["cost"]) > 0
    assert len(reply.json()["receipt"]["measurements"]) == 1


def test_nothing_is_drawn_for_what_is_not_paid(pair, monkeypatch):
    service, _ = pair
    before = service.spent(), service.used("bob")
    done, reply = followed(service, monkeypatch, many(1501, 100.0))
    refused(reply, 409, "budget_exceeded")
    assert done == PROPER[:-1]
    assert (service.spent(), service.used("bob")) == before


def test_planted_drawing_here_or_before_paying_is_caught(pair, monkeypatch):
    service, _ = pair

    class Hasty(apart.OtherHand):
        def due(self, query, accuracy):
            found = super().due(query, accuracy)
            self.record(query, Grant("census", found.key, found.wanted, 0, 0, ()))
            return found

    monkeypatch.setattr(jobs, "OtherHand", lambda other, name, start: service.desk.session(name))
    with monkeypatch.context() as patch:
        done, _ = followed(service, patch, many(1502))
        assert done == ["reserve", "_request", "vector", "measure", "_fulfil"] != PROPER
    monkeypatch.setattr(jobs, "OtherHand", Hasty)
    with monkeypatch.context() as patch:
        done, _ = followed(service, patch, many(1503))
        assert done == ["due", "record", "reserve", "_request", "record"] != PROPER


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
        assert service.app.state.jobs._other_process(weights.WorkWeight(1 << 16, 0), "census") is None


# Who dies


def _dying(place, verb, desk):
    """From now on, the other process is killed when it has just done this."""
    true = getattr(place, verb)

    def dying(*given, **named):
        true(*given, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(place, verb, dying)


def asked_and_checked(service, other, bins):
    """A question that another process must have answered than the one that ran before it."""
    (number,) = other.process_ids()
    spent, used = service.spent(), service.used("bob")
    reply = service.ask("bob", many(bins))
    assert reply.status_code == 200, reply.text
    assert other.process_ids() != [number]
    cost = int(reply.json()["cost"])
    assert service.spent() - spent == service.used("bob") - used == cost > 0
    assert len(reply.json()["receipt"]["measurements"]) == 1
    assert service.ask("alice", many(bins)).json()["cells"] == reply.json()["cells"]


@pytest.mark.parametrize(
    ("place", "verb", "bins"), [(Session, "due", 1301), (Plan, "measure", 1302), (SqlLedger, "_fulfil", 1303)]
)
def test_a_process_that_dies_at_work_loses_nothing(pair, place, verb, bins):
    """When it knows what is due, when it has drawn, or has recorded: before anybody is told of it."""
    service, other = pair
    other.call(partial(_dying, place, verb))
    asked_and_checked(service, other, bins)


def test_a_process_that_dies_when_it_is_paid_loses_nothing(pair, monkeypatch):
    service, other = pair
    other.call(_pid)
    true = SqlLedger._request

    def killing(*given, **named):
        found = true(*given, **named)
        (number,) = other.process_ids()
        os.kill(number, signal.SIGKILL)
        return found

    monkeypatch.setattr(SqlLedger, "_request", killing)
    asked_and_checked(service, other, 1304)


def test_planted_paying_again_for_a_death_is_caught(pair, monkeypatch):
    """Were a question asked anew from its beginning, whoever died at work would have been paid in vain."""
    service, other = pair

    class Anew(apart.OtherHand):
        def record(self, query, grant):
            later = service.desk.session("census")
            amount = Amount(2 * grant.information, Unit.MU2, later.data.relation)
            super().record(query, service.desk.ledger.request(grant.account, grant.key, amount))

    monkeypatch.setattr(jobs, "OtherHand", Anew)
    other.call(partial(_dying, Plan, "measure"))
    with pytest.raises(AssertionError):
        asked_and_checked(service, other, 1305)


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
