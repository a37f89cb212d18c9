"""A certificate: what an answer from several purchases is made of, checked by anybody, without data.

It names the purchases with what was recorded under them, and for each coordinate of the question the exact
weights of their values, what these make, and what it is worth. Whoever has the declaration, the questions'
texts and the ledger's log redoes all of it: a text is the purchase's if its hash is the key; the weighted sum
of the forms is the question's form, term by term; the value and 1 / b follow from what is recorded. So a
certificate needs no trust in who made it. That the log is whole is shown by `reticent ledger verify`.

What it does not show: that the weights are the best ones. Any that pass are unbiased, with the variance that
is said.

Reference: docs/mathematics.md 7.4.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from reticent.errors import ParameterError
from reticent.ledger import Reading
from reticent.query.declarations.datasets import DataSet
from reticent.query.language.questions import parse
from reticent.query.measure import Plan
from reticent.query.measure import plan as planned
from reticent.query.span.forms import Form, forms
from reticent.query.span.weights import Estimate, Row

_FORM = 1  # of the JSON
_FIELDS = frozenset(("form", "account", "key", "log_size", "log_root", "purchases", "coordinates"))
_PURCHASE = frozenset(("key", "information", "measurements"))
_COORDINATE = frozenset(("weights", "value", "inverse"))
_MOST = 1 << 16  # purchases, coordinates, or weights of one
_NUMBER = re.compile(r"-?[0-9]{1,4000}(/[1-9][0-9]{0,3999})?")

Recorded = Callable[[str, Sequence[int]], Reading]
"""What the ledger holds under a key by the log's size, or of these measurements where numbers are given."""


def certify(
    plan: Plan,
    estimates: Sequence[Estimate],
    *,
    measurements: Mapping[str, Sequence[int]] | None = None,
    log_size: int | None = None,
    log_root: str | None = None,
) -> dict[str, Any]:
    """What an answer is made of, as JSON.

    Args:
        plan: of the question.
        estimates: of its coordinates, as `Joint.estimates` gave them.
        measurements: numbers in the ledger, by key, where they are known.
        log_size: entries of the log that hold all of it.
        log_root: the root of those entries, in hex.
    """
    rows = {(row.key, row.coordinate): row for one in estimates for row in one.rows}
    units = {row.key: row.information for row in rows.values()}
    places = {key: place for place, key in enumerate(units)}
    numbers = measurements or {}
    return {
        "form": _FORM,
        "account": plan.question.data.account,
        "key": plan.question.key,
        "log_size": log_size,
        "log_root": log_root,
        "purchases": [
            {"key": key, "information": str(units[key]), "measurements": list(numbers.get(key, ()))}
            for key in places
        ],
        "coordinates": [
            {
                "weights": [
                    [places[row.key], row.coordinate, str(weight)]
                    for row, weight in zip(one.rows, one.weights, strict=True)
                ],
                "value": str(one.value),
                "inverse": str(one.inverse),
            }
            for one in estimates
        ],
    }


def check_certificate(
    given: Any, data: DataSet, texts: Mapping[str, str], recorded: Recorded
) -> tuple[Plan, tuple[Estimate, ...]]:
    """Redo a certificate, which may be anybody's, from texts and recorded values.

    Args:
        given: the parsed JSON.
        data: the declaration.
        texts: of the questions, by key; they are believed only where their hash is the key.
        recorded: what the ledger holds.

    Returns:
        The plan of the question and the estimates, made anew.

    Raises:
        ParameterError: something in it is not so.
    """
    said = _fields("certificate", given, _FIELDS)
    if type(said["form"]) is not int or said["form"] != _FORM:
        raise ParameterError(f"certificate.form must be {_FORM}")
    if said["account"] != data.account:
        raise ParameterError(f"certificate.account must be {data.account}")
    plan = _planned("certificate.key", said["key"], data, texts)
    rows = _rows(said["purchases"], data, texts, recorded)
    made = forms(plan)
    listed = _list("certificate.coordinates", said["coordinates"])
    if made is None or len(listed) != len(made):
        raise ParameterError(f"certificate.coordinates must be the {plan.values} of the question")
    found = (_coordinate(one, plan, form, rows) for one, form in zip(listed, made, strict=True))
    return plan, tuple(found)


