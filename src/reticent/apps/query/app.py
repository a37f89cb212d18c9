"""Registration of the commands, API and pages for questions to data sets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from reticent.apps.base import App
from reticent.cli.commands import ALONE, Commands, Panel

if TYPE_CHECKING:
    from reticent.service.served import Served


def _commands() -> Commands:
    from reticent.apps.query.commands import answers, ask, demo, plan, price
    from reticent.apps.query.dataset_commands import group

    return Commands(
        panel=Panel.ASK, groups=(group,), commands=(answers, ask, plan, price), demos={ALONE: demo}
    )


def _served() -> Served:
    from reticent.apps.query import api, ask_route, jobs, pages
    from reticent.service.served import Served, Tab

    return Served(
        folder=Path(__file__).parent,
        routers=(api.questions, api.router, pages.router),
        tabs=(
            Tab(1, "overview", "/", "Overview"),
            Tab(5, "register", "/owner/register", "Register", is_owners=True),
        ),
        prepare=ask_route.prepare,
        running=jobs.running,
    )


APP = App(name="query", commands=_commands, served=_served)
