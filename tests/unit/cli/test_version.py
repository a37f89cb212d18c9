"""`reticent --version`, as other commands have it."""

import subprocess
import sys

from reticent import __version__

RUN = "from reticent.apps import main; main()"


def test_the_option_and_the_command_say_the_same():
    said = [
        subprocess.run([sys.executable, "-c", RUN, word], capture_output=True, text=True, check=True).stdout
        for word in ("--version", "version")
    ]
    assert said == [f"reticent {__version__}\n"] * 2


def test_what_was_meant_is_said_once():
    done = subprocess.run([sys.executable, "-c", RUN, "aks"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("Did you mean") == 1
