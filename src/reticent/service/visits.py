"""Browsers: who visits, by a cookie that scripts cannot read, and how a page is rendered for them.

Every form carries the visit's token. The form that signs in has no visit yet: it carries the token of a
cookie that came with the page, which other sites can neither read nor have sent.
"""

from __future__ import annotations

import hmac
from contextlib import suppress
from typing import Annotated, Any

from fastapi import Depends, Form, Request
from fastapi.responses import HTMLResponse, Response

from reticent.errors import ReticentError
from reticent.service.keys import Role
from reticent.service.refusals import Refused, explained, not_allowed, not_found
from reticent.service.state import State, Visit

COOKIE = "reticent"
_EXPECTED = (400, 409)  # refusals that a person meets while asking: shown in place, and no error of the page


class SignIn(Exception):
    """Nobody is signed in: show the way."""


def visitor(request: Request) -> Visit:
    """The visit of the cookie."""
    found = visit_of(request)
    if found is None:
        raise SignIn
    pause = request.app.state.rate.wait_s(str(found.person.number))
    if pause:
        raise Refused(429, "too_many_requests", f"too many requests: try again in {pause:.2f} s")
    return found


def visit_of(request: Request) -> Visit | None:
    """The visit of the cookie, if there is one: for pages that everybody may see."""
    secret = request.cookies.get(COOKIE, "")
    state: State = request.app.state.desk.state
    return state.visit(secret) if secret else None


def same(given: str, held: str) -> bool:
    """Whether two tokens are the same, without telling where they differ."""
    return bool(held) and hmac.compare_digest(given.encode(), held.encode())


def stale() -> Refused:
    """A form without its token."""
    return Refused(403, "stale_form", "the form is stale: load the page again")


def checked(visit: Annotated[Visit, Depends(visitor)], csrf: Annotated[str, Form()] = "") -> Visit:
    """The visit of a form that carries its token."""
    if not same(csrf, visit.csrf):
        raise stale()
    return visit


def of_the_house(visit: Annotated[Visit, Depends(visitor)]) -> Visit:
    """The visit of anybody but a buyer, who comes from outside."""
    if visit.person.role is Role.BUYER:
        raise not_found("page")
    return visit


def owner(visit: Annotated[Visit, Depends(visitor)]) -> Visit:
    """The visit of an owner."""
    if visit.person.role is not Role.OWNER:
        raise not_found("page")
    return visit


def checked_owner(visit: Annotated[Visit, Depends(checked)]) -> Visit:
    """The form of an owner."""
    return owner(visit)


def asker(visit: Annotated[Visit, Depends(visitor)]) -> Visit:
    """The visit of somebody who may ask."""
    if visit.person.role not in (Role.OWNER, Role.ANALYST):
        raise not_allowed(visit.person.role.value)
    return visit


def checked_asker(visit: Annotated[Visit, Depends(checked)]) -> Visit:
    """The form of somebody who may ask."""
    return asker(visit)


Seen = Annotated[Visit, Depends(of_the_house)]
AnySeen = Annotated[Visit, Depends(visitor)]  # buyers too
Sent = Annotated[Visit, Depends(checked)]
OwnerSeen = Annotated[Visit, Depends(owner)]
OwnerSent = Annotated[Visit, Depends(checked_owner)]
AskerSeen = Annotated[Visit, Depends(asker)]
AskerSent = Annotated[Visit, Depends(checked_asker)]


def page(request: Request, name: str, visit: Visit | None, status: int = 200, **content: Any) -> HTMLResponse:
    """A rendered page."""
    content |= {"person": visit.person if visit else None}
    content.setdefault("csrf", visit.csrf if visit else "")
    return part(request, name, content, status)


def part(request: Request, name: str, content: dict[str, Any], status: int = 200) -> HTMLResponse:
    """A rendered part of a page."""
    made = request.app.state.templates  # of the shell and of all capabilities
    rendered: HTMLResponse = made.TemplateResponse(request, name, content, status_code=status)
    return rendered


def problem(request: Request, error: ReticentError) -> Response:
    """A refusal as a page, or as a line where htmx asked for a part of one."""
    status, body = explained(error)
    return told(request, status, body["error"]["message"])


def told(request: Request, status: int, message: str) -> Response:
    """Render an error message as a page or a part of a page."""
    if request.headers.get("hx-request"):
        shown = 200 if status in _EXPECTED else status
        return part(request, "problem_part.html", {"message": message}, shown)
    visit = None
    with suppress(ReticentError):  # of whom nothing can be known now
        visit = visit_of(request)
    return page(request, "problem.html", visit, status, message=message)


async def read_fields(request: Request) -> dict[str, list[str]]:
    """Every field of a form, with all its values."""
    form = await request.form(max_files=0, max_fields=10_000)
    found: dict[str, list[str]] = {}
    for name, text in form.multi_items():
        if isinstance(text, str):
            found.setdefault(name, []).append(text)
    return found


Given = Annotated[dict[str, list[str]], Depends(read_fields)]
