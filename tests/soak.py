"""Demonstrations and suites again and again, on a machine that is busy: `make soak RUNS=20 HOGS=3 SUITE=5`.

Every demonstration is run to its end so many times, and ended by Ctrl-C, SIGTERM and SIGKILL while it runs:
all that it started must be gone then. With SUITE, `make test` is run so many times too, in a clean clone with
`ARGS=--clone`, and a table shows each time and result. `make soak RUNS=0 SUITE=10 HOGS=0` runs suites alone
on an idle machine. All output is kept.
"""

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from reticent.processes import Companion

ROOT = Path(__file__).parents[1]
COMMAND = [sys.executable, "-c", "from reticent.apps import main; main()", "demo"]
HOG = [sys.executable, "-c", "while True: pass"]
PORT = ["--port", "0"]
DEMOS = {  # the arguments that end it by itself, and those with which it stays
    "census": (["--once", *PORT], PORT),
    "fleet": (["fleet"], ["fleet", "--devices", "2000000"]),
    "collect": (["collect", "--once", *PORT], ["collect", *PORT]),
    "federated": (["federated", "--once", *PORT], ["federated", *PORT]),
    "location": (["location", "--once", *PORT], ["location", *PORT]),
    "stations": (["stations", "--once", *PORT], ["stations", *PORT]),
    "chain": (["chain"], ["chain"]),
    "crowd": (["crowd", "--once"], ["crowd"]),
    "market": (["market", "--once", "--devices", "100", *PORT], ["market", *PORT]),
    "audit": (["audit"], ["audit"]),
}
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
LONGEST_S = 900.0
CLOSING_LINE = re.compile(r".*\b(passed|failed|error|errors)\b.* in [0-9.]+s")
GONE_S = 60.0


def started(arguments, folder):
    """A demonstration in a folder of its own, and what it says."""
    folder.mkdir(parents=True)
    said = (folder / "said.txt").open("wb")
    environment = {name: text for name, text in os.environ.items() if name != "ONCE"}
    environment |= {"TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"}  # so that what it says is there at once
    with said:
        return subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=folder,
            stdout=said,
            stderr=said,
            env=environment,
            start_new_session=True,
        )


def below(pid):
    """Every process that another started, and those that they started."""
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in path.read_text().split()]
        except OSError:
            continue  # it ended meanwhile
        for child in children:
            found += [child, *below(child)]
    return found


def is_alive(pid):
    """Whether it runs: one that ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def runs(name, folder):
    """Whether a demonstration comes to its end."""
    process = started(DEMOS[name][0], folder)
    try:
        return process.wait(LONGEST_S) == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        kill([process.pid, *below(process.pid)])
        process.wait()


def ends(name, how, folder, is_time):
    """Whether a demonstration, and all that it started, is gone after a signal at a time.

    `is_time` is told how many processes were seen so far.
    """
    process = started(DEMOS[name][1], folder)
    seen = {process.pid}
    while not is_time(len(seen)) and process.poll() is None:
        seen.update(below(process.pid))
        time.sleep(0.02)
    is_over = process.poll() is not None
    process.send_signal(how)
    try:
        process.wait(GONE_S)
    except subprocess.TimeoutExpired:
        kill(seen)
        process.wait()
        return False
    end = time.monotonic() + GONE_S
    while (left := [pid for pid in seen if is_alive(pid)]) and time.monotonic() < end:
        time.sleep(0.02)
    kill(left)
    if is_over:
        print(f"  {name} was over before the signal", flush=True)
    return not left


def kill(pids):
    for pid in pids:
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)


def clone_repository(folder):
    """Clone the commits of this repository, without what is not committed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(folder)], check=True)
    return folder


