"""The pages of answers that were bought: look at them again, and take them along. All of it is free."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import HTMLResponse, Response
from starlette.concurrency import run_in_threadpool

from reticent.apps.query import builder
from reticent.apps.query.dependencies import TheDesk, jobs_of
from reticent.apps.query.desk import Desk
from reticent.apps.query.pages import copies, shown
from reticent.errors import ParameterError
from reticent.query import Answer, DataSet
from reticent.query.accuracy import Accuracy
from reticent.query.declarations.datasets import Policy
from reticent.query.language import tree, words
from reticent.service.refusals import not_found
from reticent.service.state import Visit
from reticent.service.visits import AskerSeen, AskerSent, page

router = APIRouter(include_in_schema=False)
_LONGEST = 1 << 18


@router.get("/datasets/{name}/answers")
async def answers(
    request: Request,
    desk: TheDesk,
    visit: AskerSeen,
    name: str,
    key: Annotated[str, Query(max_length=200)] = "",
) -> HTMLResponse:
    """What was bought so far; with a key, the best answer under it."""
    session = await run_in_threadpool(desk.session, name)
    bought = await run_in_threadpool(session.questions)
    known = None
    if key in bought:
        known = await jobs_of(request).free(
            visit.person, name, bought[key], lambda _: session.known(bought[key]), is_here=True
        )
    if key and known is None:
        raise not_found("answer")
    return await run_in_threadpool(_answers, request, desk, visit, session.data, bought, key, known)


def _answers(
    request: Request,
    desk: Desk,
    visit: Visit,
    data: DataSet,
    bought: dict[str, tree.Query],
    key: str,
    known: Answer | None,
) -> HTMLResponse:
    openable = data.policy is Policy.SHARE
    told = shown.history(desk, data, visit.person.name, openable=openable, most=shown.MOST_DRAWN)
    last = {line["key"]: line for line in reversed(told)}
    lines = [
        {
            "key": each,
            "text": words.line(tree.to_json(query)),
            "here": each == key,
            "day": last[each]["day"] if each in last else "",
            "said": last[each]["said"] if each in last and openable else "",
        }
        for each, query in bought.items()
    ]
    lines.sort(key=lambda line: str(line["day"]), reverse=True)
    opened = {} if known is None else shown.answer(desk, known, data, str(request.base_url))
    return page(
        request,
        "answers.html",
        visit,
        lines=lines[: shown.MOST_HISTORY],
        openable=openable,
        is_opened=known is not None,
        **({"data": data} | opened),
    )


@router.post("/datasets/{name}/download")
async def download(
    request: Request,
    desk: TheDesk,
    visit: AskerSent,
    name: str,
    query: Annotated[str, Form(max_length=_LONGEST)],
    units: Annotated[int, Form(ge=0, le=1 << 62)],
    form: Annotated[str, Form(max_length=10)],
) -> Response:
    """An answer as a file, if it is free: nothing is bought here, whatever the form says."""
    if form not in copies.FORMATS:
        raise ParameterError(f"form must be one of {', '.join(copies.FORMATS)}, got {form!r:.20}")
    data = await run_in_threadpool(desk.data, name)
    asked = builder.read(query)
    text = await jobs_of(request).free(visit.person, name, asked, partial(_file, name, asked, units, form))
    if text is None:
        raise not_found("answer")
    named = {"Content-Disposition": f'attachment; filename="{data.name}-{asked.kind}.{form}"'}
    return Response(text, media_type=copies.FORMATS[form], headers=named)


def _file(name: str, query: tree.Query, units: int, form: str, desk: Desk) -> str | None:
    """Return the file of what `ask` would answer for so many units, if nothing must be bought for it."""
    much = copies.information(max(1, units))
    answer = desk.session(name).free(query, Accuracy(information=much))
    return None if answer is None else copies.file(answer, form)
