"""Bodies of requests about data sets and questions."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import Field

from reticent.query.accuracy import CONFIDENCE, Accuracy
from reticent.query.proposals import MOST_WISHES
from reticent.service.schemas import Body, Finite


class Priced(Body):
    """A question and how exact the answer must be; see docs/how-to/queries.md."""

    query: Annotated[str, Field(max_length=20_000)] | dict[str, Any] = Field(
        description="SQL, or the JSON tree of a question."
    )
    error: Finite | None = Field(None, description="Half the width of the interval that is wanted.")
    epsilon: Finite | None = Field(None, description="Instead: epsilon of this answer alone.")
    delta: Finite | None = Field(None, description="Beside epsilon; that of the budget by default.")
    information: Finite | None = Field(None, description="Instead: mu^2 of this answer.")
    confidence: Finite = Field(CONFIDENCE, description="Of the interval.")
    rows: Annotated[int, Field(strict=True, ge=1, le=1 << 36)] | None = Field(
        None, description="A guess of the rows in a group, for the price only."
    )

    reuse: Literal["span", "key", "none"] = Field(
        "span",
        description="What was bought before and may be part of the answer: all, the question's own, or none.",
    )

    def accuracy(self) -> Accuracy:
        """Return the accuracy that is asked for. Raises ParameterError if the fields do not go together."""
        return Accuracy(**{one.name: getattr(self, one.name) for one in fields(Accuracy)})


class Known(Body):
    """A question whose best free answer is wanted."""

    query: Annotated[str, Field(max_length=20_000)] | dict[str, Any] = Field(
        description="SQL, or the JSON tree of a question."
    )
    confidence: Finite = Field(CONFIDENCE, description="Of the interval.")
    reuse: Literal["span", "key"] = Field("span", description="All purchases, or the question's own.")


class Rehearsed(Priced):
    """A question to made-up rows."""

    seed: Annotated[int, Field(strict=True, ge=0, le=1 << 32)] = 0


class Planned(Body):
    """Questions that will be asked, each with how exact its answer must be."""

    questions: Annotated[list[Priced], Field(min_length=1, max_length=MOST_WISHES)]


class Declaration(Body):
    """A data set as its owner declares it."""

    declaration: Annotated[str, Field(min_length=1, max_length=1 << 15)] = Field(
        description="The YAML of docs/how-to/datasets.md."
    )


class Quota(Body):
    """What an analyst may be charged of a data set; null lifts the limit."""

    share: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, strict=True)] | None = Field(
        description="Of the data set's cap."
    )
