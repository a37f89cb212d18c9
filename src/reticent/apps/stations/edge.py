"""The edge: knows who asks, and carries points that it cannot read to the provider, those of many at once.

A small program of its own, by another operator than the provider's. Vehicles talk to it alone, so that the
provider sees no address of theirs; it hands on the provider's signed texts, map and list, too. It keeps
nothing on a disk but the master key of its enrolments.

A request that comes again, while the first is under way or shortly after, is given the same replies: the
provider sees each of its points once. After a restart it would see them again, and that they are the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reticent.apps.stations.api import tagged
from reticent.arguments import real, whole
from reticent.errors import ReticentError
from reticent.fleet.intake import Intake
from reticent.location.stations import wire
from reticent.location.stations.area import Area
from reticent.location.stations.mixing import Batch, Cover
from reticent.location.stations.sealing import reply_bytes
from reticent.service.guard import Guard
from reticent.service.limits import Rate
from reticent.service.metrics import Metrics
from reticent.service.refusals import Refused, too_many
from reticent.service.replies import refusal
from reticent.service.settings import Settings

AGAIN_S = 10.0  # for how long replies are kept, for a client that asks the same again
_LOOK_S = 1.0  # how often it is looked who was taken back
_LATEST_S = 1.0  # how old what is free may be
_HANDS = 4  # that seal cover
_KIND = "application/octet-stream"
_HEADERS = [
    (b"content-type", _KIND.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
]
log = logging.getLogger("reticent.edge")


@dataclass(frozen=True)
class Signed:
    """Signed files of the provider, as the edge hands them on.

    Args:
        area: Service and map, checked against each other.
        files: File contents by path.
    """

    area: Area
    files: dict[str, bytes]


@dataclass(slots=True)
class _Pending:
    """A request that is under way, or was a moment ago: its replies, and who waits for them."""

    replies: bytes | None = None
    waiters: list[asyncio.Future[bytes]] = field(default_factory=list)


class Edge:
    """The edge's queue: collects requests into batches and returns the replies.

    Attributes:
        longest: Number of bytes of a request.

    Args:
        signed: Signed files of the provider.
        intake: Check of who may ask.
        cover: Source of dummy points that fill batches up.
        exchange: Function that sends points to the provider and returns so many bytes of replies:
            `line.ProviderLine.send`.
        batch: Number of requests that a batch takes.
        window_s: Seconds that the first request of a batch waits at most.
        rate: Requests a second of one vehicle, in the long run; `burst` at once.
        burst: Largest burst of one vehicle; ten times as many for a host that brings no genuine requests.
    """

    def __init__(
        self,
        signed: Signed,
        intake: Intake,
        cover: Cover,
        exchange: Callable[[bytes, int], Awaitable[bytes]],
        *,
        batch: int = 20,
        window_s: float = 2.0,
        rate: float = 1.0,
        burst: int = 10,
    ) -> None:
        self.signed, self._intake, self._cover, self._exchange = signed, intake, cover, exchange
        self._batch, self._window_s = checked_batch(batch, window_s)
        service = signed.area.service
        self._form, self._m, self._size = wire.form(service), service.m, reply_bytes(service.k)
        self.longest = self._form.length
        self._rate, self._strangers = Rate(rate, burst), Rate(10.0 * rate, 10 * burst)
        self._waiting: list[bytes] = []
        self._known: dict[bytes, _Pending] = {}
        self._late: asyncio.TimerHandle | None = None
        self._hands = ThreadPoolExecutor(_HANDS, thread_name_prefix="batch")
        self._under_way: set[asyncio.Task[None]] = set()
        self._looked = -_LOOK_S

    def begin(self) -> None:
        """Begin to draw cover."""
        self._cover.begin()

    def end(self) -> None:
        """Wait for what is under way."""
        self._cover.end()
        self._hands.shutdown()

    # Requests

    def admit(self, request: bytes, host: str) -> None:
        """Refuse requests of vehicles that are not enrolled, and vehicles that ask too often.

        Raises:
            Refused: with the reason.
        """
        now = time.monotonic()
        if now - self._looked >= _LOOK_S:
            self._intake.look()
            self._looked = now
        who = self._intake.reporter(request, self._form)
        if who is None:
            if pause := self._strangers.wait_s(host):
                raise too_many(pause)
            raise Refused(
                422, "request_refused", "the request must be that of an enrolled vehicle to this service"
            )
        if pause := self._rate.wait_s(who.hex()):
            raise too_many(pause)

    async def replies(self, request: bytes) -> bytes:
        """Return the replies to a request that was admitted."""
        loop, pending = asyncio.get_running_loop(), self._known.get(request)
        if pending is None:
            pending = self._known[request] = _Pending()
            self._waiting.append(request)
            if len(self._waiting) >= self._batch:
                self._go()
            elif self._late is None:
                self._late = loop.call_later(self._window_s, self._go)
        if pending.replies is not None:
            return pending.replies
        waiter: asyncio.Future[bytes] = loop.create_future()
        pending.waiters.append(waiter)
        return await waiter

    def _go(self) -> None:
        """Let a batch leave."""
        if self._late is not None:
            self._late.cancel()
            self._late = None
        together, self._waiting = self._waiting[: self._batch], self._waiting[self._batch :]
        if together:
            task = asyncio.get_running_loop().create_task(self._carry(together))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def _carry(self, together: list[bytes]) -> None:
        try:
            found = await self._carried(together)
        except Exception as error:  # theirs to tell
            for request in together:
                for waiter in self._known.pop(request).waiters:
                    if not waiter.done():  # the client may have left
                        waiter.set_exception(error)
            return
        for request, replies in zip(together, found, strict=True):
            pending = self._known[request]
            pending.replies = replies
            for waiter in pending.waiters:
                if not waiter.done():
                    waiter.set_result(replies)
            pending.waiters.clear()
        asyncio.get_running_loop().call_later(AGAIN_S, self._forget, together)

    async def _carried(self, requests: list[bytes]) -> list[bytes]:
        """Return the replies to some requests, by one batch of the fixed size."""
        cover: list[bytes] = []
        if missing := (self._batch - len(requests)) * self._m:
            loop = asyncio.get_running_loop()
            cover = await loop.run_in_executor(self._hands, self._cover.points, missing)
        batch = Batch.of([wire.points_of(one) for one in requests], cover)
        content = await self._exchange(b"".join(batch.points), self._size * len(batch.points))
        return [b"".join(replies) for replies in batch.told(wire.pieces(content, self._size))]

    def _forget(self, requests: list[bytes]) -> None:
        for request in requests:
            self._known.pop(request, None)


def checked_batch(batch: int, window_s: float) -> tuple[int, float]:
    """Validate the number of requests of a batch and the waiting time of the first."""
    return whole("batch", batch, low=1, high=256), real("window", window_s, low=0.0, high=60.0)


# HTTP


class Asked:
    """ASGI handler of POST /ask; every other request goes to the application behind.

    A body is of one size, which every client knows, so that a longer one is not read, and it must come in
    time.

    Args:
        edge: Edge that answers.
        behind: Application for every other request.
        body_s: Seconds that a body may take.
    """

    def __init__(self, edge: Edge, behind: ASGIApp, *, body_s: float = 10.0) -> None:
        self._edge, self._behind, self._body_s = edge, behind, body_s
        self._arriving: dict[asyncio.Task[Any], float] = {}  # until when a body may arrive
        self._sweep: asyncio.TimerHandle | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope.get("path") != "/ask" or scope.get("method") != "POST":
            await self._behind(scope, receive, send)
            return
        client = scope.get("client")
        try:
            request = await self._body(receive)
            if request is None:
                return
            self._edge.admit(request, client[0] if client else "")
            found = await self._edge.replies(request)
        except ReticentError as error:
            await refusal(error)(scope, receive, _closing(send))
            return
        except Exception as error:  # a fault of ours
            log.error(json.dumps({"event": "fault", "type": type(error).__name__}))
            await refusal(Refused(500, "fault", "internal fault"))(scope, receive, _closing(send))
            return
        length = (b"content-length", str(len(found)).encode())
        await send({"type": "http.response.start", "status": 200, "headers": [length, *_HEADERS]})
        await send({"type": "http.response.body", "body": found})

    async def _body(self, receive: Receive) -> bytes | None:
        """Return the whole body; None if the client left."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        self._arriving[task] = loop.time() + self._body_s
        if self._sweep is None:
            self._sweep = loop.call_later(self._body_s, self._cut_late)
        body = b""
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                part: bytes = message.get("body", b"")
                body = body + part if body else part
                if len(body) > self._edge.longest:
                    raise Refused(413, "too_large", f"the body must be {self._edge.longest} bytes")
                if not message.get("more_body", False):
                    return body
        except asyncio.CancelledError:
            if task in self._arriving:
                raise
            task.uncancel()  # our own doing, not a fault that anybody must see
            raise Refused(408, "too_slow", f"the body must come within {self._body_s:g} s") from None
        finally:
            self._arriving.pop(task, None)

    def _cut_late(self) -> None:
        """Lose patience with bodies that should be there: one look for all of them, since most are."""
        loop = asyncio.get_running_loop()
        now, self._sweep = loop.time(), None
        for task, end in list(self._arriving.items()):
            if now >= end:
                del self._arriving[task]
                task.cancel()
        if self._arriving:
            first = min(self._arriving.values())
            self._sweep = loop.call_later(max(0.0, first - now), self._cut_late)


