"""Flower as it is deployed: a SuperLink and SuperNodes as processes on this machine, with or without TLS."""

import contextlib
import datetime
import ipaddress
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from reticent.processes import free_port

EXAMPLE = Path(__file__).parents[4] / "docs" / "examples" / "flower"
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
KEYS = {"ca-certfile": "ca.pem", "certfile": "server.pem", "keyfile": "server.key"}
START_S = 120.0  # on a machine with much else to do


def write_certificates(folder):
    """A root of our own (ca.pem) and a server of this machine (server.pem, server.key)."""
    root, server = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])

    def certificate(subject, key, more):
        now = datetime.datetime.now(datetime.UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "root")]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )
        for extension, critical in more:
            made = made.add_extension(extension, critical)
        return made.sign(root, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    basic = x509.BasicConstraints
    (folder / "ca.pem").write_bytes(certificate("root", root, [(basic(ca=True, path_length=None), True)]))
    (folder / "server.pem").write_bytes(
        certificate("server", server, [(basic(ca=False, path_length=None), True), (here, False)])
    )
    (folder / "server.key").write_bytes(
        server.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


def as_text(config):
    return " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())


class Deployment(contextlib.AbstractContextManager):
    """A SuperLink, SuperNodes and `flwr run`; all processes end with it, with whatever they started."""

    def __init__(self, folder, *, simulation=False):
        self.folder, self.running = folder, []
        self.home = folder / "home"
        self.home.mkdir()
        self.address = f"127.0.0.1:{free_port()}"
        if simulation:
            safe, trust, link = [], "insecure = true", ["--insecure", "--simulation"]
        else:
            write_certificates(folder)
            safe, trust = ["--root-certificates", "ca.pem"], f'root-certificates = "{folder / "ca.pem"}"'
            link = [f"--ssl-{kind}={name}" for kind, name in KEYS.items()]
        self._safe = safe
        (self.home / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "{self.address}"\n{trust}\n'
        )
        port = self.address.partition(":")[2]
        process = self.start("link", "flower-superlink", *link, "--host", "127.0.0.1", "--port", port)
        self._wait_for(process, "link", "Uvicorn running")

    def start(self, name, program, *arguments):
        programs = Path(sys.executable).parent
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"  # Flower starts its own programs by name
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [programs / program, *arguments],
                cwd=self.folder, env=os.environ | QUIET | {"FLWR_HOME": str(self.home), "PATH": path},
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        self.running.append(process)
        return process

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _wait_for(self, process, name, text):
        end = time.monotonic() + START_S
        while text not in self.log(name):
            is_there = process.poll() is None and time.monotonic() < end
            assert is_there, f"{name} did not start: {self.log(name)[-2000:]}"
            time.sleep(0.2)

    def node(self, name, config):
        node = self.start(
            name, "flower-supernode", *self._safe, "--superlink", self.address,
            "--port", str(free_port()), "--node-config", as_text(config),
        )  # fmt: skip
        self._wait_for(node, name, "SuperNode ID")
        return node

    def run(self, app, config, *more):
        options = ["--stream", "--run-config", as_text(config), *more]
        return self.start("run", "flwr", "run", str(app), "here", *options)

    def __exit__(self, *_):
        for process in reversed(self.running):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in self.running:
            process.wait()
