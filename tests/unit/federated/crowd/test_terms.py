"""What a task may be posted with, and what it is said to cost and risk."""

from dataclasses import replace
from math import comb, fsum

import pytest

from reticent.errors import ParameterError, ParameterTypeError
from reticent.federated.crowd.committees import chances
from reticent.federated.crowd.plan import GAS, plan
from reticent.federated.crowd.terms import MOST_REPUTATION, Prices, Terms, pool

TERMS = Terms(rounds=5, people=20, f=3)
PRICES = Prices(unit=1000, bonus=100, leader_fee=7, committee_fee=11, deposit=13)


def test_the_pool_covers_every_course():
    assert pool(TERMS, PRICES) == 5 * (20 * MOST_REPUTATION * 1100 + 7 + 11)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rounds": 0}, "rounds must be >= 1, got 0"),
        ({"people": 257}, "people must be <= 256, got 257"),
        ({"people": 8}, r"people must be >= 2 f \+ 3 = 9, got 8"),
        ({"f": -1}, "f must be >= 0"),
        ({"expected": 256}, "expected must be <= 255"),
        ({"least": 21}, "least must be <= 20"),
        ({"draws": 0}, "draws must be >= 1"),
        ({"turn_blocks": 1 << 28}, "turn_blocks must be <= 268435455"),
        ({"claim_blocks": 0}, "claim_blocks must be >= 1"),
    ],
)
def test_bad_terms(change, said):
    with pytest.raises(ParameterError, match=said):
        replace(TERMS, **change)


def test_what_is_read_from_a_chain_may_be_longer_than_what_may_be_posted():
    """Readers take every task of version 1; a file that is posted is checked."""
    longest = replace(TERMS, dispute_blocks=(1 << 28) - 1)
    with pytest.raises(ParameterError, match=r"^dispute_blocks must be <= 65535, got 268435455$"):
        longest.check_windows()
    TERMS.check_windows()
    assert TERMS.lock_blocks == 2 * 50 + 3 * 50 + 2 * 100 + 2 + 256
    assert TERMS.round_blocks == 600 + 100 + 50 + 2 * 50 + 100


@pytest.mark.parametrize(("confirmations", "needed"), [(0, 2), (5, 12), (10_000, 20_002)])
def test_a_window_in_which_nobody_can_claim_is_refused(confirmations, needed):
    """The end is known `confirmations` blocks later, and a claim is in the next block at the earliest."""
    replace(TERMS, claim_blocks=needed).check_claims(confirmations)
    with pytest.raises(ParameterError, match=rf"^claim_blocks must be >= {needed} .* got {needed - 1}$"):
        replace(TERMS, claim_blocks=needed - 1).check_claims(confirmations)


def test_bad_prices():
    with pytest.raises(ParameterError, match="unit must be <= "):
        replace(PRICES, unit=1 << 96)
    with pytest.raises(ParameterError, match="leader_fee must be >= 0, got -1"):
        replace(PRICES, leader_fee=-1)
    with pytest.raises(ParameterTypeError, match="bonus must be a whole number"):
        replace(PRICES, bonus=1.5)


def binomial(units, p):
    return [
        comb(units, number) * p**number * (1 - p) ** (units - number) for number in range(min(units, 90) + 1)
    ]


def exactly(hostile, expected, total):
    """Captured and stalled for so many units of stake."""
    bad, good = (binomial(round(share * total), expected / total) for share in (hostile, 1 - hostile))
    pairs = [(h, g, x * y) for h, x in enumerate(bad) for g, y in enumerate(good)]
    captured = fsum(chance for h, g, chance in pairs if 3 * h > 2 * (h + g))
    return captured, fsum(chance for h, g, chance in pairs if not 3 * g > 2 * (h + g))


def test_20_seats_and_a_fifth_of_the_stake():
    """2.6e-5 and 9 %, and near that for finitely many units (mathematics 6.3)."""
    found = chances(0.2, 20)
    assert f"{found.captured:.1e} {found.stalled:.0%}" == "2.6e-05 9%"
    captured, stalled = exactly(0.2, 20, 1000)
    assert captured == pytest.approx(0.87 * found.captured, rel=0.01)
    assert stalled == pytest.approx(0.98 * found.stalled, rel=0.01)
    assert exactly(0.2, 20, 10_000)[0] == pytest.approx(found.captured, rel=0.02)


def test_chances_at_the_ends():
    assert chances(0, 20).captured == 0
    assert chances(0, 20).stalled == pytest.approx(2.0611536e-9, rel=1e-6)  # nobody is seated
    assert chances(1, 20).captured == pytest.approx(1 - 2.06e-9)
    assert chances(1, 20).stalled == pytest.approx(1)
    assert chances(0.2, 60).captured < chances(0.2, 20).captured / 1e6
    assert chances(0.2, 20, least=10).captured < chances(0.2, 20).captured
    assert chances(0.2, 20, least=10).stalled > chances(0.2, 20).stalled
    with pytest.raises(ParameterError, match="hostile must be >= 0 and <= 1"):
        chances(1.1, 20)


def test_a_plan():
    found = plan(TERMS, PRICES, miners=4, hostile=0.2)
    assert found.pool == pool(TERMS, PRICES)
    assert found.customer_gas == GAS["commit"] + GAS["reveal"] + GAS["settle"]
    more = plan(replace(TERMS, rounds=6), PRICES, miners=4, hostile=0.2)
    assert more.task_gas - found.task_gas == found.round_gas
    assert found.committee == chances(0.2, 20)
    assert found.appeal == chances(0.2, 60, least=3)
    assert found.cancelled == pytest.approx(5 * found.committee.stalled**3, rel=0.01)
    assert found.captured == pytest.approx(15 * found.committee.captured, rel=0.01)
    assert plan(replace(TERMS, expected=255), PRICES, miners=4, hostile=0.2).appeal is not None
