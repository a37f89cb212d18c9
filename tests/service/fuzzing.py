"""Requests by the thousand, straight into the application: how they are sent, and what must hold of each."""

import asyncio
import json
import shutil
import time
from collections import Counter
from dataclasses import dataclass, field, replace

from reticent.apps.query import sources
from reticent.apps.service.serving import create_app
from reticent.query.declarations import dataset_file
from reticent.service.keys import Role
from reticent.service.settings import Settings
from reticent.service.visits import COOKIE

from .running import PATIENT, ROWS, WORK, wait_until_warm

MAX_CPU_S = 5.0  # of one reply; all take a tenth of a second at most, but for the first of their kind
_LOOKS = 3  # at the processor time of a reply that took too much of it
PATIENCE_S = 300.0  # after which a reply will never come, however busy the machine is
ROLES = {"owner": Role.OWNER, "analyst": Role.ANALYST, "auditor": Role.AUDITOR}
# What no request names by chance is what callers are called: no key is taken back under a run.
_CALLERS = "caller-1f6b2c9d-"
_TOWN = f"""
name: town
version: 1
source: town.csv
unit: row
relation: add or remove one
budget: {{epsilon: 1, delta: 1e-6}}
policy: degrade
columns:
  age: {{type: integer, low: 0, high: {ROWS // 20}}}
  hours: {{type: integer, low: 0, high: 99, missing: 0}}
  sex: {{type: category, values: [male, female]}}
"""
_STRANGER = "a-token"
_NO_JOBS = {"done", "refused"}


@dataclass(frozen=True)
class Call:
    """A request as it lies on the wire. `body` comes in as many pieces as `pieces`."""

    method: str
    path: str
    who: str | None = None
    body: bytes = b""
    kind: bytes = b"application/json"
    query: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    length: bytes | None = None  # what the header claims, if not the truth
    pieces: int = 1

    @property
    def is_page(self):
        return not self.path.startswith(("/api/", "/metrics", "/health"))


@dataclass
class Answered:
    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""
    wall_s: float = 0.0
    cpu_s: float = 0.0
    is_complete: bool = False


class World:
    """A service on two data sets, one caller for each role, and all that is spent."""

    def __init__(self, folder, made_census):
        shutil.copytree(made_census, folder)
        (folder / "town.yaml").write_text(dataset_file.write(dataset_file.parse(_TOWN)))
        options = {"grid_s": 0.0, "rate": 1e6, "burst": 10**6, "most_jobs": 10**6, **WORK, **PATIENT}
        self.app = create_app(Settings(folder, **options))
        self.counts, self._spent = Counter(), None
        self.max_cpu_s, self.patience_s = MAX_CPU_S, PATIENCE_S
        self._unanswered = []

    def __enter__(self):
        self._loop = asyncio.new_event_loop()
        self._life = self.app.router.lifespan_context(self.app)
        self._loop.run_until_complete(self._life.__aenter__())
        self.desk = self.app.state.desk
        state = self.desk.state
        made = {name: state.make_key(_CALLERS + name, role) for name, role in ROLES.items()}
        self.keys = {name: secret for name, (_, secret) in made.items()}
        sources.assign(state, self.app.state.desk.settings.folder, "fresh.csv", f"{_CALLERS}owner")
        self.visits = {name: state.enter(key) for name, key in self.keys.items()}
        for name in ("bob", "gone"):
            state.make_key(name, Role.ANALYST)
        wait_until_warm()
        return self

    def __exit__(self, *exception):
        if self._unanswered:  # without tasks, gather would take the loop of whatever ran before
            self._loop.run_until_complete(asyncio.gather(*self._unanswered))
        self._loop.run_until_complete(self._life.__aexit__(None, None, None))
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def csrf(self, who):
        """The token of somebody's forms; a stranger has one for the form that signs in."""
        return self.visits[who][1].csrf if who else _STRANGER

    def spent(self):
        """What every account has spent, and every analyst used."""
        accounts = {one.terms.name: (one.spent, one.terms.cap) for one in self.desk.ledger.accounts()}
        return accounts, self.desk.state._all("SELECT dataset, person, units FROM used WHERE units > 0")

    # Sending

    def send(self, call):
        """Return the reply to a request, as uvicorn would get it; an incomplete one after `patience_s`."""
        return self._loop.run_until_complete(self._send_patiently(call))

    async def _send_patiently(self, call):
        sending = asyncio.create_task(self._sent(call))
        replied, _ = await asyncio.wait({sending}, timeout=self.patience_s)
        if replied:
            return sending.result()
        self._unanswered.append(sending)
        return Answered()

    async def _sent(self, call):
        waiting = _pieces(call.body, call.pieces)
        answered = Answered()

        async def receive():
            if waiting:
                return {"type": "http.request", "body": waiting.pop(0), "more_body": bool(waiting)}
            await asyncio.sleep(60)  # as a client that waits for its reply
            return {"type": "http.disconnect"}

        async def send(message):
            if message["type"] == "http.response.start":
                answered.status, answered.headers = message["status"], dict(message["headers"])
            else:
                answered.body += message.get("body", b"")

        scope = self._scope(call)
        start, cpu = time.perf_counter(), time.process_time()
        await self.app(scope, receive, send)
        answered.wall_s, answered.cpu_s = time.perf_counter() - start, time.process_time() - cpu
        answered.is_complete = True
        return answered

    def _scope(self, call):
        headers = [(b"host", b"127.0.0.1"), *call.headers]
        if call.who is not None and call.is_page:
            headers.append((b"cookie", f"{COOKIE}={self.visits[call.who][0]}".encode()))
        elif call.is_page:
            headers.append((b"cookie", f"reticent-form={_STRANGER}".encode()))
        elif call.who is not None:
            headers.append((b"authorization", f"Bearer {self.keys[call.who]}".encode()))
        if call.kind:
            headers.append((b"content-type", call.kind))
        if call.pieces > 1:
            headers.append((b"transfer-encoding", b"chunked"))
        elif call.body or call.length is not None:
            told = call.length if call.length is not None else b"%d" % len(call.body)
            headers.append((b"content-length", told))
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": call.method,
            "path": call.path,
            "raw_path": call.path.encode("utf-8", "replace"),
            "query_string": call.query,
            "root_path": "",
            "scheme": "http",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "state": {},
        }

    def settle(self):
        """Wait until no job may charge any more."""
        end = time.monotonic() + 120
        while set(self.desk.state.job_counts()) - _NO_JOBS:
            assert time.monotonic() < end, "a job does not end"
            time.sleep(0.001)

    # Judging

    def faults(self, call, also=lambda answered: ()):
        """What is wrong with the reply to a request and with what it left behind. `also` judges the reply."""
        before = self._spent if self._spent is not None else self.spent()
        answered = self.send(call)
        if answered.status == 202:
            self.settle()
        after = self._spent = self.spent()
        self.counts[answered.status] += 1
        if call.path == "/signout" and call.who is not None:
            self.visits[call.who] = self.desk.state.enter(self.keys[call.who])
        if answered.is_complete:
            found = [
                *wrong_reply(call, answered),
                *wrong_budget(call, answered, before, after),
                *also(answered),
            ]
        else:
            found = [f"no reply in {self.patience_s:g} s"]
        if answered.cpu_s > self.max_cpu_s and self._least_cpu_s(call) > self.max_cpu_s:
            found.append(f"took {answered.cpu_s:.2f} s of processor time")
        return [f"{call.method} {call.path} as {call.who}: {one}; {_shown(call)}" for one in found]

    def _least_cpu_s(self, call):
        """Return the least processor time of the same request in a few more tries.

        First calls import and compile, and whatever else takes processor time here adds to it by chance.
        """
        least_s = min(self.send(call).cpu_s for _ in range(_LOOKS))
        self.settle()
        self._spent = self.spent()
        return least_s


