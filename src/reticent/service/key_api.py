"""Keys over HTTP: whose a key is; owners list, make, replace and take back."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from pydantic import Field

from reticent.service.callers import AnyKey, Owner, TheState, bearer_key
from reticent.service.keys import Role
from reticent.service.refusals import not_found
from reticent.service.schemas import PROBLEMS, Body, Json

router = APIRouter(prefix="/api/v1", responses=PROBLEMS)


class NewKey(Body):
    """Whom a key is for."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    role: Role


@router.get("/me")
def me(person: AnyKey) -> Json:
    """Whose key this is."""
    return {"name": person.name, "role": person.role.value}


@router.get("/keys")
def keys(person: Owner, state: TheState) -> Json:
    """Every key that was ever made, without its secret."""
    return {
        "keys": [
            {"name": one.person.name, "role": one.person.role.value, "revoked": one.revoked is not None}
            for one in state.all_keys()
        ]
    }


@router.post("/keys", status_code=201)
def make_key(person: Owner, state: TheState, body: NewKey) -> Json:
    """Make a key. Its secret is in this reply and nowhere else."""
    made, secret = state.make_key(body.name, body.role)
    return {"name": made.name, "role": made.role.value, "key": secret}


@router.delete("/keys/{name}", status_code=204)
def revoke_key(person: Owner, state: TheState, name: Annotated[str, Path(max_length=64)]) -> Response:
    """Take a key back: one's own, an analyst's or an auditor's; those of other owners are the operator's."""
    if not state.revoke_by(person, name):
        raise not_found("key")
    return Response(status_code=204)


@router.post("/keys/{name}/replace")
def replace_key(
    request: Request, person: Owner, state: TheState, name: Annotated[str, Path(max_length=64)]
) -> Json:
    """Replace a lost key: its quotas, and what was used of them, stay. The old one stops at once."""
    secret = state.replace_by(person, name, key=bearer_key(request))
    if secret is None:
        raise not_found("key")
    return {"name": name, "key": secret}
