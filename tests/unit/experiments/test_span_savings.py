"""Savings of the span: never dearer than the own key, and a plan saves more."""

from reticent.experiments.ours import span
from reticent.randomness import SimulationStream


def test_a_drill_down_is_cheaper():
    asked = span.drill_down(SimulationStream(2026, path=(26, 0)))
    assert len(asked) == span.QUESTIONS
    assert span.own_key(asked) / span.spanned(asked) > 1.25


def test_a_plan_halves_a_dashboard():
    tiles, alone = span.dashboard(), span.own_key(span.dashboard())
    assert alone > span.spanned(tiles)
    assert alone / span.spanned(tiles, span.fine(), 1.0) > 2


def test_the_same_again_is_free():
    purse = span.Purse()
    for query, size in span.dashboard()[:4] * 2:
        purse.buy(query, span.wanted(query, span.plan(span.resolve(query, span.PEOPLE)), size))
        spent = purse.spent
        purse.buy(query, span.wanted(query, span.plan(span.resolve(query, span.PEOPLE)), size))
        assert purse.spent == spent
