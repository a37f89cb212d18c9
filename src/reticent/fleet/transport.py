"""Delivery of reports from a device, over HTTP or an MQTT broker, until they are acknowledged.

A report is drawn once and sent as often as needed: each time the same bytes, which collectors recognise as
duplicates. This module does not know what was measured, and the number of attempts depends on the network
alone.

Privacy: a key (of an operator or an analyst) goes over plain http to this machine only. Reports are private
already and bear the tag of their device; an eavesdropper learns that it reported.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

from reticent import peers
from reticent.arguments import real, whole
from reticent.errors import MissingExtra, ParameterError, SourceError

LONGEST_REPLY = 1 << 24  # bytes; a signed round is never larger
_AGAIN = (429, 502, 503, 504)  # retry later
_PAUSES_S = (0.1, 10.0)  # shortest and longest pause between tries
_LONGEST_MESSAGE = 4096  # characters of an error message
_LATEST_S = 60.0  # time limit for the broker's last acknowledgement


class Http:
    """A client of an HTTP service, with retries.

    Args:
        url: Address of the service, with or without a path; `https`, or `http`.
        key: Bearer key of the service, if it needs one.
        tries: Number of attempts before a request is given up.
        timeout_s: Time limit for a complete reply, in seconds.
        pause: Function that waits for so many seconds between attempts.

    Raises:
        ParameterError: it is no such address, or a key would be sent over plain http to another machine.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        tries: int = 5,
        timeout_s: float = 60.0,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        place = urlsplit(url)
        if place.scheme not in ("http", "https") or not place.hostname or place.username is not None:
            raise ParameterError("url must be https://host or http://host, with no name in it")
        if key is not None and place.scheme == "http" and not peers.is_here(place.hostname):
            raise ParameterError("url must be https: a key is not sent over plain http to another machine")
        self._place, self._path = place, place.path.rstrip("/")
        self._tries = whole("tries", tries, low=1, high=1000)
        self._timeout_s = real("timeout_s", timeout_s, low=0.0, open_low=True)
        self._headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._pause = pause

    def fetch(self, path: str) -> bytes:
        """Return the content at a path below that of the service."""
        return self._called("GET", path, None, {})

    def send(self, path: str, content: bytes, *, kind: str = "application/octet-stream") -> bytes:
        """Send bytes, repeatedly until they arrive, and return the reply.

        Args:
            path: Path below that of the service; its resource must accept duplicates, as reports do.
            content: Bytes to send.
            kind: Media type of the content.

        Raises:
            SourceError: they did not arrive, or were refused. They may be sent again later.
        """
        return self._called("POST", path, content, {"Content-Type": kind})

    def _called(self, method: str, path: str, content: bytes | None, headers: dict[str, str]) -> bytes:
        pause, longest = _PAUSES_S
        reason = ""
        for left in reversed(range(self._tries)):
            try:
                status, reply = self._exchange(method, path, content, self._headers | headers)
            except (OSError, http.client.HTTPException) as error:
                reason = f"cannot be reached ({type(error).__name__})"
                if not left:
                    raise SourceError(f"the service at {self._place.hostname} {reason}") from error
            else:
                if 200 <= status < 300:
                    return reply
                reason = f"answered {status}{_message(reply)}"
                if status not in _AGAIN:
                    break
            if left:
                self._pause(pause)
                pause = min(2 * pause, longest)
        raise SourceError(f"the service at {self._place.hostname} {reason}")

    def _exchange(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        place, limit = self._place, min(self._timeout_s, 60.0)
        line: http.client.HTTPConnection
        if place.scheme == "https":
            line = http.client.HTTPSConnection(
                place.netloc, timeout=limit, context=ssl.create_default_context()
            )
        else:
            line = http.client.HTTPConnection(place.netloc, timeout=limit)
        with contextlib.closing(line):
            reply, body = peers.exchange(
                line,
                method,
                f"{self._path}/{path.lstrip('/')}",
                content,
                headers,
                seconds=self._timeout_s,
                most=LONGEST_REPLY,
            )
        return reply.status, body


def _message(reply: bytes) -> str:
    """Return the error message of a service in one line; empty if the reply has another shape."""
    try:
        said = json.loads(reply[:_LONGEST_MESSAGE])["error"]["message"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""
    is_line = isinstance(said, str) and said.isprintable() and len(said) <= _LONGEST_MESSAGE
    return f": {said}" if is_line else ""


@contextlib.contextmanager
def publishing(
    host: str,
    port: int,
    *,
    topic: str = "reticent/reports",
    username: str | None = None,
    password: str | None = None,
    tls: ssl.SSLContext | None = None,
) -> Iterator[Callable[[bytes], None]]:
    """Connect to a broker and yield a function that sends a report at QoS 1.

    On exit it waits until all reports are acknowledged.

    Args:
        host: Host of the broker.
        port: Port of the broker.
        topic: Topic to which each report is published as a message.
        username: User name, if the broker asks for one.
        password: Password of that user.
        tls: TLS context to verify the broker, e.g. `ssl.create_default_context()`; None for a plain
            connection.

    Raises:
        MissingExtra: paho-mqtt is not installed.
        SourceError: the broker cannot be reached, or did not acknowledge all of them: send them again.
        ParameterError: a password would be sent over a plain connection to another machine.
    """
    try:
        from paho.mqtt.client import Client, MQTTMessageInfo
        from paho.mqtt.enums import CallbackAPIVersion
    except ImportError as error:
        raise MissingExtra("MQTT", "mqtt") from error
    if password is not None and tls is None and not peers.is_here(host):
        raise ParameterError("tls must be given: a password is not sent in plain to another machine")
    client = Client(CallbackAPIVersion.VERSION2)
    if username is not None:
        client.username_pw_set(username, password)
    if tls is not None:
        client.tls_set_context(tls)
    sent: list[MQTTMessageInfo] = []
    try:
        client.connect(host, port)
    except OSError as error:
        raise SourceError(f"the broker at {host} cannot be reached ({type(error).__name__})") from error
    client.loop_start()
    try:
        yield lambda report: sent.append(client.publish(topic, report, 1))
        end = time.monotonic() + _LATEST_S
        for one in sent:
            one.wait_for_publish(max(0.0, end - time.monotonic()))
        if missing := sum(not one.is_published() for one in sent):
            raise SourceError(f"the broker at {host} did not acknowledge {missing} of {len(sent)} reports")
    finally:
        client.disconnect()
        client.loop_stop()
