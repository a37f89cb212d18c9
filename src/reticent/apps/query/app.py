"""Questions to data sets, as the shells are given it."""

from __future__ import annotations

from reticent.apps.base import App
from reticent.cli.commands import ALONE, Commands


def _commands() -> Commands:
    from reticent.apps.query.commands import ask, demo, price
    from reticent.apps.query.dataset_commands import group

    return Commands(groups=(group,), commands=(ask, price), demos={ALONE: demo})


APP = App(name="query", commands=_commands)
