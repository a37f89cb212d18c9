"""The auditor, as the shells are given it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from reticent.apps.base import App
from reticent.cli.commands import Commands, Panel

if TYPE_CHECKING:
    from reticent.service.served import Served


def _commands() -> Commands:
    from reticent.apps.audit.commands import demo, group

    return Commands(panel=Panel.CHECK, groups=(group,), commands=(), demos={"audit": demo})


def _served() -> Served:
    from reticent.apps.audit import pages
    from reticent.service.served import Served, Tab

    return Served(
        folder=Path(__file__).parent,
        routers=(pages.router,),
        tabs=(Tab(5, "audits", "/audits", "Audits", is_owners=True),),
        prepare=pages.prepare,
        running=None,
    )


APP = App(name="audit", commands=_commands, served=_served)
