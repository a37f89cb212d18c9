"""Reputations by a total rule: who lies falls and stays down, who is merely different keeps it."""

import itertools

import pytest

from reticent.errors import ParameterError
from reticent.federated.robust.reputation import Evaluation, average, changed, evaluations

HIGH, KEPT, LOW = Evaluation.HIGH, Evaluation.KEPT, Evaluation.LOW
MOST = 100


def rule(reputation, evaluation, h=5):
    return changed(reputation, evaluation, average=h, most=MOST)


def test_the_rule_case_by_case():
    assert [rule(one, HIGH) for one in (0, 4, 5, 6, 99, 100)] == [1, 5, 6, 7, 100, 100]
    assert [rule(one, LOW) for one in (0, 4, 5, 6, 100)] == [0, 4, 0, 5, 99]
    assert [rule(one, KEPT) for one in (0, 5, 100)] == [0, 5, 100]


def test_the_rule_is_total_and_stays_in_range():
    for reputation, h, said in itertools.product(range(8), range(8), Evaluation):
        found = changed(reputation, said, average=h, most=7)
        assert 0 <= found <= 7
        assert said is not LOW or found <= reputation


def as_printed(reputation, evaluation, h):
    """Eq. 5.2, whose last line asks for no evaluation."""
    if reputation < h:
        return reputation + 1
    return rule(reputation, evaluation, h)


def lives(step):
    """An always malicious client among nine honest ones, 60 rounds."""
    reputations, seen = [5] * 10, []
    for _ in range(60):
        h = average(reputations)
        reputations = [step(one, LOW if place == 0 else HIGH, h) for place, one in enumerate(reputations)]
        seen.append(reputations[0])
    return seen


def test_who_always_lies_falls_and_stays_down():
    assert set(lives(rule)) == {0}


def test_planted_the_printed_rule_lets_it_rise_again():
    assert max(lives(as_printed)) >= 5


def test_the_average_is_rounded_down():
    assert average([5, 5, 6]) == 5
    assert average([0]) == 0
    with pytest.raises(ParameterError, match="reputations must be >= 1"):
        average([])


def test_low_needs_a_score_beyond_twice_the_median():
    scores = (10, 11, 12, 13, 25, 26, 1000)
    assert evaluations(scores, (0, 1, 2, 3)) == (HIGH, HIGH, HIGH, HIGH, KEPT, KEPT, LOW)
    assert evaluations(scores, (0, 1, 2, 3), multiple=1)[-3:] == (LOW, LOW, LOW)


def test_of_an_even_count_the_median_is_between_two():
    """Twice the median of 1 and 4 is 5: 5 is not beyond it, 6 is."""
    assert evaluations((1, 1, 4, 5), (0, 1)) == (HIGH, HIGH, KEPT, KEPT)
    assert evaluations((1, 1, 4, 6), (0, 1)) == (HIGH, HIGH, KEPT, LOW)


def test_whoever_is_accepted_is_never_low():
    assert evaluations((0, 0, 0, 7), (0, 1, 3)) == (HIGH, HIGH, KEPT, HIGH)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((-1, 5, 100), "reputation"),
        ((101, 5, 100), "reputation"),
        ((5, -1, 100), "average"),
        ((0, 0, 0), "most"),
    ],
)
def test_what_cannot_be(given, words):
    with pytest.raises(ParameterError, match=f"{words} must be"):
        changed(given[0], HIGH, average=given[1], most=given[2])
