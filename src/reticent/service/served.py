"""What a capability adds to the service."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter, FastAPI

from reticent.service.settings import Settings


@dataclass(frozen=True, order=True)
class Tab:
    """A way to a page, in the head of every page.

    Attributes:
        place: where it stands; the smallest is on the left.
        here: the name that the page gives itself.
        address: of the page.
        words: that are shown.
        is_owners: whether only owners see it.
        is_buyers: whether buyers see it, who see no others.
    """

    place: int
    here: str
    address: str
    words: str
    is_owners: bool = False
    is_buyers: bool = False


@dataclass(frozen=True, kw_only=True)
class Served:
    """Its routes and pages. Whoever has none of a kind says so: nothing has a default.

    Attributes:
        folder: where its `templates` and `static` lie, if it has any.
        routers: its routes, of the API and of pages.
        tabs: ways to its pages.
        prepare: is given the application before it runs, and puts there what its routes need; or None.
        running: what is held open while the application runs; or None.
    """

    folder: Path
    routers: Sequence[APIRouter]
    tabs: Sequence[Tab]
    prepare: Callable[[FastAPI, Settings], None] | None
    running: Callable[[FastAPI], AbstractContextManager[None]] | None
