"""T7 on several machines: servers are killed and the database restarted while analysts ask.

Real `reticent serve` processes on one real PostgreSQL. The cap is kept to the unit, nothing is lost or
counted twice, and visits go on at whichever server is left.
"""

import contextlib
import random
import signal
import threading

import pytest

from reticent.apps.query.desk import Desk
from reticent.ledger.base import Amount
from reticent.ledger.verify import verify
from reticent.service.keys import Role
from reticent.service.settings import Settings
from reticent.service.state import State

from ..service.running import until
from ..service.several import Analyst, Database, Server, machine, published

EACH = 8  # questions of one analyst


@pytest.fixture(scope="module")
def database():
    found = Database()
    yield found
    found.end()


@pytest.fixture
def url(database):
    return database.fresh()


@pytest.fixture
def servers(folder, url, tmp_path):
    """A function that starts so many servers, each with a folder of its own."""
    published(folder, url)
    with contextlib.ExitStack() as held:

        def start(count, *options):
            found = [Server(machine(folder, tmp_path / f"m{i}"), url, *options) for i in range(count)]
            for one in found:
                held.callback(one.end, signal.SIGKILL)
            return [one.ready() for one in found]

        yield start


def analysts(url, servers, count):
    """So many people with a key each, made in the shared state."""
    with contextlib.closing(State(url)) as state:
        made = [
            (f"analyst-{i:02d}", state.make_key(f"analyst-{i:02d}", Role.ANALYST)[1]) for i in range(count)
        ]
    return [Analyst(name, secret, servers, random.Random(name)) for name, secret in made]


class Crowd:
    """Analysts who ask at once, some the same; and what happened."""

    def __init__(self, people, units):
        self.people, self._units, self.asked = people, units, 0
        self._faults, self._guard = [], threading.Lock()
        self._news = threading.Condition()

    def _live(self, number, person):
        try:
            person.sign_in()
            for i in range(EACH):
                what = f"age > {number} AND income > {i}"
                body = {
                    "query": f"SELECT COUNT(*) FROM census WHERE {what}",
                    "information": self._units / 1e12,
                }
                person.ask(f"{person.name} {i}", body)
                with self._news:
                    self.asked += 1
                    self._news.notify_all()
                person.visit()
                if i % 3 == 2:  # a retry, at whichever server
                    person.ask(f"{person.name} {i}", body)
        except BaseException as error:
            self._faults.append(error)
            raise
        finally:
            with self._news:
                self._news.notify_all()

    @contextlib.contextmanager
    def living(self):
        """While the block runs, and until all have asked all."""
        threads = [
            threading.Thread(target=self._live, args=(i, one), daemon=True)
            for i, one in enumerate(self.people)
        ]
        for one in threads:
            one.start()
        yield
        for one in threads:
            one.join()
        assert self._faults == []

    def wait_for(self, share):
        """Until this share of all questions was answered."""
        due = share * EACH * len(self.people)
        with self._news:
            self._news.wait_for(lambda: self.asked >= due or self._faults, 600)
        assert self.asked >= due, (self.asked, self._faults)


def faults(folder, url, people, units):
    """What is wrong once everybody has asked, in words."""
    wrong = set()
    with contextlib.closing(Desk(Settings(folder, ledger=url, shared=True))) as desk:
        verify(desk.ledger)
        balance = desk.ledger.balance("census")
        bought = {body["query"]: answer for one in people for body, answer in one.told.values()}
        if balance.spent != sum(int(answer["information"]) for answer in bought.values()):
            wrong.add("other charges than for what was answered")
        if balance.spent > balance.terms.cap:
            wrong.add("more than the cap")
        if any(one.refused for one in people) and balance.terms.cap - balance.spent >= units:
            wrong.add("refused although there was enough")
        if desk.ledger.pending("census"):
            wrong.add("something is paid for and not measured")
        for query, answer in bought.items():
            known = desk.known("census", query)
            if known is None or known.to_json()["cells"] != answer["cells"]:
                wrong.add("an answer that is not recorded")
        for one in people:
            # Of a try that died between quota and ledger, and was refused later, the quota keeps its count.
            charged, most = len(one.told) * units, len(one.refused) * units
            if not charged <= desk.state.quota("census", desk.state.named(one.name))[1] <= charged + most:
                wrong.add("other counts than charges")
    return wrong


def spend_the_rest(url, folder, people):
    """Buy what is left, to the unit: then the cap is reached exactly, and not a unit more is sold."""
    with contextlib.closing(Desk(Settings(folder, ledger=url, shared=True))) as desk:
        balance = desk.ledger.balance("census")
        left = balance.terms.cap - balance.spent
        if left:
            desk.ledger.charge("census", "rest", Amount(left, balance.terms.unit, balance.terms.neighbours))
        assert desk.ledger.balance("census").spent == balance.terms.cap
    reply = people[0].ask(
        "one more", {"query": "SELECT COUNT(*) FROM census WHERE age > 3", "information": 1e-6}
    )
    assert reply is None


@pytest.mark.parametrize(
    ("count", "crowd", "killed", "back"),
    [
        pytest.param(2, 6, 1, 0, id="two"),
        pytest.param(4, 64, 2, 2, id="four", marks=pytest.mark.slow),
    ],
)
def test_servers_die_and_the_database_is_restarted(
    servers, folder, url, database, race_counter, count, crowd, killed, back
):
    running = servers(count, "--drain", "3600")
    people = analysts(url, running, crowd)
    with contextlib.closing(Desk(Settings(folder, ledger=url, shared=True))) as desk:
        cap = desk.ledger.balance("census").terms.cap
    units = round(cap / (0.9 * EACH * crowd))  # a tenth of all is refused
    life = Crowd(people, units)
    with life.living():
        life.wait_for(0.25)
        for one in running[:killed]:
            one.end(signal.SIGKILL)
        life.wait_for(0.45)
        with database.away():
            pass
        life.wait_for(0.65)
        for one in running[:back]:
            one.start()
    for one in running[:back]:
        one.ready()
    people[0].servers = running[:back] + running[killed:]
    bought = {int(answer["information"]) for one in people for _, answer in one.told.values()}
    assert len(bought) == 1
    assert faults(folder, url, people, *bought) == set()
    assert any(one.refused for one in people)
    assert any(one.cut for one in people)
    race_counter.report(f"{killed} servers killed, {sum(one.cut for one in people)} requests cut off")
    spend_the_rest(url, folder, people)
    leave(running[-1], people[0])
    for one in running:
        assert not_json(one.log) == []


def leave(server, person):
    """SIGTERM: not ready, and still answering; the second one ends it in order."""
    person.servers = [server]
    server.process.send_signal(signal.SIGTERM)
    until(lambda: server.status("/health/ready") == 503)
    assert server.status("/health/live") == 200
    person.visit()
    key, (body, answer) = next(iter(person.told.items()))
    assert person.ask(key, body) == answer
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(120) in (0, -signal.SIGTERM)


def not_json(log):
    """Lines of a log that are no object of JSON, but for what is said at the start; and secrets."""
    found = []
    for line in log.read_text().splitlines():
        if line.startswith(("Reticent serves", "  data sets:")):
            continue
        if not line.startswith('{"event": ') or not line.endswith("}") or "rk_" in line or "census" in line:
            found.append(line)
    return found
