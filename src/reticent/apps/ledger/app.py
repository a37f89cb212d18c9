"""Registration of the ledger commands, API and pages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from reticent.apps.base import App
from reticent.cli.commands import Commands, Panel

if TYPE_CHECKING:
    from reticent.service.served import Served


def _commands() -> Commands:
    from reticent.apps.ledger.commands import group

    return Commands(panel=Panel.LEDGERS, groups=(group,), commands=(), demos={})


def _served() -> Served:
    from reticent.apps.ledger import api, pages
    from reticent.service.served import Served, Tab

    return Served(
        folder=Path(__file__).parent,
        routers=(api.router, pages.router),
        tabs=(Tab(4, "ledger", "/ledger", "Ledger", is_buyers=True),),
        prepare=None,
        running=None,
    )


APP = App(name="ledger", commands=_commands, served=_served)
