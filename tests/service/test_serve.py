"""`reticent serve` as a process: workers that share a ledger, keys from the command line, an end in order."""

import json
import os
import signal
import subprocess
import sys

import httpx
import pytest

from reticent.apps import main
from reticent.apps.service.work import revoke_key

from .running import BASE, MEAN, free_port, until


def test_two_workers_are_one_service(process, folder, keys):
    """Whichever worker is asked: one charge, the same answer, keys that stop at once; and no text of data."""
    service = process(workers=2)
    headers = {"Authorization": f"Bearer {keys['alice']}"}
    answers, workers = [], set()

    def look():
        """A connection of its own, so that both workers are met."""
        with httpx.Client(base_url=service.url, timeout=60) as client:
            reply = client.post(f"{BASE}/ask", json=MEAN, headers={**headers, "Idempotency-Key": "one"})
            answers.append(reply.json())
            text = client.get("/metrics", headers={"Authorization": f"Bearer {keys['vera']}"}).text
        workers.add(text.split('worker="')[1].split('"')[0])
        return len(workers) >= 2 and len(answers) >= 4

    until(look, 500)
    assert all(one == answers[0] for one in answers)
    with httpx.Client(base_url=service.url, timeout=60, headers=headers) as client:
        budget = client.get(f"{BASE}/budget").json()
        assert budget["spent"] == budget["used"] == answers[0]["cost"]
    revoke_key(folder, "alice")
    for _ in range(6):
        assert httpx.get(f"{service.url}/api/v1/me", headers=headers, timeout=60).status_code == 401
    service.end(signal.SIGTERM)
    lines = (folder / "service.log").read_text().splitlines()
    told = [json.loads(line) for line in lines]  # nothing else, such as DuckDB's list of leaks at the end
    assert {"event", "method", "route", "status", "ms"} == set(told[0])
    assert not [line for line in lines if "Traceback" in line or "rk_" in line]


def test_the_command(folder, command_line):
    made = command_line("key", "make", str(folder), "ann", "--role", "analyst")
    assert made.returncode == 0
    secret = made.stdout.strip()
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-c", "from reticent.apps import main; main()", "serve", str(folder),
         "--port", str(port), "--grid", "0"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:

        def look():
            assert process.poll() is None
            try:
                return httpx.get(f"http://127.0.0.1:{port}/health", timeout=60).status_code == 200
            except httpx.TransportError:
                return False

        until(look)
        headers = {"Authorization": f"Bearer {secret}"}
        told = httpx.get(f"http://127.0.0.1:{port}/api/v1/me", headers=headers, timeout=60).json()
        assert told == {"name": "ann", "role": "analyst"}
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(240) in (0, 130)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("args", [("serve",), ("key", "list"), ("key", "revoke", "ann")])
def test_a_folder_that_is_none(tmp_path, monkeypatch, capsys, args):
    monkeypatch.setattr(sys, "argv", ["reticent", *args[:2], str(tmp_path / "no"), *args[2:]])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith("error: folder must be")


def test_keys_on_the_command_line(folder, keys, monkeypatch, capsys):
    def run(*args):
        monkeypatch.setattr(sys, "argv", ["reticent", "key", args[0], str(folder), *args[1:]])
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = capsys.readouterr()
        return stopped.value.code, out, err

    assert run("make", "ann", "--role", "owner")[1].startswith("rk_")
    code, _, err = run("make", "ann")
    assert (code, err.startswith("error: name must be of nobody")) == (2, True)
    assert "ann" in run("list")[1]
    assert run("revoke", "ann")[0] == 0
    assert run("revoke", "ann")[0] == 2
