"""Signing in and out, on the pages."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse, Response

from reticent.service.callers import TheState
from reticent.service.keys import Role, new_secret
from reticent.service.limits import Rate
from reticent.service.visits import COOKIE, Sent, page, same, stale

router = APIRouter(include_in_schema=False)

_FORM_COOKIE = "reticent-form"
_FAILED_SIGN_INS = (0.2, 20)  # a second in the long run, and at once, from one address


@router.get("/signin")
def sign_in_page(request: Request) -> Response:
    """Where a key is given."""
    return _sign_in_form(request)


def _sign_in_form(request: Request, status: int = 200, message: str = "") -> Response:
    token = request.cookies.get(_FORM_COOKIE, "") or new_secret("")
    reply = page(request, "signin.html", None, status, problem=message, csrf=token)
    secure = request.app.state.desk.settings.secure_cookie
    reply.set_cookie(_FORM_COOKIE, token, httponly=True, samesite="strict", secure=secure, path="/signin")
    return reply


@router.post("/signin")
def sign_in(
    request: Request,
    state: TheState,
    key: Annotated[str, Form(max_length=200)] = "",
    csrf: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """Begin a visit."""
    if not same(csrf, request.cookies.get(_FORM_COOKIE, "")):
        raise stale()
    failed = _failed_sign_ins(request)
    host = request.client.host if request.client else ""
    if pause := failed.full_s(host):
        return _sign_in_form(request, 429, f"Too many unknown keys from here: try again in {pause:.0f} s.")
    is_known = state.person(key.strip()) is not None  # nothing is written for a stranger
    entered = state.enter(key.strip()) if is_known else None
    if entered is None:
        failed.wait_s(host)
        return _sign_in_form(request, 401, "This key is not known, or was taken back.")
    secret, visit = entered
    reply = RedirectResponse("/ledger" if visit.person.role is Role.BUYER else "/", 303)
    secure = request.app.state.desk.settings.secure_cookie
    reply.set_cookie(COOKIE, secret, httponly=True, samesite="strict", secure=secure, path="/")
    reply.delete_cookie(_FORM_COOKIE, path="/signin")
    return reply


def _failed_sign_ins(request: Request) -> Rate:
    """The limit on unknown keys, of this process."""
    kept = request.app.state
    if not hasattr(kept, "failed_sign_ins"):
        kept.failed_sign_ins = Rate(*_FAILED_SIGN_INS)
    held: Rate = kept.failed_sign_ins
    return held


@router.post("/signout")
def sign_out(request: Request, state: TheState, visit: Sent) -> Response:
    """End the visit."""
    state.leave(request.cookies.get(COOKIE, ""))
    reply = RedirectResponse("/signin", 303)
    reply.delete_cookie(COOKIE, path="/")
    return reply
