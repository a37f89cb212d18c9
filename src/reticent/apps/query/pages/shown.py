"""The content of pages about answers: numbers without meaningless digits, their origin, and copies."""

from __future__ import annotations

import json
from typing import Any

from reticent.apps.chain import shown as chain_views
from reticent.apps.query.desk import Desk
from reticent.apps.query.pages import copies
from reticent.errors import ReticentError
from reticent.privacy import spent_epsilon
from reticent.query import Answer, DataSet
from reticent.query.answers import Case
from reticent.query.combined import weights
from reticent.query.kinds.intervals import shown_half_width
from reticent.query.kinds.listed import KIND
from reticent.query.language import tree, words
from reticent.query.language.questions import resolve
from reticent.query.language.text_words import question_line
from reticent.query.proposals import Proposal
from reticent.service import showing
from reticent.service.state import Asked

MOST_HISTORY = 1000
PER_PAGE = 50
MOST_DRAWN = 200  # points of a chart, lines of a table
CASES = {
    Case.FRESH: "fresh: nothing that was bought before is part of it",
    Case.EQUAL: "reused: exactly this was bought before",
    Case.REFINED: "refined: only the missing part was bought, and combined with the earlier answers",
    Case.COARSER: "reused: a more exact answer was bought before",
    Case.SPAN: "combined: other purchases, or the public number of rows, say part of it; the rest is paid",
    Case.PUBLIC: "public: the declaration answers it",
}


class Keys:
    """The keys of questions about a data set: purchases under one key are reused."""

    def __init__(self, data: DataSet) -> None:
        self._data, self._known = data, dict[str, str | None]()

    def of(self, query: str) -> str | None:
        """Return the key of a question in the history; None if the data set does not allow it any more."""
        if query not in self._known:
            try:
                self._known[query] = resolve(tree.from_json(json.loads(query)), self._data).key
            except ReticentError:
                self._known[query] = None
        return self._known[query]


def proposal(found: Proposal, data: DataSet) -> dict[str, Any]:
    """Return the content for the template of a plan."""
    return {
        "data": data,
        "plan": found,
        "first": [
            {
                "text": words.in_words(one.query),
                "query": json.dumps(tree.to_json(one.query)),
                "mu2": one.mu2,
                "share": found.share(one.cost),
            }
            for one in found.first
        ],
        "questions": [
            {
                "text": words.in_words(one.query),
                "alone": found.share(one.alone),
                "after": found.share(one.after),
            }
            for one in found.wishes
        ],
        "alone": found.share(found.alone),
        "as_they_come": found.share(found.as_they_come),
        "cost": found.share(found.cost),
        "left": found.share(found.remaining),
    }


def answer(desk: Desk, given: Answer, data: DataSet, address: str) -> dict[str, Any]:
    """Return the content for the template of an answer.

    Args:
        desk: Desk that knows the earlier purchases.
        given: Answer to show.
        data: Data set that was asked.
        address: Address of the service, for copies.
    """
    cap, kind = data.terms.cap, KIND[given.query.kind]
    one = given.cells[0].estimate if len(given.cells) == 1 and not kind.is_table else None
    cells = [
        {
            "labels": [str(label) for label in cell.labels],
            "value": cell.estimate.value,
            "low": cell.estimate.low,
            "high": cell.estimate.high,
            "shown": estimate(cell.estimate),
        }
        for cell in given.cells[:MOST_DRAWN]
    ]
    names = ["level"] if kind.is_rank else [by.column for by in given.query.by]
    line = words.line(tree.to_json(given.query))
    return {
        "answer": given,
        "one": estimate(one) if one else None,
        "names": names,
        "cells": cells,
        "chart": {"cells": cells, "x": ", ".join(names), "y": line.split(" where ")[0].split(" by ")[0]},
        "hidden": len(given.cells) - len(cells),
        "bar": _bar(one.value, one.low, one.high) if one else None,
        "words": CASES[given.case],
        "is_public": given.case is Case.PUBLIC,
        "alone": spent_epsilon(given.without_reuse, given.delta) if given.without_reuse else 0.0,
        "paid_share": given.cost / cap,
        "alone_share": given.without_reuse / cap,
        "reused_share": given.reused / cap,
        "spent_share": given.spent / cap,
        "worth_share": given.information / cap,
        "purchases": _purchases(desk, data, given),
        "combined": _combined(given, cap),
        "transactions": _transactions(desk, data, given),
        "data": data,
        "asked": line,
        "query": json.dumps(tree.to_json(given.query)),
        "copies": copies.of(given, data.name, address),
    }


