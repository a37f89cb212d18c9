"""Somebody who follows a page from top to bottom: one terminal, others for what stays, an empty folder."""

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import NamedTuple

import click
import typer.main

from reticent.apps.listed import APPS
from reticent.chain.anvil import find_anvil
from reticent.cli.app import create_app
from reticent.processes import free_port

from .reading import ROOT, Reader, wait_for_page

FENCED = re.compile(r"^```(\w*)\n(.*?)^```\n|`(reticent [^`]+)`", re.M | re.S)
COMMAND = typer.main.get_command(create_app([one.commands() for one in APPS]))
HEREDOC = re.compile(r"<<'?(\w+)'?")
# What stays until Ctrl-C has a terminal of its own; the page is read on once it said that it is there.
STAYS = re.compile(
    r"(?:anvil|reticent (?:serve|oracle|bridge|chain watch|store serve|ledger witness serve"
    r"|crowd (?:miner|customer|edge|show)|location stations edge|federated run .*--page))\b"
)
HERE = re.compile(r"Ctrl-C|Listening on|https?://|\bblock \d")
SERVES = re.compile(r"(?:serves \S+ at|The page (?:stays|is) at) (http\S+)")
EXITS = re.compile(r"#.*\bexits with (\d+)")
PORT = re.compile(r"(?<=127\.0\.0\.1:)\d+|(?<=--port )\d+")
LONGEST_S = 1200.0


def commands(page):
    """What is typed, in order: each command of the blocks, and those within sentences that are whole."""
    for language, block, inline in FENCED.findall(page):
        if inline and inline.startswith("reticent device ledger"):
            continue  # the first bytes of a file
        if inline and is_whole(inline):
            yield " ".join(inline.split())
        elif language in ("", "sh"):
            yield from lines(block)


def is_whole(inline):
    """Whether it is more than the name of a command, as in `reticent ledger verify`."""
    command, words = COMMAND, inline.split()[1:]
    while words and isinstance(command, click.Group) and words[0] in command.commands:
        command, *words = command.commands[words[0]], *words[1:]
    return command is not COMMAND and not all(word.startswith("--") for word in words)


def lines(block):
    """The commands of a block: lines, with what is continued and documents that follow, without comments."""
    rest = iter(block.splitlines())
    for line in rest:
        while line.endswith(("\\", "|")):
            line = f"{line}\n{next(rest)}"
        if here := HEREDOC.search(line):
            for more in rest:
                line = f"{line}\n{more}"
                if more == here[1]:
                    break
        if line.strip() and not line.startswith("#"):
            yield line


class Beside(NamedTuple):
    """What runs in a terminal of its own."""

    program: str
    pid: int


def program_of(command):
    """What may run once: `reticent serve`, say, at its port."""
    port = re.search(r"--port \S+", command)
    return " ".join([*command.split()[:2], port[0] if port else command])


class Terminal:
    """A shell that remembers its variables, in the folder of a reader."""

    def __init__(self, reader):
        environment = {**reader.environment, "HOME": str(reader.folder.with_name("home"))}
        reader.folder.with_name("home").mkdir(exist_ok=True)
        here = filter(None, (reader.python, find_anvil()))
        more = [str(Path(one).parent) for one in here]  # as if the environment were activated
        first, rest = environment["PATH"].split(os.pathsep, 1)
        environment["PATH"] = os.pathsep.join([first, *more, rest])
        self.folder, self.said, self.ports, self.beside = (
            reader.folder,
            reader.folder.with_name("said"),
            {},
            [],
        )
        self.said.mkdir()
        self.shell = subprocess.Popen(
            ["/bin/sh"], cwd=reader.folder, env=environment, text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def __enter__(self):
        return self

    def __exit__(self, *error):
        """End what stays, the newest first, and the shell. What is left after that is killed."""
        self._end(reversed(self.beside))
        self.shell.stdin.write("exit\n")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.shell.communicate(timeout=60)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.shell.pid, signal.SIGKILL)
        self.shell.wait()

    def typed(self, command):
        """Type it; the code, and all it said. What stays has code 0 once it is there."""
        command = PORT.sub(lambda found: self.port(found[0]), command)
        if command.startswith("reticent serve ") and "--port" not in command:
            command = command.replace("reticent serve", f"reticent serve --port {self.port('8000')}", 1)
        if STAYS.match(command) and "--once" not in command and "--help" not in command:
            return self._beside(command)
        return self._asked(f"{{ {command}\n}} </dev/null")

    def port(self, wanted):
        """The one that stands for it: the page's may be taken here."""
        return str(self.ports.setdefault(wanted, free_port()))

    def _end(self, ones):
        for one in ones:
            self._asked(f"kill {one.pid} 2>/dev/null && wait {one.pid}")

    def _asked(self, command):
        mark = f"-- done {time.monotonic_ns()}"
        self.shell.stdin.write(f"{command}\necho '{mark}' $?\n")
        self.shell.stdin.flush()
        limit = threading.Timer(LONGEST_S, os.killpg, (self.shell.pid, signal.SIGKILL))
        limit.start()
        said = ""
        for line in self.shell.stdout:
            if mark in line:
                limit.cancel()
                return int(line.rsplit(maxsplit=1)[1]), said + line[: line.index(mark)]
            said += line
        limit.cancel()
        return -1, said

    def _beside(self, command):
        self._end(
            [one for one in self.beside if one.program == program_of(command)]
        )  # Ctrl-C, and begin again
        output = self.said / str(len(self.beside))
        bare = re.sub(r"\s+#\s.*", "", command)
        _, pid = self._asked(f"{bare} </dev/null >{output} 2>&1 & echo $!")
        self.beside.append(Beside(program_of(command), int(pid)))
        end = time.monotonic() + LONGEST_S
        while time.monotonic() < end and not HERE.search(output.read_text() if output.exists() else ""):
            if self._asked(f"kill -0 {int(pid)} 2>/dev/null")[0] != 0:
                return self._asked(f"wait {int(pid)}")[0] or 0, output.read_text()
            time.sleep(0.05)
        said = output.read_text()
        if served := SERVES.search(said):
            wait_for_page(served[1])
        return (0 if time.monotonic() < end else -1), said


def expected(command):
    """The exit code that the page promises: 0, unless its comment says another."""
    return int((EXITS.search(command) or [0, 0])[1])


def mistakes(reader, page, passed_over=()):
    """(command, code, output) of each command of a page that does not work."""
    with Terminal(reader) as terminal:
        for command in commands(page):
            if not any(re.search(one, command) for one in passed_over):
                code, said = terminal.typed(command)
                if code != expected(command):
                    yield command, code, said


__all__ = ["ROOT", "Reader", "Terminal", "commands", "mistakes"]
