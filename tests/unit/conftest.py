"""What the tests of more than one room share."""

import sys

import pytest


@pytest.fixture
def command(monkeypatch, capsys):
    """Run `reticent ARGS` in this process; return exit code, standard output and standard error."""
    from reticent.apps import main  # only here: most tests need no command

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["reticent", *args])
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = capsys.readouterr()
        return stopped.value.code, out, err

    return run
