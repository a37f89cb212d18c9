"""People with keys, and a service for them: in this process, or in one of its own."""

import contextlib
import http.client
import json
import os
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import uvicorn

from reticent.apps.query import sources
from reticent.apps.query.desk import Desk
from reticent.apps.service.serving import create_app
from reticent.processes import free_port
from reticent.service.keys import Role
from reticent.service.serve import listen
from reticent.service.settings import Settings
from reticent.service.state import State

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # starlette would rather have httpx2, which nobody else here needs
    from starlette import testclient

ROWS = 2000
PEOPLE = {
    "alice": Role.ANALYST,
    "bob": Role.ANALYST,
    "olga": Role.OWNER,
    "otto": Role.OWNER,
    "vera": Role.AUDITOR,
    "bert": Role.BUYER,
    "berta": Role.BUYER,
    "rita": Role.OWNER,  # her key is taken back
}
MEAN = {"query": "SELECT AVG(income) FROM census", "error": 4000.0}
BASE = "/api/v1/datasets/census"


WORK = {"work_rate": 1e9, "work_burst": 10**9}
# On a busy machine anything may take long: nothing becomes a job by itself, and no body is cut off.
PATIENT = {"longest_s": 600.0, "body_s": 600.0}
OPEN = {"grid_s": 0.0, "rate": 1e5, "burst": 10**5, "most_epsilon": 8.0, "most_delta": 1e-4}
OPEN |= WORK | PATIENT


def make_keys(folder: Path) -> dict[str, str]:
    """The secret of each person; rows that nobody declared are olga's."""
    with contextlib.closing(State.of(folder)) as state:
        found = {name: state.make_key(name, role)[1] for name, role in PEOPLE.items()}
        state.revoke("rita")
    for file in ("town.csv", "fresh.csv", "survey.csv", "extra.csv"):
        if (folder / file).exists():
            assign(folder, file, "olga")
    return found


def assign(folder: Path, file: str, owner: str) -> None:
    with contextlib.closing(State.of(folder)) as state:
        sources.assign(state, folder, file, owner)


def wait_until_warm():
    """Wait until each service of this process has opened its data sets and loaded what questions need.

    A thread of its own does so, which enters accounts in the ledger, and rehearses a question.
    """
    for thread in threading.enumerate():
        if thread.name == "warm":
            thread.join()


class TestClient(testclient.TestClient):
    """A client of an application in this process, which does nothing by itself once it has started."""

    __test__ = False

    def __enter__(self):
        entered = super().__enter__()
        wait_until_warm()
        return entered


class Service:
    """An application in this process, and how to call it as somebody."""

    def __init__(self, folder, keys, *, apart=False, **settings):
        self.folder, self.keys = folder, keys
        self.settings = Settings(folder, **{**OPEN, **settings})
        self.app = create_app(self.settings, apart=apart)
        self.client = TestClient(self.app, raise_server_exceptions=False)

    @property
    def desk(self) -> Desk:
        return self.app.state.desk

    def call(self, who, method, path, **options):
        headers = dict(options.pop("headers", {}))
        if who is not None:
            headers["Authorization"] = f"Bearer {self.keys[who]}"
        return self.client.request(method, path, headers=headers, **options)

    def get(self, who, path, **options):
        return self.call(who, "GET", path, **options)

    def ask(self, who, body=None, key=None, path=f"{BASE}/ask"):
        headers = {} if key is None else {"Idempotency-Key": key}
        return self.call(who, "POST", path, json=MEAN if body is None else body, headers=headers)

    def spent(self):
        return int(self.get("vera", f"{BASE}/budget").json()["spent"])

    def used(self, who):
        return int(self.get(who, f"{BASE}/budget").json()["used"])


def refused(reply, status, kind):
    """Whether a reply is a refusal in the one shape."""
    error = reply.json()["error"]
    assert (reply.status_code, error["type"]) == (status, kind), reply.text
    assert isinstance(error["message"], str)
    assert set(reply.json()) == {"error"}
    return error


def until(look, seconds=240.0):
    """Wait until `look` finds something."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"nothing after {seconds} s")


@contextlib.contextmanager
def running(config: uvicorn.Config):
    """A server in a thread and its address, at a port that is taken before anybody else can take it."""
    server = uvicorn.Server(config)
    with listen("127.0.0.1", 0) as place:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [place]})
        thread.start()
        try:
            until(lambda: server.started or not thread.is_alive())
            assert server.started, "the server ended at its start"
            wait_until_warm()
            yield server, f"http://127.0.0.1:{place.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


class Process:
    """`serve` in a process of its own.

    Args:
        folder: that is served.
        planted: Python that each worker runs before it serves.
        forked: make workers in a fraction of the time, with everything imported.
        **settings: of the service, and `workers`.
    """

    def __init__(self, folder, *, planted="", forked=False, **settings):
        self.port = free_port()
        told = json.dumps({**OPEN, **settings})
        workers = json.loads(told).pop("workers", 1)
        program = (
            "import json, multiprocessing, pathlib, sys\n"
            "from reticent.apps.service import serving\n"
            "from reticent.service.settings import Settings\n"
            "told = json.loads(sys.argv[2]); told.pop('workers', None)\n"
            "settings = Settings(pathlib.Path(sys.argv[1]), **told)\n"
            "if len(sys.argv) > 6:\n"
            "    import duckdb, opendp.prelude, pandas, pyarrow, uvicorn._subprocess\n"
            "    uvicorn._subprocess.spawn = multiprocessing.get_context('fork')\n"
            "run = serving.uvicorn.run\n"
            # On a busy machine a client may be held up for long, and so may a worker that nobody kills here.
            "patience = {'timeout_keep_alive': 600}\n"
            "if len(sys.argv) <= 6:\n"
            "    patience['timeout_worker_healthcheck'] = 60\n"
            "serving.uvicorn.run = lambda _, **options: run(sys.argv[5], **options | patience)\n"
            "serving.serve(settings, port=int(sys.argv[3]), workers=int(sys.argv[4]))\n"
        )
        beside = folder.with_name(f"{folder.name}-planted")
        made = "reticent.apps.service.serving:make"
        if planted:
            beside.mkdir(exist_ok=True)
            (beside / "planted.py").write_text(f"from reticent.apps.service.serving import make\n{planted}")
            made = "planted:make"
        self.log = (folder / "service.log").open("ab")
        given = [str(folder), told, str(self.port), str(workers), made, *(["forked"] if forked else [])]
        places = [str(beside), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, *given],
            stdout=self.log,
            stderr=self.log,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": os.pathsep.join(places)},
            start_new_session=True,
        )
        self.url = f"http://127.0.0.1:{self.port}"
        until(self._is_up)

    def _is_up(self):
        assert self.process.poll() is None, Path(self.log.name).read_text()
        with (
            contextlib.suppress(OSError, http.client.HTTPException),
            contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as line,
        ):
            line.request("GET", "/health")
            return line.getresponse().status == 200

    def workers(self):
        """The processes that serve, where there are several."""
        pid, found = self.process.pid, []
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{child}/cmdline").read_bytes()  # nothing, of one that ended
                if command and b"resource_tracker" not in command:
                    found.append(int(child))
        return found

    def end(self, signal):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal)
        self.process.wait(240)
        self.log.close()
