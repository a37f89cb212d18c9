"""Golden numbers of the corrected specification, and the family under test."""

import json
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def golden():
    return json.loads((Path(__file__).parents[3] / "golden" / "numeric.json").read_text())
