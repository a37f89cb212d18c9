"""Limits on rate, size, depth, time and number; and when replies to questions leave."""

import asyncio
import contextlib
import inspect
import json
import socket
import sys
import threading
import time

import httpx
import pytest

from reticent.apps.query import ask_route as asking
from reticent.apps.query.desk import Desk
from reticent.service import guard, limits, protocol
from reticent.service.limits import Rate, is_deeper, leaves_after_s

from .running import BASE, MEAN, refused, until

PATIENCE_S = 240.0  # of a client here

# Rate


def test_a_key_has_a_rate(serving):
    service = serving(rate=0.001, burst=3)
    assert [service.get("alice", "/api/v1/me").status_code for _ in range(4)] == [200, 200, 200, 429]
    reply = service.get("alice", "/api/v1/me")
    refused(reply, 429, "too_many_requests")
    assert int(reply.headers["retry-after"]) >= 500
    assert service.get("bob", "/api/v1/me").status_code == 200


def test_strangers_have_a_rate_by_host(serving):
    service = serving(rate=0.001, burst=3)
    assert [service.get(None, "/api/v1/me").status_code for _ in range(4)] == [401, 401, 401, 429]
    assert service.get(None, "/health").status_code == 429
    assert service.get("alice", "/api/v1/me").status_code == 200, "a key is not stopped by its neighbours"


