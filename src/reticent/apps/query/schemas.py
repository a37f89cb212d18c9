"""Bodies of requests, checked before anything is done. Unknown fields are refused, numbers are finite."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from reticent.service.keys import Role

Finite = Annotated[float, Field(allow_inf_nan=False, strict=True)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Priced(_Body):
    """A question and how exact the answer must be; see docs/how-to/queries.md."""

    query: Annotated[str, Field(max_length=20_000)] | dict[str, Any] = Field(
        description="SQL, or the JSON tree of a question."
    )
    error: Finite | None = Field(None, description="Half the width of the interval that is wanted.")
    epsilon: Finite | None = Field(None, description="Instead: epsilon of this answer alone.")
    delta: Finite | None = Field(None, description="Beside epsilon; that of the budget by default.")
    information: Finite | None = Field(None, description="Instead: mu^2 of this answer.")
    confidence: Finite = Field(0.95, description="Of the interval.")
    rows: Annotated[int, Field(strict=True, ge=1, le=1 << 36)] | None = Field(
        None, description="A guess of the rows in a group, for the price only."
    )

    def accuracy(self) -> dict[str, Any]:
        """The arguments of `Session.ask` besides the query."""
        return self.model_dump(exclude={"query", "seed"})


class Known(_Body):
    """A question whose best free answer is wanted."""

    query: Annotated[str, Field(max_length=20_000)] | dict[str, Any] = Field(
        description="SQL, or the JSON tree of a question."
    )
    confidence: Finite = Field(0.95, description="Of the interval.")


class Rehearsed(Priced):
    """A question to made-up rows."""

    seed: Annotated[int, Field(strict=True, ge=0, le=1 << 32)] = 0


class Declaration(_Body):
    """A data set as its owner declares it."""

    declaration: Annotated[str, Field(min_length=1, max_length=1 << 15)] = Field(
        description="The YAML of docs/how-to/datasets.md."
    )


class SignedSurvey(_Body):
    """A survey with the operator's signature, as `reticent survey` writes it."""

    survey: Annotated[str, Field(min_length=1, max_length=1 << 20)] = Field(description="Its text.")
    signer: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    signature: Annotated[str, Field(pattern="^[0-9a-f]{128}$")]


class EndedRound(_Body):
    """Which round of a campaign ends."""

    number: Annotated[int, Field(strict=True, ge=0, le=1 << 16)] = Field(description="From 0.")


class NewKey(_Body):
    """Whom a key is for."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    role: Role


class Quota(_Body):
    """What an analyst may be charged of a data set; null lifts the limit."""

    share: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, strict=True)] | None = Field(
        description="Of the data set's cap."
    )


class ProblemDetail(BaseModel):
    """What was refused; further public fields may follow."""

    model_config = ConfigDict(extra="allow")

    type: str
    message: str


class Problem(BaseModel):
    """The one shape of errors."""

    error: ProblemDetail
