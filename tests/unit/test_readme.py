"""README's commands, one after the other as they are written, in one empty folder."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.M | re.S)
INLINE = re.compile(r"`(reticent [^`]+)`")
STAYS = re.compile(r"(?:The page stays|Reticent serves \S+) at (\S+) .*Ctrl-C")
COVERED = {  # by tests of their own, which take minutes, or never end
    "reticent audit all": "tests/unit/audit/test_gate.py",
    "reticent demo fleet": "tests/unit/cli/test_demo_fleet.py",
}


def steps(text):
    """What is to be run, in order: (language, program). `make` has tests of its own."""
    for language, block in BLOCK.findall(text):
        if language == "python":
            yield language, block
        else:
            yield from ((language, line) for line in block.splitlines() if not line.startswith("make "))


def wait_for_page(url):
    end = time.monotonic() + 240
    while True:
        try:
            return urllib.request.urlopen(url, timeout=60).close()
        except urllib.error.HTTPError:
            raise
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


class Reader:
    """An empty folder, and somebody who types."""

    def __init__(self, folder):
        self.folder = folder
        programs = folder.with_name("bin")
        programs.mkdir()
        command = programs / "reticent"
        # as pip writes it: a process that is spawned reads it again
        command.write_text(
            f'#!{sys.executable}\nfrom reticent.apps import main\n\nif __name__ == "__main__":\n    main()\n'
        )
        command.chmod(0o755)
        path = os.pathsep.join([str(programs), os.environ["PATH"]])
        source = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
        self.environment = {**os.environ, "PATH": path, "PYTHONPATH": source}

    def run(self, language, program):
        """Run it, and interrupt what stays until Ctrl-C, once it is all there. The code, and all it said."""
        if language == "python":
            command = [sys.executable, "-c", program]
        else:
            program = re.sub(r"^(reticent serve \S+)", r"\1 --port 0", program)  # 8000 may be taken here
            command = ["/bin/sh", "-c", f"exec {program}" if program.startswith("reticent ") else program]
        process = subprocess.Popen(
            command, cwd=self.folder, env=self.environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        limit = threading.Timer(280, os.killpg, (process.pid, signal.SIGKILL))
        limit.start()
        said, stayed = "", False
        with process:
            for line in process.stdout:
                said += line
                if found := STAYS.search(line):
                    wait_for_page(found[1])
                    stayed = True
                    process.send_signal(signal.SIGINT)
        limit.cancel()
        return (0 if stayed and process.returncode in (0, 130) else process.returncode), said


@pytest.fixture
def reader(tmp_path):
    (tmp_path / "folder").mkdir()
    return Reader(tmp_path / "folder")


def failed(reader, text):
    """The first step that does not work, with what it said; None if all do."""
    for language, program in steps(text):
        code, said = reader.run(language, program)
        if code != 0:
            return program, code, said
    return None


@pytest.mark.timeout(900)
def test_every_command_runs_as_it_is_written(reader):
    assert failed(reader, README) is None
    # What they made is of use: a device takes part in the campaign.
    signer = re.search(
        r"\b[0-9a-f]{64}\b", reader.run("sh", "reticent location privic show census/places/paris")[1]
    )
    for command in (
        "reticent survey enrol --out phones --master census/.service/enrolment.key",
        "reticent location report census/places/paris/round-0.json --latitude 48.85 --longitude 2.33 "
        f"--ledger phone.ledger --enrolment phones/*.json --signer {signer[0]} --out report",
    ):
        code, said = reader.run("sh", command)
        assert code == 0, said


@pytest.mark.parametrize(
    "command", [one for one in dict.fromkeys(INLINE.findall(README)) if one not in COVERED]
)
def test_what_is_named_in_passing_runs(reader, command):
    code, said = reader.run("sh", command)
    assert code == 0, said


def test_what_others_cover_is_there():
    assert [path for path in COVERED.values() if not (ROOT / path).exists()] == []
    assert set(COVERED) <= set(INLINE.findall(README))


def test_planted_a_command_that_does_not_run_is_found(reader):
    text = "```sh\nmake demo\nreticent version\nreticent ask none.yaml 'SELECT COUNT(*) FROM none'\n```\n"
    program, code, said = failed(reader, text)
    assert (program.split()[1], code) == ("ask", 2)
    assert "none.yaml" in said
    assert failed(reader, "```python\nopen('none')\n```\n")[1] == 1
