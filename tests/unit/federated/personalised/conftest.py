"""What the tests of personalised training share; the parts are in `parts`."""

import pytest

from reticent.federated.personalised import PersonalClient, PersonalTask
from reticent.federated.personalised.tasks import signed
from reticent.ledger.base import Unit
from reticent.randomness import SimulationStream

from .parts import FIELDS, SIGNER, SIGNING, enrolment


@pytest.fixture
def task():
    """A task with some fields changed."""
    return lambda **changes: PersonalTask(**FIELDS | changes)


@pytest.fixture
def client(tmp_path):
    """Open a client that took a task; closed after the test."""
    opened = []

    def opening(task, *, number=1, lifetime=100.0, most=100.0, file=None, rng=None):
        unit = Unit.MU2 if task.noise == "gaussian" else Unit.EPSILON
        one = PersonalClient(
            tmp_path / f"{number}.ledger",
            enrolment(number),
            SIGNER,
            lifetime=lifetime,
            most=most,
            unit=unit,
            rng=rng or SimulationStream(number),
        )
        opened.append(one)
        one.take(file or signed(task, SIGNING))
        return one

    yield opening
    for one in opened:
        one.close()
