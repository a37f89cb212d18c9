"""Crowdsourced training, as the shells are given it."""

from __future__ import annotations

from reticent.apps.base import App
from reticent.cli.commands import Commands, Panel


def _commands() -> Commands:
    from reticent.apps.crowd.commands import group
    from reticent.apps.crowd.demo_commands import demo

    return Commands(panel=Panel.TOGETHER, groups=(group,), commands=(), demos={"crowd": demo})


APP = App(name="crowd", commands=_commands, served=None)
