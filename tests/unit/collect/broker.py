"""A real MQTT broker (amqtt) in a process, from an environment of its own: `make test` makes it.

It lies in `<environment>/broker`, because its typer is newer than Flower allows in ours.

amqtt 0.12 forgets a message at QoS 1 if the connection ends, or five seconds pass, before it is acknowledged
(MQTT 3.1.1, 4.4: it must be sent again). Nothing could be shown with that of a bridge that is killed, so its
flow of QoS 1 is mended below. It keeps sessions only of clients with a name and a password.
"""

import contextlib
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reticent.processes import free_port

PYTHON = Path(sys.prefix) / "broker" / "bin" / "python"
USER, PASSWORD = "bridge", "secret of the bridge"
_PROGRAM = """
import asyncio, logging, sys
from amqtt.broker import Broker
from amqtt.mqtt.protocol.handler import ProtocolHandler
from amqtt.plugins.authentication import BaseAuthPlugin
from amqtt.session import OUTGOING

class Auth(BaseAuthPlugin):
    async def authenticate(self, *, session):
        session.is_anonymous = not session.username
        return session.password in (None, sys.argv[2]) and session.username in (None, sys.argv[1])

theirs = ProtocolHandler._handle_qos1_message_flow

async def qos1(self, message):
    if message.direction != OUTGOING:
        return await theirs(self, message)
    sent = self.session.inflight_out
    sent[message.packet_id] = message
    waiter = self._puback_waiters[message.packet_id] = asyncio.Future()
    message.publish_packet = message.build_publish_packet(dup=message.publish_packet is not None)
    await self._send_packet(message.publish_packet)
    message.puback_packet = await waiter
    del self._puback_waiters[message.packet_id], sent[message.packet_id]

async def run():
    ProtocolHandler._handle_qos1_message_flow = qos1
    listener = {"type": "tcp", "bind": "127.0.0.1:" + sys.argv[3], "max_connections": 1000}
    if sys.argv[4]:
        listener |= {"ssl": True, "certfile": sys.argv[4], "keyfile": sys.argv[4]}
    broker = Broker({"listeners": {"default": listener}, "plugins": {"__main__.Auth": {}}})
    await broker.start()
    await asyncio.Event().wait()

logging.basicConfig(level=logging.ERROR)
asyncio.run(run())
"""


@contextlib.contextmanager
def running(folder, *, port=None, certificate=""):
    """Start a broker; gives its port. Anybody may come without a name, or as USER with PASSWORD.

    With the file of a certificate and its key, it speaks TLS.
    """
    if not PYTHON.exists():
        pytest.skip(f"there is no MQTT broker at {PYTHON}: `make test` installs it")
    port = free_port() if port is None else port
    with (folder / "broker.log").open("wb") as log:
        process = subprocess.Popen(
            [PYTHON, "-c", _PROGRAM, USER, PASSWORD, str(port), certificate], stdout=log, stderr=log
        )
        try:
            _until_up(process, port, folder / "broker.log")
            yield port
        finally:
            process.kill()
            process.wait()


def _until_up(process, port, log):
    end = time.monotonic() + 120
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise AssertionError(f"no broker after 120 s: {log.read_text()}")
