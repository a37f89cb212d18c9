"""Certificates of combined answers: every one that is made checks, and no tampered one does."""

from __future__ import annotations

import copy
import json
import random
from fractions import Fraction
from functools import cache

import pytest

from reticent.errors import ParameterError
from reticent.ledger import Reading
from reticent.query.span import certify, check_certificate

from .test_span import session


def certified(sessions):
    """Answers from several purchases, their certificates, and what the log would show."""
    for seed in range(sessions):
        for world, joint, prepared, _ in session(seed):
            found = joint.estimates(prepared)
            if found is None or not any(one.rows for one in found):
                continue
            texts = {one.plan.question.key: one.plan.question.text for one in joint._purchases.values()}
            texts[prepared.question.key] = prepared.question.text
            readings = {key: one.reading for key, one in joint._purchases.items()}
            given = json.loads(json.dumps(certify(prepared, found, log_size=7, log_root="ab")))
            yield given, world.data, texts, readings, found


@cache
def few():
    """Some of them; whoever changes one takes a copy."""
    return list(certified(3))


def checked(given, data, texts, readings):
    return check_certificate(given, data, texts, lambda key, numbers: readings[key])


@pytest.mark.parametrize("sessions", [8, pytest.param(1000, marks=pytest.mark.slow)])
def test_every_certificate_checks(sessions):
    seen = 0
    for given, data, texts, readings, found in certified(sessions):
        _, again = checked(given, data, texts, readings)
        assert [one.value for one in again] == [one.value for one in found]
        assert [one.information for one in again] == [one.information for one in found]
        seen += 1
    assert seen >= sessions


def one_more(text):
    return str(Fraction(text) + Fraction(1, 1 << 40))


def some_coordinate(given):
    return next(one for one in given["coordinates"] if one["weights"])


def tamper_weight(given):
    weight = some_coordinate(given)["weights"][0]
    weight[2] = one_more(weight[2])


def tamper_value(given):
    one = given["coordinates"][-1]
    one["value"] = one_more(one["value"])


def tamper_inverse(given):
    one = some_coordinate(given)
    one["inverse"] = str(Fraction(one["inverse"]) * Fraction(999_999, 1_000_000))


def tamper_information(given):
    given["purchases"][0]["information"] = str(int(given["purchases"][0]["information"]) + 1)


def tamper_account(given):
    given["account"] = "another"


def tamper_form(given):
    given["form"] = 2


def tamper_field(given):
    given["more"] = 1


def split_a_weight(given):
    """The same value twice, at half the weight each: half the variance, if nobody looks."""
    weights = some_coordinate(given)["weights"]
    purchase, place, weight = weights[0]
    half = str(Fraction(weight) / 2)
    weights[0:1] = [[purchase, place, half], [purchase, place, half]]


def split_a_purchase(given):
    """The same under a second entry of the purchase."""
    weights = some_coordinate(given)["weights"]
    purchase, place, weight = weights[0]
    given["purchases"].append(copy.deepcopy(given["purchases"][purchase]))
    half = str(Fraction(weight) / 2)
    weights[0:1] = [[purchase, place, half], [len(given["purchases"]) - 1, place, half]]


def drop_a_weight(given):
    del some_coordinate(given)["weights"][0]


def drop_a_coordinate(given):
    given["coordinates"].pop()


def place_outside(given):
    some_coordinate(given)["weights"][0][1] = -1


def float_weight(given):
    some_coordinate(given)["weights"][0][2] = "1e0"


TAMPERINGS = [tamper_weight, tamper_value, tamper_inverse, tamper_information, tamper_account, tamper_form,
              tamper_field, split_a_weight, split_a_purchase, drop_a_weight, drop_a_coordinate, place_outside,
              float_weight]  # fmt: skip


@pytest.mark.parametrize("tamper", TAMPERINGS)
def test_no_tampered_certificate_checks(tamper):
    seen = 0
    for given, data, texts, readings, _ in few():
        tampered = copy.deepcopy(given)
        tamper(tampered)
        with pytest.raises(ParameterError, match="certificate"):
            checked(tampered, data, texts, readings)
        seen += 1
    assert seen >= 3


def test_what_the_log_shows_decides():
    """Other recorded values, what is only pending, a text that is not the key's, another version."""
    rng = random.Random(1)
    given, data, texts, readings, _ = few()[0]
    key = given["purchases"][some_coordinate(given)["weights"][0][0]]["key"]
    held = readings[key]

    moved = Reading(
        held.account, key, held.information, tuple(one + held.information for one in held.sums), 0
    )
    with pytest.raises(ParameterError, match="value"):
        checked(given, data, texts, {**readings, key: moved})

    pending = Reading(held.account, key, 0, (), held.information)
    with pytest.raises(ParameterError, match="recorded"):
        checked(given, data, texts, {**readings, key: pending})

    other = rng.choice([one for one in texts if one != key])
    with pytest.raises(ParameterError, match="that of its text"):
        checked(given, data, {**texts, key: texts[other]}, readings)

    with pytest.raises(ParameterError, match="text is known"):
        checked(given, data, {one: text for one, text in texts.items() if one != key}, readings)

    later = {one: text.replace('"version":"1"', '"version":"2"') for one, text in texts.items()}
    with pytest.raises(ParameterError, match="version"):
        checked(given, data, later, readings)
