"""Witnesses for tests: in a process of their own, or in threads of this one where something is planted."""

import http.client
import json
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import closing, suppress
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reticent.ledger import Amount, Terms, Unit
from reticent.ledger.checkpoint import LOG, Head, PublicKey, sign, totals_hash
from reticent.ledger.witness.client import WitnessClient
from reticent.ledger.witness.server import WitnessServer
from reticent.ledger.witness.state import WitnessState
from reticent.privacy import Neighbours

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(32))
MU2 = (Unit.MU2, Neighbours.REPLACE_ONE)
TERMS = Terms("canary-account", *MU2, "canary-subject", 10_000)
ORIGIN = "reticent/ledger"


def units(amount):
    return Amount(amount, *MU2)


def head_of(size, totals, root=bytes(32), origin=ORIGIN, key=KEY):
    return sign(Head(origin, size, root, totals_hash(totals)), origin, key)


def body(**changes):
    """A request of /add-checkpoint that a new witness signs."""
    told = {
        "old_size": 0,
        "proof": [],
        "checkpoint": head_of(3, {0: 5}),
        "key": str(PublicKey(ORIGIN, KEY.public_key(), LOG)),
        "totals": {"0": "5"},
    }
    told.update(changes)
    return {name: field for name, field in told.items() if field is not None}


def lines(asked):
    """A request as it is sent: the totals are in a second line."""
    first = {name: field for name, field in asked.items() if name != "totals"}
    parts = [first, asked["totals"]] if "totals" in asked else [first]
    return "\n".join(json.dumps(part) for part in parts).encode()


def put_back(database, backup):
    """Restore a copy of a database that nobody has open."""
    for file in database.parent.glob(f"{database.name}*"):
        if file.suffix != ".lock":
            file.unlink()
    shutil.copyfile(backup, database)


PATIENCE_S = 120.0  # of a client on a machine with much else to do


class Asking:
    """What can be asked of a witness at `url`."""

    def client(self, **options):
        return WitnessClient(self.url, **{"key": str(self.key), "timeout_s": PATIENCE_S, **options})

    def ask(self, method, path, asked=None, headers=None):
        parts = urlsplit(self.url)
        with closing(
            http.client.HTTPConnection(parts.hostname, parts.port, timeout=PATIENCE_S)
        ) as connection:
            data = lines(asked) if isinstance(asked, dict) else asked
            connection.request(method, path, data, headers or {})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())


class Process(Asking):
    """A witness in a process of its own."""

    def __init__(self, directory, *options):
        self.directory, self.options, self.port = directory, options, "0"
        self.start()

    def start(self):
        command = [sys.executable, "-m", "reticent.ledger.witness.server", "--dir", str(self.directory)]
        self.process = subprocess.Popen(
            [*command, "--port", self.port, *self.options], stdout=subprocess.PIPE, text=True
        )
        words = self.process.stdout.readline().split()
        assert words[0] == "witness"
        self.url, self.key = words[1], words[2]
        self.port = str(urlsplit(self.url).port)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()

    def allow(self, origin=ORIGIN):
        with closing(WitnessState(self.directory)) as state:
            state.allow_recovery(origin)


class Inside(Asking):
    """A witness in threads of this process."""

    def __init__(self, directory, **options):
        self.directory = directory
        self.state = WitnessState(directory, **options)
        self.server = WitnessServer(self.state)
        self.url, self.key = self.server.url, self.state.key
        self._thread = threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self._thread.start()

    def allow(self, origin=ORIGIN):
        self.state.allow_recovery(origin)

    def close(self):
        self.server.shutdown()
        self._thread.join()
        with suppress(OSError):
            self.server.server_close()
        self.state.close()
