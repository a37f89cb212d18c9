"""Several servers on one PostgreSQL: keys, visits, quotas, jobs, draws and answers are one for all."""

import contextlib
import re
import shutil
import threading

import pytest

from reticent.apps.query import publishing
from reticent.apps.query.data_sets import DataSets
from reticent.apps.query.desk import Desk
from reticent.errors import CommitUnknown, LedgerError, ParameterError, StorageUnavailable
from reticent.ledger.verify import verify
from reticent.query import open as open_data_set
from reticent.service import metrics as counting
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


@pytest.fixture
def url(database):
    return database.fresh()


@pytest.fixture
def secrets(folder, url):
    return published(folder, url)


@pytest.fixture
def several(folder, url, secrets, tmp_path):
    """A function that starts a server on a folder of its own."""
    with contextlib.ExitStack() as held:
        names = iter(range(100))

        def start(**settings):
            place = machine(folder, tmp_path / f"machine-{next(names)}")
            service = Service(place, secrets, ledger=url, shared=True, **settings)
            held.enter_context(service.client)
            return service

        yield start


def question(i, units=UNITS):
    return {"query": f"SELECT COUNT(*) FROM census WHERE income > {i}", "information": units / 1e12}


def test_what_one_server_does_another_knows(several):
    first, second = several(), several()
    answer = first.ask("alice", key="k").json()
    assert second.ask("alice", key="k").json() == answer
    refused(second.ask("alice", question(1), key="k"), 409, "idempotency_conflict")
    assert (
        first.spent() == second.spent() == int(answer["cost"]) == first.used("alice") == second.used("alice")
    )
    assert second.ask("bob").json()["cost"] == "0"
    made = first.call("olga", "POST", "/api/v1/keys", json={"name": "carl", "role": "analyst"}).json()
    second.keys["carl"] = made["key"]
    assert second.get("carl", "/api/v1/me").json()["name"] == "carl"
    assert second.call("olga", "DELETE", "/api/v1/keys/carl").status_code == 204
    assert first.get("carl", "/api/v1/me").status_code == 401
    job = first.call("alice", "POST", f"{BASE}/jobs", json=question(2)).json()["job"]
    told = until(lambda: second.get("alice", f"/api/v1/jobs/{job}").json()["result"])
    assert told["cost"] == str(UNITS)
    assert second.get("alice", f"{BASE}/answers").json() == first.get("alice", f"{BASE}/answers").json()
    for one in (first, second):  # nothing is kept on the machines themselves
        kept = {path.name for path in one.folder.rglob("*")}
        assert not {name for name in kept if "sqlite" in name or name.endswith(".reticent")}


def test_a_visit_goes_on_at_another_server(several):
    first, second = several(), several()
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

    def ask(i):
        start.wait()
        told.append(servers[i % len(servers)].ask(who, question(i), key=f"{who} {i}").status_code)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(count)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert set(told) <= {200, 409}
    return told.count(200)


@pytest.fixture
def with_quota(several):
    """Two servers, and a quota of three questions for alice."""
    servers = [several(), several()]
    state = servers[0].desk.state
    state.set_quota("census", state.named("alice"), 3 * UNITS)
    return servers


def test_a_quota_is_one_for_all_servers(with_quota):
    assert race(with_quota, "alice", 8) == 3
    assert with_quota[0].used("alice") == 3 * UNITS == with_quota[1].spent()


def test_planted_a_quota_that_each_process_keeps_is_caught(with_quota, monkeypatch):
    """Each server counts what it answered itself: eight questions pass where three may."""
    counted = {}

    def by_itself(state, attempt, person, dataset, units):
        mine = counted.setdefault(id(state), 0)
        if mine + units > 3 * UNITS:
            return False, 3 * UNITS - mine
        counted[id(state)] = mine + units
        return True, None

    monkeypatch.setattr(State, "reserve", by_itself)
    assert race(with_quota, "alice", 8) > 3


