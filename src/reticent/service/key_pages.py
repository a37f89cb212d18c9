"""Keys on the pages of owners: who has one, make, replace and take back."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from reticent.errors import ParameterError
from reticent.service.callers import TheState
from reticent.service.keys import Role
from reticent.service.refusals import not_found
from reticent.service.served import Tab
from reticent.service.state import State, Visit
from reticent.service.visits import OwnerSeen, OwnerSent, page

router = APIRouter(include_in_schema=False)
TAB = Tab(6, "keys", "/owner/keys", "Keys", is_owners=True)


@router.get("/owner/keys")
def keys_page(request: Request, state: TheState, visit: OwnerSeen) -> HTMLResponse:
    """Who has a key."""
    return _keys(request, state, visit)


def _keys(request: Request, state: State, visit: Visit, status: int = 200, **content: Any) -> HTMLResponse:
    records = state.all_keys()[::-1]
    roles = [role.value for role in (Role.ANALYST, Role.OWNER, Role.AUDITOR, Role.BUYER)]
    return page(request, "keys.html", visit, status, here="keys", records=records, roles=roles, **content)


@router.post("/owner/keys")
def make_key(
    request: Request,
    state: TheState,
    visit: OwnerSent,
    name: Annotated[str, Form(max_length=200)] = "",
    role: Annotated[str, Form(max_length=20)] = "",
) -> HTMLResponse:
    """Make a key and show it, once."""
    try:
        if role not in tuple(Role):
            raise ParameterError(f"role must be one of {', '.join(Role)}, got {role!r}")
        person, secret = state.make_key(name.strip(), Role(role))
    except ParameterError as error:
        return _keys(request, state, visit, 400, problem=str(error), given=name)
    return _keys(request, state, visit, made={"name": person.name, "secret": secret})


@router.post("/owner/keys/replace")
def replace_key(
    request: Request, state: TheState, visit: OwnerSent, name: Annotated[str, Form(max_length=64)]
) -> HTMLResponse:
    """Replace a lost key and show it, once; one's own only from the command line."""
    secret = state.replace_by(visit.person, name) if name != visit.person.name else None
    if secret is None:
        raise not_found("key")
    return _keys(request, state, visit, made={"name": name, "secret": secret})


@router.post("/owner/keys/revoke")
def revoke_key(
    request: Request, state: TheState, visit: OwnerSent, name: Annotated[str, Form(max_length=64)]
) -> Response:
    """Take a key back; one's own only from the command line, where one cannot lock oneself out."""
    if name == visit.person.name or not state.revoke_by(visit.person, name):
        raise not_found("key")
    return RedirectResponse("/owner/keys", 303)
