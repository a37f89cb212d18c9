"""A bridge from an MQTT broker to a collector: each message is acknowledged when its reports are on the disk.

Below one topic, by default `reticent`,

    reticent/reports, reticent/reports/...    a message is one report
    reticent/batches, reticent/batches/...    a message is a batch (`wire.batch`), at most 1 MiB

at QoS 1, in a session that the broker keeps: messages that arrive while the bridge is away, or were not
acknowledged when it died, are delivered again, and the collector recognises duplicates. Refused reports are
counted and acknowledged: sending them again would not help. If the collector cannot write, the bridge hangs
up and leaves everything to the broker until it can. The broker must keep sessions and send again, as MQTT
asks.

Several bridges may work side by side, on one machine or many, each with a name of its own and a collector on
the database that all share: as members of one `group` they are given each message once among them (a shared
subscription of MQTT 5, 4.8.2). A bridge that dies leaves to its session what it had not acknowledged; it is
counted when a bridge comes back under that name, and once, whichever bridge had it before.

Messages are not kept here: one connection, one thread, as many messages in memory as one commit takes. With a
group, the broker receives this limit (receive maximum, MQTT 5, 3.1.2.11.3): it queues further messages until
earlier ones are acknowledged.
"""

from __future__ import annotations

import json
import logging
import ssl
import threading
import time
from collections import Counter
from typing import Any

from reticent.arguments import real, whole
from reticent.collect.collector import Collector
from reticent.collect.wire import Outcome, split
from reticent.errors import LedgerError, MissingExtra, ParameterError

try:
    from paho.mqtt.client import Client, MQTTMessage
    from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties
except ImportError as error:
    raise MissingExtra("the MQTT bridge", "mqtt") from error

log = logging.getLogger("reticent.collect")

PORT, TLS_PORT = 1883, 8883
LARGEST = 1 << 20  # bytes of a message
MOST = 1 << 16  # reports in a message
_KEPT_S = 30 * 86_400  # time for which the broker keeps the session of an absent member of a group
_POLL_S = 0.1  # interval at which a stop is noticed
_PAUSES_S = (0.1, 30.0)  # shortest and longest pause before it connects again


