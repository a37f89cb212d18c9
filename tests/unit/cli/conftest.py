"""What the tests of the command share."""

import pytest


@pytest.fixture
def is_one_error_line():
    """Whether standard error holds one line that starts with `error: `."""
    return lambda err: err.startswith("error: ") and err.endswith("\n") and err.count("\n") == 1