def test_only_what_was_published_is_served(folder, url, secrets, several, tmp_path):
    service = several()
    path = service.folder / "census.yaml"
    path.write_text(path.read_text() + "\n# another one\n")
    other = Service(service.folder, secrets, ledger=url, shared=True)
    with other.client:
        refused(other.ask("alice"), 409, "refused")
        text = path.read_text().replace("census", "town")
        refused(other.call("olga", "POST", "/api/v1/datasets", json={"declaration": text}), 409, "refused")
    place = machine(folder, tmp_path / "other")
    (place / ".service" / "ledger.key").unlink()
    with pytest.raises(ParameterError, match="signing_key"):
        Desk(Settings(place, ledger=url, shared=True))
    (place / ".service" / "ledger.key").write_text("11" * 32 + "\n")
    with pytest.raises(LedgerError, match="signed by"):
        Desk(Settings(place, ledger=url, shared=True))


def test_nothing_published_yet(folder, url):
    with pytest.raises(ParameterError, match="reticent publish"):
        Desk(Settings(folder, ledger=url, shared=True))
    with pytest.raises(ParameterError, match="postgresql://"):
        Settings(folder, ledger="ledger.sqlite", shared=True)


def test_a_copy_publishes_no_second_account(folder, url, secrets, tmp_path):
    """Another machine with the same declaration has another home: its people are not taken for the same."""
    place = machine(folder, tmp_path / "copy")
    with contextlib.closing(DataSets(Settings(place, ledger=url))) as sets:
        served, missed = publishing.publish(sets, url)
    assert served == []
    assert "belongs to other people" in missed["census"]


def test_a_command_at_home_has_the_notebook_of_the_servers(folder, url, several):
    """Published or not, a data set has one notebook: what servers noted is there for who asks at home."""
    several().ask("alice", question(5))
    with open_data_set(folder / "census.yaml") as session:
        assert len(session.questions()) == 1
        assert session.balance().spent == UNITS


def test_a_coarse_draw_is_one_for_all_servers(made_census, url, tmp_path):
    place = tmp_path / "home"
    shutil.copytree(made_census, place)
    path = place / "census.yaml"
    path.write_text(path.read_text().replace("policy: share", "policy: degrade"))
    if "degrade" not in path.read_text():
        path.write_text(path.read_text() + "\npolicy: degrade\n")
    secrets = published(place, url)
    with contextlib.ExitStack() as held:
        servers = [
            Service(machine(place, tmp_path / str(i)), secrets, ledger=url, shared=True) for i in range(2)
        ]
        for one in servers:
            held.enter_context(one.client)
        servers[0].ask("alice", question(1, 100 * UNITS))
        told = [one.ask("bob", question(1)).json() for one in servers]
    assert told[0]["cells"] == told[1]["cells"]
    assert [one["cost"] for one in told] == ["0", "0"]


# A database that is lost


def test_sessions_that_are_lost_are_made_anew(several, database):
    service = several()
    assert service.ask("alice", question(0), key="0").status_code == 200
    for i in range(1, 4):
        database.drop_connections()
        reply = service.ask("alice", question(i), key=str(i))
        if reply.status_code == 503:  # the ledger's own connection for reading was under way
            reply = service.ask("alice", question(i), key=str(i))
        assert reply.status_code == 200, reply.text
    assert service.spent() == 4 * UNITS == service.used("alice")
    assert service.desk.state.database.reconnected > 0


def test_while_the_database_is_away(several, database):
    service = several()
    assert service.ask("alice", question(0), key="0").status_code == 200
    with database.away():
        reply = service.ask("alice", question(1), key="1")
        refused(reply, 503, "storage_unavailable")
        assert reply.headers["Retry-After"] == "1"
        assert service.get(None, "/health/live").status_code == 200
        assert service.get(None, "/health/ready").status_code == 503
        assert service.client.get("/").status_code in (200, 503)
    until(lambda: service.get(None, "/health/ready").status_code == 200)
    assert service.ask("alice", question(1), key="1").json()["cost"] == str(UNITS)
    assert service.spent() == 2 * UNITS == service.used("alice")
    verify(service.desk.ledger)