class Bridge:
    """A bridge that delivers the messages of a broker to a collector, until it is stopped.

    Attributes:
        is_ready: Event that is set while the bridge is connected and subscribed.
        outcomes: Number of delivered reports by outcome.

    Args:
        collector: Collector that counts the reports. It is not closed here.
        host: Host of the broker.
        port: Port of the broker; 8883 with TLS and 1883 without, if not given.
        name: Name of the bridge at the broker, which keeps a session under it. Only one bridge at a time may
            use it.
        topic: Topic above `reports` and `batches`.
        username: User name, if the broker asks for one, together with `password`.
        tls: TLS context to verify the broker, e.g. `ssl.create_default_context()`; None for a plain
            connection.
        most: Number of reports at which messages are delivered without further waiting.
        wait_s: Seconds that a message may wait for others to share a commit with.
        group: Group of bridges that share the messages; needs a broker that speaks MQTT 5. None for a bridge
            that takes all of them.
        ahead: Number of messages that the broker may send to a member of a group before they are
            acknowledged.
    """

    def __init__(
        self,
        collector: Collector,
        host: str,
        port: int | None = None,
        *,
        name: str = "reticent-collector",
        topic: str = "reticent",
        username: str | None = None,
        password: str | None = None,
        tls: ssl.SSLContext | None = None,
        most: int = 1000,
        wait_s: float = 0.005,
        group: str | None = None,
        ahead: int = 2000,
    ) -> None:
        if not name or not topic or set(topic) & set("#+\0"):
            raise ParameterError("name and topic must not be empty, and a topic holds no # and no +")
        if group is not None and (not group or set(group) & set("/#+\0")):
            raise ParameterError("group must not be empty, and holds no /, # or +")
        self._collector, self._host = collector, host
        self._port = whole("port", (TLS_PORT if tls else PORT) if port is None else port, low=1, high=65535)
        self._most = whole("most", most, low=1, high=1 << 20)
        self._wait_s = real("wait_s", wait_s, low=0.0, high=10.0)
        self._topic, self._group = topic, group
        self._ahead = whole("ahead", ahead, low=1, high=65_535)
        self._stopping = threading.Event()
        self._messages: list[MQTTMessage] = []  # not acknowledged
        self._reports: list[bytes] = []  # reports in these messages
        self._since = 0.0  # when the first of them came
        self._refusal: str | None = None
        self._was_useful = False
        self.is_ready = threading.Event()
        self.outcomes: Counter[Outcome] = Counter()
        self._client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=name,
            clean_session=False if group is None else None,
            protocol=MQTTProtocolVersion.MQTTv311 if group is None else MQTTProtocolVersion.MQTTv5,
            manual_ack=True,
        )
        if username is not None:
            self._client.username_pw_set(username, password)
        if tls is not None:
            self._client.tls_set_context(tls)
        self._client.on_connect = self._on_connect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_message = self._on_message

    def stop(self) -> None:
        """End `run` soon; unacknowledged messages stay with the broker."""
        self._stopping.set()

    def run(self) -> None:
        """Deliver messages until `stop`, and reconnect whenever that is needed.

        Raises:
            ParameterError: the broker does not let the bridge in, or not at these topics.
        """
        first_s, last_s = _PAUSES_S
        pause_s = first_s
        while not self._stopping.is_set():
            self._forget()
            self._was_useful = False
            try:
                self._connect()
                self._serve()
                reason = "the connection ended"
            except (OSError, LedgerError) as error:
                reason = type(error).__name__
            self._hang_up()
            if self._refusal is not None:
                raise ParameterError(f"the broker refused the bridge: {self._refusal}")
            if not self._stopping.is_set():
                pause_s = first_s if self._was_useful else min(last_s, 2 * pause_s)
                log.warning(json.dumps({"event": "bridge waits", "reason": reason, "s": pause_s}))
                self._stopping.wait(pause_s)

    def _connect(self) -> None:
        if self._group is None:
            self._client.connect(self._host, self._port)
            return
        told = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        told.SessionExpiryInterval, told.ReceiveMaximum = _KEPT_S, self._ahead
        self._client.connect(self._host, self._port, clean_start=False, properties=told)

    def _serve(self) -> None:
        """Deliver messages until the connection ends or `stop` is called."""
        while not self._stopping.is_set() and self._refusal is None:
            left_s = self._since + self._wait_s - time.monotonic() if self._messages else _POLL_S
            if self._client.loop(max(0.0, left_s)) != MQTTErrorCode.MQTT_ERR_SUCCESS:
                return
            if self._messages and (
                len(self._reports) >= self._most or time.monotonic() >= self._since + self._wait_s
            ):
                self._deliver()

    def _deliver(self) -> None:
        """Count the reports, then acknowledge their messages."""
        self.outcomes.update(self._collector.receive(self._reports))
        for message in self._messages:
            self._client.ack(message.mid, message.qos)
        self._was_useful = True
        self._forget()

    def _forget(self) -> None:
        """Drop the messages of a connection that ended: their numbers may be assigned anew."""
        self._messages, self._reports = [], []

    def _hang_up(self) -> None:
        self.is_ready.clear()
        self._client.disconnect()
        self._client.loop(0.0)

    # Callbacks of the client, called within `loop`

    def _on_connect(self, client: Client, _: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self._refusal = str(reason)
            return
        below = self._topic if self._group is None else f"$share/{self._group}/{self._topic}"
        client.subscribe([(f"{below}/{part}/#", 1) for part in ("reports", "batches")])

    def _on_subscribe(self, client: Client, _: Any, mid: int, reasons: Any, properties: Any) -> None:
        failures = [str(one) for one in reasons if one.is_failure]
        if failures:
            self._refusal = failures[0]
        else:
            self.is_ready.set()

    def _on_message(self, client: Client, _: Any, message: MQTTMessage) -> None:
        if not self._messages:
            self._since = time.monotonic()
        self._messages.append(message)
        try:
            self._reports += self._split(message)
        except (ParameterError, UnicodeDecodeError):
            self._collector.reject([Outcome.LENGTH])
            self.outcomes[Outcome.LENGTH] += 1

    def _split(self, message: MQTTMessage) -> list[bytes]:
        if len(message.payload) > LARGEST:
            raise ParameterError(f"a message must be at most {LARGEST} bytes")
        below = message.topic.removeprefix(f"{self._topic}/")
        if below.split("/", 1)[0] == "batches":
            return split(bytes(message.payload), most=MOST)
        return [bytes(message.payload)]
