"""Registration of the commands for the ledger of a device."""

from __future__ import annotations

from reticent.apps.base import App
from reticent.cli.commands import Commands, Panel


def _commands() -> Commands:
    from reticent.apps.device.commands import group

    return Commands(panel=Panel.DEVICES, groups=(group,), commands=(), demos={})


APP = App(name="device", commands=_commands, served=None)
