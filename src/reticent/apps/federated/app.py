"""Models that clients train, as the shells are given it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from reticent.apps.base import App
from reticent.cli.commands import Commands, Panel

if TYPE_CHECKING:
    from reticent.service.served import Served


def _commands() -> Commands:
    from reticent.apps.federated.commands import demo, group

    return Commands(panel=Panel.TOGETHER, groups=(group,), commands=(), demos={"federated": demo})


def _served() -> Served:
    from reticent.apps.federated import pages
    from reticent.service.served import Served

    return Served(folder=Path(__file__).parent, routers=(pages.router,), tabs=(), prepare=None, running=None)


APP = App(name="federated", commands=_commands, served=_served)