def wrong_reply(call, answered):
    """Whether a reply is none that the service may give: a fault, or an error in another shape."""
    if not 200 <= answered.status < 500:
        yield f"status {answered.status} {answered.body[:200]!r}"
    if b"Traceback" in answered.body or b'File "/' in answered.body:
        yield f"a traceback: {answered.body[:200]!r}"
    kind = answered.headers.get(b"content-type", b"")
    if call.is_page and not kind.startswith(b"application/json"):
        if answered.body and not kind.startswith(b"text/html"):
            yield f"a page of the type {kind!r}"
        return
    if kind.startswith(b"text/plain") and call.path == "/metrics" and answered.status < 400:
        return
    if answered.status == 204 and not answered.body:
        return
    try:
        told = json.loads(answered.body)
    except ValueError:
        yield f"no JSON: {answered.body[:200]!r}"
        return
    if answered.status >= 400 and not _is_error(told):
        yield f"an error in another shape: {answered.body[:200]!r}"


def _is_error(told):
    if not isinstance(told, dict) or set(told) != {"error"} or not isinstance(told["error"], dict):
        return False
    return all(isinstance(told["error"].get(name), str) for name in ("type", "message"))


def wrong_budget(call, answered, before, after):
    """Whether something was spent that nobody was given an answer for, or more than the cap."""
    for name, (spent, cap) in after[0].items():
        if spent > cap:
            yield f"{name} spent {spent} of {cap}"
    asks = call.path.endswith(("/ask", "/jobs")) and answered.status < 400
    if call.is_page:
        asks = asks and b"hx-trigger-after-settle" in answered.headers
    registers = answered.status in (201, 303) and not asks
    if registers:  # a new account, with nothing spent
        before = ({**{name: (0, cap) for name, (_, cap) in after[0].items()}, **before[0]}, before[1])
    if not asks and before != after:
        yield f"budget moved from {before} to {after}"


def _pieces(body, count):
    size = max(1, -(-len(body) // count))
    return [body[at : at + size] for at in range(0, len(body), size)] or [b""]


def _shown(call):
    odd = replace(call, body=call.body[:300] + b"..." * (len(call.body) > 300), method="", path="", who=None)
    return repr(odd)
