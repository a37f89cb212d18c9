"""Sortition: the corrected interval, by exact integers and as a contract computes it."""

import random
from hashlib import sha256
from itertools import count
from math import comb

import pytest
from mpmath import mp

from reticent.errors import ParameterError, ParameterTypeError
from reticent.federated.crowd.lottery import priority, seats, seats_exactly, secp256k1

HALF = (1 << 255).to_bytes(32)


def output(share):
    return min((1 << 256) - 1, int(share * (1 << 64)) << 192).to_bytes(32)


def test_the_intervals():
    """m = 5, p = 0.3: CDF .16807 .52822 .83692 .96922 .99757 1 (mathematics 6.3)."""
    for edge, j in zip((0.16807, 0.52822, 0.83692, 0.96922, 0.99757), range(5), strict=True):
        for draw in (seats, seats_exactly):
            assert draw(output(edge - 1e-9), 5, 10, 3) == j
            assert draw(output(edge + 1e-9), 5, 10, 3) == j + 1
    assert seats(b"\0" * 32, 5, 10, 3) == 0
    assert seats(b"\xff" * 32, 5, 10, 3) == 5


def test_who_has_all_and_who_has_nothing():
    assert seats(HALF, 0, 10, 3) == seats_exactly(HALF, 0, 10, 3) == 0
    assert seats(HALF, 4, 10, 10) == seats_exactly(HALF, 4, 10, 30) == 4  # everybody sits
    assert seats(HALF, 1_000_000, 1_000_000, 20) in range(18, 23)  # one miner, all the stake


def cases(number, seed, largest):
    chance = random.Random(seed)
    for _ in range(number):
        total = chance.randint(1, chance.choice([10, 100, largest]))
        yield chance.randbytes(32), chance.randint(0, total), total, chance.randint(1, chance.choice([5, 60]))


def test_both_agree():
    """A false alarm has a chance below 3,000 * 2**-100."""
    assert all(seats(*case) == seats_exactly(*case) for case in cases(3000, 1, 300))


def test_fractions_at_the_edges_of_exact_ones():
    """The output just below and just above each CDF, to 2**-100 of it."""
    for stake, total, expected in [(7, 20, 3), (100, 1000, 20), (100, 101, 100), (300, 301, 60)]:
        below = 0
        for j in range(stake):
            below += comb(stake, j) * expected**j * (total - expected) ** (stake - j)
            edge = (below << 256) // total**stake
            if not 1 << 157 < edge < (1 << 256) - (1 << 157):  # a chance below 2**-99
                continue
            for near in (edge - (1 << 156), edge + (1 << 156)):
                drawn = near.to_bytes(32)
                assert seats(drawn, stake, total, expected) == seats_exactly(drawn, stake, total, expected)


def test_large_stakes():
    """Against 60 digits: 2**32 units, where exact integers would have 2**37 bits."""
    chance = random.Random(3)
    with mp.workdps(60):
        for stake, total, expected in [((1 << 31) - 1, (1 << 32) - 1, 20), (10**9, 4 * 10**9, 765)]:
            for _ in range(20):
                drawn = chance.randbytes(32)
                u, p, j = mp.mpf(int.from_bytes(drawn)) / 2**256, mp.mpf(expected) / total, 0
                term = mp.power(1 - p, stake)
                below = term
                while u >= below:
                    term *= mp.mpf(stake - j) / (j + 1) * p / (1 - p)
                    below, j = below + term, j + 1
                assert seats(drawn, stake, total, expected) == j


def shifted(drawn, stake, total, expected):
    """As printed: [CDF(j), CDF(j+1)), and nothing for u below CDF(0)."""
    return max(0, seats(drawn, stake, total, expected) - 1)


def mean_error(draw, outputs, *, stakes=(1, 30, 100, 250), total=1000, expected=20):
    """The largest relative error of the mean seats of all miners together, whose expectation is known."""
    found, drawn = 0, 0
    for one, stake in outputs(stakes):
        found += draw(one, stake, total, expected)
        drawn += stake
    return abs(found / (drawn * expected / total) - 1)


def hashed(number):
    def outputs(stakes):
        for one in range(number):
            yield sha256(one.to_bytes(8)).digest(), stakes[one % len(stakes)]

    return outputs


def test_mean_seats_over_100_000_draws():
    """Within 1 %. Standard error 0.23 %: a false alarm, were outputs drawn anew, in 1 of 80,000."""
    assert mean_error(seats, hashed(100_000)) < 0.01
    assert mean_error(shifted, hashed(5_000)) > 0.2  # planted


@pytest.mark.slow
def test_mean_seats_over_100_000_proofs():
    """As above, with outputs of proofs."""
    vrf, numbers = secp256k1(), count(1)

    def outputs(stakes):
        for one in range(100_000):
            secret = sha256(b"key%d" % (next(numbers) % 50)).digest()
            yield vrf.output(vrf.prove(secret, one.to_bytes(8))), stakes[one % len(stakes)]

    assert mean_error(seats, outputs) < 0.01


def test_priorities():
    first = priority(HALF, 1)
    several = [priority(HALF, number) for number in range(1, 60)]
    assert several[0] == first
    assert sorted(several, reverse=True) == several
    assert len(set(several)) > 1


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ((b"short", 1, 2, 3), ParameterError, "output must be 32 bytes"),
        ((HALF, 3, 2, 1), ParameterError, "stake must be <= 2, got 3"),
        ((HALF, 1, 0, 1), ParameterError, "total must be >= 1, got 0"),
        ((HALF, 1, 1 << 32, 1), ParameterError, "total must be <= 4294967295"),
        ((HALF, 1, 2, 0), ParameterError, "expected must be >= 1"),
        ((HALF, 1, 2, 766), ParameterError, "expected must be <= 765"),
        ((HALF, True, 2, 1), ParameterTypeError, "stake must be a whole number"),
    ],
)
def test_bad_arguments(arguments, error, said):
    with pytest.raises(error, match=said):
        seats(*arguments)
