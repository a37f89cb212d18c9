"""Several servers on one PostgreSQL: keys, visits, quotas, jobs, draws and answers are one for all."""

import contextlib
import itertools
import re
import shutil
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from reticent import postgres
from reticent.apps.query import publishing
from reticent.apps.query.data_sets import DataSets
from reticent.apps.query.dataset_work import move
from reticent.apps.query.desk import Desk
from reticent.errors import (
    CommitUnknown,
    LedgerError,
    ParameterError,
    StorageUnavailable,
    WitnessUnavailable,
)
from reticent.ledger.checkpoint import parse
from reticent.ledger.verify import verify
from reticent.ledger.witness.server import WitnessServer
from reticent.ledger.witness.state import WitnessState
from reticent.query import open as open_data_set
from reticent.query.notebook import Notebook
from reticent.query.shared_notebook import SharedNotebook
from reticent.service import metrics as counting
from reticent.service.keys import Role
from reticent.service.refusals import Refused
from reticent.service.settings import Settings
from reticent.service.state import State

from .running import BASE, Service, refused, until
from .several import Database, machine, published

UNITS = 10**7


@pytest.fixture(scope="module")
def database():
    found = Database()
    yield found
    found.end()


@dataclass
class Pair:
    """Two servers on one database, each with a folder of its own, and the home that was published."""

    home: Path
    url: str
    servers: list[Service]

    def __iter__(self):
        return iter(self.servers)


@pytest.fixture(scope="module")
def pair(database, made_census, tmp_path_factory):
    place, url = tmp_path_factory.mktemp("pair"), database.fresh()
    shutil.copytree(made_census, place / "home")
    keys = published(place / "home", url)
    found = [machine(place / "home", place / str(i)) for i in range(2)]
    with contextlib.ExitStack() as held:
        servers = [Service(one, keys, ledger=url, shared=True) for one in found]
        for one in servers:
            held.enter_context(one.client)
        yield Pair(place / "home", url, servers)


@pytest.fixture
def people(pair, request):
    """A name with a key of its own, for each test."""
    name = f"{request.node.name[:40]}".replace("[", "-").replace("]", "")
    made = pair.servers[0].desk.state.make_key(name, Role.ANALYST)
    for one in pair:
        one.keys[name] = made[1]
    return name


_numbers = itertools.count(10)


def question(units=UNITS):
    """One that nobody asked before."""
    return {
        "query": f"SELECT COUNT(*) FROM census WHERE income > {next(_numbers)}",
        "information": units / 1e12,
    }


def test_what_one_server_does_another_knows(pair, people):
    first, second = pair
    before, body = first.spent(), question()
    answer = first.ask(people, body, key="k").json()
    assert second.ask(people, body, key="k").json() == answer
    refused(second.ask(people, question(), key="k"), 409, "idempotency_conflict")
    assert first.spent() - before == second.spent() - before == int(answer["cost"]) == UNITS
    assert first.used(people) == second.used(people) == UNITS
    assert second.ask("bob", body).json()["cost"] == "0"
    made = first.call("olga", "POST", "/api/v1/keys", json={"name": "carl", "role": "analyst"}).json()
    second.keys["carl"] = made["key"]
    assert second.get("carl", "/api/v1/me").json()["name"] == "carl"
    assert second.call("olga", "DELETE", "/api/v1/keys/carl").status_code == 204
    assert first.get("carl", "/api/v1/me").status_code == 401
    job = first.call(people, "POST", f"{BASE}/jobs", json=question()).json()["job"]
    told = until(lambda: second.get(people, f"/api/v1/jobs/{job}").json()["result"])
    assert told["cost"] == str(UNITS)
    assert second.get(people, f"{BASE}/answers").json() == first.get(people, f"{BASE}/answers").json()
    for one in pair:  # nothing is kept on the machines themselves
        kept = {path.name for path in one.folder.rglob("*")}
        assert not {name for name in kept if "sqlite" in name or name.endswith(".reticent")}


