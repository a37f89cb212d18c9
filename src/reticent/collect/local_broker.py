"""A local MQTT broker for demonstrations: amqtt, from an environment of its own.

`make` installs it beside the virtual environment. It forgets unacknowledged messages when a connection ends:
in production, use a broker that redelivers them (mosquitto, EMQX, HiveMQ).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from reticent.errors import ReticentError
from reticent.processes import Companion, free_port

_START_S = 120.0
_SETTINGS = """\
listeners:
  default:
    type: tcp
    bind: 127.0.0.1:{port}
plugins:
  amqtt.plugins.authentication.AnonymousAuthPlugin:
    allow_anonymous: true
"""


class NoBroker(ReticentError):
    """An error: there is no broker on this machine, or it does not start."""


def find_broker() -> Path | None:
    """Return the broker of RETICENT_BROKER, beside the interpreter, or on the PATH; None if there is none."""
    if given := os.environ.get("RETICENT_BROKER"):
        return Path(given) if Path(given).exists() else None
    beside = Path(sys.prefix) / "broker" / "bin" / "amqtt"
    on_path = shutil.which("amqtt")
    return beside if beside.exists() else Path(on_path) if on_path else None


@contextlib.contextmanager
def running() -> Iterator[int]:
    """Run a broker for anybody on this machine while the block runs, and yield its port."""
    program = find_broker()
    if program is None:
        raise NoBroker(
            "there is no MQTT broker on this machine: name one with --broker, or install amqtt (pipx install "
            "amqtt; RETICENT_BROKER names its program). In a clone `make demo-collect` does"
        )
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="broker-") as folder:
        settings = Path(folder) / "broker.yaml"
        settings.write_text(_SETTINGS.format(port=port))
        with Companion([program, "-c", settings]) as process:
            _until_up(process, port)
            yield port


def _until_up(process: Companion, port: int) -> None:
    end = time.monotonic() + _START_S
    while time.monotonic() < end and process.is_running():
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise NoBroker("the MQTT broker does not start")
