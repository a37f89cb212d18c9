"""Registration of the service commands with the command line."""

from __future__ import annotations

from reticent.apps.base import App
from reticent.cli.commands import Commands, Panel


def _commands() -> Commands:
    from reticent.apps.service.commands import key, publish, serve, source

    return Commands(panel=Panel.SERVE, groups=(key, source), commands=(serve, publish), demos={})


APP = App(name="service", commands=_commands, served=None)