def _rows(given: Any, data: DataSet, texts: Mapping[str, str], recorded: Recorded) -> list[list[Row]]:
    """The recorded values of each purchase."""
    found: list[list[Row]] = []
    seen: set[str] = set()
    for one in _list("certificate.purchases", given):
        said = _fields("certificate.purchases", one, _PURCHASE)
        plan = _planned("certificate.purchases.key", said["key"], data, texts)
        key = plan.question.key
        if key in seen:  # its noise would count as that of two
            raise ParameterError("certificate.purchases must name each key once")
        seen.add(key)
        numbers = _list("certificate.purchases.measurements", said["measurements"])
        if any(type(number) is not int or number < 0 for number in numbers):
            raise ParameterError("certificate.purchases.measurements must be numbers of measurements")
        if len(set(numbers)) != len(numbers):  # information that was bought once would count twice
            raise ParameterError("certificate.purchases.measurements must name each measurement once")
        reading, made = recorded(key, tuple(numbers)), forms(plan)
        if reading.account != data.account or reading.key != key or len(reading.sums) != plan.values:
            raise ParameterError("certificate.purchases must be recorded under their keys")
        if str(reading.information) != said["information"]:
            raise ParameterError(
                f"certificate.purchases.information must be {reading.information}, as it is recorded"
            )
        if made is None:
            raise ParameterError("certificate.purchases must be linear forms of at most so many terms")
        found.append(
            [
                Row(key, place, form, plan.sensitivity, reading.information, reading.sums[place])
                for place, form in enumerate(made)
            ]
        )
    return found


def _coordinate(given: Any, plan: Plan, form: Form, rows: Sequence[Sequence[Row]]) -> Estimate:
    said = _fields("certificate.coordinates", given, _COORDINATE)
    weights: dict[tuple[int, int], Fraction] = {}
    for one in _list("certificate.coordinates.weights", said["weights"]):
        purchase, place = _place(one, rows)
        if (purchase, place) in weights:
            raise ParameterError("certificate.coordinates.weights must name each value once")
        weights[purchase, place] = _number("certificate.coordinates.weights", one[2])
    denominator = math.lcm(*(weight.denominator for weight in weights.values()))
    estimate = Estimate(
        form,
        plan.sensitivity,
        tuple(rows[purchase][place] for purchase, place in weights),
        tuple(int(weight * denominator) for weight in weights.values()),
        denominator,
    )
    if not estimate.holds():
        raise ParameterError("certificate.coordinates.weights must make the question, and do not")
    if _number("certificate.coordinates.value", said["value"]) != estimate.value:
        raise ParameterError(f"certificate.coordinates.value must be {estimate.value}")
    if _number("certificate.coordinates.inverse", said["inverse"]) != estimate.inverse:
        raise ParameterError(f"certificate.coordinates.inverse must be {estimate.inverse}")
    return estimate


def _place(given: Any, rows: Sequence[Sequence[Row]]) -> tuple[int, int]:
    match given:
        case [purchase, place, str()] if type(purchase) is int and type(place) is int:
            if 0 <= purchase < len(rows) and 0 <= place < len(rows[purchase]):
                return purchase, place
    raise ParameterError("certificate.coordinates.weights must be lists of purchase, coordinate and weight")


def _planned(name: str, key: Any, data: DataSet, texts: Mapping[str, str]) -> Plan:
    """How the question of a key is measured, by a text that must be the key's."""
    text = texts.get(key) if isinstance(key, str) else None
    if text is None:
        raise ParameterError(f"{name} must be of a question whose text is known")
    question = parse(text, data)
    if question.key != key:
        raise ParameterError(f"{name} must be that of its text")
    return planned(question)


def _fields(name: str, given: Any, known: frozenset[str]) -> Mapping[str, Any]:
    if not isinstance(given, Mapping) or given.keys() != known:
        raise ParameterError(f"{name} must be an object with {', '.join(sorted(known))}")
    return given


def _list(name: str, given: Any) -> Sequence[Any]:
    if not isinstance(given, (list, tuple)) or len(given) > _MOST:
        raise ParameterError(f"{name} must be a list of at most {_MOST}")
    return given


def _number(name: str, given: Any) -> Fraction:
    if not isinstance(given, str) or not _NUMBER.fullmatch(given):
        raise ParameterError(f"{name} must be fractions as texts")
    return Fraction(given)
