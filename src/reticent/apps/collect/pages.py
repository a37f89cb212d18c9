"""The pages of surveys: what is asked, and what the reports come to while they come in."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections import deque
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, Response

from reticent.apps.collect.api import Name
from reticent.apps.collect.collecting import Collecting, TheCollecting
from reticent.collect.estimates import SHARES, Estimate, estimates
from reticent.collect.explanation import FLEET, explain
from reticent.collect.shaping import expected_errors
from reticent.collect.survey import Survey
from reticent.collect.tally import Tally
from reticent.estimation import bin_matrix, generalised_ibu
from reticent.mechanisms.numeric.base import NumericChannel
from reticent.service import showing
from reticent.service.visits import Seen, page, part

router = APIRouter(include_in_schema=False)

_BINS = 10
_FEWEST = 100  # reports, below which no distribution is drawn
_STEPS = 200  # of the estimate of a distribution; more would fit the noise
_SPAN_S = 30.0  # over which reports per second are told
_LABELS = 40  # bars of a chart
_PERIODS = 12  # that are shown one by one, the last
_COLUMNS = 8  # shares of a period in a table


@router.get("/surveys")
def surveys(request: Request, collecting: TheCollecting, visit: Seen) -> HTMLResponse:
    """Every survey that is collected."""
    collector = collecting.collector
    found = [
        {"survey": one, "reports": sum(collector.periods(one).values())} for one in collector.surveys()[::-1]
    ]
    return page(request, "surveys.html", visit, here="surveys", surveys=found)


@router.get("/surveys/{name}")
def survey(request: Request, collecting: TheCollecting, visit: Seen, name: Name) -> HTMLResponse:
    """What a survey asks, and what it found."""
    asked = collecting.survey(name)
    return page(
        request,
        "survey.html",
        visit,
        here="surveys",
        explanation=explain(asked)[1:],
        **_live(collecting, asked),
    )


@router.get("/surveys/{name}/live")
def survey_part(
    request: Request,
    collecting: TheCollecting,
    visit: Seen,
    name: Name,
    seen: Annotated[str, Query(max_length=64)] = "",
) -> Response:
    """The numbers alone, which the page fetches again and again; nothing if they are as they were seen."""
    asked = collecting.survey(name)
    if _news(collecting, asked)["stamp"] == seen:
        return Response(status_code=204)
    return part(request, "survey_part.html", _live(collecting, asked) | {"person": visit.person})


def _live(collecting: Collecting, survey: Survey) -> dict[str, Any]:
    """All that is shown. What it tells is in the ledger before."""
    content = _news(collecting, survey)
    periods = [period for period, _ in content["periods"]]
    account = collecting.learn(survey, periods)
    tallies = collecting.collector.tallies(survey, periods)
    found = [_shown(tallies, place, one) for place, one in enumerate(estimates(*tallies))]
    if len(periods) > 1:
        _add_periods(collecting, survey, content["periods"][-_PERIODS:], found)
    return content | {"estimates": found, "shares": SHARES, "account": account}


def _news(collecting: Collecting, survey: Survey) -> dict[str, Any]:
    """The numbers that say whether there is anything new, and their mark: cheap, for a page asks often."""
    collector = collecting.collector
    periods = collector.periods(survey)
    told: dict[str, Any] = {
        "reports": sum(periods.values()),
        "period": min(max(0, survey.period_at(time.time())), survey.periods - 1),
        "rejected": sorted(collector.rejected().items()),
    }
    told["rate"] = _rate(collecting, survey, told["reports"])
    stamp = hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]
    return told | {"survey": survey, "periods": sorted(periods.items()), "stamp": stamp}


def _rate(collecting: Collecting, survey: Survey, reports: int) -> str:
    """Reports a second, over the last half minute in which somebody looked."""
    looks: deque[tuple[float, int]] = collecting.looks.setdefault(survey.id, deque(maxlen=1000))
    now = time.monotonic()
    looks.append((now, reports))
    while looks[0][0] < now - _SPAN_S:
        looks.popleft()
    since, before = looks[0]
    return f"{(reports - before) / (now - since):.3g}" if now > since else "0"


def _shown(tallies: Sequence[Tally], place: int, found: Estimate, *, is_drawn: bool = True) -> dict[str, Any]:
    """An estimate in words, and its chart; without that if it is not drawn."""
    instrument = tallies[0].survey.instruments[place]
    told: dict[str, Any] = {
        "name": found.name,
        "reports": found.reports,
        "mechanism": _mechanisms([one.survey for one in tallies], place),
        "cells": [],
        "value": None,
        "mean": None,
        "axes": {"x": found.name, "y": "percent"},
        "shifts": [f"{shift.by_outputs:.3g}" for shift in found.shifts.values()],
    }
    if found.mean is not None:
        assert isinstance(instrument, NumericChannel)
        low, high = showing.interval(found.mean.lower, found.mean.upper)
        error = (found.mean.upper - found.mean.lower) / 2
        told |= {"value": showing.rounded(found.mean.shown, error), "low": low, "high": high}
        told["mean"] = {"value": found.mean.shown, "low": found.mean.lower, "high": found.mean.upper}
        told["mean"]["shown"] = {part: told[part] for part in ("value", "low", "high")}
        if found.robust is not None:
            told["robust"] = showing.rounded(float(found.robust), error)
        if is_drawn and found.reports >= _FEWEST:
            told["cells"] = _histogram(tallies, place)
    elif found.frequencies is not None:
        assert not isinstance(instrument, NumericChannel)
        told["cells"] = [
            _cell([str(label)], *(float(column[at]) for column in _columns(found)))
            for at, label in enumerate(instrument.categories.alphabet.tolist()[:_LABELS])
        ]
    return told


def _add_periods(
    collecting: Collecting, survey: Survey, periods: list[tuple[int, int]], found: list[dict[str, Any]]
) -> None:
    """What the reports of each period come to by themselves: in the ledger as well as all together."""
    for number, _ in periods:
        tallies = collecting.collector.tallies(survey, [number])
        for place, one in enumerate(estimates(*tallies)):
            told = _shown(tallies, place, one, is_drawn=False)
            told["period"] = number + 1
            found[place].setdefault("by_period", []).append(told)
    for told in found:
        means = [one for one in told["by_period"] if one["mean"]]
        if means:
            cells = [one["mean"] | {"labels": [str(one["period"])]} for one in means]
            told["over_time"] = {"cells": cells, "x": "period", "y": f"mean of {told['name']}"}
        else:
            told["columns"] = [cell["labels"][0] for cell in told["cells"][:_COLUMNS]]


def _columns(found: Estimate) -> tuple[Any, Any, Any]:
    assert found.frequencies is not None
    return found.frequencies.shown, found.frequencies.lower, found.frequencies.upper


def _mechanisms(texts: Sequence[Survey], place: int) -> str:
    """What the reports of an attribute were drawn by, and what learning is expected to gain."""
    survey, last = texts[0], texts[-1]
    names = list(dict.fromkeys(type(one.instruments[place]).__name__ for one in texts))
    learns = last.follows is not None and any(
        told[0] == survey.attributes[place].name for told in last.follows.shapes
    )
    if not learns:
        return " and ".join(names)
    with_it, without = expected_errors(survey, last, place, FLEET)
    return (
        f"{' and '.join(names)}, which learnt: {FLEET:,} devices give an expected standard error of "
        f"{with_it:.3g}, and {without:.3g} without"
    )


def _histogram(tallies: Sequence[Tally], place: int) -> list[dict[str, Any]]:
    """The distribution behind the reports: an estimate of maximum likelihood, without intervals."""
    channel: Any = tallies[0].survey.instruments[place]
    rounds = []
    for one in tallies:
        made: Any = one.survey.instruments[place]
        counts = one.counts[place].sum(axis=0)
        if counts.any():
            rounds.append((bin_matrix(made, _BINS, points=2), counts))
    shares = generalised_ibu(rounds, max_iterations=_STEPS).distribution
    lower, upper = channel.bounds
    edges = np.linspace(lower, upper, _BINS + 1)
    return [
        _cell([f"{low:.4g} to {high:.4g}"], float(share), math.nan, math.nan)
        for low, high, share in zip(edges[:-1], edges[1:], shares, strict=True)
    ]


def _cell(labels: list[str], value: float, low: float, high: float) -> dict[str, Any]:
    is_known = not math.isnan(low)
    shown = {"value": showing.percent(max(0.0, value)), "low": "unknown", "high": "unknown"}
    if is_known:
        shown |= {"low": showing.percent(low), "high": showing.percent(high)}
    return {
        "labels": labels,
        "value": 100 * value,
        "low": 100 * low if is_known else None,
        "high": 100 * high if is_known else None,
        "shown": shown,
    }
