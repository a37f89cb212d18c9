"""Where people are, as the shells are given it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from reticent.apps.base import App
from reticent.cli.commands import Commands, Panel

if TYPE_CHECKING:
    from reticent.service.served import Served


def _commands() -> Commands:
    from reticent.apps.location.commands import demo, group

    return Commands(panel=Panel.TOGETHER, groups=(group,), commands=(), demos={"location": demo})


def _served() -> Served:
    from reticent.apps.location import api, pages, places
    from reticent.service.served import Served, Tab

    return Served(
        folder=Path(__file__).parent,
        routers=(api.router, pages.router),
        tabs=(Tab(3, "places", "/places", "Places"),),
        prepare=places.prepare,
        running=places.running,
    )


APP = App(name="location", commands=_commands, served=_served)