class Cut:
    """Loses the connection in the COMMIT of the n-th write of the state, once: before it, or right after."""

    def __init__(self, database, *, after):
        self._database, self._after, self.left = database, after, 1

    def __call__(self, connection):
        if not self.left:
            return connection.execute("COMMIT")
        self.left -= 1
        pid = connection.info.backend_pid
        ended = connection.execute("COMMIT") if self._after else None
        self._database.run(f"SELECT pg_terminate_backend({pid})")
        connection.execute("SELECT 1")
        return ended


@pytest.fixture
def cut(database, monkeypatch):
    """A function that lets one COMMIT of the state be lost."""
    from reticent import postgres

    def plan(*, after):
        monkeypatch.setattr(postgres, "_committed", Cut(database, after=after))

    return plan


@pytest.mark.parametrize("after", [False, True])
def test_a_lost_commit_is_counted_once(several, cut, after):
    """Whether it came through or not: the same key is charged and counted once."""
    service = several()
    service.ask("alice", question(0), key="0")
    state, alice = service.desk.state, service.desk.state.named("alice")
    cut(after=after)
    with pytest.raises(CommitUnknown, match="the same idempotency key"):
        state.reserve("attempt", alice, "census", UNITS)
    assert state.reserve("attempt", alice, "census", UNITS)[1] is None
    assert state.quota("census", alice)[1] == 2 * UNITS
    cut(after=after)
    assert service.ask("alice", question(1), key="1").status_code == 503
    assert service.ask("alice", question(1), key="1").status_code == 200
    assert service.spent() == 2 * UNITS
    assert service.used("alice") == 3 * UNITS


def retrying(monkeypatch):
    """Plant a retry that knows no key: whatever failed is done again, as it is."""
    counted = State.reserve

    def again(state, attempt, person, dataset, units):
        try:
            return counted(state, attempt, person, dataset, units)
        except CommitUnknown:
            return counted(state, f"{attempt} again", person, dataset, units)

    monkeypatch.setattr(State, "reserve", again)


def test_planted_a_retry_without_its_key_is_caught(several, cut, monkeypatch):
    service = several()
    state, alice = service.desk.state, service.desk.state.named("alice")
    retrying(monkeypatch)
    cut(after=True)
    state.reserve("attempt", alice, "census", UNITS)
    assert state.quota("census", alice)[1] == 2 * UNITS  # where one was asked


def test_a_standby_that_takes_no_writes(several, database):
    """After a failover the old server may be read-only: its sessions are left, for the next to look anew."""
    service = several()
    state, alice = service.desk.state, service.desk.state.named("alice")
    database.run("ALTER SYSTEM SET default_transaction_read_only = on")
    database.run("SELECT pg_reload_conf()")
    try:
        until(lambda: database.run("SHOW default_transaction_read_only") == [("on",)])
        database.drop_connections()
        with pytest.raises(StorageUnavailable, match="read-only"):
            state.reserve("attempt", alice, "census", UNITS)
        refused(service.ask("alice", question(1), key="1"), 503, "storage_unavailable")
    finally:
        database.run(
            "SET default_transaction_read_only = off",
            "ALTER SYSTEM RESET default_transaction_read_only",
            "SELECT pg_reload_conf()",
        )
    until(lambda: database.run("SHOW default_transaction_read_only") == [("off",)])
    database.drop_connections()
    until(lambda: service.ask("alice", question(1), key="1").status_code == 200)
    assert service.spent() == UNITS == service.used("alice")


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


def test_metrics_tell_nothing_of_data(several):
    service = several()
    service.ask("alice", question(1))
    service.get("alice", "/api/v1/datasets/nothing-of-that-name")
    text = service.get("vera", "/metrics").text
    assert unexplained(text) == []
    assert "census" not in text
    assert "reticent_ready" in text
    assert "reticent_reconnections_total" in text


def test_planted_a_label_with_a_count_of_rows_is_caught(several, monkeypatch):
    service = several()
    text = counting.Metrics.text
    monkeypatch.setattr(
        counting.Metrics,
        "text",
        lambda *args, **given: text(*args, **given) + 'reticent_rows{census="2000"} 1\n',
    )
    assert unexplained(service.get("vera", "/metrics").text) == ['reticent_rows{census="2000"} 1']
