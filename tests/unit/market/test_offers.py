"""Offers: payments equal their integrals, the truth is the best answer, bad ones are refused."""

import math

import numpy as np
import pytest

from reticent.errors import ParameterError
from reticent.market import Linear, Log, Steps

OFFERS = [Log(0.7), Log(3.0, 2.5), Linear(0.4), Linear(2.0, 0.3), Steps((0.2, 0.5, 1.5), (1.0, 0.4, 0.1))]


def by_quadrature(offer, price):
    grid = np.linspace(price, max(price, offer.highest_price), 200_001)
    heights = offer.epsilon(grid)
    area = float(((heights[1:] + heights[:-1]) / 2.0 * np.diff(grid)).sum())
    return price * float(offer.epsilon(price)) + area


@pytest.mark.parametrize("offer", OFFERS, ids=repr)
def test_payments_are_price_times_epsilon_and_the_integral(offer):
    for share in (0.0, 0.1, 0.35, 0.8, 0.99, 1.2):
        price = share * offer.highest_price
        assert float(offer.payment(price)) == pytest.approx(by_quadrature(offer, price), abs=2e-5)


def gains(payment, offer, truth):
    """What sellers of this true price gain by each thing that they could say."""
    said = np.linspace(0.0, 1.5 * offer.highest_price, 4001)
    return said, payment(said) - truth * offer.epsilon(said)


def best_lie(payment, offer):
    """The most that any lie gains over the truth, at any of some true prices."""
    worst = -math.inf
    for share in (0.0, 0.05, 0.3, 0.6, 0.95, 1.1, 1.4):
        truth = share * offer.highest_price
        _, all_of_them = gains(payment, offer, truth)
        own = float(payment(np.array([truth]))[0] - truth * offer.epsilon(np.array([truth]))[0])
        worst = max(worst, float(all_of_them.max()) - own)
    return worst


@pytest.mark.parametrize("offer", OFFERS, ids=repr)
def test_no_lie_beats_the_truth(offer):
    assert best_lie(offer.payment, offer) <= 1e-12


@pytest.mark.parametrize("offer", OFFERS, ids=repr)
def test_planted_pay_without_the_integral_is_caught(offer):
    assert best_lie(lambda said: said * offer.epsilon(said), offer) > 1e-3


@pytest.mark.parametrize("offer", [Log(3.0), Linear(2.0)], ids=repr)
def test_planted_untruncated_payments_are_caught(offer):
    """The printed closed forms go on where f has ended: there they pay, or take, for nothing."""

    def untruncated(said):
        if isinstance(offer, Linear):
            return (1.0 - (offer.c * said) ** 2) / (2.0 * offer.c)
        u = np.maximum(math.e - offer.c * said, 1e-9)
        return (math.e * np.log(u) - u + 1.0) / offer.c

    beyond = np.linspace(1.05, 1.4, 50) * offer.highest_price
    assert (offer.payment(beyond) == 0.0).all()
    assert (np.abs(untruncated(beyond)) > 1e-3).all()


@pytest.mark.parametrize("offer", OFFERS, ids=repr)
def test_a_price_for_an_epsilon_is_where_it_is_taken(offer):
    for share in (0.01, 0.4, 1.0):
        price = offer.price_for(share * offer.most)
        assert float(offer.epsilon(price)) >= share * offer.most * (1.0 - 1e-12)


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: Log(0.0), "c must be > 0"),
        (lambda: Linear(math.nan), "c must be finite"),
        (lambda: Log(1.0, -1.0), "scale must be > 0"),
        (lambda: Steps((), ()), "1 to 64 prices"),
        (lambda: Steps((1.0, 1.0), (2.0, 1.0)), "prices must increase"),
        (lambda: Steps((1.0, 2.0), (1.0, 2.0)), "epsilons must decrease"),
        (lambda: Log(1.0).epsilon([-0.1]), "prices must be numbers >= 0"),
        (lambda: Linear(1.0).payment([math.nan]), "prices must be numbers >= 0"),
    ],
)
def test_bad_offers_name_their_rule(make, rule):
    with pytest.raises(ParameterError, match=rule):
        make()