def test_a_visit_goes_on_at_another_server(pair):
    first, second = pair
    page = first.client.get("/signin")
    csrf = re.search(r'name="csrf" value="([^"]+)"', page.text)[1]
    first.client.post("/signin", data={"key": first.keys["alice"], "csrf": csrf}, follow_redirects=False)
    cookie = first.client.cookies["reticent"]
    second.client.cookies.set("reticent", cookie)
    seen = second.client.get("/")
    assert seen.status_code == 200
    assert "alice" in seen.text
    csrf = re.search(r'name="csrf" value="([^"]+)"', seen.text)[1]
    assert second.client.post("/signout", data={"csrf": csrf}, follow_redirects=False).status_code == 303
    assert first.client.get("/", follow_redirects=False).status_code == 303


def race(servers, who, count):
    """As many questions at once as there are, each once; how many were answered."""
    told, start = [], threading.Barrier(count)

    def ask(i, body):
        start.wait()
        told.append(servers[i % len(servers)].ask(who, body, key=f"{who} {i}").status_code)

    threads = [threading.Thread(target=ask, args=(i, question())) for i in range(count)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert set(told) <= {200, 409}
    return told.count(200)


@pytest.fixture
def limited(pair, people):
    """Somebody with a quota of three questions."""
    state = pair.servers[0].desk.state
    state.set_quota("census", state.named(people), 3 * UNITS)
    return people


def test_a_quota_is_one_for_all_servers(pair, limited):
    assert race(pair.servers, limited, 8) == 3
    assert [one.used(limited) for one in pair] == [3 * UNITS] * 2


def test_planted_a_quota_that_each_process_keeps_is_caught(pair, limited, monkeypatch):
    """Each server counts what it answered itself: six questions pass where three may."""
    counted = {}

    def by_itself(state, attempt, person, dataset, units):
        mine = counted.setdefault(id(state), 0)
        if mine + units > 3 * UNITS:
            return False, 3 * UNITS - mine
        counted[id(state)] = mine + units
        return True, None

    monkeypatch.setattr(State, "reserve", by_itself)
    assert race(pair.servers, limited, 8) > 3


def shared_desk(place, url, **settings):
    return contextlib.closing(Desk(Settings(place, ledger=url, shared=True, **settings)))


def visits_a_day_on(url, monkeypatch):
    """Whether a visit that began just now goes on once the clock of the server is set a day on, and back."""
    state, real = State(url), time.time
    try:
        _, key = state.make_key("visitor", Role.ANALYST)
        secret, _ = state.enter(key)
        for by_s in (86_400.0, -86_400.0):
            monkeypatch.setattr(time, "time", lambda by_s=by_s: real() + by_s)
            yield state.visit(secret) is not None
    finally:
        monkeypatch.setattr(time, "time", real)
        state.close()


def test_a_clock_that_is_set_moves_nothing(database, monkeypatch):
    assert all(visits_a_day_on(database.fresh(), monkeypatch))


def test_planted_a_clock_of_the_machine_is_caught(database, monkeypatch):
    monkeypatch.setattr(postgres.Database, "now", lambda self: time.time())
    assert not any(visits_a_day_on(database.fresh(), monkeypatch))


def test_only_what_was_published_is_served(pair, tmp_path):
    place = machine(pair.home, tmp_path / "other")
    path, key = place / "census.yaml", place / ".service" / "ledger.key"
    path.write_text(path.read_text() + "\n# another one\n")
    with shared_desk(place, pair.url) as desk:
        with pytest.raises(LedgerError, match="its log says where"):
            desk.session("census")
        text = re.sub("epsilon: [0-9.]+", "epsilon: 0.5", path.read_text().replace("census", "town"))
        with pytest.raises(LedgerError, match="reticent publish"):
            desk.register(desk.state.named("olga"), re.sub("delta: [0-9.e-]+", "delta: 1.0e-6", text))
    key.rename(tmp_path / "key")
    with pytest.raises(ParameterError, match="signing_key"), shared_desk(place, pair.url):
        pass
    with shared_desk(place, pair.url, signing_key=str(tmp_path / "key")):
        pass
    key.write_text("11" * 32 + "\n")
    with pytest.raises(LedgerError, match="signed by"), shared_desk(place, pair.url):
        pass


def test_nothing_published_yet(folder, database):
    with (
        pytest.raises(ParameterError, match="reticent publish"),
        shared_desk(folder, database.fresh()),
    ):
        pass
    with pytest.raises(ParameterError, match="postgresql://"):
        Settings(folder, ledger="ledger.sqlite", shared=True)


def test_a_copy_publishes_no_second_account(pair, tmp_path):
    """Another machine with the same declaration has another home: its people are not taken for the same."""
    place = machine(pair.home, tmp_path / "copy")
    with contextlib.closing(DataSets(Settings(place, ledger=pair.url))) as sets:
        served, missed = publishing.publish(sets, pair.url)
    assert served == []
    assert "belongs to other people" in missed["census"]


def test_keys_and_quotas_come_along(folder, keys, tmp_path, database):
    """From a service on one machine: whoever had a key has it, and what was used of a quota stays used."""
    url = database.fresh()
    with contextlib.closing(Desk(Settings(folder, grid_s=0.0))) as desk:
        alice = desk.state.named("alice")
        desk.state.set_quota("census", alice, 2 * UNITS)
        desk.ask(alice, "census", question()["query"], information=UNITS / 1e12)
    move(folder / "census.yaml", url)  # as a refusal of `publish` says
    for _ in range(2):  # publishing again takes nothing twice
        with contextlib.closing(DataSets(Settings(folder, ledger=url))) as sets:
            assert publishing.publish(sets, url) == (["census"], {})
    with shared_desk(machine(folder, tmp_path / "other"), url) as desk:
        assert desk.state.person(keys["alice"]) == alice
        assert desk.state.person(keys["rita"]) is None
        assert desk.state.quota("census", alice) == (2 * UNITS, UNITS)
        assert desk.balance("census").spent == UNITS
        assert [one.cost for one in desk.state.history("census")] == [UNITS]
        assert desk.state.make_key("zoe", Role.ANALYST)[0].number == len(keys) + 1
        desk.ask(alice, "census", question()["query"], information=UNITS / 1e12)
        with pytest.raises(Refused, match="quota"):
            desk.ask(alice, "census", question()["query"], information=UNITS / 1e12)


def test_every_server_asks_the_witness_that_was_published(folder, tmp_path, database):
    """Without an option: nobody can forget it. While it is away no server starts."""
    url, body = database.fresh(), question()
    with contextlib.closing(WitnessState(tmp_path / "elsewhere")) as state:
        server = WitnessServer(state, port=0)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            settings = Settings(folder, ledger=url, witness=server.url, witness_key=str(state.key))
            with contextlib.closing(DataSets(settings)) as sets:
                assert publishing.publish(sets, url) == (["census"], {})
            place = machine(folder, tmp_path / "other")
            with shared_desk(place, url) as desk:
                olga = desk.state.make_key("olga", Role.OWNER)[0]
                desk.ask(olga, "census", body["query"], information=body["information"])
                seen = state.last(desk.ledger.origin)["checkpoint"]
                assert parse(seen)[0].size == desk.ledger.head().size
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
        with pytest.raises(WitnessUnavailable), shared_desk(place, url):
            pass
    with pytest.raises(ParameterError, match="witness must be"), shared_desk(place, url, witness="http://x"):
        pass


def test_a_command_at_home_has_the_notebook_of_the_servers(pair, people):
    """A data set has one notebook: what servers noted is there for who asks at home, and the other way."""
    first, _ = pair
    first.ask(people, question())
    before = len(first.get(people, f"{BASE}/answers").json()["answers"])
    with open_data_set(pair.home / "census.yaml") as session:
        assert len(session.questions()) == before
        assert session.balance().spent == first.spent()
        session.ask(question()["query"], information=UNITS / 1e12)
    assert len(first.get(people, f"{BASE}/answers").json()["answers"]) == before + 1


def coarse(made_census, place, url):
    """What two servers show of one coarse request under `degrade`, which was asked at home before."""
    shutil.copytree(made_census, place / "home")
    path, body = place / "home" / "census.yaml", question()
    path.write_text(re.sub(r"^policy:.*\n", "", path.read_text(), flags=re.M) + "\npolicy: degrade\n")
    with open_data_set(path) as session:  # bought before it was published: the account moves, and so do draws
        session.ask(body["query"], information=100 * body["information"])
        home = session.ask(body["query"], information=body["information"]).to_json()
    published(place / "home", url)
    told = []
    for i in range(2):
        with shared_desk(machine(place / "home", place / str(i)), url) as desk:
            bob = desk.state.named("bob")
            told += [
                desk.ask(bob, "census", body["query"], information=share * body["information"]).to_json()
                for share in (1, 7)
            ]
            assert desk.balance("census").spent == 100 * UNITS
    assert told[0]["cells"] == home["cells"]
    return told


def test_a_coarse_draw_is_one_for_all_servers(made_census, tmp_path, database):
    told = coarse(made_census, tmp_path, database.fresh())
    assert [one["cells"] for one in told[:2]] == [one["cells"] for one in told[2:]]
    assert [one["cost"] for one in told] == ["0"] * 4


def retry_fresh_draw_after_publishing(made_census, place, url):
    """Return what a server charges for a fresh draw that was paid for at home before it was published."""
    shutil.copytree(made_census, place / "home")
    body = question()
    fresh = {"information": body["information"], "reuse": "none", "idempotency": "one-draw"}
    with open_data_set(place / "home" / "census.yaml") as session:
        assert session.ask(body["query"], **fresh).cost == UNITS
    published(place / "home", url)
    with shared_desk(machine(place / "home", place / "server"), url) as desk:
        assert desk.balance("census").spent == UNITS
        desk.session("census").ask(body["query"], **fresh)
        return desk.balance("census").spent - UNITS


def test_publishing_charges_no_fresh_draw_twice(made_census, tmp_path, database):
    assert retry_fresh_draw_after_publishing(made_census, tmp_path, database.fresh()) == 0


def test_planted_a_shared_notebook_without_requests_is_caught(made_census, tmp_path, database, monkeypatch):
    monkeypatch.setattr(Notebook, "all_requests", lambda notebook: [])
    assert retry_fresh_draw_after_publishing(made_census, tmp_path, database.fresh()) == UNITS


def test_planted_a_notebook_on_each_machine_is_caught(made_census, tmp_path, database, monkeypatch):
    """Each server has draws of its own: the finer of the two requests is not the same at both."""

    @contextlib.contextmanager
    def by_itself(notebook, key, drawing=SharedNotebook.drawing):
        with drawing(notebook, key) as drawn:
            found = dict(drawn)
            yield found  # and nothing of it is kept

    monkeypatch.setattr(SharedNotebook, "drawing", by_itself)
    told = coarse(made_census, tmp_path, database.fresh())
    assert told[1]["cells"] != told[3]["cells"]


# A database that is lost


def test_sessions_that_are_lost_are_made_anew(pair, people, database):
    service, _ = pair
    assert service.ask(people, question(), key="0").status_code == 200
    before = service.desk.state.database.reconnected
    for i in range(1, 4):
        database.drop_connections()
        body = question()
        until(lambda: service.ask(people, body, key=str(i)).status_code == 200)  # noqa: B023
    assert service.used(people) == 4 * UNITS
    assert service.desk.state.database.reconnected > before


def test_while_the_database_is_away(pair, people, database):
    service, other = pair
    spent, body = service.spent(), question()
    with database.away():
        reply = service.ask(people, body, key="1")
        refused(reply, 503, "storage_unavailable")
        assert reply.headers["Retry-After"] == "1"
        assert service.get(None, "/health/live").status_code == 200
        assert service.get(None, "/health/ready").status_code == 503
        refused(service.get(people, "/api/v1/me"), 503, "storage_unavailable")
        assert service.client.get("/").status_code in (200, 503)
    for one in pair:
        until(lambda: one.get(None, "/health/ready").status_code == 200)  # noqa: B023
    assert other.ask(people, body, key="1").json()["cost"] == str(UNITS)
    assert service.spent() - spent == UNITS == service.used(people)
    verify(service.desk.ledger)


class CommitCut:
    """Loses the connection in one COMMIT of the state: before it, or right after.

    Args:
        database: Database that ends the session.
        after: Whether the COMMIT is done.
        skip: Number of commits that come through before.
    """

    def __init__(self, database, *, after, skip=0):
        self._database, self._after, self._skip = database, after, skip
        self.is_armed = True

    def __call__(self, connection):
        if not self.is_armed or self._skip:
            self._skip -= self.is_armed
            return connection.execute("COMMIT")
        self.is_armed = False
        ended = connection.execute("COMMIT") if self._after else None
        self._database.end_session(connection.info.backend_pid)
        connection.execute("SELECT 1")
        return ended


@pytest.fixture
def cut(database, monkeypatch):
    """A function that lets one COMMIT of the state be lost."""

    def plant(**options):
        planted = CommitCut(database, **options)
        monkeypatch.setattr(postgres, "_committed", planted)
        return planted

    return plant


@pytest.mark.parametrize("after", [False, True])
def test_any_lost_commit_is_charged_once(pair, people, cut, after):
    """The server that asked loses one commit after the other; the retry goes to the other server."""
    first, second = pair
    for number in itertools.count():
        spent, used, body = first.spent(), first.used(people), question()
        planted = cut(after=after, skip=number)
        reply = first.ask(people, body, key=f"key {number}")
        was_lost, planted.is_armed = not planted.is_armed, False
        assert reply.status_code in (200, 503), reply.text
        answer = second.ask(people, body, key=f"key {number}")
        assert answer.status_code == 200, answer.text
        assert reply.status_code == 503 or reply.json() == answer.json()
        assert first.spent() - spent == UNITS == first.used(people) - used
        if not was_lost:
            break
    assert number >= 3, "a question has fewer commits than expected"


@pytest.mark.parametrize("after", [False, True])
def test_a_lost_commit_is_counted_once(pair, people, cut, after):
    """Whether it came through or not: the same key is charged and counted once."""
    first, second = pair
    state, spent = first.desk.state, first.spent()
    whom, body = state.named(people), question()
    cut(after=after)
    with pytest.raises(CommitUnknown, match="the same idempotency key"):
        state.reserve(f"{people} attempt", whom, "census", UNITS)
    assert state.reserve(f"{people} attempt", whom, "census", UNITS)[1] is None
    assert state.quota("census", whom)[1] == UNITS
    cut(after=after)
    assert first.ask(people, body, key="1").status_code == 503
    assert second.ask(people, body, key="1").status_code == 200
    assert first.spent() - spent == UNITS
    assert first.used(people) == 2 * UNITS


def test_planted_a_retry_without_its_key_is_caught(pair, people, cut, monkeypatch):
    """Whatever failed is done again, under no key: what was asked once is counted twice."""
    counted = State.reserve

    def again(state, attempt, person, dataset, units):
        try:
            return counted(state, attempt, person, dataset, units)
        except CommitUnknown:
            return counted(state, f"{attempt} again", person, dataset, units)

    monkeypatch.setattr(State, "reserve", again)
    state = pair.servers[0].desk.state
    cut(after=True)
    state.reserve(f"{people} attempt", state.named(people), "census", UNITS)
    assert state.quota("census", state.named(people))[1] == 2 * UNITS


def test_a_server_that_turned_read_only(pair, people, database):
    """As the one that a failover left: its sessions are given up, so that the next looks anew."""
    service, _ = pair
    state, body = service.desk.state, question()
    spent = service.spent()
    database.run("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
    try:
        until(lambda: database.run("SHOW default_transaction_read_only") == [("on",)])
        database.drop_connections()
        with pytest.raises(StorageUnavailable, match="read-only"):
            state.reserve(f"{people} attempt", state.named(people), "census", UNITS)
        refused(service.ask(people, body, key="1"), 503, "storage_unavailable")
    finally:
        database.run(
            "SET default_transaction_read_only = off",
            "ALTER SYSTEM RESET default_transaction_read_only",
            "SELECT pg_reload_conf()",
        )
    until(lambda: database.run("SHOW default_transaction_read_only") == [("off",)])
    database.drop_connections()
    until(lambda: service.ask(people, body, key="1").status_code == 200)
    assert service.spent() - spent == UNITS == service.used(people)


# What is shown of it


LINE = re.compile(r'reticent_[a-z_]+(\{[a-z]+="[^"\\\n]*"(,[a-z]+="[^"\\\n]*")*\})? [0-9]+(\.[0-9]+)?')
LABELS = {"worker": r"\d+", "method": "[A-Za-z]+", "route": r"none|/[\w/{}.:-]*", "status": r"\d{1,3}"}
LABELS["state"] = "queued|running|done|refused"


def unexplained(text):
    """Lines that are no metric, or carry a label that is not of a closed list."""
    found = []
    for line in text.splitlines():
        if line.startswith(("# HELP reticent_", "# TYPE reticent_")):
            continue
        labels = re.findall(r'([a-z]+)="([^"]*)"', line)
        if not LINE.fullmatch(line) or not all(
            name in LABELS and re.fullmatch(LABELS[name], value) for name, value in labels
        ):
            found.append(line)
    return found


def test_metrics_tell_nothing_of_data(pair, people):
    service, _ = pair
    service.ask(people, question())
    service.get(people, "/api/v1/datasets/nothing-of-that-name")
    text = service.get("vera", "/metrics").text
    assert unexplained(text) == []
    assert "census" not in text
    assert "reticent_ready" in text
    assert "reticent_reconnections_total" in text


def test_planted_a_label_with_a_count_of_rows_is_caught(pair, monkeypatch):
    service, _ = pair
    text = counting.Metrics.text
    monkeypatch.setattr(
        counting.Metrics,
        "text",
        lambda *args, **given: text(*args, **given) + 'reticent_rows{census="2000"} 1\n',
    )
    assert unexplained(service.get("vera", "/metrics").text) == ['reticent_rows{census="2000"} 1']


# The secret order of each person's rows

VISITS = """
name: visits
version: "1"
format: 2
source: {csv: visits.csv}
unit: {person: who, rows: 1}
relation: add or remove one
budget: {epsilon: 50, delta: 1e-6}
columns:
  group: {type: category, values: [a, b, c]}
  number: {type: integer, low: 0, high: 99}
"""


def kept_visits(sets):
    """The rows of the data set that count."""
    table = sets._connected(sets.data("visits"), sets.settings.folder / "visits.yaml")
    with contextlib.closing(table):
        return sorted(table.tally(f"SELECT c0, c1 FROM {table.relation}"))


def test_servers_share_the_order_of_rows(database, tmp_path):
    home, url = tmp_path / "home", database.fresh()
    home.mkdir()
    lines = [f"p{number},{group},{number}" for number in range(40) for group in "abc"]
    (home / "visits.csv").write_text("\n".join(["who,group,number", *lines]) + "\n")
    (home / "visits.yaml").write_text(VISITS)
    with contextlib.closing(DataSets(Settings(home, ledger=url))) as sets:
        assert publishing.publish(sets, url) == (["visits"], {})
        at_home = kept_visits(sets)
    found = [machine(home, tmp_path / str(number)) for number in range(2)]
    with contextlib.ExitStack() as held:
        servers = [
            held.enter_context(contextlib.closing(DataSets(Settings(one, ledger=url, shared=True))))
            for one in found
        ]
        kept = [kept_visits(one) for one in servers]
        assert len(at_home) == 40
        assert kept == [at_home, at_home]
        state = servers[0].state
        data = servers[0].data("visits")
        with pytest.raises(LedgerError, match="were published with another order"):
            publishing._publish_order_key(state, data, "00" * 32)
        with pytest.raises(LedgerError, match="was published without the order of its rows"):
            publishing.published_order_key(state, replace(data, name="others"))
