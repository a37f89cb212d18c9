"""What the tests of the command share."""

import sys

import pytest

from reticent.cli import main


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


@pytest.fixture
def is_one_error_line():
    """Whether standard error holds one line that starts with `error: `."""
    return lambda err: err.startswith("error: ") and err.endswith("\n") and err.count("\n") == 1
