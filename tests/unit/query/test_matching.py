"""T5c: when two queries share what was paid for.

Two queries with one key must need the same measurement, on every table; two that differ only in how they are
written must have one key. `matching` makes the queries and says what they mean, by a way of its own.

These are properties, not statistics, and the seeds are fixed: there are no false alarms. That the survey can
fail is shown by planted errors, each of which it must find.
"""

from __future__ import annotations

import hashlib
import json
import random
from itertools import chain

import pytest

from reticent.query.language import conditions
from reticent.query.language.tree import Not

from .matching import survey

QUICK, FULL = 4000, 100_000
PLANTED = 20_000  # at most; most errors are found within some hundred pairs


def check(found):
    assert found["false"] == 0
    assert found["missed"] == 0
    assert found["differ"] > found["pairs"] / 4  # else nothing was tried
    assert found["same"] > found["pairs"] / 4
    assert found["sql"] > found["pairs"] / 20


def test_queries_share_a_key_only_if_they_ask_the_same():
    check(survey(random.Random(1), QUICK))


@pytest.mark.slow
def test_queries_share_a_key_only_if_they_ask_the_same_in_100000_pairs():
    found = survey(random.Random(2), FULL)
    print(dict(found))
    check(found)


# Planted: keys that forget something


def forgetting(*path):
    def key(question):
        content = json.loads(question.text)
        holder = content
        for name in path[:-1]:
            holder = holder[name]
        if isinstance(holder, list):
            for one in holder:
                del one[path[-1]]
        else:
            del holder[path[-1]]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    return key


@pytest.mark.parametrize(
    "path",
    [
        ("version",),
        ("relation",),
        ("unit",),
        ("columns", "first"),
        ("columns", "last"),
        ("columns", "missing"),
        ("columns", "values"),
        ("measured",),
        ("column",),
        ("of",),
        ("where",),
        ("by", "cuts"),
        ("by", "column"),
    ],
)
def test_a_key_that_forgets_something_is_caught(path):
    assert survey(random.Random(3), PLANTED, of=forgetting(*path), until="false")["false"] > 0


def test_a_key_of_all_of_the_text_passes_the_same_survey():
    check(survey(random.Random(3), 1000, of=lambda question: question.text))


# Planted: normal forms that are wrong


def drop_negation(monkeypatch):
    resolved = conditions._resolved

    def wrong(predicate, data, name, *, wanted):
        return resolved(
            predicate.part if isinstance(predicate, Not) else predicate, data, name, wanted=wanted
        )

    monkeypatch.setattr(conditions, "_resolved", wrong)


def join_by_intersection(monkeypatch):
    merged = conditions._merged
    monkeypatch.setattr(conditions, "_merged", lambda kind, *given: merged(conditions.All, *given))


def swap_de_morgan(monkeypatch):
    join = conditions._join
    monkeypatch.setattr(conditions, "_join", lambda kind, *given: join(conditions.All, *given))


def absorb_the_wrong_part(monkeypatch):
    decides = conditions._decides
    monkeypatch.setattr(conditions, "_decides", lambda kind, held, ranges: decides(kind, ranges, held))


def absorb_by_one_part(monkeypatch):
    monkeypatch.setattr(conditions, "all", any, raising=False)


def round_down(monkeypatch):
    monkeypatch.setattr(conditions.math, "ceil", conditions.math.floor)


@pytest.mark.parametrize(
    "plant",
    [
        drop_negation,
        join_by_intersection,
        swap_de_morgan,
        absorb_the_wrong_part,
        absorb_by_one_part,
        round_down,
    ],
)
def test_a_wrong_normal_form_is_caught(plant, monkeypatch):
    plant(monkeypatch)
    assert survey(random.Random(4), PLANTED, until="false")["false"] > 0


def keep_touching_ranges(monkeypatch):
    monkeypatch.setattr(conditions, "_union", lambda given: tuple(sorted(set(chain.from_iterable(given)))))


def keep_the_order(monkeypatch):
    monkeypatch.setattr(conditions, "sorted", lambda given, key=None: list(given), raising=False)


def keep_the_nesting(monkeypatch):
    monkeypatch.setattr(conditions, "_flat", lambda kind, given: iter(given))


def keep_what_follows(monkeypatch):
    monkeypatch.setattr(conditions, "_unabsorbed", lambda kind, leaves, rest: list(rest.values()))


@pytest.mark.parametrize("plant", [keep_touching_ranges, keep_the_order, keep_the_nesting, keep_what_follows])
def test_a_form_that_depends_on_the_writing_is_caught(plant, monkeypatch):
    plant(monkeypatch)
    assert survey(random.Random(5), PLANTED, until="missed")["missed"] > 0
