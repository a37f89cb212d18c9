"""Bodies of requests about surveys."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from reticent.service.schemas import Body


class SignedSurvey(Body):
    """A survey with the operator's signature, as `reticent survey` writes it."""

    survey: Annotated[str, Field(min_length=1, max_length=1 << 20)] = Field(description="Its text.")
    signer: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    signature: Annotated[str, Field(pattern="^[0-9a-f]{128}$")]
