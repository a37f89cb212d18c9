"""Registration of the stations app: its commands, routes and pages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from reticent.apps.base import App
from reticent.cli.commands import Commands, Panel

if TYPE_CHECKING:
    from reticent.service.served import Served


def _commands() -> Commands:
    from reticent.apps.stations.demo_commands import demo

    # `reticent location stations`: apps.location has the group
    return Commands(panel=Panel.TOGETHER, groups=(), commands=(), demos={"stations": demo})


def _served() -> Served:
    from reticent.apps.stations import api, pages, providers
    from reticent.service.served import Served, Tab

    return Served(
        folder=Path(__file__).parent,
        routers=(api.router, pages.router),
        tabs=(Tab(3, "stations", "/stations", "Stations", is_owners=True),),
        prepare=providers.prepare,
        running=providers.running,
    )


APP = App(name="stations", commands=_commands, served=_served)
