"""`reticent serve`: options that are refused, in one line and before anything is said to be served."""

import re
import shlex
import socket
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--grid", "100", "grid_s must be >= 0 and <= 60, got 100.0"),
        ("--rate", "0", "rate must be >= 0.001"),
        ("--burst", "0", "burst must be >= 1, got 0"),
        ("--most-at-once", "0", "most_at_once must be >= 1, got 0"),
        ("--largest-body", "10", "largest_body must be >= 1024, got 10"),
        ("--threads", "1000", "threads must be <= 256, got 1000"),
        ("--job-threads", "0", "job_threads must be >= 1, got 0"),
        ("--longest", "-1", "longest_s must be >= 0 and <= 3600, got -1.0"),
        ("--longest", "nan", "longest_s must be"),
        ("--most-jobs", "0", "most_jobs must be >= 1, got 0"),
        ("--workers", "0", "--workers"),
        ("--threads", "two", "--threads"),
        ("--host", "no.such.host.invalid", "host and port must be free to listen at"),
    ],
)
def test_an_option_that_cannot_be(command, tmp_path, is_one_error_line, option, value, message):
    code, out, err = command("serve", str(tmp_path), "--port", "0", option, value)
    assert (code, out) == (2, "")
    assert is_one_error_line(err)
    assert message in err


def test_a_port_that_is_taken(command, tmp_path, is_one_error_line):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, out, err = command("serve", str(tmp_path), "--port", str(port))
    assert (code, out) == (2, "")
    assert is_one_error_line(err)
    assert f"got 127.0.0.1:{port} (Address already in use)" in err


@pytest.mark.parametrize(
    ("file", "command_line"),
    [
        ("reticent.service", r"^ExecStart=/opt/reticent/bin/reticent (.+)$"),
        ("Containerfile", r"^CMD \[(.+)\]$"),
    ],
)
def test_what_is_deployed_starts(command, tmp_path, file, command_line):
    """The options of the examples are options: only the folder, which is none here, is refused."""
    text = (Path(__file__).parents[3] / "docs" / "deploy" / file).read_text()
    verb, _, *options = shlex.split(re.search(command_line, text, re.M)[1].replace('", "', '" "'))
    code, out, err = command(verb, str(tmp_path / "none"), *options)
    assert (code, out) == (2, "")
    assert err.startswith("error: folder must be a folder with declarations")
