"""The page that says what the numbers of all other pages mean. It is the same for everybody, and public."""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from reticent.privacy import Budget, spent_epsilon
from reticent.privacy.budget import UNITS_PER_ONE
from reticent.service.visits import page, visit_of

router = APIRouter(include_in_schema=False)

_EXAMPLE = (1.0, 1e-6)  # epsilon and delta
_SHARES = (1, 10, 25, 50, 75, 100)


@router.get("/numbers")
def numbers(request: Request) -> HTMLResponse:
    """How to read the numbers."""
    return page(request, "numbers.html", visit_of(request), **_example())


@cache
def _example() -> dict[str, Any]:
    """Return shares of one budget as epsilons, and how often the best guess between two is right then."""
    epsilon, delta = _EXAMPLE
    cap = Budget(epsilon, delta).mu2_cap
    lines = []
    for share in _SHARES:
        units = cap * share // 100
        right = NormalDist().cdf(math.sqrt(units / UNITS_PER_ONE) / 2)  # the best test under mu-GDP
        lines.append(
            {"share": share, "epsilon": spent_epsilon(units, delta), "right": math.ceil(1000 * right) / 10}
        )
    return {"epsilon": epsilon, "delta": delta, "lines": lines}
