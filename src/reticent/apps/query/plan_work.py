"""The work behind `reticent plan`, which looks at many questions before any of them is bought."""

from __future__ import annotations

import json
import shlex
import sys
from contextlib import nullcontext
from pathlib import Path

from rich.table import Table

from reticent.apps.query import views
from reticent.apps.query.ask_work import Where, opened
from reticent.cli.terminal import console, facts
from reticent.errors import ParameterError
from reticent.query.accuracy import Accuracy
from reticent.query.language.tree import to_json
from reticent.query.language.words import in_words
from reticent.query.proposals import Proposal
from reticent.query.workload_text import LONGEST, questions


def plan(
    dataset: str,
    workload: Path,
    *,
    error: float | None,
    rows: int | None,
    confidence: float,
    buy: bool,
    where: Where,
    form: str,
) -> None:
    """Print the tables to buy first and the cost of the whole workload; buy the tables if `buy` is set."""
    if form == "csv":
        raise ParameterError("format must be table or json for a plan, got csv")
    if error is None and rows is not None:
        raise ParameterError(f"--rows must come with --error, got {rows} alone")
    every = None if error is None else Accuracy(error=error, rows=rows, confidence=confidence)
    wanted = questions(_text(workload), every)
    with opened(dataset, where, buys=buy) as (session, data, place):
        found = session.plan(wanted)
        if form == "json":
            print(json.dumps(found.to_json(), indent=1))
        else:
            _show(found, dataset, data)
        for one in found.first if buy else ():
            with place.waiting() if place is not None else nullcontext():
                answer = session.ask(one.query, information=one.mu2)
            if form == "table":
                console().print(
                    f"bought {in_words(one.query)}: {views.part(answer.cost, data)}", soft_wrap=True
                )


def _text(workload: Path) -> str:
    if str(workload) == "-":
        return sys.stdin.read(LONGEST + 1)
    try:
        with workload.open(encoding="utf-8") as file:
            return file.read(LONGEST + 1)
    except (OSError, UnicodeDecodeError) as err:
        reason = err.strerror if isinstance(err, OSError) else "is not UTF-8 text"
        raise ParameterError(f"FILE must be a text that can be read, got {workload}: {reason}") from err


def _show(found: Proposal, dataset: str, data: views.Described) -> None:
    screen = console()
    table = Table("question", "by itself", "then", box=None, pad_edge=False)
    for one in found.wishes:
        then = views.part(one.after, data) if one.after else "free"
        table.add_row(in_words(one.query), views.part(one.alone, data) if one.alone else "free", then)
    screen.print(table)
    for first in found.first:
        screen.print(f"buy first: {in_words(first.query)}, {views.part(first.cost, data)}", soft_wrap=True)
        question = shlex.quote(json.dumps(to_json(first.query)))
        print(f"  reticent ask {shlex.quote(dataset)} {question} --information {first.mu2!r}")
    if not found.first:
        screen.print("buy first: nothing, ask the questions as they come")
    verdict = "yes" if found.affordable else f"no: {views.part(found.cost - found.remaining, data)} too much"
    screen.print(
        facts(
            [
                ("each by itself", views.amount(found.alone, data)),
                ("as they come", views.amount(found.as_they_come, data)),
                ("as proposed", views.amount(found.cost, data)),
                ("left", views.left(found.remaining, data)),
                ("affordable", verdict),
            ]
        )
    )
