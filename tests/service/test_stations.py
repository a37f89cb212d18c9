"""Stations over HTTP: provider, edge and vehicle together; what each of them is sent, and what is refused."""

import asyncio
import contextlib
import json
from types import SimpleNamespace

import anyio
import httpx
import pytest
from starlette.testclient import TestClient

from reticent.apps.stations import edge as edge_module
from reticent.apps.stations.edge import Edge, Signed, application
from reticent.fleet.enrolment import enrolled
from reticent.fleet.intake import Intake
from reticent.fleet.revocation import Revocations
from reticent.location.stations import wire
from reticent.location.stations.area import StationList
from reticent.location.stations.mixing import Cover
from reticent.location.stations.provider import free_stations
from reticent.location.stations.sealing import POINT_BYTES, opened, reply_bytes
from reticent.location.stations.vehicle import Vehicle
from reticent.service.settings import Settings

from ..unit.location.stations.asking_town import MASTER, START, Anywhere, point, provider, vehicle
from .running import refused

BASE = "/api/v1/stations/town"
BYTES = {"content-type": "application/octet-stream"}


@pytest.fixture
def held(folder):
    """A provider in the folder of a service."""
    with contextlib.closing(provider(folder / "stations" / "town")) as found:
        yield found


@pytest.fixture
def service(held, serving):
    return serving()


class Line:
    """How an edge reaches a service in this process, and all that it was sent and told."""

    def __init__(self, service):
        self._service, self.sent, self.replies = service, [], []

    async def __call__(self, body, due):
        return await anyio.to_thread.run_sync(self._called, body, due)

    def _called(self, body, due):
        self.sent.append(body)
        found = self._service.client.post(f"{BASE}/points", content=body, headers=BYTES)
        assert found.status_code == 200, found.text
        self.replies.append(found.content)
        assert len(found.content) == due
        return found.content


@pytest.fixture
def line(service):
    return Line(service)


@pytest.fixture
def revocations():
    made = Revocations(":memory:")
    yield made
    made.close()


@pytest.fixture
def edge(held, line, revocations, tmp_path, monkeypatch):
    """A function that starts an edge in this process, of 3 requests a batch."""
    monkeypatch.setattr(edge_module, "AGAIN_S", 600.0)
    opened_ = []

    def start(body_s=600.0, **options):
        files = {"service": held.file, "map": held.map_file, "list": held.list_file}
        cover = Cover(held.area, Anywhere(held.area.roads.size), stock=64)
        given = {"batch": 3, "window_s": 0.05, "rate": 1000.0, "burst": 1000, **options}
        made = Edge(Signed(held.area, files), Intake(MASTER, revocations), cover, line, **given)
        client = TestClient(
            application(made, Settings(tmp_path), lambda _: held.bits(), body_s=body_s),
            raise_server_exceptions=False,
        )
        client.__enter__()
        opened_.append(client)
        return client

    yield start
    for one in opened_:
        one.__exit__(None, None, None)


def asked(client, request):
    return client.post("/ask", content=request, headers=BYTES)


# The provider


def test_what_is_signed_is_served_with_tags(service, held):
    for path, due in (("service", held.file), ("map", held.map_file), ("list", held.list_file)):
        found = service.get(None, f"{BASE}/{path}")
        assert (found.status_code, found.content) == (200, due)
        again = service.get(None, f"{BASE}/{path}", headers={"If-None-Match": found.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    listed = service.get(None, "/api/v1/stations").json()["stations"]
    assert [(one["name"], one["signer"], one["stations"]) for one in listed] == [
        ("town", held.signer.hex(), 6)
    ]
    refused(service.get(None, f"{BASE}/library"), 404, "not_found")
    refused(service.get(None, "/api/v1/stations/none/service"), 404, "not_found")


def test_availability_is_the_owner_s_to_say(service, held):
    before = service.get(None, f"{BASE}/free")
    tag = {"If-None-Match": before.headers["etag"]}
    assert service.get(None, f"{BASE}/free", headers=tag).status_code == 304
    body = {"free": {"S1": 0, "S5": 0}}
    refused(service.call(None, "PUT", f"{BASE}/free", json=body), 401, "not_signed_in")
    refused(service.call("alice", "PUT", f"{BASE}/free", json=body), 403, "not_allowed")
    for wrong in ({"free": {"S1": 2}}, {"free": {"none": 0}}, {"free": {}}, {"free": {"S1": "0"}}, {}):
        assert service.call("olga", "PUT", f"{BASE}/free", json=wrong).status_code in (400, 422)
    assert service.get(None, f"{BASE}/free", headers=tag).status_code == 304
    assert service.call("olga", "PUT", f"{BASE}/free", json=body).json() == {"stations": 2}
    found = service.get(None, f"{BASE}/free", headers=tag)
    assert free_stations(found.content, held.listed, held.signer) == [True, False, True, True, True, False]


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"", BYTES, 400),
        (b"x" * 84, BYTES, 400),
        (b"x" * 86, BYTES, 400),
        (b"x" * 85 * 2561, BYTES, 400),
        (b"x" * 85, {"content-type": "application/json"}, 415),
        (b"x" * (1 << 19), BYTES, 413),
        (b"x" * 85, BYTES, 200),
    ],
)
def test_batches_are_whole_points(service, body, kind, status):
    reply = service.client.post(f"{BASE}/points", content=body, headers=kind)
    assert reply.status_code == status
    if status == 200:
        assert len(reply.content) == reply_bytes(2)


