"""The callers of the API: known by the key in the header, within the rate, in a role that a call allows.

Visitors of the pages are in `visits`.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request
from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase
from starlette.concurrency import run_in_threadpool

from reticent.service.keys import Person, Role
from reticent.service.refusals import not_allowed, not_signed_in, too_many
from reticent.service.state import State

_CALLER = "reticent.caller"


def state_of(request: Request) -> State:
    """Return the state of this service."""
    state: State = request.app.state.desk.state
    return state


async def _the_state(request: Request) -> State:  # awaited, since a plain function would be given a thread
    return state_of(request)


async def stranger(request: Request) -> None:
    """Somebody without a valid key, within the rate of their host."""
    host = request.client.host if request.client else ""
    pause = request.app.state.rate.wait_s(f"host {host}")
    if pause:
        raise too_many(pause)


def known_caller(request: Request) -> Person | None:
    """Whose key is in the header, if anybody's. It is looked for once in each request."""
    if _CALLER not in request.scope:
        secret = bearer_key(request)
        request.scope[_CALLER] = state_of(request).person(secret) if secret else None
    person: Person | None = request.scope[_CALLER]
    return person


async def caller_of(request: Request) -> Person | None:
    """Return the caller of a request without making the event loop wait for another machine."""
    if _CALLER not in request.scope and state_of(request).database is not None:
        return await run_in_threadpool(known_caller, request)
    return known_caller(request)


def bearer_key(request: Request) -> str:
    """Return the key in the header, if there is one."""
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    return secret if scheme.lower() == "bearer" else ""


class Caller(SecurityBase):
    """A caller known by the key in the header: within the rate, and in one of the given roles, if any."""

    model = HTTPBearer(description="An API key: rk_...")
    scheme_name = "HTTPBearer"

    def __init__(self, *roles: Role) -> None:
        self._roles = roles or tuple(Role)

    async def __call__(self, request: Request) -> Person:
        """The person, or a refusal."""
        person = await caller_of(request)
        if person is None:
            await stranger(request)
            raise not_signed_in()
        pause = request.app.state.rate.wait_s(str(person.number))
        if pause:
            raise too_many(pause)
        if person.role not in self._roles:
            raise not_allowed(person.role)
        return person


ASKERS = (Role.ANALYST, Role.OWNER)
asker = Caller(*ASKERS)
HOUSE = (Role.OWNER, Role.ANALYST, Role.AUDITOR)  # who sees what there is: buyers come from outside
Anyone = Annotated[Person, Depends(Caller(*HOUSE))]
AnyKey = Annotated[Person, Depends(Caller())]
Trader = Annotated[Person, Depends(Caller(Role.OWNER, Role.BUYER))]
TraderOrWatcher = Annotated[Person, Depends(Caller(Role.OWNER, Role.BUYER, Role.AUDITOR))]
Asker = Annotated[Person, Depends(asker)]
Owner = Annotated[Person, Depends(Caller(Role.OWNER))]
Watcher = Annotated[Person, Depends(Caller(Role.OWNER, Role.AUDITOR))]
TheState = Annotated[State, Depends(_the_state)]
