"""What the tests of the query room share."""

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from ...support.postgres_server import start_server, stop_server


@pytest.fixture(scope="session")
def server():
    """The address of a real PostgreSQL server."""
    folder = tempfile.mkdtemp(prefix="pg-")  # a short path: a socket lies in it
    parent = os.getpid()
    running = start_server(folder)
    yield running.get_uri()
    if os.getpid() == parent:
        stop_server(running)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def icu_server():
    """The address of a PostgreSQL that knows the collations of ICU, as that of Debian does."""
    made = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not made:
        pytest.skip("no PostgreSQL of the system: that of PyPI knows no collations of ICU")
    who = {}
    if os.geteuid() == 0:  # whom PostgreSQL does not serve
        if "postgres" not in {one.pw_name for one in pwd.getpwall()}:
            pytest.skip("no user to run PostgreSQL as")
        who = {"user": "postgres", "group": "postgres", "extra_groups": []}
    folder = Path(tempfile.mkdtemp(prefix="icu-"))
    if who:
        shutil.chown(folder, "postgres")

    def run(name, *given):
        subprocess.run(
            [made[-1].with_name(name), *given],
            check=True,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            timeout=120,
            **who,
        )

    run("initdb", "--auth=trust", "--username=tester", "--encoding=UTF8", "--no-sync", "-D", "rows")
    run("pg_ctl", "-w", "-D", "rows", "-l", "log", "-o", f"-c listen_addresses= -k {folder} -F", "start")
    try:
        yield f"postgresql://tester@/postgres?host={folder}"
    finally:
        run("pg_ctl", "-w", "-D", "rows", "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)
