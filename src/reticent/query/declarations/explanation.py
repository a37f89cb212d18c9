"""The promises of a declaration, in plain sentences for its owner, weak points included."""

from __future__ import annotations

import math
from statistics import NormalDist

from reticent.privacy import UNITS_PER_ONE, Neighbours
from reticent.query.declarations.datasets import DataSet, Policy
from reticent.query.rows.columns import Column, Kind

_WEAK_EPSILON = 5
_MOST_LISTED = 12  # categories in a table


def explain(data: DataSet, *, with_columns: bool = True) -> list[str]:
    """Explain who is protected from whom, the public facts, the budget and the handling of each column.

    Args:
        data: Declared data set.
        with_columns: Flag to explain the columns too; `columns` returns them for a table.
    """
    return [
        _protected(data),
        "Against: anybody who sees every answer and knows all the other rows.",
        _public(data),
        _budget(data),
        *_people(data),
        _policy(data),
        *(_column(column) for column in data.columns if with_columns),
        *(f"Weaker than it sounds: {caution}." for caution in _cautions(data)),
    ]


def _protected(data: DataSet) -> str:
    who = "each single row"
    if data.person is not None:
        most = "1 row" if data.contribution == 1 else f"{data.contribution} rows"
        who = (
            f"each person, told apart by {data.person}, with at most {most}; if there are more, the choice "
            "depends on these rows alone. Rows do not count where that says nobody: nothing, a moment, or a "
            "number that is not whole or is 9007199254740992 or more: put a letter before such"
        )
    how = "exchanged for any other" if data.relation is Neighbours.REPLACE_ONE else "taken out or added"
    return f"Protected: {who}. The answers look almost the same with one {data.unit} {how}."


def _public(data: DataSet) -> str:
    rows = "" if data.rows is None else f"the number of rows ({data.rows:,}), "
    return f"Public: this declaration, {rows}and every answer that you publish. Nothing else of the data is."


def _budget(data: DataSet) -> str:
    mu = math.sqrt(data.budget.mu2_cap / UNITS_PER_ONE)
    right = math.ceil(NormalDist().cdf(mu / 2) * 1000) / 10  # the best test of two mu-GDP data sets
    return (
        f"Budget: epsilon {data.budget.epsilon:g} at delta {data.budget.delta:g}, for ever, over all "
        "questions, askers and versions. With all of it spent, anybody who must say which of two data sets "
        f"that differ in one {data.unit} was asked is right at most {right:g} % of the time; blind guesses "
        "are right 50 % of the time."
    )


def _people(data: DataSet) -> list[str]:
    if not data.people:
        return []
    return [
        f"Shared: this budget is that of the people in {data.people}, once for all data sets that name them "
        "and for the surveys and trainings that are put under their account. One of them is at most one "
        f"{data.person} here, and one in each of the others."
    ]


def _policy(data: DataSet) -> str:
    if data.policy is Policy.SHARE:
        return "Who asks for less than was bought before gets the best answer there is, free."
    return "Who asks for less than was bought before gets a coarser answer: a price tier, no protection."


def _column(column: Column) -> str:
    missing = column.meaning(column.missing_code)
    middle = "" if column.says_missing else ", the middle: what it counts as (missing) is not declared"
    if column.kind is Kind.BOOLEAN:
        return f"{column.name}: true or false; anything else counts as {str(missing).lower()}."
    if column.kind is Kind.CATEGORY:
        listed = ", ".join(column.values[:5]) + (", ..." if len(column.values) > 5 else "")
        kinds = f"{len(column.values)} categories ({listed})"
        if column.has_other:
            return f"{column.name}: one of {kinds}; anything else counts as other, nothing as {missing}."
        return f"{column.name}: one of {kinds}; anything else counts as {missing}."
    low, high = (f"{column.meaning(code):,.10g}" for code in (column.first, column.last))
    days = " A day counts as the days since 1970-01-01." if column.format > 1 else ""
    steps = "whole numbers" if column.unit == 1 else f"steps of {float(column.unit):g}"
    return (
        f"{column.name}: {low} to {high} in {steps}; a value outside is moved to the nearer end, "
        f"and what is missing or no number counts as {missing:,.10g}{middle}.{days}"
    )


def columns(data: DataSet) -> list[dict[str, str]]:
    """Return the columns for a table: name, type, allowed values, step, and the treatment of other values."""
    return [_row(column) for column in data.columns]


def _row(column: Column) -> dict[str, str]:
    missing = column.meaning(column.missing_code)
    told = {"name": column.name, "type": column.kind.value, "step": ""}
    if column.kind is Kind.BOOLEAN:
        return told | {"holds": "true or false", "otherwise": f"counts as {str(missing).lower()}"}
    if column.kind is Kind.CATEGORY:
        more = len(column.values) - _MOST_LISTED
        holds = ", ".join(column.values[:_MOST_LISTED]) + (f" and {more:,} more" if more > 0 else "")
        if column.has_other:
            return told | {"holds": holds, "otherwise": f"counts as other; missing: {missing}"}
        return told | {"holds": holds, "otherwise": f"counts as {missing}"}
    low, high = (f"{column.meaning(code):,.10g}" for code in (column.first, column.last))
    return told | {
        "holds": f"{low} to {high}",
        "step": f"{float(column.unit):g}",
        "otherwise": f"outside: the nearer end; missing: {missing:,.10g}",
    }


def _cautions(data: DataSet) -> list[str]:
    cautions = [
        "bounds, categories or a budget chosen after looking at the rows reveal what no budget counts",
        "the same people in another data set have another budget there, and what both reveal adds up"
        + (f"; unless it names {data.people}, too" if data.people else ""),
        "what holds for many people is learned on purpose, and may tell something about one of them",
    ]
    if data.person is None:
        cautions.insert(
            0,
            "a person with several rows is not protected as a person, only row by row; name the column that "
            "tells persons apart (unit: {person: COLUMN, rows: NUMBER})",
        )
    if data.budget.epsilon > _WEAK_EPSILON:
        cautions.append(
            f"epsilon {data.budget.epsilon:g} is much; from about {_WEAK_EPSILON} on it excludes little"
        )
    if data.rows is not None and data.budget.delta * data.rows > 1:
        cautions.append(
            f"delta {data.budget.delta:g} is more than one in {data.rows:,} rows; publishing a row drawn at "
            "random would keep such a promise"
        )
    return cautions
