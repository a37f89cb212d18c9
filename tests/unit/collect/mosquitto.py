"""A real mosquitto in a process: it speaks MQTT 5, and keeps its word. Debian has it; `make test` fetches it.

It forgets everything when it ends: the queue of a broker is the broker's to keep (`persistence`).
"""

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reticent.processes import free_port

from .broker import _until_up

_FETCHED = Path(sys.prefix) / "mosquitto"
_SETTINGS = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
max_inflight_messages 0
max_queued_messages 0
set_tcp_nodelay true
"""  # by itself it sends 20 messages ahead, and drops what comes after a thousand that wait


def find():
    """The program: RETICENT_MOSQUITTO, or installed, or as `make` fetched it; None if there is none."""
    places = [os.environ.get("RETICENT_MOSQUITTO"), shutil.which("mosquitto", path="/usr/sbin:/usr/bin")]
    found = [Path(one) for one in places if one] + [_FETCHED / "usr" / "sbin" / "mosquitto"]
    return next((one for one in found if one.exists()), None)


@contextlib.contextmanager
def running(folder):
    """Start a broker that anybody may use; gives its port."""
    program = find()
    if program is None:
        pytest.skip("there is no mosquitto: `make test` fetches it where apt does")
    port = free_port()
    (folder / "mosquitto.conf").write_text(_SETTINGS.format(port=port))
    libraries = ":".join(str(program.parents[2] / part) for part in _LIBRARIES)
    env = {**os.environ, "LD_LIBRARY_PATH": libraries} if program.parts[:2] != ("/", "usr") else None
    with (folder / "mosquitto.log").open("wb") as log:
        process = subprocess.Popen(
            [program, "-c", folder / "mosquitto.conf"], stdout=log, stderr=log, env=env
        )
        try:
            _until_up(process, port, folder / "mosquitto.log")
            yield port
        finally:
            process.kill()
            process.wait()


_LIBRARIES = ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu")
