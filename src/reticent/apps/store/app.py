"""Registration of the commands of the content-addressed store."""

from __future__ import annotations

from reticent.apps.base import App
from reticent.cli.commands import Commands, Panel


def _commands() -> Commands:
    from reticent.apps.store.commands import group

    return Commands(panel=Panel.SERVE, groups=(group,), commands=(), demos={})


APP = App(name="store", commands=_commands, served=None)