def _combined(given: Answer, cap: int) -> dict[str, Any] | None:
    """Return how an answer was combined from several purchases; None if it was not."""
    how = given.combined
    if how is None:
        return None
    ends = None
    if len(how.ends) == 1:
        ends = list(showing.interval(*how.ends[0]))
    return {
        "title": how.title,
        "parts": [
            {
                "text": question_line(part.question),
                "weight": weights(part),
                "noise": part.noise,
                "numbers": part.measurements,
            }
            for part in how.parts[:MOST_DRAWN]
        ],
        "ends": ends,
        "factor": f"{how.factor:.3g}",
        "fresh_share": how.fresh_cost / cap,
        "reuses_others": how.reuses_others,
    }


def history(
    desk: Desk, data: DataSet, person: str, *, openable: bool, most: int = PER_PAGE
) -> list[dict[str, Any]]:
    """Return the last questions about a data set, the last first, with their answers.

    Args:
        desk: Desk that remembers the questions.
        data: Data set of the questions.
        person: Name of the person who looks: she may always see her own answers again.
        openable: True if she may see the answers of others.
        most: Largest number of questions to return.
    """
    keys = Keys(data)
    return [
        {
            "text": words.line(json.loads(one.query)),
            "person": one.person,
            "day": one.day,
            "said": _said(one) if openable or one.person == person else "",
            "cost": one.cost / data.terms.cap,
            "alone": one.without_reuse / data.terms.cap,
            "key": keys.of(one.query),
        }
        for one in reversed(desk.state.history(data.name, most))
    ]


def _said(one: Asked) -> str:
    """Return an answer in a few words, as it was given then."""
    if one.value is None or one.low is None or one.high is None:
        return f"{one.cells:,} numbers" if one.cells > 1 else ""
    error = (one.high - one.low) / 2
    if not error:
        return showing.rounded(one.value, 0.0)
    return f"{showing.rounded(one.value, error)} ± {showing.error_shown(error)}"


def _transactions(desk: Desk, data: DataSet, given: Answer) -> list[dict[str, Any]]:
    """Return the transactions on the chain behind an answer; empty if its ledger is on no chain."""
    if desk.chain is None:
        return []
    return chain_views.behind(desk.chain, data.name, given.receipt.key, PER_PAGE)


def _purchases(desk: Desk, data: DataSet, given: Answer) -> list[dict[str, Any]]:
    """Return the purchases under the answer's question before it, the last first."""
    keys = Keys(data)
    found = [
        one
        for one in reversed(desk.state.history(data.name, MOST_HISTORY))
        if one.cost and keys.of(one.query) == given.receipt.key
    ]
    if given.cost:
        found = found[1:]  # the first is this answer
    return [_purchase(one, data) for one in found[:PER_PAGE]]


def _purchase(one: Asked, data: DataSet) -> dict[str, Any]:
    return {
        "text": words.line(json.loads(one.query)),
        "person": one.person,
        "day": one.day,
        "share": one.cost / data.terms.cap,
    }


def estimate(given: Any) -> dict[str, str]:
    """Return an estimate and its interval, without the digits that its error makes meaningless."""
    low, high = showing.interval(given.low, given.high)
    error = shown_half_width(given)
    return {
        "value": showing.rounded(given.value, error),
        "low": low,
        "high": high,
        "error": showing.error_shown(error),
    }


def _bar(value: float, low: float, high: float) -> dict[str, float]:
    """Place the interval on a line of 100 units, with a third of its width on both sides."""
    width = (high - low) or 1.0
    start, span = low - width / 3, width * 5 / 3
    places = (("low", low), ("value", value), ("high", high))
    return {name: min(100.0, max(0.0, round(100 * (at - start) / span, 2))) for name, at in places}
