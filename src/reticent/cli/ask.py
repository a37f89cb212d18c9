"""`reticent ask` and `reticent price`: questions to a data set, and what they would cost."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

from reticent.cli import answer_views as views
from reticent.errors import LedgerError, ParameterError, QuestionRefused
from reticent.privacy import spent_epsilon
from reticent.query import Answer, DataSet, Policy, Price, Session
from reticent.query import open as open_data_set
from reticent.query.answers import as_mu2
from reticent.query.tree import to_json

_LARGEST_FILE = 1 << 20

Accuracy = dict[str, Any]


def ask(
    declaration: Path,
    text: str | None,
    *,
    file: Path | None,
    accuracy: Accuracy,
    ledger: str | None,
    rehearse: bool,
    form: str,
    plot: Path | None,
) -> None:
    """Ask, and print the answer; without an accuracy, the best answer that is free."""
    question = _question(text, file)
    if plot is not None:
        views.need_plots()
        plot.parent.mkdir(parents=True, exist_ok=True)
    with open_data_set(declaration, ledger=ledger) as session:
        if rehearse:
            answer = session.rehearse(question, **accuracy)
        elif _says_nothing(accuracy):
            answer = _free(session, question, accuracy["confidence"])
        else:
            answer = _bought(session, question, accuracy)
        if form == "json":
            print(json.dumps(answer.to_json(), indent=1))
        elif form == "csv":
            _print_csv(answer)
        else:
            views.show_answer(answer, session.data, rehearsed=rehearse)
    if plot is not None:
        views.draw(answer, plot)
        if form == "table":
            views.console().print(f"plot: {plot}", soft_wrap=True)


def price(
    declaration: Path,
    text: str | None,
    *,
    file: Path | None,
    accuracy: Accuracy,
    ledger: str | None,
    form: str,
) -> None:
    """Print what `ask` would charge."""
    question = _question(text, file)
    if form == "csv":
        raise ParameterError("format must be table or json for a price, got csv")
    with open_data_set(declaration, ledger=ledger) as session:
        found = session.price(question, **accuracy)
        if form == "json":
            print(json.dumps(_price_json(found), indent=1))
        else:
            views.show_price(found, session.data, accuracy["confidence"])


def _question(text: str | None, file: Path | None) -> str | dict[str, Any]:
    """SQL as it is, or the object of a JSON text or file."""
    if (text is None) == (file is None):
        raise ParameterError("give one question: SQL, a JSON object, or --json FILE")
    if file is not None:
        if file.stat().st_size > _LARGEST_FILE:
            raise ParameterError(f"{file} is too large for a question")
        text = file.read_text(encoding="utf-8", errors="replace")
    assert text is not None
    if file is None and not text.lstrip().startswith("{"):
        return text
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        where = (
            f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        )
        raise ParameterError(f"the question is no JSON{where}") from None
    if not isinstance(found, dict):
        raise ParameterError("the question must be a JSON object")
    return found


def _says_nothing(accuracy: Accuracy) -> bool:
    return all(accuracy[name] is None for name in ("error", "epsilon", "delta", "information"))


def _free(session: Session, question: Any, confidence: float) -> Answer:
    found = session.known(question, confidence=confidence)
    if found is not None:
        return found
    if session.data.policy is Policy.DEGRADE:
        raise ParameterError("say how exact with --error: under the policy degrade nothing is shown without")
    raise LedgerError(
        f"{session.data.name}: nothing is recorded that answers this; buy it with --error E "
        "(also --epsilon or --information), or see its price first with `reticent price`"
    )


def _bought(session: Session, question: Any, accuracy: Accuracy) -> Answer:
    try:
        return session.ask(question, **accuracy)
    except QuestionRefused as refusal:
        raise LedgerError(refused_line(refusal, session.data)) from refusal


def refused_line(refusal: QuestionRefused, data: DataSet) -> str:
    """What was asked, what is left, and the best answer that is free, in one line."""
    asked = views.amount(refusal.asked, data.budget.delta)
    left = "nothing"
    if refusal.left:
        epsilon = spent_epsilon(refusal.left, data.budget.delta)
        left = f"mu2 {views.down(as_mu2(refusal.left))}, epsilon {views.down(epsilon)} alone"
    line = f"{data.name}: asked for {asked}; left is {left}; {_offer(refusal)}"
    if refusal.reachable_error is not None:
        line += f"; all that is left buys ± {views.error_text(refusal.reachable_error)}"
    return line


def _offer(refusal: QuestionRefused) -> str:
    best = refusal.best
    if not isinstance(best, Answer):
        return "nothing is recorded that is free"
    if len(best.cells) > 1:
        return f"free now: {len(best.cells)} groups within {views.error_text(best.error)}"
    estimate = best.cells[0].estimate
    error = views.half(estimate, best.confidence)
    return f"free now: {views.rounded(estimate.value, error)} ± {views.error_text(error)}"


def _print_csv(answer: Answer) -> None:
    """The cells alone: a header, and a line for each."""
    columns = answer.columns()
    lines = csv.writer(sys.stdout, lineterminator="\n")
    lines.writerow(columns)
    lines.writerows(zip(*columns.values(), strict=True))


def _price_json(found: Price) -> dict[str, Any]:
    return {
        "query": to_json(found.query),
        "case": found.case.value,
        "information": str(found.information),
        "bought": str(found.bought),
        "cost": str(found.cost),
        "cost_epsilon": found.epsilon,
        "remaining": str(found.remaining),
        "delta": found.delta,
        "error": found.error,
        "affordable": found.affordable,
    }