# All three


def test_a_vehicle_finds_a_station(edge, held, line, tmp_path):
    client = edge()
    made = Vehicle(
        tmp_path / "ledger",
        enrolled(MASTER),
        held.signer,
        companions=Anywhere(held.area.roads.size),
        lifetime_per_km=100.0,
    )
    with made:
        area = made.enter(client.get("/service").content, client.get("/map").content)
        request = made.query(area, *point(area, 40), now=START)
        reply = asked(client, request)
        assert reply.status_code == 200, reply.text
        due = {
            number
            for one in wire.points_of(request)
            for number in held.nearest(opened(one, area.service.id, held._sealing_key).number, held.free())
        }
        assert set(made.told(area, reply.content)) == due
        assert {len(one) for one in line.sent} == {3 * 4 * POINT_BYTES}  # filled up with cover
        assert asked(client, request).content == reply.content  # the provider sees it once
        assert len(line.sent) == 1
        booked = asked(client, made.booking(area, 2))
        assert made.is_booked(area, booked.content)
        assert held.free()[2] == 0
        assert {len(one) for one in line.sent} == {3 * 4 * POINT_BYTES}


def test_batches_of_many_leave_together_and_every_reply_finds_its_vehicle(edge, held, line, tmp_path):
    client = edge(window_s=60.0)
    cars = [vehicle(tmp_path / f"ledger-{number}", held) for number in range(6)]
    requests = [made.query(area, *point(area, 30 * at), now=START) for at, (made, area) in enumerate(cars)]
    transport = httpx.ASGITransport(app=client.app)

    async def all_of_them():
        found = [b""] * len(requests)

        async def one(at):
            async with httpx.AsyncClient(transport=transport, base_url="http://edge") as http:
                found[at] = (await http.post("/ask", content=requests[at], headers=BYTES)).content

        async with anyio.create_task_group() as group:
            for at in range(len(requests)):
                group.start_soon(one, at)
        return found

    replies = client.portal.call(all_of_them)
    assert len(line.sent) == 2  # three each, and nobody waited for the window
    for (made, area), reply in zip(cars, replies, strict=True):
        assert made.told(area, reply)
        made.close()
    sent = [set(wire.pieces(one, POINT_BYTES)) for one in line.sent]
    assert (
        sum(map(len, sent)) == 24 == len({point for request in requests for point in wire.points_of(request)})
    )


def test_strangers_and_those_taken_back_are_refused_and_reach_nobody(edge, held, line, revocations, tmp_path):
    client = edge()
    who, other = enrolled(MASTER), enrolled(bytes(32))
    made, area = vehicle(tmp_path / "ledger", held, enrolment=who)
    with made:
        request = made.query(area, *point(area, 40), now=START)
    stranger, area = vehicle(tmp_path / "other", held, enrolment=other)
    with stranger:
        forged = stranger.query(area, *point(area, 40), now=START)
    for wrong in (b"", b"x", forged, request[:-1], b"x" + request[1:], request[:-1] + b"\0"):
        if wrong != request:
            refused(asked(client, wrong), 422, "request_refused")
    refused(asked(client, request + b"x"), 413, "too_large")
    revocations.revoke(who.id)
    later = edge()
    refused(asked(later, request), 422, "request_refused")
    assert line.sent == []


