"""Threads that race for a budget on a chain."""

from ..unit.ledger.conftest import ethereum
from ..unit.ledger.contracts_in_use import units
from ..unit.ledger.test_ethereum_races import granted_by, one_by_one, racers

__all__ = ["ethereum", "racers"]  # fixtures


def test_racing_askers_never_pass_the_cap(racers):
    granted = granted_by(racers, one_by_one)
    assert sum(map(sum, granted)) == 60 == racers[0].balance("a").spent
    assert len(racers[0].pending("a")) == 20


def test_racing_askers_of_one_key_pay_once(racers):
    def asks(place):
        return [
            lambda ledger, i=i: (
                ledger.request("a", f"key {i}", units(2 + i), idempotency="same").charged
                if i == 0
                else ledger.request("a", f"key {i}", units(2 + i)).charged
            )
            for i in range(5)
        ]

    granted = granted_by(racers, asks)
    assert [sum(one) for one in zip(*granted, strict=True)] == [2, 3, 4, 5, 6]
    assert racers[0].balance("a").spent == 20
