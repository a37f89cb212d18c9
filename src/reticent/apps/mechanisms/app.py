"""Registration of the commands for mechanisms and privacy guarantees."""

from __future__ import annotations

from reticent.apps.base import App
from reticent.cli.commands import Commands, Panel


def _commands() -> Commands:
    from reticent.apps.mechanisms.commands import convert, mechanisms

    return Commands(panel=Panel.CHECK, groups=(), commands=(convert, mechanisms), demos={})


APP = App(name="mechanisms", commands=_commands, served=None)
