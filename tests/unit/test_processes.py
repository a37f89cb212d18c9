"""What we start ends when we do, by whatever signal."""

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from reticent import processes
from reticent.processes import Companion, free_port

ENDS = [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]
COMPANION = """
from reticent.processes import Companion
with Companion(["sleep", "1000"]) as one:
    print(one.pid, flush=True)
    time.sleep(1000)
"""
# It ends between the start of the program and the word to its guard.
EARLY_END = """
import os
from reticent.processes import Companion
def end(self, word):
    os.write(1, word.encode())
    time.sleep(1000)
Companion._tell = end
Companion(["sleep", "1000"])
"""
# Planted: the program does not wait until its guard knows it.
UNGUARDED_START = """
from reticent import processes
processes._PROGRAM = 'exec "$@"'
"""
PLAIN = """
import subprocess
print(subprocess.Popen(["sleep", "1000"], start_new_session=True).pid, flush=True)
time.sleep(1000)
"""
POOL = """
import os
from concurrent.futures import ProcessPoolExecutor
from reticent.processes import end_with_parent
def begin():
    {begin}
def work(_):
    os.write(1, b"%d\\n" % os.getpid())  # at once: two prints may mix
    time.sleep(1000)
if __name__ == "__main__":
    with ProcessPoolExecutor(2, initializer=begin) as pool:
        list(pool.map(work, range(2)))
"""


def is_alive(pid):
    """Whether a process runs; one that nobody has waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pids, seconds=60.0):
    """Wait until none of these runs; those that still do."""
    end = time.monotonic() + seconds
    while (left := [pid for pid in pids if is_alive(pid)]) and time.monotonic() < end:
        time.sleep(0.01)
    return left


def left_after(program, how, count=1, seconds=60.0):
    """The children that still run after a program was ended."""
    with subprocess.Popen(
        [sys.executable, "-c", f"import time\n{program}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    ) as process:
        try:
            pids = [int(process.stdout.readline()) for _ in range(count)]
            assert all(map(is_alive, pids))
            process.send_signal(how)
            process.wait()
        finally:
            process.kill()
    left = gone(pids, seconds)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return left


@pytest.mark.parametrize("how", ENDS)
def test_a_companion_ends_with_us(how):
    assert left_after(COMPANION, how) == []


@pytest.mark.parametrize("how", ENDS)
def test_a_companion_that_nobody_guards_yet_never_starts(how):
    assert left_after(EARLY_END, how) == []


def test_planted_a_companion_that_starts_unguarded_is_found():
    assert len(left_after(UNGUARDED_START + EARLY_END, signal.SIGKILL, seconds=0.1)) == 1


def test_planted_a_child_that_nobody_guards_is_found():
    assert len(left_after(PLAIN, signal.SIGKILL, seconds=0.1)) == 1


def test_workers_end_with_us():
    assert left_after(POOL.format(begin="end_with_parent()"), signal.SIGKILL, count=2) == []


def test_planted_workers_that_wait_for_work_are_found():
    assert len(left_after(POOL.format(begin="pass"), signal.SIGKILL, count=2, seconds=0.1)) == 2


def test_a_companion_is_closed_once_and_its_guard_with_it():
    with Companion(["sleep", "1000"]) as one:
        assert one.is_running()
        pids = [one.pid, one._guard.pid]
        assert all(map(is_alive, pids))
    assert gone(pids, 0.0) == []
    assert not one.is_running()
    one.close()


def test_a_companion_that_ended_is_seen_and_nobody_else_is_killed(tmp_path):
    with (tmp_path / "said").open("wb") as said, Companion(["sh", "-c", "echo said; exit 3"], said) as one:
        os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)
        assert not one.is_running()
    assert one._guard.returncode == 0, "it was told, and killed nothing"
    assert (tmp_path / "said").read_text() == "said\n"


class InterruptedLock:
    """Popen's lock, as an interrupt leaves it that comes between `acquire` and the block that releases it."""

    def __init__(self):
        self._lock = threading.Lock()

    def acquire(self, blocking=True):
        self._lock.acquire(blocking)
        raise KeyboardInterrupt

    def __enter__(self):
        assert self._lock.acquire(blocking=False), "it would wait for ever"

    def __exit__(self, *exception):
        self._lock.release()

    def release(self):
        self._lock.release()


def test_an_interrupt_while_a_companion_is_looked_at_does_not_hold_up_its_end():
    with Companion(["sleep", "1000"]) as one:
        one._process._waitpid_lock = InterruptedLock()
        assert one.is_running()
        one._process._waitpid_lock = threading.Lock()
    assert not one.is_running()


def test_planted_a_poll_that_is_interrupted_would_hold_it_up():
    with Companion(["sleep", "1000"]) as one:
        lock = one._process._waitpid_lock = InterruptedLock()
        with pytest.raises(KeyboardInterrupt):
            one._process.poll()
        with pytest.raises(AssertionError, match="wait for ever"):
            one._process.wait()
        lock.release()
        one._process._waitpid_lock = threading.Lock()


def test_a_program_that_is_not_there_leaves_no_guard(tmp_path):
    with pytest.raises(FileNotFoundError):
        Companion([tmp_path / "none"])


def test_a_free_port_can_be_listened_at_and_is_none_of_those_that_systems_give_away():
    ports = {free_port() for _ in range(20)}
    assert len(ports) > 1
    for port in ports:  # nobody else takes one of them meanwhile: there are 20,000
        assert 10_000 <= port < 30_000
        with contextlib.closing(socket.create_server(("127.0.0.1", port))):
            pass


def test_a_taken_port_is_passed_over(monkeypatch):
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        number = taken.getsockname()[1] - processes._FIRST_PORT
        tried = itertools.chain([number, number], itertools.count(number + 1))
        monkeypatch.setattr("reticent.processes.secrets.randbelow", lambda most: next(tried) % most)
        assert free_port() != number + processes._FIRST_PORT
