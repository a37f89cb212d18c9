"""The additions of a capability to the service."""

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
        place: Position of the tab; the smallest is on the left.
        here: Name that the page gives itself.
        address: Address of the page.
        words: Words that are shown.
        is_owners: True if only owners see the tab.
        is_buyers: True if buyers see the tab, who see no others.
    """

    place: int
    here: str
    address: str
    words: str
    is_owners: bool = False
    is_buyers: bool = False


@dataclass(frozen=True, kw_only=True)
class Served:
    """The routes and pages of a capability.

    Every field must be given, also if the capability has none of a kind: nothing has a default.

    Attributes:
        folder: Folder of its `templates` and `static`, if it has any.
        routers: Routes of the API and of pages.
        tabs: Tabs that lead to its pages.
        prepare: Function that gets the application before it runs, and puts there what its routes need; or
            None.
        running: Context that is held open while the application runs; or None.
    """

    folder: Path
    routers: Sequence[APIRouter]
    tabs: Sequence[Tab]
    prepare: Callable[[FastAPI, Settings], None] | None
    running: Callable[[FastAPI], AbstractContextManager[None]] | None
