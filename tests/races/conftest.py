"""Fixtures of the tests with real kills and races, which only `make test-races` runs."""

from ..service.conftest import folder, keys, made_census, process
from ..support.fault_repetition import pytest_terminal_summary, race_counter
from ..unit.ledger.conftest import place, postgres

__all__ = [
    "folder",
    "keys",
    "made_census",
    "place",
    "postgres",
    "process",
    "pytest_terminal_summary",
    "race_counter",
]
