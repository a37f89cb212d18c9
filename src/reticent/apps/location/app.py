"""Where people are, as the shells are given it."""

from __future__ import annotations

from reticent.apps.base import App
from reticent.cli.commands import Commands


def _commands() -> Commands:
    from reticent.apps.location.commands import demo, group

    return Commands(groups=(group,), commands=(), demos={"location": demo})


APP = App(name="location", commands=_commands)
