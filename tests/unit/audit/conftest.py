"""What the tests of the audit share."""

import sys

import pytest

from reticent.cli import main
from reticent.randomness import SimulationStream


@pytest.fixture
def rng():
    return SimulationStream(20261115)


@pytest.fixture
def command(monkeypatch, capsys):
    """Run `reticent ARGS` in this process; return exit code, standard output and standard error."""

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["reticent", *args])
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = capsys.readouterr()
        return stopped.value.code, out, err

    return run
