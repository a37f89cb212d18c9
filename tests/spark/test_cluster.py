"""A real cluster: a master and two workers as processes, a catalogue on disk, a worker killed."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from reticent.query.rows.source import connect

from .on_cluster import asked, data_set

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

DEFAULTS = """
spark.executor.memory 512m
spark.executor.cores 1
spark.cores.max 2
spark.sql.shuffle.partitions 2
spark.sql.warehouse.dir {folder}/warehouse
spark.sql.catalogImplementation hive
spark.hadoop.javax.jdo.option.ConnectionURL jdbc:derby:;databaseName={folder}/catalogue;create=true
spark.driver.extraJavaOptions -Dderby.stream.error.file={folder}/derby.log
spark.local.dir {folder}
"""


def free_port():
    with contextlib.closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture
def cluster(tmp_path):
    """The master's address, the workers, and the environment that names the operator's settings."""
    import pyspark

    home, port = Path(pyspark.__file__).parent, free_port()
    (tmp_path / "spark-defaults.conf").write_text(DEFAULTS.format(folder=tmp_path))
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1",
                   "SPARK_CONF_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}  # fmt: skip

    def run(name, *given):
        command = [
            home / "bin" / "spark-class",
            f"org.apache.spark.deploy.{name}",
            "--host",
            "127.0.0.1",
            *given,
        ]
        return subprocess.Popen(
            command, env=environment, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip

    address = f"spark://127.0.0.1:{port}"
    running = [run("master.Master", "--port", str(port), "--webui-port", "0")]
    for number in range(2):
        running.append(run("worker.Worker", "--cores", "1", "--memory", "600m", "--webui-port", "0",
                           "--work-dir", str(tmp_path / f"work{number}"), address))  # fmt: skip
    yield address, running[1:], environment
    for one in running:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(one.pid, signal.SIGKILL)  # its executors too
        one.wait()


class Asking:
    """The process that asks."""

    def __init__(self, environment, *given):
        command = [sys.executable, "-m", "tests.spark.on_cluster", *given]
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def vectors(self):
        self._process.stdin.write("ask\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def end(self):
        self._process.communicate(timeout=120)
        return self._process.returncode


def test_a_table_on_a_cluster_with_a_worker_killed(cluster, tmp_path):
    address, workers, environment = cluster
    first = Asking(environment, address, "visits", "--make")
    found = first.vectors()
    os.killpg(workers[0].pid, signal.SIGKILL)
    assert first.vectors() == found, "the other worker does what was lost"
    assert first.end() == 0
    (folder,) = (tmp_path / "warehouse").glob("visits")
    duckdb.sql(f"COPY (FROM read_parquet('{folder}/*.parquet')) TO '{tmp_path}/all.parquet'")
    data = data_set(parquet="all.parquet")
    with connect(data, tmp_path) as rows:
        assert [one.vector(rows) for one in asked(data)] == found
