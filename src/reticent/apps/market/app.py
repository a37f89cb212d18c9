"""The market, as the shells are given it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from reticent.apps.base import App
from reticent.cli.commands import Commands, Panel

if TYPE_CHECKING:
    from reticent.service.served import Served


def _commands() -> Commands:
    from reticent.apps.market.commands import group
    from reticent.apps.market.demo_commands import demo

    return Commands(panel=Panel.TOGETHER, groups=(group,), commands=(), demos={"market": demo})


def _served() -> Served:
    from reticent.apps.market import api, federation_pages, pages, trading
    from reticent.service.served import Served, Tab

    return Served(
        folder=Path(__file__).parent,
        routers=(api.router, federation_pages.router, pages.router),
        tabs=(Tab(4, "market", "/market", "Market", is_buyers=True),),
        prepare=trading.prepare,
        running=trading.running,
    )


APP = App(name="market", commands=_commands, served=_served)
