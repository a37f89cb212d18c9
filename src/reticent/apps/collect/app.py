"""Surveys of devices, as the shells are given it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from reticent.apps.base import App
from reticent.cli.commands import Commands, Panel

if TYPE_CHECKING:
    from reticent.service.served import Served


def _commands() -> Commands:
    from reticent.apps.collect.commands import aggregate, bridge, demo, enrolment_group, fleet, group, perturb

    return Commands(
        panel=Panel.DEVICES,
        groups=(group, enrolment_group),
        commands=(aggregate, bridge, perturb),
        demos={"collect": demo, "fleet": fleet},
    )


def _served() -> Served:
    from reticent.apps.collect import api, collecting, pages
    from reticent.service.served import Served, Tab

    return Served(
        folder=Path(__file__).parent,
        routers=(api.router, pages.router),
        tabs=(Tab(2, "surveys", "/surveys", "Surveys"),),
        prepare=collecting.prepare,
        running=collecting.running,
    )


APP = App(name="collect", commands=_commands, served=_served)
