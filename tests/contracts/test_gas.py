"""What calls cost, as receipts show it. Gas is the same on every machine."""

import pytest

from .revm import OWNER, Metered, artifact, gas_table, planted


@pytest.fixture(scope="module")
def gas():
    return gas_table()


def test_what_is_reused_is_cheap(gas):
    assert gas["reuse"] <= 60_000
    assert gas["reuse, idempotent"] <= 60_000
    assert gas["reuse, repeated"] <= 60_000


def test_a_charge_and_its_record(gas):
    """After the first of all, which also makes the totals' places in the storage."""
    assert gas["charge + fulfil, 1, new key"] <= 190_000
    assert gas["charge + fulfil, 1, second"] <= 190_000
    assert gas["charge + fulfil, 2, second"] <= 190_000
    assert gas["charge + fulfil, 10, second"] <= 190_000


def test_the_longest_record_fits_into_a_transaction(gas):
    """2**24 is the most that a transaction may take since Osaka (EIP-7825)."""
    assert gas["fulfil, 512, first"] < 1 << 24
    assert gas["declare, longest"] < 1 << 24
    assert gas["deploy PrivacyLedger"] < 1 << 24


def test_an_anchor_is_cheap(gas):
    assert gas["anchor"] <= 35_000


def test_the_bounds_notice_a_wasteful_contract():
    """An anchor that also keeps the last root in the storage."""
    stores = planted(
        ("event Anchored:", "last: bytes32\n\n\nevent Anchored:"),
        ("    log Anchored(", "    self.last = root\n    log Anchored("),
        name="HeadAnchor",
    )
    head = (b"\1" * 32, 7, b"\2" * 32, b"\3" * 32, [b"\4" * 32, b"\5" * 32])
    assert Metered(stores).call(OWNER, "anchor", *head).gas > 35_000
    assert Metered(artifact("HeadAnchor")).call(OWNER, "anchor", *head).gas <= 35_000
