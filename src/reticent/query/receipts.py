"""Checks of combined answers against the ledger, which anybody can run without the data.

Everything that an answer states about its question is computed again: that it is the question that was asked;
that the weights combine the purchases' questions to it, term by term; that the purchases were recorded in the
log that it names; value, variance, worth and intervals, and the contribution of each purchase. The check
cannot show that the noise was drawn honestly: nobody can see that from a log (`limits`). Amounts (charged,
spent, left, the price of a fresh draw) are not checked here: `verify` checks them in the ledger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from reticent.errors import LedgerDamaged, ParameterError, ParameterTypeError
from reticent.ledger import Reading
from reticent.ledger.measured import Measured
from reticent.query.accuracy import checked_confidence
from reticent.query.answers import Answer, Case
from reticent.query.combined import Combined, combined, ends_of, worth
from reticent.query.declarations.datasets import DataSet
from reticent.query.kinds.intervals import Cell
from reticent.query.language.questions import parse, resolve
from reticent.query.measure import Plan
from reticent.query.measure import plan as planned
from reticent.query.span import Estimate, combined_cells
from reticent.query.span.certificate import check_certificate

_NUMBERS = ("value", "standard_error", "low", "high")
_LARGEST = 1e300
_CLOSE = 1e-9  # tolerance for the last digits of floats that another machine computed

Lookup = Callable[[frozenset[int], int], tuple[dict[int, Measured], str]]
"""Maps numbers of measurements and a size of the log to the measurements by then, and the log's root."""


def check_answer(answer: Answer, data: DataSet, lookup: Lookup) -> None:
    """Check a combined answer by computing its statements again.

    Args:
        answer: Answer to check, from any source.
        data: Declaration of the data set.
        lookup: Lookup of measurements in the ledger's log.

    Raises:
        ParameterError: The answer was not combined, or has no certificate to check.
        LedgerDamaged: A statement of the answer is wrong.
    """
    how = answer.combined
    if how is None or how.certificate is None or answer.receipt.log_size is None:
        raise ParameterError("answer must be a combined one, with its weights and the head of a log")
    _check_form(answer, how)
    receipt, said = answer.receipt, how.certificate
    numbers = frozenset(receipt.measurements).union(*(part.measurements for part in how.parts))
    found, root = lookup(numbers, answer.receipt.log_size)
    if (receipt.log_root, said.get("log_size"), said.get("log_root")) != (root, receipt.log_size, root):
        raise LedgerDamaged(f"the root of the first {receipt.log_size} entries is another one")

    def recorded(key: str, listed: Sequence[int]) -> Reading:
        return _reading(data.account, key, [_known(found, number, key) for number in listed])

    for number in receipt.measurements:
        _known(found, number, receipt.key)
    texts = {part.key: part.question for part in how.parts} | {receipt.key: how.question}
    try:
        if resolve(answer.query, data).key != receipt.key or said.get("key") != receipt.key:
            raise LedgerDamaged("the key of the answer is not that of its question")
        plan, estimates = check_certificate(said, data, texts, recorded)
        plans = {part.key: planned(parse(part.question, data)) for part in how.parts}
    except ParameterError as error:
        raise LedgerDamaged(str(error)) from error
    if any(key != one.question.key for key, one in plans.items()):
        raise LedgerDamaged("the text of a purchase is not the one that its key is named after")
    purchases = {key for one in estimates for key in one.keys}
    told = {part.key: (part.information, part.measurements) for part in how.parts}
    listed = {one["key"]: (int(one["information"]), tuple(one["measurements"])) for one in said["purchases"]}
    if told != listed or set(told) != purchases or len(told) != len(how.parts):
        raise LedgerDamaged("the purchases that the answer lists are not those of its weights")
    if receipt.account != data.account or answer.case is not Case.SPAN:
        raise LedgerDamaged("the account and the case of the answer are not those of its purchases")
    if answer.information != worth(estimates):
        raise LedgerDamaged(f"the answer is worth {worth(estimates)} units, not {answer.information}")
    looked = {key: (one, told[key][1]) for key, one in plans.items()}
    due = combined(answer.query, plan, estimates, answer.confidence, how.fresh_cost, looked, None)
    _check_parts(how, due)
    if how.values != due.values:
        raise LedgerDamaged("the intervals for any choice are not those of the purchases")
    try:
        _check_intervals(answer, how, plan, estimates)
    except LedgerDamaged:
        try:  # answers of earlier releases cut their intervals only
            _check_intervals(answer, how, plan, estimates, cut_only=True)
        except LedgerDamaged:
            pass
        else:
            return
        raise


