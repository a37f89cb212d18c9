"""Bodies that are almost right, at the edge and at the provider: refused or answered, never a fault."""

import asyncio
import contextlib
import json
import random

import pytest

from reticent.apps.stations.edge import Edge, Signed, application
from reticent.fleet.enrolment import enrolled
from reticent.fleet.intake import Intake
from reticent.fleet.revocation import Revocations
from reticent.location.stations import wire
from reticent.location.stations.mixing import Cover
from reticent.location.stations.sealing import Kind, Point, reply_bytes
from reticent.service.settings import Settings

from ..unit.location.stations.asking_town import MASTER, START, Anywhere, point, provider, vehicle

BASE = "/api/v1/stations/town"
BYTES = b"application/octet-stream"


async def status_of(app, method, path, body, kind=BYTES, key=None):
    """What an application makes of a request: the status and the body."""
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    if key is not None:
        headers.append((b"authorization", f"Bearer {key}".encode()))
    scope = {
        "type": "http", "http_version": "1.1", "method": method, "path": path, "raw_path": path.encode(),
        "query_string": b"", "headers": headers, "client": ("10.0.0.1", 1), "server": ("edge", 80),
        "scheme": "http", "root_path": "", "asgi": {"version": "3.0"}, "state": {},
    }  # fmt: skip
    sent, status, found = False, 0, b""

    async def receive():
        nonlocal sent
        if sent:
            await asyncio.sleep(3600)
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        nonlocal status, found
        status = message.get("status", status)
        found += message.get("body", b"")

    await app(scope, receive, send)
    return status, found


def mutated(rng, body):
    """Another body: bytes changed, cut out, put in, doubled, or all of it junk."""
    way = rng.randrange(7)
    body = bytearray(body)
    at = rng.randrange(len(body) + 1)
    if way == 0:
        for _ in range(rng.choice((1, 1, 2, 8))):
            body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
    elif way == 1:
        del body[at : at + rng.choice((1, 2, 16, 85, 400))]
    elif way == 2:
        body[at:at] = rng.randbytes(rng.choice((1, 3, 16, 85)))
    elif way == 3:
        body += body[: rng.randrange(len(body) + 1)]
    elif way == 4:
        body[at : at + 40] = rng.choice((b"\0", b"\xff", b"{", b'"', b"\\u")) * 40
    elif way == 5:
        body = bytearray(rng.randbytes(rng.choice((0, 1, 85, 170, 372, 5000))))
    else:
        body = body[:at]
    return bytes(body)


class Desk:
    """An edge before a service, both in this process, without limits on rates."""

    def __init__(self, service, held, tmp_path):
        self.service, self.held = service, held
        self._revocations = Revocations(":memory:")
        signed = Signed(held.area, {"service": held.file, "map": held.map_file, "list": held.list_file})
        cover = Cover(held.area, Anywhere(held.area.roads.size), stock=64)
        rates = {"rate": 1e9, "burst": 10**9}

        async def answered(content, due):
            return b"".join(held.answers(wire.pieces(content, 85)))

        made = Edge(
            signed, Intake(MASTER, self._revocations), cover, answered, batch=2, window_s=0.0, **rates
        )
        self.edge = application(made, Settings(tmp_path))
        car, area = vehicle(tmp_path / "ledger", held, enrolment=enrolled(MASTER))
        with car:
            self.seeds = [
                car.query(area, *point(area, 40), now=START),
                car.booking(area, 3),
            ]
        sealed = [Point.made(kind, 3).sealed(held.service.id, held.service.key) for kind in Kind]
        self.points = [wire.points_of(self.seeds[0])[0], *sealed, b"".join(sealed)]
        self.free = [json.dumps({"free": {"S1": 0, "S2": 1}}).encode()]

    def close(self):
        self._revocations.close()


@pytest.fixture
def desk(folder, serving, tmp_path):
    with (
        contextlib.closing(provider(folder / "stations" / "town")) as held,
        contextlib.closing(Desk(serving(), held, tmp_path)) as made,
    ):
        yield made


def faults(desk, count, seed=6):
    """What went wrong with so many mutated bodies, and how many were answered."""
    rng, wrong, answered = random.Random(seed), [], 0
    app, key = desk.service.app, desk.service.keys["olga"]

    async def run():
        nonlocal answered
        for number in range(count):
            where = rng.random()
            if where < 0.45:
                body = mutated(rng, rng.choice(desk.seeds))
                status, reply = await status_of(desk.edge, "POST", "/ask", body)
            elif where < 0.9:
                body = mutated(rng, rng.choice(desk.points))
                status, reply = await status_of(app, "POST", f"{BASE}/points", body)
                if status == 200 and len(reply) != len(body) // 85 * reply_bytes(2):
                    wrong.append((number, "size"))
            else:
                body = mutated(rng, rng.choice(desk.free))
                status, reply = await status_of(app, "PUT", f"{BASE}/free", body, b"application/json", key)
            answered += status == 200
            if status >= 500 or (status != 200 and set(json.loads(reply)) != {"error"}):
                wrong.append((number, status, body[:60]))

    desk.service.client.portal.call(run)
    return wrong, answered


def test_mutated_bodies(desk):
    wrong, answered = faults(desk, 1500)
    assert wrong == []
    assert answered > 50  # not all of them are junk


@pytest.mark.slow
def test_a_hundred_thousand_mutated_bodies(desk):
    assert faults(desk, 100_000)[0] == []


def test_planted_a_provider_that_trips_over_a_point_is_caught(desk, monkeypatch):
    from reticent.location.stations import provider as module

    def strict(sealed, service, key):
        found = opened_before(sealed, service, key)
        if found is None:
            raise RuntimeError("cannot be opened")
        return found

    opened_before = module.opened
    monkeypatch.setattr(module, "opened", strict)
    assert faults(desk, 200)[0] != []
