"""The pages for owners: register a data set step by step, set quotas."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from reticent.apps.query import builder
from reticent.apps.query.data_sets import LONGEST_DECLARATION
from reticent.apps.query.dependencies import TheDesk
from reticent.apps.query.desk import Desk
from reticent.errors import ParameterError, ReticentError
from reticent.query.declarations import dataset_file
from reticent.query.declarations.explanation import columns, explain
from reticent.service.keys import Role
from reticent.service.refusals import not_found
from reticent.service.state import Visit
from reticent.service.visits import Given, OwnerSeen, OwnerSent, page

router = APIRouter(include_in_schema=False)
_MOST_COLUMNS = 100  # that a form asks about; more are declared as text
_SUFFIXES = tuple(dataset_file.SUFFIXES)
_DEFAULTS = {"version": ["1"], "relation": ["replace one"], "policy": ["share"]}

Text = Annotated[str, Form(max_length=1 << 18)]


# Quotas


@router.post("/datasets/{name}/quota")
def set_quota(
    request: Request,
    desk: TheDesk,
    visit: OwnerSent,
    name: str,
    analyst: Annotated[str, Form(max_length=64)],
    share: Annotated[str, Form(max_length=20)] = "",
) -> Response:
    """Limit an analyst to a share of the cap, in percent; empty lifts the limit."""
    data = desk.data(name)
    whom = desk.state.named(analyst)
    if not desk.owns(visit.person, name) or whom is None or whom.role is not Role.ANALYST:
        raise not_found("analyst")
    units = None
    if share.strip():
        percent = builder.number("share", share.strip())
        if not 0 <= percent <= 100:
            raise ParameterError(f"share must be >= 0 and <= 100, got {percent:g}")
        units = int(data.terms.cap * percent / 100)
    desk.state.set_quota(name, whom, units)
    return RedirectResponse(f"/datasets/{name}#quotas", 303)


def quotas(desk: Desk, name: str) -> list[dict[str, Any]]:
    """Return the quota of each analyst in percent of the cap, and its used part as a share of the cap."""
    cap = desk.balance(name).terms.cap
    found = []
    for one in desk.state.all_keys():
        if one.person.role is Role.ANALYST and one.revoked is None:
            limit, used = desk.state.quota(name, one.person)
            share = None if limit is None else f"{100 * limit / cap:.4g}"
            found.append({"name": one.person.name, "share": share, "used": used / cap})
    return found


# Registering


@router.get("/owner/register")
def register_page(
    request: Request,
    desk: TheDesk,
    visit: OwnerSeen,
    file: Annotated[str | None, Query(max_length=300)] = None,
) -> HTMLResponse:
    """Step 1, choose a file; then step 2, fill in the blanks."""
    if file is None:
        return page(request, "register_file.html", visit, here="register", files=_files(desk, visit))
    return _blanks(request, desk, visit, file, dict(_DEFAULTS))


def _files(desk: Desk, visit: Visit) -> list[str]:
    return [name for name in desk.files_of(visit.person) if name.lower().endswith(_SUFFIXES)]


def _blanks(
    request: Request,
    desk: Desk,
    visit: Visit,
    file: str,
    given: dict[str, list[str]],
    message: str = "",
) -> HTMLResponse:
    """Return the page of step 2, as it was filled in so far.

    Only the names of the columns are read from the file.
    """
    if file not in _files(desk, visit):
        raise not_found("file")
    text = dataset_file.template(desk.settings.folder / file)
    columns = builder.blanks(text)
    if len(columns) > _MOST_COLUMNS:
        return _review(
            request, desk, visit, file, text, message or "Fill in the blanks: there are too many for a form."
        )
    given.setdefault("name", [str(dataset_file.load(text)["name"])])
    for place, column in enumerate(columns):
        for part in ("type", "low", "high", "step", "values", "missing"):
            typed = given.get(f"column_{part}", [])
            column[part] = typed[place] if place < len(typed) else column.get(part, "")
    fields = {name: values[0] for name, values in given.items() if values}
    return page(
        request, "register_blanks.html", visit, 400 if message else 200, here="register", file=file,
        columns=columns, given=fields, problem=message, types=("number", "integer", "category", "boolean"),
        settings=desk.settings,
    )  # fmt: skip


@router.post("/owner/register/blanks")
def blanks(request: Request, desk: TheDesk, visit: OwnerSent, fields: Given) -> HTMLResponse:
    """Step 3, read what it means; or step 2 again, with what is wrong."""
    file = builder.one(fields, "file")
    try:
        if sum(len(text) for texts in fields.values() for text in texts) > LONGEST_DECLARATION:
            raise ParameterError(f"the form must hold at most {LONGEST_DECLARATION:,} characters")
        text = builder.declaration(file, fields)
        desk.declared(text)
    except ReticentError as error:
        return _blanks(request, desk, visit, file, dict(fields), str(error))
    return _review(request, desk, visit, file, text)


def _review(
    request: Request, desk: Desk, visit: Visit, file: str, text: str, message: str = ""
) -> HTMLResponse:
    """Return the page of step 3: the meaning of the declaration, and its text, which may still be changed."""
    data = None
    if not message:
        try:
            data = desk.declared(text)
        except ReticentError as error:
            message = str(error)
    return page(
        request, "register_review.html", visit, 400 if message else 200, here="register", file=file,
        text=text, data=data, lines=explain(data, with_columns=False) if data else [], problem=message,
        columns=columns(data) if data else [],
    )  # fmt: skip


@router.post("/owner/register/review")
def review(
    request: Request, desk: TheDesk, visit: OwnerSent, declaration: Text, file: Annotated[str, Form()] = ""
) -> HTMLResponse:
    """Step 3 again, after the text was changed."""
    return _review(request, desk, visit, file, declaration)


@router.post("/owner/register")
def register(
    request: Request, desk: TheDesk, visit: OwnerSent, declaration: Text, file: Annotated[str, Form()] = ""
) -> Response:
    """Step 4: register it."""
    try:
        data = desk.register(visit.person, declaration)
    except ReticentError as error:
        return _review(request, desk, visit, file, declaration, str(error))
    return RedirectResponse(f"/datasets/{data.name}", 303)
