"""A service on a small census: in this process, on a port, or as a process of its own."""

import contextlib
import shutil
import signal
import subprocess
import sys

import pytest
import uvicorn

from reticent.apps.query.desk import Desk
from reticent.apps.service.serving import create_app
from reticent.query import census
from reticent.service.protocol import BoundedProtocol
from reticent.service.settings import Settings

from .browsing import launch
from .running import OPEN, ROWS, Process, Service, make_keys, running


@pytest.fixture(scope="session")
def made_census(tmp_path_factory):
    """The rows and the declaration, made once; and other rows, which nobody declared yet."""
    place = census.write(tmp_path_factory.mktemp("census"), rows=ROWS).parent
    for name in ("town.csv", "fresh.csv"):
        shutil.copyfile(place / "census.csv", place / name)
    return place


@pytest.fixture
def folder(made_census, tmp_path):
    """A fresh folder with a census in it."""
    place = tmp_path / "desk"
    shutil.copytree(made_census, place)
    return place


@pytest.fixture
def keys(folder):
    """The secret of each person."""
    return make_keys(folder)


@pytest.fixture
def desk(folder, keys):
    """The desk of the folder, with nothing around it."""
    with contextlib.closing(Desk(Settings(folder, grid_s=0.0))) as found:
        yield found


@pytest.fixture
def serving(folder, keys):
    """A function that starts a service in this process with other settings."""
    with contextlib.ExitStack() as held:

        def start(**settings):
            service = Service(folder, keys, **settings)
            held.enter_context(service.client)
            return service

        yield start


@pytest.fixture(scope="module")
def shared(made_census, tmp_path_factory):
    """A service for tests that change nothing but keys: it is started once a module.

    It does not outlive them: later tests fork, and a thread of it could hold a lock of SQLite's then.
    """
    place = tmp_path_factory.mktemp("shared") / "desk"
    shutil.copytree(made_census, place)
    service = Service(place, make_keys(place))
    with service.client:
        yield service


@pytest.fixture
def service(serving):
    """A service in this process, without a time grid or a tight rate."""
    return serving()


@pytest.fixture
def listening(folder, keys):
    """A function that starts a service on a port, in a thread of this process."""
    with contextlib.ExitStack() as held:

        def start(**settings):
            app = create_app(Settings(folder, **{**OPEN, **settings}))
            options = {"timeout_keep_alive": 600, "log_config": None}  # a test may be held up for long
            config = uvicorn.Config(app, http=BoundedProtocol, ws="none", **options)
            server, url = held.enter_context(running(config))
            server.app = app
            return server, url

        yield start


@pytest.fixture
def process(folder, keys):
    """A function that starts a service as a process."""
    with contextlib.ExitStack() as held:

        def start(folder=folder, **settings):
            found = Process(folder, **settings)
            held.callback(found.end, signal.SIGKILL)
            return found

        yield start


@pytest.fixture
def command_line():
    """Run `reticent ARGS` in a process."""

    def run(*args):
        return subprocess.run(
            [sys.executable, "-c", "from reticent.apps import main; main()", *args],
            capture_output=True,
            text=True,
            timeout=300,
        )

    return run


@pytest.fixture(scope="module")
def browser():
    """A real chromium."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright in this environment")
    with playwright.sync_playwright() as running, contextlib.closing(launch(running.chromium)) as found:
        yield found
