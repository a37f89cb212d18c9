"""`reticent`, without its start: a process that has imported what commands need, and forks one for each.

Most of what a short command takes is the import of what it needs. Where many are typed and their start is
not what is tested, `Warm` puts a `reticent` on the path that hands its words, folder, environment and
streams to such a process, and ends as the command ended. What stays (`serve`) is a process of its own, which
can be ended like any other.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import traceback

STREAMS = (0, 1, 2)
NEEDED = (
    "ibis.backends.duckdb",
    "opendp.prelude",
    "pandas",
    "reticent.apps.query.ask_work",
    "reticent.apps.query.dataset_work",
    "reticent.collect",
    "scipy.stats",
)
# What is typed: without site packages, since it only speaks to a socket.
TYPED = """#!{python} -IS
import json, os, re, socket, sys

if re.match({stays!r}, " ".join(["reticent", *sys.argv[1:]])):
    os.execv({real!r}, [{real!r}, *sys.argv[1:]])
with socket.socket(socket.AF_UNIX) as warm:
    warm.connect({place!r})
    asked = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(warm, [len(asked).to_bytes(4, "big")], [0, 1, 2])
    warm.sendall(asked)
    said = warm.recv(4)
os._exit(int.from_bytes(said, "big") if said else 255)
"""


class Warm:
    """A `reticent` for readers, in place of the one that starts anew."""

    def __init__(self, folder, python=sys.executable, **environment):
        self.place, self.python = folder / "warm", str(python)
        self.process = subprocess.Popen(
            [self.python, "-P", __file__, str(self.place)], env={**os.environ, **environment},
            start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self.process.stdout.readline() == b"warm\n"

    def __enter__(self):
        return self

    def __exit__(self, *error):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # and whatever it still has at work
        self.process.stdout.close()
        self.process.wait()

    def lend(self, reader, stays):
        """Give it to a reader; what stays is still the command that the reader had."""
        programs = reader.folder.with_name("warm")
        programs.mkdir()
        typed, path = programs / "reticent", reader.environment["PATH"]
        real = shutil.which("reticent", path=path)
        typed.write_text(
            TYPED.format(python=self.python, real=real, place=str(self.place), stays=stays.pattern)
        )
        typed.chmod(0o755)
        reader.environment["PATH"] = os.pathsep.join([str(programs), path])


def serve(place):
    """Fork for each that asks; only its fork returns, as the command that was typed."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(place)
    listener.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    print("warm", flush=True)
    while True:
        asking, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            return become(asking)
        asking.close()


def become(asking):
    """Fork once more: one to be the command, and this to tell how it ended."""
    length, streams, _, _ = socket.recv_fds(asking, 4, len(STREAMS))
    left, words = int.from_bytes(length, "big"), b""
    while left > len(words):
        words += asking.recv(left - len(words))
    if command := os.fork():
        code = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
        asking.sendall((code if code >= 0 else 128 - code).to_bytes(4, "big"))
        os._exit(0)
    asking.close()
    for ours, theirs in zip(STREAMS, streams, strict=True):
        os.dup2(theirs, ours)
        os.close(theirs)
    sys.argv, folder, environment = json.loads(words)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)


def end(main):
    """Run the command, and end as it says; without taking apart, for half a second, what was imported."""
    try:
        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    else:
        code = 0
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    from reticent.apps import listed, main
    from reticent.cli.app import create_app

    create_app([one.commands() for one in listed.APPS])
    for needed in NEEDED:
        importlib.import_module(needed)
    gc.freeze()  # a fork's collections would copy all of it
    serve(sys.argv[1])
    end(main)
