"""Somebody who reads a page in an empty folder, and types what stands there."""

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
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)
STAYS = re.compile(r"(?:The page stays|Reticent serves \S+) at (\S+) .*Ctrl-C")
NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


COMMAND = """from reticent.apps import main

if __name__ == "__main__":
    main()
"""


def blocks(text):
    """(language, text) of each fenced block of a page, in order."""
    return BLOCK.findall(text)


def masked(text):
    """A text whose numbers beside a ± are hidden: they were drawn."""
    return "\n".join(NUMBER.sub("#", line) if "±" in line else line.rstrip() for line in text.splitlines())


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


def of_this_clone():
    """What makes an interpreter import the package of this clone."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))}


class Reader:
    """An empty folder, and somebody who types."""

    def __init__(self, folder, python=None):
        """Of this clone, or with the interpreter of an environment that has the package."""
        self.folder = folder
        self.python = str(python or sys.executable)
        if python:
            programs, source = python.parent, {}
        else:
            programs = folder.with_name("bin")
            programs.mkdir()
            command = programs / "reticent"
            # as pip writes it: a process that is spawned reads it again
            command.write_text(f"#!{sys.executable}\n{COMMAND}")
            command.chmod(0o755)
            source = of_this_clone()
        path = os.pathsep.join([str(programs), os.environ["PATH"]])
        outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self.environment = {**outside, "PATH": path, **source}

    def run(self, language, program):
        """Run it, and interrupt what stays until Ctrl-C, once it is all there. The code, and all it said."""
        if language == "python":
            command = [self.python, "-c", program]
        else:
            program = re.sub(r"^(reticent serve \S+)", r"\1 --port 0", program)  # 8000 may be taken here
            command = ["/bin/sh", "-c", f"exec {program}" if program.startswith("reticent ") else program]
        process = subprocess.Popen(
            command, cwd=self.folder, env=self.environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
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
