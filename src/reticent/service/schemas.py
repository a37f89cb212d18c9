"""The schemas that every call shares: strict bodies, finite numbers, and the one shape of refusals.

Bodies refuse unknown fields. The bodies of a capability are in its own `schemas`.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Finite = Annotated[float, Field(allow_inf_nan=False, strict=True)]
Json = dict[str, Any]


class Body(BaseModel):
    """A body of a request, checked before anything is done."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ProblemDetail(BaseModel):
    """What was refused; further public fields may follow."""

    model_config = ConfigDict(extra="allow")

    type: str
    message: str


class Problem(BaseModel):
    """The one shape of errors."""

    error: ProblemDetail


PROBLEMS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": Problem, "description": "Refused; nothing was done."},
    "5XX": {"model": Problem, "description": "Not possible now."},
}
_PROBLEM = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
PROBLEMS_IN_JSON: dict[int | str, dict[str, Any]] = {  # where a reply is something else
    status: {"description": told["description"], "content": _PROBLEM} for status, told in PROBLEMS.items()
}