def test_a_bucket_fills_again(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(limits.time, "monotonic", lambda: now[0])
    rate = Rate(2.0, 3)
    assert [rate.wait_s("a") for _ in range(4)] == [0, 0, 0, 0.5]
    now[0] += 0.5
    assert [rate.wait_s("a"), rate.wait_s("a")] == [0, 0.5]
    now[0] += 100
    assert [rate.wait_s("a") for _ in range(4)][:3] == [0, 0, 0]
    for number in range(limits._MOST_CALLERS + 10):
        rate.wait_s(str(number))
    assert len(rate._buckets) == limits._MOST_CALLERS


# Size and depth


def nested(levels):
    return b'{"query": ' + b"[" * levels + b"]" * levels + b"}"


@pytest.mark.parametrize("verb", ["ask", "price", "rehearse", "known", "jobs"])
def test_a_deep_body_is_refused_before_it_is_read(shared, verb):
    """With the limit on recursion lifted, as py_ecc does, `json` would end the process."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    try:
        for body in (nested(100_000), b"[" * 200_000, b'{"a":' * 50_000):
            for kind in ("application/json", "application/x+json", "text/plain"):
                reply = shared.call(
                    "alice", "POST", f"{BASE}/{verb}", content=body, headers={"Content-Type": kind}
                )
                refused(reply, 400, "bad_request")
    finally:
        sys.setrecursionlimit(before)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (nested(79), False),
        (nested(80), True),
        (b"[" * 200, True),
        (b"[]" * 10_000, False),
        (json.dumps({"a": "[" * 1000}).encode(), False),
        (json.dumps({"a": '"\\' + "[" * 1000}).encode(), False),
        (json.dumps({"\\": [[["}"]]], "b": "{" * 100}).encode(), False),
        (b'{"a": "' + b"\\\\" * 100 + b'", "b": ' + b"[" * 100, True),
        (b"", False),
    ],
)
def test_depth(body, expected):
    assert is_deeper(body) is expected


def test_the_deepest_question_passes(shared):
    where = {"column": "age", "op": ">", "value": 3}
    for _ in range(30):
        where = {"and": [where]}
    body = {"query": {"kind": "count", "where": where}, "information": 1e-3}
    assert shared.call("alice", "POST", f"{BASE}/price", json=body).status_code == 200


def test_a_large_body_is_refused(serving):
    service = serving(largest_body=2048)
    refused(service.ask("alice", {**MEAN, "query": "x" * 3000}), 413, "too_large")

    def chunks():
        for _ in range(3000):
            yield b"x"

    refused(service.call("alice", "POST", f"{BASE}/ask", content=chunks()), 413, "too_large")
    for length in ("-1", "x", "1e3", "9" * 30):
        reply = service.call(
            "alice", "POST", f"{BASE}/ask", content=b"{}", headers={"Content-Length": length}
        )
        refused(reply, 413, "too_large")


BLOCK = b" " * (1 << 16)


@pytest.mark.parametrize("header", [(b"transfer-encoding", b"chunked"), (b"content-length", b"9" * 10)])
def test_an_endless_body_is_not_read_to_its_end(serving, header):
    """The largest body bounds what is kept of any."""
    service, taken, sent = serving(largest_body=1 << 20), [], []
    path = f"{BASE}/price"
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "path": path,
        "raw_path": path.encode(), "query_string": b"", "root_path": "", "scheme": "http",
        "headers": [(b"content-type", b"application/json"), header], "client": ("10.0.0.1", 1),
        "server": ("127.0.0.1", 80), "state": {},
    }  # fmt: skip

    async def receive():
        taken.append(BLOCK)
        assert len(taken) <= 17, "more than the largest body was read"
        return {"type": "http.request", "body": BLOCK, "more_body": True}

    async def send(message):
        sent.append(message)

    service.client.portal.call(service.app, scope, receive, send)
    assert sent[0]["status"] == 413


def test_only_so_many_at_once(serving, monkeypatch):
    held, entered = threading.Event(), threading.Semaphore(0)

    def slow(self, *_, **__):
        entered.release()
        held.wait(PATIENCE_S)
        return true(self, *_, **__)

    true = Desk.price
    monkeypatch.setattr(Desk, "price", slow)
    service = serving(most_at_once=2)
    replies = []
    threads = [
        threading.Thread(target=lambda: replies.append(service.ask("alice", path=f"{BASE}/price")))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
        assert entered.acquire(timeout=PATIENCE_S)
    reply = service.get("bob", "/api/v1/me")
    refused(reply, 503, "busy")
    assert reply.headers["retry-after"] == "1"
    assert service.get(None, "/health").status_code == 200
    held.set()
    for thread in threads:
        thread.join()
    assert [one.status_code for one in replies] == [200, 200]
    assert service.get("bob", "/api/v1/me").status_code == 200


# Slow clients, over a socket


@contextlib.contextmanager
def connected(url):
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        yield connection


def answer(connection):
    """All that comes until the other side hangs up."""
    found = b""
    while part := connection.recv(65536):
        found += part
    return found


def answer_until_cut(connection, sent):
    """Send bytes; return all that comes until the other side hangs up, which it may do meanwhile."""
    found = b""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall(sent)
        while part := connection.recv(65536):
            found += part
    return found


def one_answer(connection):
    """The next answer, to the end of its JSON: head and body may come apart."""
    found = b""
    while not found.endswith(b"}"):
        found += connection.recv(65536)
    return found


def test_a_slow_body_is_cut_off(listening, keys):
    _, url = listening(body_s=0.2)
    head = (
        f"POST {BASE}/ask HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {keys['alice']}\r\n"
        "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    )
    with connected(url) as connection:
        connection.sendall(head.encode())
        reply = answer(connection)
    assert reply.startswith(b"HTTP/1.1 408 ")
    assert b'"type":"too_slow"' in reply


def test_slow_bodies_take_no_place_from_others(listening, keys, monkeypatch):
    """Of more bodies on their way than places, the oldest is cut; whoever sends at once is served."""
    true, came = guard.Guard._make_room, []
    monkeypatch.setattr(guard.Guard, "_make_room", lambda self: came.append(self) or true(self))
    _, url = listening(body_s=600.0, most_at_once=2)
    head = f"POST {BASE}/price HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
    with contextlib.ExitStack() as held:
        slow = [held.enter_context(connected(url)) for _ in range(3)]
        for number, connection in enumerate(slow):
            connection.sendall(f"{head}100\r\n\r\n{{".encode())
            until(lambda number=number: len(came) > number)
        assert answer(slow[0]).startswith(b"HTTP/1.1 408 ")
        told = httpx.post(
            f"{url}{BASE}/price", json=MEAN, headers={"Authorization": f"Bearer {keys['alice']}"}, timeout=60
        )
        assert told.status_code == 200
        assert answer(slow[1]).startswith(b"HTTP/1.1 408 ")
        slow[2].settimeout(0.2)
        with pytest.raises(TimeoutError):
            slow[2].recv(1)


def test_the_oldest_of_too_many_connections_is_cut(listening, monkeypatch):
    monkeypatch.setattr(protocol, "MOST_WAITING", 2)
    monkeypatch.setattr(protocol, "HEAD_S", 600.0)  # none is cut for its headers
    server, url = listening()
    with contextlib.ExitStack() as held:
        idle = []
        for number in range(3):
            idle.append(held.enter_context(connected(url)))
            until(lambda number=number: len(server.server_state.connections) >= min(2, number + 1))
        assert answer(idle[0]) == b""
        idle[2].sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert idle[2].recv(65536).startswith(b"HTTP/1.1 200 ")


def test_who_does_not_read_is_cut_off(listening, monkeypatch):
    """Somebody asks for megabytes."""
    monkeypatch.setattr(protocol, "TAKE_S", 0.2)
    paused, pause_writing = threading.Event(), protocol.BoundedProtocol.pause_writing

    def note_pause(connection):
        pause_writing(connection)
        paused.set()

    monkeypatch.setattr(protocol.BoundedProtocol, "pause_writing", note_pause)
    server, url = listening()
    host, port = url.removeprefix("http://").split(":")
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((host, int(port)))
        connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 300)
        assert paused.wait(240)
        until(lambda: not server.server_state.connections, PATIENCE_S)


@pytest.mark.parametrize("sent", [b"", b"GET /health HTTP/1.1\r\nHo", b"GET /health HTTP/1.1\r\nHost: x\r\n"])
def test_slow_headers_are_cut_off(listening, monkeypatch, sent):
    monkeypatch.setattr(protocol, "HEAD_S", 0.2)
    server, url = listening()
    with connected(url) as connection:
        assert answer_until_cut(connection, sent) == b""
    until(lambda: not server.server_state.connections)


def test_a_second_request_is_waited_for(listening, monkeypatch):
    """A connection that was answered is kept as long as uvicorn keeps it, and its next headers are timed."""
    _, url = listening()
    whole = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    with connected(url) as connection:
        connection.sendall(whole)
        assert one_answer(connection).startswith(b"HTTP/1.1 200 ")
        monkeypatch.setattr(protocol, "HEAD_S", 0.2)
        time.sleep(0.4)
        connection.sendall(whole)
        assert one_answer(connection).startswith(b"HTTP/1.1 200 ")
        connection.sendall(whole[:20])
        assert answer(connection) == b""


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\n",
        b"GET / HTTP/1.1\r\nA: " + b"x" * 40_000 + b"\r\nB: c\r\n",
        b"GET / HTTP/1.1\r\nA: " + b"x" * 100_000,
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 102,
        b"nonsense\r\n\r\n",
    ],
    ids=["address", "header", "endless header", "many headers", "no HTTP"],
)
def test_long_headers_are_refused(listening, sent):
    _, url = listening()
    with connected(url) as connection:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(sent)
        with contextlib.suppress(ConnectionResetError):
            assert answer(connection).startswith(b"HTTP/1.1 400 ")


# When replies leave


@pytest.mark.parametrize(
    ("passed", "deadline", "grid", "expected"),
    [
        (0.01, 0.1, 0.1, 0.1),
        (0.11, 0.1, 0.1, 0.2),
        (0.11, 0.5, 0.1, 0.5),
        (0.73, 0.5, 0.1, 0.8),
        (0.73, 0.5, 0.0, 0.73),
    ],
)
def test_replies_leave_on_the_grid(passed, deadline, grid, expected):
    assert leaves_after_s(passed, deadline, grid) == pytest.approx(expected)


@pytest.fixture
def waits(monkeypatch):
    """What `until_deadline` was called with."""
    found = []

    async def noted(start, deadline_s, grid_s):
        found.append((deadline_s, grid_s))

    monkeypatch.setattr(asking, "until_deadline", noted)
    return found


def test_every_reply_to_a_question_waits(serving, waits):
    """Answers, refusals by budget, quota and rule, and unknown data sets alike."""
    service = serving(grid_s=0.25, rows_per_step=1500)
    service.call("olga", "PUT", f"{BASE}/quotas/bob", json={"share": 0.0})
    statuses = [
        service.ask("alice").status_code,
        service.ask("alice").status_code,
        service.ask("alice", {**MEAN, "error": 100.0}).status_code,
        service.ask("bob", {**MEAN, "error": 3000.0}).status_code,
        service.ask("alice", {**MEAN, "query": "nonsense"}).status_code,
        service.ask("alice", path="/api/v1/datasets/nothing/ask").status_code,
    ]
    assert statuses == [200, 200, 409, 409, 400, 404]
    assert waits == [(0.5, 0.25)] * 5 + [(0.25, 0.25)]


def test_a_fault_waits_too(serving, waits, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError

    monkeypatch.setattr(Desk, "ask", broken)
    service = serving(grid_s=0.25)
    assert service.ask("alice").status_code == 500
    assert waits == [(0.25, 0.25)]


def test_waiting_waits(monkeypatch):
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    monkeypatch.setattr(limits.asyncio, "sleep", sleep)
    monkeypatch.setattr(limits.time, "monotonic", lambda: 10.03)
    asyncio.run(limits.until_deadline(10.0, 0.1, 0.1))
    asyncio.run(limits.until_deadline(10.0, 0.1, 0.0))
    assert slept == [pytest.approx(0.07)]


# Planted


async def unread_body(self, scope, receive):
    return receive


def skipping_refusals(noted):
    async def only_answers(*given):
        if sys.exc_info()[0] is None:
            await noted(*given)

    return only_answers


def test_200_levels_are_refused(shared):
    refused(shared.call("alice", "POST", f"{BASE}/price", content=nested(200)), 400, "bad_request")


def endless_chunks(serving):
    test_an_endless_body_is_not_read_to_its_end(serving, (b"transfer-encoding", b"chunked"))


PLANTED = {  # what catches it, where it is, and what is there instead of the true one
    "no rate": (test_a_key_has_a_rate, Rate, "wait_s", lambda true: lambda self, caller: 0.0),
    "any depth": (test_200_levels_are_refused, guard, "is_deeper", lambda true: lambda body: False),
    "any body": (test_a_large_body_is_refused, guard.Guard, "_taken", lambda true: unread_body),
    "endless bodies": (endless_chunks, guard.Guard, "_taken", lambda true: unread_body),
    "slow bodies": (
        test_slow_bodies_take_no_place_from_others,
        guard.Guard,
        "_make_room",
        lambda true: lambda self: None,
    ),
    "many connections": (
        test_the_oldest_of_too_many_connections_is_cut,
        protocol.BoundedProtocol,
        "_wait",
        lambda true: lambda self: None,
    ),
    "deaf readers": (
        test_who_does_not_read_is_cut_off,
        protocol.BoundedProtocol,
        "_watch",
        lambda true: lambda self: None,
    ),
    "no grid for refusals": (
        test_every_reply_to_a_question_waits,
        asking,
        "until_deadline",
        skipping_refusals,
    ),
}


@pytest.mark.parametrize("what", PLANTED)
def test_planted_bugs_are_caught(request, monkeypatch, what):
    check, place, name, planted = PLANTED[what]
    given = [request.getfixturevalue(wanted) for wanted in inspect.signature(check).parameters]
    monkeypatch.setattr(place, name, planted(getattr(place, name)))
    monkeypatch.setattr(sys.modules[__name__], "PATIENCE_S", 1.0)
    with pytest.raises((AssertionError, TimeoutError)):
        check(*given)
