"""A page of its own for one training that runs in this process: its curves, while they grow.

It listens on this machine, under a path that cannot be guessed: whoever has the address may look, and in a
simulation without a public hold-out the curves tell of private records.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import HTMLResponse, Response
from fastapi.staticfiles import StaticFiles

from reticent.federated import payload
from reticent.federated.curves import Curves, Origin, Point
from reticent.service import layout
from reticent.service.guard import Guard
from reticent.service.metrics import Metrics
from reticent.service.serve import address, running
from reticent.service.settings import Settings
from reticent.service.showing import percent
from reticent.service.visits import part

_MOST_POINTS = 500  # of a curve that is drawn


@contextmanager
def watched(curves: Curves, explanation: Sequence[str], place: socket.socket) -> Iterator[str]:
    """Serve the page at a socket that listens already, while the block runs; yields its address."""
    secret = secrets.token_urlsafe(16)
    with running(create_app(curves, explanation, secret), place):
        yield f"{address(*place.getsockname())}/{secret}"


def create_app(curves: Curves, explanation: Sequence[str], secret: str) -> FastAPI:
    """The page, its live part, and the files that both need.

    Args:
        curves: to which somebody adds.
        explanation: of the task, in sentences.
        secret: the path of the page.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @app.get(f"/{secret}")
    def page(request: Request) -> HTMLResponse:
        content = _shown(curves) | {"explanation": explanation, "path": f"/{secret}"}
        return part(request, "training.html", content)

    @app.get(f"/{secret}/live")
    def live(request: Request, seen: Annotated[int, Query(ge=0, le=1 << 30)] = 0) -> Response:
        if len(curves.points) == seen:
            return Response(status_code=204)
        return part(request, "training_part.html", _shown(curves) | {"path": f"/{secret}"})

    app.state.templates = layout.templates([Path(__file__).parent])
    app.mount("/static", StaticFiles(directory=layout.SHELL / "static"))
    app.add_middleware(Guard, settings=Settings(Path()), metrics=Metrics())
    return app


def _shown(curves: Curves) -> dict[str, Any]:
    points = list(curves.points)  # others add to them meanwhile
    step = -(-len(points) // _MOST_POINTS) or 1
    drawn = points[::-1][::step][::-1]  # the last one is always there
    return {
        "task": curves.task,
        "bytes_each": payload.size(curves.task),
        "points": points,
        "last": points[-1] if points else None,
        "spent": points[-1].spent / (curves.task.epsilon * curves.task.participations) if points else 0.0,
        "is_over": bool(points) and points[-1].number == curves.task.rounds,
        "is_simulated": curves.origin is Origin.SIMULATION,
        "origin": curves.origin.value,
        "score": _score(curves, points[-1]) if points else "none yet",
        "is_classifier": curves.is_classifier,
        "charts": [_chart(drawn, *one) for one in _charts(curves)],
    }


def _charts(curves: Curves) -> list[tuple[str, str, Callable[[Point], float]]]:
    rate_at, reports = curves.task.steps.rate_at, curves.task.participations
    budget = curves.task.epsilon * reports
    of_data = f"By round; {curves.origin.value}."
    return [
        ("Right answers, %", of_data, lambda one: 100 * (1 - one.error))
        if curves.is_classifier
        else ("Mean squared error", of_data, lambda one: one.error),
        ("Loss", of_data, lambda one: one.loss),
        (
            "Predicted noise of a step",
            "By round; standard deviation of one coordinate, worst case, known from the task alone.",
            lambda one: one.noise * rate_at(one.number - 1),
        ),
        (
            "Spent by the busiest client, %",
            f"By round; one client reports at most {reports} time{'' if reports == 1 else 's'}.",
            lambda one: 100 * one.spent / budget,
        ),
    ]


def _chart(points: list[Point], title: str, hint: str, value: Callable[[Point], float]) -> dict[str, Any]:
    drawn = [[one.number, value(one)] for one in points]
    is_stepped = title.startswith("Spent")  # and drawn from zero on
    return {
        "title": title,
        "hint": hint,
        "drawn": {"title": title, "points": drawn, "stepped": is_stepped},
        "last": f"{drawn[-1][1]:.4g}" if drawn else "",
    }


def _score(curves: Curves, last: Point) -> str:
    return percent(1 - last.error) if curves.is_classifier else f"{last.error:.4g}"
