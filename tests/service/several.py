"""Several servers on one PostgreSQL: a database that can be restarted, and a folder for each server."""

import contextlib
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import httpx

from reticent.apps.query import publishing
from reticent.apps.query.data_sets import DataSets
from reticent.service.settings import Settings
from reticent.service.state import State

from ..support.postgres_server import start_server, stop_server
from .running import BASE, PEOPLE, free_port, until

OWN = ("*.reticent", ".*.reticent", ".service", "service.log")  # what one machine keeps for itself
UNBOUND = ("--rate", "100000", "--burst", "100000", "--work-rate", "1e9", "--work-burst", "1000000000")
PATIENCE_S = 240.0


class Database:
    """A real PostgreSQL, of these tests alone."""

    def __init__(self):
        self._folder = tempfile.mkdtemp(prefix="pg-")  # a short path: a socket lies in it
        self.server = start_server(self._folder)
        self._counter = itertools.count()

    def fresh(self):
        """The address of an empty schema."""
        return f"{self.server.get_uri()}&options=-csearch_path%3Dledger_{next(self._counter)}"

    def run(self, *statements):
        """All rows of the last statement, as the one who may do everything."""
        import psycopg

        with psycopg.connect(self.server.get_uri(), autocommit=True) as connection:
            for one in statements:
                found = connection.execute(one)
            return found.fetchall() if found.description else []

    def drop_connections(self):
        """End every session but the own one, as a server that shuts down does; wait until they are gone."""
        self.run(
            f"SELECT pg_terminate_backend(pid, {1000 * PATIENCE_S:.0f}) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )

    def end_session(self, pid):
        """End one session, and wait until it is gone."""
        assert self.run(f"SELECT pg_terminate_backend({pid}, {1000 * PATIENCE_S:.0f})") == [(True,)]

    @contextlib.contextmanager
    def away(self):
        """The database is out of reach during the block; sessions that it had are gone."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.server.stop()
            try:
                yield
            finally:
                self.server.start()

    def end(self):
        stop_server(self.server)
        shutil.rmtree(self._folder, ignore_errors=True)


def published(folder: Path, url: str) -> dict[str, str]:
    """Publish the data sets of a folder; the secret of each person of the shared state."""
    with contextlib.closing(DataSets(Settings(folder, ledger=url))) as sets:
        assert publishing.publish(sets, url) == (["census"], {})
    with contextlib.closing(State(url)) as state:
        found = {name: state.make_key(name, role)[1] for name, role in PEOPLE.items()}
        state.revoke("rita")
    return found


def machine(folder: Path, place: Path) -> Path:
    """What another server gets: declarations, rows and the key that signs, and nothing else."""
    shutil.copytree(folder, place, ignore=shutil.ignore_patterns(*OWN))
    (place / ".service").mkdir(mode=0o700)
    shutil.copyfile(folder / ".service" / "ledger.key", place / ".service" / "ledger.key")
    (place / ".service" / "ledger.key").chmod(0o600)
    return place


class Server:
    """`reticent serve --shared` in a process of its own, on a folder of its own."""

    def __init__(self, place: Path, url: str, *options: str) -> None:
        self.place, self._url, self._options = place, url, options
        self.log = place.with_name(f"{place.name}.log")
        self.start()

    def start(self):
        """Start it, without waiting for it."""
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        given = ["serve", str(self.place), "--port", str(self.port), "--grid", "0", *UNBOUND, *self._options]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", "from reticent.apps import main; main()", *given],
                stdout=log,
                stderr=log,
                env={**os.environ, "RETICENT_SHARED": self._url},
                start_new_session=True,
            )

    def ready(self):
        """Wait until it takes work."""
        until(lambda: self.status("/health/ready") == 200, PATIENCE_S)
        return self

    def status(self, path):
        """Of a reply, 0 if there is none."""
        assert self.process.poll() is None, self.log.read_text()
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{self.url}{path}", timeout=60).status_code
        return 0

    def end(self, sign):
        """Send a signal to all its processes, and wait until the first has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, sign)
        return self.process.wait(PATIENCE_S)


class Analyst:
    """One person who asks whichever server there is, again under the same key where nobody answers."""

    def __init__(self, name, secret, servers, rng):
        self.name, self.servers, self._rng = name, servers, rng
        self.told, self.refused, self.cut = {}, set(), 0
        self._headers = {"Authorization": f"Bearer {secret}"}
        self._cookie = None
        self._secret = secret

    def request(self, method, path, **options):
        """The first reply that is no cut connection and no 503, from any server."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            server = self._rng.choice(self.servers)
            try:
                reply = httpx.request(method, f"{server.url}{path}", timeout=60, **options)
            except httpx.TransportError:
                self.cut += 1
            else:
                if reply.status_code != 503:
                    return reply
                self.cut += 1
            time.sleep(0.05)
        raise AssertionError(f"no answer in {PATIENCE_S} s")

    def ask(self, key, body):
        """The answer, or None if the budget did not suffice."""
        headers = {**self._headers, "Idempotency-Key": key}
        reply = self.request("POST", f"{BASE}/ask", json=body, headers=headers)
        if reply.status_code == 409:
            assert reply.json()["error"]["type"] == "budget_exceeded", reply.text
            self.refused.add(key)
            return None
        assert reply.status_code == 200, reply.text
        answer = reply.json()
        assert self.told.setdefault(key, (body, answer))[1] == answer  # a retry is told the same
        return answer

    def sign_in(self):
        """Begin a visit at some server."""
        page = self.request("GET", "/signin")
        csrf = re.search(r'name="csrf" value="([^"]+)"', page.text)[1]
        given = {"key": self._secret, "csrf": csrf}
        reply = self.request("POST", "/signin", data=given, cookies=dict(page.cookies))
        assert reply.status_code == 303, reply.status_code
        self._cookie = reply.cookies["reticent"]

    def visit(self):
        """Look at a page of some server, in the visit that another one began."""
        reply = self.request("GET", "/", cookies={"reticent": self._cookie})
        assert reply.status_code == 200, reply.status_code
        assert self.name in reply.text