def test_too_many_requests_of_one_vehicle_and_of_one_host(edge, held, tmp_path):
    client = edge(rate=0.001, burst=1)
    made, area = vehicle(tmp_path / "ledger", held)
    with made:
        request = made.query(area, *point(area, 40), now=START)
        assert asked(client, request).status_code == 200
        refused(asked(client, request), 429, "too_many_requests")
    found = [asked(client, b"junk").status_code for _ in range(12)]
    assert found == [422] * 10 + [429] * 2


def test_a_provider_that_is_gone_is_told_and_the_same_request_works_later(
    edge, held, line, tmp_path, monkeypatch
):
    from reticent.errors import SourceError

    client = edge()
    made, area = vehicle(tmp_path / "ledger", held)
    with made:
        request = made.query(area, *point(area, 40), now=START)
        true = Line.__call__

        async def gone(*_):
            raise SourceError("the service at provider cannot be reached")

        monkeypatch.setattr(Line, "__call__", gone)
        refused(asked(client, request), 503, "source_unavailable")
        monkeypatch.setattr(Line, "__call__", true)
        assert made.told(area, asked(client, request).content)


def test_who_asks_often_what_is_free_does_not_ask_the_provider(edge, held, monkeypatch):
    asked_for = []
    bits = held.bits
    monkeypatch.setattr(held, "bits", lambda: asked_for.append(1) or bits())
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(edge_module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    client = edge()
    for second in range(3):
        clock.now = 1000.0 + second
        assert {client.get("/free").content for _ in range(30)} == {bits()}
        assert len(asked_for) == second + 1  # once a second


def test_a_body_that_does_not_come_is_given_up(edge):
    client, sent = edge(body_s=0.2), []

    async def slow():
        async def receive():
            await asyncio.sleep(3600)

        async def send(message):
            sent.append(message)

        await client.app({"type": "http", "method": "POST", "path": "/ask", "headers": []}, receive, send)
        await asyncio.sleep(0)  # the task was not cancelled for good

    client.portal.call(slow)
    assert sent[0]["status"] == 408
    assert (b"connection", b"close") in sent[0]["headers"]


def test_the_edge_hands_on_what_is_public(edge, held):
    client = edge()
    assert client.get("/health").json() == {"status": "ok"}
    found = client.get("/list")
    assert found.content == held.list_file
    assert client.get("/list", headers={"If-None-Match": found.headers["etag"]}).status_code == 304
    assert StationList.parse(json.loads(found.content)["stations"].encode()).id == held.listed.id
    free = client.get("/free")
    assert free_stations(free.content, held.listed, held.signer) == [True] * 6
    assert client.get("/none").status_code == 404
    assert client.get("/ask").status_code == 404
    assert client.get("/free").headers["x-content-type-options"] == "nosniff"


# What each of them is sent


def identities(line, cars):
    """Which vehicles' ids or keys the provider was sent."""
    content = b"".join(line.sent)
    return [at for at, (made, _) in enumerate(cars) if made._enrolment.id in content]


def test_the_provider_is_sent_no_identity_and_the_edge_no_place(edge, held, line, tmp_path):
    client = edge()
    cars = [vehicle(tmp_path / f"ledger-{number}", held) for number in range(4)]
    requests = []
    for at, (made, area) in enumerate(cars):
        requests.append(made.query(area, *point(area, 30 * at), now=START))
        assert asked(client, requests[-1]).status_code == 200
    assert identities(line, cars) == []
    carried = b"".join([*requests, *line.sent, *line.replies])
    for request in requests:
        for sealed in wire.points_of(request):
            clear = opened(sealed, held.service.id, held._sealing_key)
            assert clear.key not in carried
            assert clear.number.to_bytes(4, "big") + clear.token not in carried
    for made, _ in cars:
        made.close()


class Named:
    """Planted: an edge that says who asks."""

    def __init__(self, line, who):
        self.line, self.who = line, who

    def sent(self, points):
        self.line.sent.append(b"".join(points) + self.who)


def test_planted_an_edge_that_says_who_asks_is_caught(held, line, tmp_path):
    made, area = vehicle(tmp_path / "ledger", held)
    with made:
        request = made.query(area, *point(area, 3), now=START)
        Named(line, made._enrolment.id).sent(wire.points_of(request))
        assert identities(line, [(made, area)]) == [0]
