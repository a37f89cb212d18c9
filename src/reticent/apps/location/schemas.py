"""Bodies of requests about campaigns."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from reticent.service.schemas import Body


class EndedRound(Body):
    """Which round of a campaign ends."""

    number: Annotated[int, Field(strict=True, ge=0, le=1 << 16)] = Field(description="From 0.")
