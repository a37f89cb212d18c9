"""What the tests of collection share; the fleet itself is in `fleet`."""

import pytest

from reticent.collect.collector import Collector

from ..ledger.conftest import postgres  # noqa: F401
from . import fleet


@pytest.fixture
def collecting(tmp_path):
    """Open a collector of given surveys, at the middle of period 12; closed after the test."""
    opened = []

    def collect(*surveys, **changes):
        options = {"clock": lambda: fleet.START + 12.5 * fleet.PERIOD_S, "late_s": 1e6, "early_s": 1e6}
        path = tmp_path / f"collection-{len(opened)}.sqlite"
        collector = Collector(path, fleet.MASTER, **options | changes)
        opened.append(collector)
        for survey in surveys:
            collector.collect(fleet.signed(survey, fleet.SIGNING), fleet.SIGNER)
        return collector

    yield collect
    for collector in opened:
        collector.close()


@pytest.fixture(params=["sqlite", "postgres"])
def counts_at(request, tmp_path):
    """Where a collector may keep new counts: a file, or a schema of a real PostgreSQL server."""
    if request.param == "sqlite":
        return tmp_path / "counts.sqlite"
    return request.getfixturevalue("postgres")()
