"""Bodies of requests about stations."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from reticent.location.stations.sites import MOST_CONNECTORS, MOST_STATIONS
from reticent.service.schemas import Body

_Count = Annotated[int, Field(strict=True, ge=0, le=MOST_CONNECTORS)]
_Id = Annotated[str, Field(max_length=80)]


class FreeConnectors(Body):
    """Numbers of free connectors by station id."""

    free: Annotated[dict[_Id, _Count], Field(min_length=1, max_length=MOST_STATIONS)] = Field(
        description="By the station's id; stations that are not named stay as they are."
    )
