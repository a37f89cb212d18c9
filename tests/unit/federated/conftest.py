"""What tests of federated learning share."""

import pytest

from reticent.federated.client import Client

from . import people


@pytest.fixture
def client(tmp_path):
    """Open the one client of a test; again after it was closed."""
    opened = []

    def open_client(kind=Client, *, enrolment=people.ENROLLED, lifetime=1000.0, most=10.0, rng=None):
        made = kind(tmp_path / "ledger", enrolment, people.SIGNER, lifetime=lifetime, most=most, rng=rng)
        opened.append(made)
        return made

    yield open_client
    for one in opened:
        one.close()
