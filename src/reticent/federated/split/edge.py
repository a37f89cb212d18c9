"""The edge, step 3's third party: an HTTP server, features in, slopes out. safetensors only.

    PUT    /v1/{task}/{session}/vectors?records=N    noisy vectors of a home (`noised`)
    POST   /v1/{task}/{session}/slopes               theta -> slopes
    PUT    /v1/{task}/{session}/half                 the edge's half of the round's model (`documented`)
    POST   /v1/{task}/{session}/steps/{i}?records=N  features and labels of a batch -> slopes
    GET    /v1/{task}/{session}/half                 that half, after so many steps
    DELETE /v1/{task}/{session}                      forget it

A session is 64 hexadecimal digits that the phone draws. What is wrong is said in one line, by 4xx. Who asked
when is written nowhere; what was sent is kept until it is deleted, or stale and in the way.

Privacy: the edge is the adversary. What a noised task sends is private before it comes here; what a
documented task sends protects no record.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

from reticent import listening
from reticent.errors import ParameterError, ReticentError
from reticent.federated.split.documented import Documented
from reticent.federated.split.noised import MOST_RECORDS, NoisedTask
from reticent.federated.split.sessions import EdgeFull, EdgeTask, Sessions
from reticent.store import tensors

MOST_BODY = 64 << 20
CAPACITY = 4 << 30
SLOWEST = 1 << 17  # bytes a second: a body may take so long
TENSORS_TYPE = "application/octet-stream"
_SESSION = re.compile("[0-9a-f]{64}")
_NUMBER = re.compile("[0-9]{1,9}")


class _Refused(Exception):
    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


class _Handler(listening.PlainHandler):
    server_version = "reticent-edge"
    server: EdgeServer

    def do_GET(self) -> None:
        self._answered()

    def do_HEAD(self) -> None:
        self._answered()

    def do_PUT(self) -> None:
        self._answered()

    def do_POST(self) -> None:
        self._answered()

    def do_DELETE(self) -> None:
        self._answered()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that the base class refuses as the caller's fault, in one line."""
        self._left = 1
        self.command = getattr(self, "command", None) or "GET"
        self.request_version = "HTTP/1.1"
        self._say(code if code < 500 else 400, message or "the request must be of HTTP")

    def _answered(self) -> None:
        self._left = 0
        try:
            self._send(*self._work(), TENSORS_TYPE, {})
        except _Refused as refused:
            self._say(refused.status, str(refused))
        except EdgeFull as error:
            self._say(429, str(error))
        except (ParameterError, ReticentError) as error:
            self._say(400, str(error))

    def _work(self) -> tuple[int, bytes]:
        length = self.headers.get("Content-Length", "0")
        if not _NUMBER.fullmatch(length) or "Transfer-Encoding" in self.headers:
            self._left = 1
            raise _Refused(411, "the request must tell its length")
        self._left = int(length)
        parts = urlsplit(self.path)
        words = parts.path.split("/")
        if len(words) < 4 or words[:2] != ["", "v1"]:
            raise _Refused(404, "no such page")
        task = self.server.tasks.get(words[2])
        if task is None:
            raise _Refused(404, "no such task here")
        if not _SESSION.fullmatch(words[3]):
            raise _Refused(400, "the session must be 64 hexadecimal digits")
        asked = parse_qs(parts.query).get("records", ["0"])[0]
        if not _NUMBER.fullmatch(asked):
            raise _Refused(400, "records must be a whole number")
        work = (self.command, *words[4:])
        if work == ("DELETE",):
            self.server.sessions.end(words[3])
            return 200, b""
        if isinstance(task, NoisedTask):
            return self._noised(task, words[3], work, int(asked))
        return self._documented(task, words[3], work, int(asked))

    def _noised(self, task: NoisedTask, name: str, work: tuple[str, ...], records: int) -> tuple[int, bytes]:
        sessions = self.server.sessions
        match work:
            case ("PUT", "vectors"):
                if not 0 < records <= MOST_RECORDS:
                    raise _Refused(400, f"records must be 1 to {MOST_RECORDS}")
                sessions.keep_vectors(task, name, self._body(task.looks(records))["vectors"])
                return 200, b""
            case ("POST", "slopes"):
                theta = self._body({"theta": ("F64", (task.dimensions,))})["theta"]
                return 200, tensors.packed({"slopes": sessions.slopes(task, name, theta)})
        raise _Refused(404, "no such page of a noised task")

    def _documented(
        self, task: Documented, name: str, work: tuple[str, ...], records: int
    ) -> tuple[int, bytes]:
        sessions = self.server.sessions
        match work:
            case ("PUT", "half"):
                looks: tensors.Looks = {"theta": ("F32", (task.back_dimensions,))}
                sessions.begin(task, name, self._body(looks)["theta"])
                return 200, b""
            case ("GET" | "HEAD", "half"):
                steps, theta = sessions.half(task, name)
                return 200, tensors.packed({"theta": theta, "steps": np.array([steps], dtype=np.int64)})
            case ("POST", "steps", number) if _NUMBER.fullmatch(number):
                if not 0 < records <= task.batch:
                    raise _Refused(400, f"records must be 1 to {task.batch}")
                given = self._body(
                    {"features": ("F32", (records, task.features)), "labels": ("I32", (records,))}
                )
                labels = given["labels"].astype(np.int64)
                slopes = sessions.step(task, name, int(number), given["features"], labels)
                return 200, tensors.packed({"slopes": slopes})
        raise _Refused(404, "no such page of a documented task")

    def _body(self, looks: tensors.Looks) -> dict[str, Any]:
        """The tensors of the body, which must look so; nothing is read that has another length."""
        size = tensors.size_of(looks)
        if self._left > MOST_BODY or size > MOST_BODY:
            raise _Refused(413, f"a body must have at most {MOST_BODY} bytes")
        if self._left != size:
            raise _Refused(400, f"the body must have {size} bytes, got {self._left}")
        self._source.start(listening.TIMEOUT_S + size / SLOWEST)
        body = self.rfile.read(size)
        self._left -= len(body)
        if self._left:
            raise TimeoutError
        return tensors.unpacked(body, looks)


class EdgeServer(listening.BoundedServer):
    """HTTP around sessions. `serve_forever` runs it.

    Args:
        tasks: Tasks by name, usually the CID of a task's text.
        folder: Folder of what is kept, the edge's own.
        host: Host to listen on.
        port: 0 takes a free one.
        capacity: bytes of all sessions together.
    """

    def __init__(
        self,
        tasks: Mapping[str, EdgeTask],
        folder: Path,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        capacity: int = CAPACITY,
    ) -> None:
        self.tasks, self.sessions = dict(tasks), Sessions(folder, capacity)
        super().__init__(_Handler, host, port)