def _check_intervals(
    answer: Answer, how: Combined, plan: Plan, estimates: Sequence[Estimate], *, cut_only: bool = False
) -> None:
    """Check values and intervals of an answer, by the rule of earlier releases if `cut_only`."""
    due = combined_cells(answer.query, plan, estimates, answer.confidence, cut_only=cut_only)
    _check_cells(answer.cells, due)
    factor, ends = ends_of(answer.query, plan, estimates, answer.confidence, how.values, cut_only=cut_only)
    pairs = [(how.factor, factor), *zip(chain(*how.ends), chain(*ends), strict=False)]
    if len(how.ends) != len(ends) or not all(_is_close(*pair) for pair in pairs):
        raise LedgerDamaged("the intervals for any choice are not those of the purchases")


def _check_form(answer: Answer, how: Combined) -> None:
    """Reject values of wrong types: JSON may hold anything in place of a number or a text."""
    receipt = answer.receipt
    estimates = [cell.estimate for cell in answer.cells]
    numbers = [getattr(one, name) for one in estimates for name in (*_NUMBERS, "unbiased")]
    texts = (receipt.account, receipt.key, receipt.log_root)
    if (
        not all(isinstance(one, str) for one in texts)
        or type(receipt.log_size) is not int
        or (any(type(number) is not int for number in receipt.measurements))
    ):
        raise LedgerDamaged("the receipt of the answer is not one")
    if any(one is None for estimate in estimates for one in (getattr(estimate, name) for name in _NUMBERS)):
        raise LedgerDamaged("the answer has a group without a value")
    if not all(one is None or (type(one) in (int, float) and abs(one) < _LARGEST) for one in numbers):
        raise LedgerDamaged("the values of the answer are not numbers")
    if not isinstance(how.certificate, Mapping):
        raise LedgerDamaged("the certificate of the answer is not one")
    try:
        checked_confidence(answer.confidence)
    except (ParameterError, ParameterTypeError) as error:
        raise LedgerDamaged(str(error)) from error


def _check_parts(given: Combined, due: Combined) -> None:
    """Check the noise, weights and values of each purchase, in any order."""
    for one in due.parts:
        (told,) = (part for part in given.parts if part.key == one.key)
        pairs = ((told.noise, one.noise), (told.least, one.least), (told.most, one.most))
        if told.values != one.values or not all(_is_close(*pair) for pair in pairs):
            raise LedgerDamaged("the noise and weights of a purchase are not those of the answer")


def _known(found: dict[int, Measured], number: int, key: str) -> Measured:
    one = found.get(number)
    if one is None or one.key != key:
        raise LedgerDamaged(f"measurement {number} is not recorded under the key that the answer names")
    return one


def _reading(account: str, key: str, listed: Sequence[Measured]) -> Reading:
    """Combine measurements under a key to one reading."""
    if any(one.account != account for one in listed):
        raise LedgerDamaged(f"a measurement is not of the account {account}")
    columns = zip(*([one.information * value for value in one.values] for one in listed), strict=True)
    return Reading(
        account, key, sum(one.information for one in listed), tuple(sum(one) for one in columns), 0
    )


def _check_cells(given: Sequence[Cell], due: Sequence[Cell]) -> None:
    if [one.labels for one in given] != [one.labels for one in due]:
        raise LedgerDamaged("the groups of the answer are not those of its question")
    for one, other in zip(given, due, strict=True):
        for name in (*_NUMBERS, "unbiased"):
            told, made = getattr(one.estimate, name), getattr(other.estimate, name)
            if (told is None) != (made is None) or not (told is None or _is_close(told, made)):
                raise LedgerDamaged(f"{name} of the answer is not what its weights make")


def _is_close(one: float, other: float) -> bool:
    return one == other or math.isclose(one, other, rel_tol=_CLOSE, abs_tol=_CLOSE)
