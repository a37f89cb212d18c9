"""The programs of the stations as processes of their own, the edge under a parent that starts it again."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from reticent.fleet.transport import Http
from reticent.processes import free_port

from .running import until

# A process that has done what the note names takes the note away and kills itself.
STRIKE_AFTER = """
import inspect, os, signal

def strike(verb):
    try:
        if NOTE.read_text() != verb:
            return
        NOTE.unlink()
    except OSError:
        return
    os.kill(os.getpid(), signal.SIGKILL)

def strike_after(owner, verb):
    true = getattr(owner, verb)

    async def passed_async(*args, **options):
        made = await true(*args, **options)
        strike(verb)
        return made

    def passed(*args, **options):
        made = true(*args, **options)
        strike(verb)
        return made

    setattr(owner, verb, passed_async if inspect.iscoroutinefunction(true) else passed)
"""

# Everything is imported once; whoever kills the child has a new one in a moment.
EDGE = f"""
import json, os, pathlib, sys
from reticent.apps.stations import edge, edge_work
told = json.loads(sys.argv[1])
told["master"] = pathlib.Path(told["master"])
NOTE = pathlib.Path(sys.argv[2])
{STRIKE_AFTER}
for verb in ("replies", "_carried"):
    strike_after(edge.Edge, verb)
while True:
    child = os.fork()
    if not child:
        edge_work.edge(**told)
        os._exit(0)
    os.waitpid(child, 0)
"""


class EdgeProcess:
    """An edge that begins again whenever it is killed.

    Args:
        folder: for its master key and its log.
        provider: the URL of the service.
        held: the provider.
        options: of the edge.
    """

    def __init__(self, folder: Path, provider: str, held, **options):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        told = {
            "provider": provider,
            "signer": held.signer.hex(),
            "name": "town",
            "master": str(folder / "edge.key"),
            "batch": 3,
            "window": 0.05,
            "host": "127.0.0.1",
            "port": self.port,
            **options,
        }
        self.note = folder / "edge-strike"  # names what the edge does last
        self.log = (folder / "edge.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-c", EDGE, json.dumps(told), str(self.note)],
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )
        until(self.is_up)

    def is_up(self):
        assert self.process.poll() is None, Path(self.log.name).read_text()
        with contextlib.suppress(Exception):
            return Http(self.url, tries=1, timeout_s=60.0).fetch("health")
        return None

    def child(self):
        """The process that serves; None between two."""
        pid = self.process.pid
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(found[0]) if found else None

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            if (child := self.child()) is not None:
                os.kill(child, signal.SIGKILL)

    def end(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(240)
        self.log.close()


def memory_of(pid):
    """All that a process holds that can be written, as the system shows it to its parent."""
    found = []
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    with Path(f"/proc/{pid}/mem").open("rb", 0) as memory:
        for line in lines:
            span, rights, *_ = line.split()
            if not rights.startswith("rw"):
                continue
            start, end = (int(one, 16) for one in span.split("-"))
            with contextlib.suppress(OSError, ValueError, OverflowError):
                memory.seek(start)
                found.append(memory.read(end - start))
    return b"\0".join(found)