def run_suite(root, log):
    """Run `make test` in a clone.

    Returns:
        Whether it passed, its seconds (with those of the environment, if there was none), and the closing
        line of pytest.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    with log.open("wb") as output:
        code = subprocess.run(
            ["make", "test"], cwd=root, env=clean_environment(), stdout=output, stderr=output, check=False
        ).returncode
    seconds = time.monotonic() - start
    lines = [line.strip("= ") for line in log.read_text(errors="replace").splitlines()]
    closing = [line for line in lines if CLOSING_LINE.match(line)]
    return code == 0, seconds, closing[-1] if closing else "pytest did not end"


def clean_environment():
    """Return the environment without what the calling `make` and interpreter have put into it."""
    names = {"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "ARGS", "ROOM", "VENV", "PYTHONPATH"}
    return {name: text for name, text in os.environ.items() if name not in names}


def run_suites(root, times, hogs, place):
    """Run the quick tests so many times, with a table of times and results; return how often they failed."""
    table, failed = place / "suites.txt", 0
    table.write_text("")

    def show(row):
        print(row, flush=True)
        with table.open("a") as file:
            file.write(f"{row}\n")

    show(f"`make test`, {times} times beside {hogs} busy processes, in {root}")
    show(f"{'run':>4}  {'started':<19}  {'seconds':>7}  {'result':<6}  closing line")
    for number in range(1, times + 1):
        started_at = time.strftime("%Y-%m-%d %H:%M:%S")
        log = place / "suites" / f"{number}.txt"
        is_green, seconds, closing = run_suite(root, log)
        failed += not is_green
        result = "green" if is_green else "RED"
        show(f"{number:>4}  {started_at:<19}  {seconds:>7.0f}  {result:<6}  {closing}")
        if not is_green:
            for line in log.read_text(errors="replace").splitlines():
                if line.startswith(("FAILED ", "ERROR ")):
                    show(f"      {line}")
    show(f"{times - failed} of {times} green; this table is kept in {table}")
    return failed


def counted(what, times, work, place):
    """Do it so many times; how often it failed."""
    failed, start = 0, time.monotonic()
    for number in range(times):
        folder = place / what.replace(" ", "-") / str(number)
        if not work(folder):
            failed += 1
            print(f"  {what}, run {number} failed: {folder / 'said.txt'}", flush=True)
    print(f"{what}: {times} runs, {failed} failures, {time.monotonic() - start:.0f} s", flush=True)
    return failed


def main():
    parser = argparse.ArgumentParser(description="Run demonstrations and suites on a busy machine.")
    parser.add_argument("--runs", type=int, default=20, help="of each demonstration")
    parser.add_argument(
        "--ends", type=int, default=3, help="of each demonstration by each signal; 0 runs: none"
    )
    parser.add_argument("--latest", type=float, default=20.0, help="seconds after which it is ended")
    parser.add_argument("--hogs", type=int, default=3, help="processes that do nothing else")
    parser.add_argument("--suite", type=int, default=0, help="runs of the quick tests")
    parser.add_argument("--clone", action="store_true", help="run the quick tests in a clean clone")
    parser.add_argument("--demos", nargs="*", default=list(DEMOS), choices=list(DEMOS))
    given = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs behind it
    place = Path(tempfile.mkdtemp(prefix="soak-"))
    with ExitStack() as held:
        for _ in range(given.hogs):
            held.enter_context(Companion(HOG))
        failed = 0
        demos = given.demos if given.runs else []
        for name in demos:
            failed += counted(f"demo {name}", given.runs, lambda folder, name=name: runs(name, folder), place)
        for name in demos:
            for how in ENDS:

                def ended(folder, name=name, how=how):
                    end = time.monotonic() + random.uniform(0.0, given.latest)
                    return ends(name, how, folder, lambda count: time.monotonic() > end)

                failed += counted(f"demo {name} ended by {how.name}", given.ends, ended, place)
        if given.suite:
            root = clone_repository(place / "clone") if given.clone else ROOT
            failed += run_suites(root, given.suite, given.hogs, place)
    print(f"{failed} failures; what was said lies in {place}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
