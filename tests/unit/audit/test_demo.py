"""`reticent demo audit`: rebuilt from a plain update, not from a private one, without torch."""

import re
import subprocess
import sys

import numpy as np

from reticent.apps.audit import demo
from reticent.audit.leakage.sources import subject

RUN = """
import sys
sys.argv = ["reticent", "demo", "audit", "--folder", sys.argv[1]]
sys.modules["torch"] = None  # whoever asks for it gets an ImportError
from reticent.apps import main
main()
"""


def test_the_demo_in_a_process_without_torch(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path / "out")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("From this update the server learns everything") == 2
    row = re.search(r"income\s*│\s*38,200\s*│\s*([\d,]+)\s*│\s*([\d,]+)", done.stdout)
    assert row[1] == "38,200"
    assert row[2] != "38,200"
    decibels = re.search(r"in decibels: (\d+), (\d+)", done.stdout)
    assert int(decibels[1]) > 100 > 15 > int(decibels[2])
    page = (tmp_path / "out" / "audit.html").read_text()
    assert not re.search(r"https?:|<script|<link|<img|@import|url\(", page)
    assert page.count("<svg") == 4
    assert "best guess" in page


def rebuilt(send):
    """How often the guess of a digit is the digit, over ten reports."""
    digit = demo.picture()
    plain, _ = subject(demo._network()).measured(digit, [3])
    return sum(np.abs(demo.guess(send(plain)) - digit).max() < 0.1 for _ in range(10))


def test_no_guess_from_a_private_report_is_the_digit():
    """Of 3,730 coordinates a report tells at most a few: the other pixels are guesses, whatever is drawn."""
    assert rebuilt(lambda arrays: demo.private(arrays)[1]) == 0


def test_planted_a_report_that_is_the_update_itself_is_caught():
    assert rebuilt(lambda arrays: arrays) == 10


def test_a_record_in_words():
    person = demo._CENSUS.encoded({name: np.array([value]) for name, value in demo._PERSON.items()})
    told = demo.decoded(person[0])
    assert told == {
        "age": "23", "income": "38,200", "hours": "61",
        "education": "school", "family": "married", "health": "chronic",
    }  # fmt: skip