def _closing(send: Send) -> Send:
    """Let a connection end with a refusal: the rest of a body may still be on its way."""

    async def marked(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *_HEADERS[1:], (b"connection", b"close")]
        await send(message)

    return marked


class _Latest:
    """Cache of the provider's latest free bits, fetched at most once a second.

    Batches come from this machine, too: a client that asks often must not use up the edge's rate there.
    """

    def __init__(self, fetch: Callable[[], bytes]) -> None:
        self._fetch, self._turn = fetch, asyncio.Lock()
        self._found, self._at = b"", -_LATEST_S

    async def now(self) -> bytes:
        """Return the bytes, a second old at most."""
        async with self._turn:
            if time.monotonic() - self._at >= _LATEST_S:
                self._found = await asyncio.get_running_loop().run_in_executor(None, self._fetch)
                self._at = time.monotonic()
            return self._found


def application(
    edge: Edge, settings: Settings, fetch: Callable[[str], bytes] | None = None, *, body_s: float = 10.0
) -> ASGIApp:
    """Build the ASGI application of the edge.

    Args:
        edge: Edge that answers.
        settings: Limits of all routes but /ask.
        body_s: Seconds that the body of /ask may take.
        fetch: Function that fetches a path from the provider now, for content that changes: free stations.
    """
    files = edge.signed.files
    latest = _Latest(lambda: fetch("free") if fetch is not None else b"")

    async def handed_on(request: Request) -> Response:
        name = request.url.path.strip("/")
        return tagged(request, files[name], _KIND if name == "map" else "application/json")

    async def free(request: Request) -> Response:
        if fetch is None:
            return refusal(Refused(404, "not_found", "there is no such page"))
        try:
            return tagged(request, await latest.now(), _KIND)
        except ReticentError as error:
            return refusal(error)

    async def health(request: Request) -> Response:
        return Response(b'{"status":"ok"}', media_type="application/json")

    @contextlib.asynccontextmanager
    async def lifespan(_: ASGIApp) -> AsyncIterator[None]:
        edge.begin()
        try:
            yield
        finally:
            edge.end()

    routes = [Route(f"/{name}", handed_on) for name in files]
    routes += [
        Route("/free", free),
        Route("/health", health),
    ]
    behind = Guard(Starlette(routes=routes, lifespan=lifespan), settings, Metrics())
    return Asked(edge, behind, body_s=body_s)
